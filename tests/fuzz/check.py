"""Run a case in every way, compare it with the oracle, and shrink failures."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tests.fuzz import layers
from tests.fuzz.bounded import Array
from tests.fuzz.cases import Case, Run
from tests.fuzz.expected import FINITE, INFINITE, NAN, Truth
from tests.fuzz.expression import Node, names, parts
from tests.fuzz.formulas import P, X

Results = Callable[[Case, Run], dict[str, Array]]
"""The code under test: ftnn's layers, or a broken one that must be caught."""


@dataclass(frozen=True)
class Failure:
    """A wrong result of one run, which is the only run of `case`."""

    case: Case
    name: str
    """"value", "gradient by p", …; or the exception."""
    must: str
    actual: float = np.nan
    truth: float = np.nan
    allowed: float = 0.0
    place: tuple[int, ...] = ()
    entries: str = ""
    """The number of wrong entries, of how many."""

    @property
    def run(self) -> Run:
        return self.case.runs[0]

    @property
    def group(self) -> tuple[str, ...]:
        """Failures of a group probably have the same cause."""
        what = self.name.partition(" ")[0]
        case = self.case
        return what, self.must, case.layer, self.run.backend, case.form.name, case.formula.family


@dataclass
class Outcome:
    """The result of a case."""

    seed: int
    compared: int = 0
    skipped: int = 0
    failures: list[Failure] = field(default_factory=list[Failure])


_MUST = {FINITE: "finite", NAN: "NaN", INFINITE: "infinite"}


def check(case: Case, results: Results = layers.results, *, first_only: bool = False) -> Outcome:
    """Run a case in every way, with at most one failure per run and kind of result."""
    outcome, truth = Outcome(case.seed), Truth(case)
    for run in case.runs:
        one = replace(case, runs=[run])
        try:
            outputs = results(case, run)
        except Exception as error:  # any exception is a failure
            outcome.failures.append(Failure(one, f"{type(error).__name__}: {error}", "no error"))
            outputs = None
        seen = set[str]()
        for expected in truth(run) if outputs is not None else ():
            assert outputs is not None
            output = outputs[expected.name]
            outcome.compared += output.size
            outcome.skipped += expected.skipped
            wrong = np.broadcast_to(expected.wrong(output), output.shape)
            kind = expected.name.partition(" ")[0]
            if kind in seen or not wrong.any():
                continue
            seen.add(kind)
            place = tuple(int(n) for n in np.argwhere(wrong)[0])
            outcome.failures.append(
                Failure(
                    one,
                    expected.name,
                    _MUST.get(int(expected.rule[place]), "not finite"),
                    float(output[place]),
                    float(expected.value[place]),
                    float(expected.allowed[place]),
                    place,
                    f"{int(wrong.sum())} of {wrong.size}",
                )
            )
        if first_only and outcome.failures:
            break
    return outcome


# --- shrinking ---


def shrunk(
    failure: Failure, results: Results = layers.results, seconds: float = 8.0, tries: int = 120
) -> Failure:
    """The same kind of failure in a smaller case: fewer samples, inputs and outputs, a shorter formula."""
    until = time.monotonic() + seconds
    best = failure
    again = True
    while again:
        again = False
        for smaller in _smaller(best.case):
            tries -= 1
            if tries < 0 or time.monotonic() > until:
                return best
            smaller_failure = next(
                (f for f in check(smaller, results).failures if _alike(f, failure)),
                None,
            )
            if smaller_failure is not None:
                best, again = smaller_failure, True
                break
    return best


def _alike(one: Failure, other: Failure) -> bool:
    return (one.must, one.name.partition(" ")[0]) == (other.must, other.name.partition(" ")[0])


def _smaller(case: Case) -> Iterator[Case]:
    """Simpler cases, the largest reductions first."""
    run = case.runs[0]
    batch = len(run.rows)
    for keep in _subsets(batch):
        yield _with_run(case, rows=run.rows[keep], errors=run.errors[..., keep, :])
    for keep in _subsets(case.outputs):
        fewer = _columns(case, lambda m, k=keep: m[..., k])
        yield _with_run(fewer, errors=run.errors[..., keep])
    for keep in _subsets(case.inputs):
        fewer = _columns(replace(case, x=case.x[..., keep]), lambda m, k=keep: m[..., k, :])
        yield fewer
    if run.layout != "plain" or run.errors_layout != "plain" or run.threads > 1 or run.frozen or not run.by_x:
        plain = _with_run(case, layout="plain", errors_layout="plain", threads=1, frozen=(), by_x=True)
        yield plain
    if len(case.formula.kinds) == 1:
        for tree in _simpler(case.formula.kinds[0], "C" if case.layer == "Memory" else ""):
            formula = replace(case.formula, kinds=(tree,))
            kept = (*formula.parameters, *formula.constants)
            if all(name in case.matrices for name in kept):
                yield replace(case, formula=formula, matrices={n: case.matrices[n] for n in kept})
    if np.unique(run.errors).size > 1:
        yield _with_run(case, errors=np.ones_like(run.errors))
    for name, matrix in case.matrices.items():
        if name in case.formula.constants or np.unique(matrix).size < 2:
            continue
        same = np.full_like(matrix, matrix.flat[0])
        yield replace(case, matrices={**case.matrices, name: same})


def _subsets(many: int) -> Iterator[Array]:
    whole = np.arange(many)
    if many > 1:
        half = many // 2
        yield whole[:half]
        yield whole[half:]
        if many <= 8:
            for n in range(many):
                yield np.delete(whole, n)


def _with_run(case: Case, **changes: Any) -> Case:
    return replace(case, runs=[replace(case.runs[0], **changes)])


def _columns(case: Case, cut: Callable[[Array], Array]) -> Case:
    """The case with fewer inputs or outputs: every array over connections is cut the same way."""
    return replace(
        case,
        matrices={name: cut(matrix) for name, matrix in case.matrices.items()},
        state=None if case.state is None else cut(case.state),
        present=None if case.present is None else cut(case.present),
    )


def _simpler(tree: Node, memory: str) -> Iterator[Node]:
    """Formulas with a part removed that still have an input and a parameter."""
    seen = {tree}
    for candidate in (*parts(tree), *_without(tree)):
        used = names(candidate)
        usable = "x" in used and {"p", "q", "r"} & {*used} and (not memory or memory in used)
        if usable and candidate not in seen:
            seen.add(candidate)
            yield candidate


def _without(tree: Node) -> Iterator[Node]:
    """The tree with one operation replaced by one of its arguments, by x or by p."""
    for n, arg in enumerate(tree.args):
        before, behind = tree.args[:n], tree.args[n + 1 :]
        for inner in (*(arg.args if arg.op != "where" else arg.args[1:]), X, P):
            comparison = tree.op == "where" and n == 0
            if arg.args and not comparison:
                yield replace(tree, args=(*before, inner, *behind))
        for other in _without(arg):
            yield replace(tree, args=(*before, other, *behind))
