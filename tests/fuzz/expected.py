"""The expected results of a run, summed from the oracle's value of every connection, and the comparison."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tests.fuzz.bounded import OVERFLOWED, Array, Bounded, Format, leaf
from tests.fuzz.cases import Case, Run
from tests.fuzz.oracle import Dual, chained, evaluate, evaluate_bounded

FINITE, NAN, INFINITE, NOT_FINITE, SKIPPED = range(5)
"""What an entry must be: near a number, NaN, a values infinity, not finite; or not known."""


@dataclass(frozen=True)
class Expected:
    """The expected entries of a result or gradient."""

    name: str
    value: Array
    allowed: Array
    """How far off a finite entry may be."""
    rule: Array

    @property
    def skipped(self) -> int:
        return int((self.rule == SKIPPED).sum())

    def wrong(self, result: Array) -> Array:
        """Where `result` violates the rule."""
        with np.errstate(all="ignore"):
            far = ~(abs(result.astype(self.value.dtype) - self.value) <= self.allowed)
        other = result.astype(self.value.dtype) != self.value
        return np.select(
            [self.rule == FINITE, self.rule == NAN, self.rule == INFINITE, self.rule == NOT_FINITE],
            [far, ~np.isnan(result), other, np.isfinite(result)],
            False,
        )


@dataclass(frozen=True)
class _Terms:
    """The terms of a sum: finite values (0 for others), their allowed errors, and masks of the others."""

    value: Array
    allowed: Array
    nan: Array
    plus: Array
    minus: Array
    over: Array
    unknown: Array

    @classmethod
    def of(cls, bounded: Bounded, shape: tuple[int, ...], present: Array, beyond: Array) -> _Terms:
        """The terms of existing connections; `beyond` says where overflow is inevitable."""
        value, flags = np.broadcast_to(bounded.value, shape), np.broadcast_to(bounded.flags, shape)
        finite, sure = np.isfinite(value), flags == 0
        over = ~finite & (flags == OVERFLOWED) & beyond & present
        return cls(
            np.where(finite & present, value, 0),
            np.where(finite & present, np.broadcast_to(bounded.allowed, shape), 0),
            np.isnan(value) & sure & present,
            (value == np.inf) & sure & present,
            (value == -np.inf) & sure & present,
            over,
            ~sure & ~over & present,
        )

    @property
    def odd(self) -> Array:
        """Certainly not finite."""
        return self.nan | self.plus | self.minus

    @property
    def vague(self) -> Array:
        """Slopes may be multiplied in any order: where one order overflows, another may not."""
        return self.unknown | self.over


def _expected(
    form: Format, name: str, total: Array, size: Array, allowed: Array, rule: Array, many: int
) -> Expected:
    """Add the rounding error of summing `many` terms whose absolute values add up to `size`."""
    rounding = 4 * np.sqrt(many) * form.unit * size
    floor = 4 * many * form.tiny  # denormals count as zero
    allowed = allowed + rounding + floor
    rule = np.where((rule == FINITE) & ~(size + allowed <= form.most / 16), SKIPPED, rule)
    return Expected(name, total, allowed, rule)


class Truth:
    """The oracle's results of a case: the terms of every distinct row, computed once for all runs."""

    def __init__(self, case: Case):
        sizes = [abs(run.errors[run.errors != 0]) for run in case.runs]
        largest = max((float(size.max()) for size in sizes if size.size), default=1.0)
        smallest = min((float(size.min()) for size in sizes if size.size), default=1.0)
        self.case = case
        self.form = replace(case.form, largest=max(1.0, largest), smallest=min(1.0, smallest))
        self.shape = (case.x.shape[-2], case.inputs, case.outputs)

    @cached_property
    def _matrices(self) -> dict[str, Array]:
        return {name: matrix[None] for name, matrix in self.case.matrices.items()}

    @cached_property
    def dual(self) -> Dual:
        return self._evaluated(self.form)

    def _evaluated(self, form: Format) -> Dual:
        values = {"x": self.case.x[:, :, None], **self._matrices}
        return evaluate(form, self.case.formula.tree, values, self.case.formula.constants)

    @cached_property
    def steps(self) -> list[dict[str, Bounded]]:
        """For Memory: the value at each time, and its slope by x at every time, parameters and the state."""
        case, form = self.case, self.form
        assert case.state is not None
        matrices = {name: leaf(form, matrix) for name, matrix in self._matrices.items()}
        cell, before = leaf(form, case.state), {"state": leaf(form, np.asarray(form.wide(1)))}
        results: list[dict[str, Bounded]] = []
        for time, x in enumerate(case.x):
            values = {"x": leaf(form, x[:, :, None]), "C": cell, **matrices}
            dual = evaluate_bounded(form, case.formula.tree, values, case.formula.constants)
            slopes = {f"x{time}" if n == "x" else n: s for n, s in dual.slopes.items() if n != "C"}
            if case.through_time and "C" in dual.slopes:
                with np.errstate(all="ignore"):
                    for name, inner in before.items():
                        term = chained(dual.slopes["C"], inner)
                        slopes[name] = slopes[name] + term if name in slopes else term
            results.append({"value": dual.value, **slopes})
            cell, before = dual.value, slopes
        return results

    def _terms(self, bounded: Bounded) -> _Terms:
        return _Terms.of(bounded, self.shape, self._present, self._beyond)

    @cached_property
    def _present(self) -> Array:
        present = np.asarray(True) if self.case.present is None else self.case.present
        return np.broadcast_to(present, self.shape)

    @cached_property
    def _beyond(self) -> Array:
        """Where the formula's value is too large in any order of evaluation."""
        if self.case.layer == "Memory" or not (self.dual.value.flags & OVERFLOWED).any():
            return np.zeros(self.shape, np.bool_)
        worth = self._evaluated(replace(self.form, endless=True)).value
        beyond = (abs(worth.value) > 16 * self.form.most) & (worth.flags == 0)
        return np.broadcast_to(beyond, self.shape)

    def _slope_terms(self, slope: Bounded, value: Bounded) -> _Terms:
        """Slopes must be finite, or not, where the value itself is.

        Another order of the chain rule may avoid 0·∞; and where the value is not finite anyway, a slope that
        the rules make 0 may be 0.
        """
        lost = ~np.isfinite(value.value)
        return self._terms(
            slope.unknown_where(np.where(lost, np.isfinite(slope.value), np.isnan(slope.value)))
        )

    @cached_property
    def _slopes(self) -> dict[str, _Terms]:
        return {n: self._slope_terms(slope, self.dual.value) for n, slope in self.dual.slopes.items()}

    def __call__(self, run: Run) -> list[Expected]:
        with np.errstate(all="ignore"):
            return self._memory(run) if self.case.layer == "Memory" else self._transfer(run)

    def _transfer(self, run: Run) -> list[Expected]:
        results = [self._value("value", self.dual.value, run)]
        if run.by_x:
            results.append(self._by_x(self._slopes.get("x"), run.errors, run.rows))
        for name in self.case.formula.parameters:
            if name not in run.frozen:
                results.append(self._by_parameter(name, [(self._slopes.get(name), run.errors)], run.rows))
        return results

    def _memory(self, run: Run) -> list[Expected]:
        steps, results = self.steps, list[Expected]()
        terms = [
            {
                n: self._terms(b) if n == "value" else self._slope_terms(b, step["value"])
                for n, b in step.items()
            }
            for step in steps
        ]
        for time, step in enumerate(steps):
            results.append(self._value(f"value at {time}", step["value"], run))
        results.append(self._state(terms[-1]["value"], run))
        pairs = list(zip(terms, run.errors, strict=True))
        if run.by_x:
            for time in range(len(steps)):
                pairs_at = [(step.get(f"x{time}"), errors) for step, errors in pairs]
                results.append(self._summed(f"gradient by x at {time}", pairs_at, run.rows, 2))
        for name in self.case.formula.parameters:
            if name not in run.frozen:
                results.append(self._by_parameter(name, [(s.get(name), e) for s, e in pairs], run.rows))
        return results

    def _value(self, name: str, bounded: Bounded, run: Run) -> Expected:
        t = self._terms(bounded)
        rule = np.full(self.shape[::2], FINITE)
        plus, minus = t.plus.any(1), t.minus.any(1)
        total = np.where(plus, np.inf, np.where(minus, -np.inf, t.value.sum(1)))
        rule = np.where(plus | minus, INFINITE, rule)
        rule = np.where(t.over.any(1), NOT_FINITE, rule)
        rule = np.where(plus & minus, NAN, rule)
        rule = np.where(t.unknown.any(1), SKIPPED, rule)
        rule = np.where(t.nan.any(1), NAN, rule)
        size, allowed = abs(t.value).sum(1), t.allowed.sum(1)
        r = run.rows
        many = self.shape[1]
        return _expected(self.form, name, total[r], size[r], allowed[r], rule[r], many)

    def _state(self, t: _Terms, run: Run) -> Expected:
        """Each connection's own value, (batch, in, out)."""
        value = np.where(t.plus, np.inf, np.where(t.minus, -np.inf, t.value))
        rule = np.where(t.plus | t.minus, INFINITE, np.where(t.over, NOT_FINITE, FINITE))
        rule = np.where(t.unknown, SKIPPED, np.where(t.nan, NAN, rule))
        r = run.rows
        return _expected(self.form, "state", value[r], abs(t.value)[r], t.allowed[r], rule[r], 1)

    def _by_x(self, terms: _Terms | None, errors: Array, rows: Array) -> Expected:
        return self._summed("gradient by x", [(terms, errors)], rows, 2)

    def _by_parameter(self, name: str, pairs: list[tuple[_Terms | None, Array]], rows: Array) -> Expected:
        return self._summed(f"gradient by {name}", pairs, rows, 0)

    def _summed(
        self, name: str, pairs: list[tuple[_Terms | None, Array]], rows: Array, axis: int
    ) -> Expected:
        """Σ error·slope over the outputs (axis 2) or the samples (axis 0), and over all `pairs`."""
        shape = (len(rows), self.shape[1]) if axis == 2 else self.shape[1:]
        total, size, allowed = (np.zeros(shape, self.form.wide) for _ in range(3))
        rule = np.full(shape, FINITE)
        for t, errors in pairs:
            if t is None:
                continue
            g = errors.astype(self.form.wide)
            if axis == 2:
                total += _down(g, t.value, rows)
                size += _down(abs(g), abs(t.value), rows)
                allowed += _down(abs(g), t.allowed, rows)
                odd, unknown = t.odd[rows].any(2), t.vague[rows].any(2)
            else:
                by_row, by_size = np.zeros((2, self.shape[0], self.shape[2]), self.form.wide)
                np.add.at(by_row, rows, g)
                np.add.at(by_size, rows, abs(g))
                total += (by_row[:, None] * t.value).sum(0)
                size += (by_size[:, None] * abs(t.value)).sum(0)
                allowed += (by_size[:, None] * t.allowed).sum(0)
                used = np.unique(rows)
                odd, unknown = t.odd[used].any(0), t.vague[used].any(0)
            rule = np.where(odd & (rule == FINITE), NOT_FINITE, rule)
            rule = np.where(unknown, SKIPPED, rule)
        many = self.shape[2] if axis == 2 else len(rows)
        return _expected(self.form, name, total, size, allowed, rule, many * len(pairs))


def _down(errors: Array, slopes: Array, rows: Array) -> Array:
    """Σ_o errors[s, o]·slopes[row of s, i, o], (batch, in)."""
    down = np.zeros((len(rows), slopes.shape[1]), slopes.dtype)
    for row in np.unique(rows):
        down[rows == row] = errors[rows == row] @ slopes[row].T
    return down
