"""The table of workloads, and running some of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ftnn.bench import _peak
from ftnn.bench._growth import growth_rows
from ftnn.bench._layer import layer_rows
from ftnn.bench._loop import loop_rows
from ftnn.bench._measure import FULL, QUICK, Effort
from ftnn.bench._memory import memory_rows
from ftnn.bench._peak import peak_rows
from ftnn.bench._rows import Row
from ftnn.bench._step import step_rows
from ftnn.bench._systems import ALL, LINEAR, MLP, Systems, present
from ftnn.bench._torch import FUNCTIONS
from ftnn.errors import FtnnError


@dataclass(frozen=True, slots=True)
class Workload:
    """Something to measure."""

    name: str
    title: str
    unit: str
    """What the numbers are: "ms a step", say."""
    yardstick: str | None
    """The system whose cost is 1."""
    functions: tuple[str, ...]
    """What is measured unless the user chooses."""
    allowed: tuple[str, ...]
    """What a user may choose from."""
    rows: Callable[[str, Effort, Systems], Iterator[Row]]
    """Of one function."""


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(
            "A",
            "a training step of 784-128-10 on MNIST, batch 16, SGD, one thread",
            "ms a step",
            MLP,
            FUNCTIONS,
            FUNCTIONS,
            step_rows,
        ),
        Workload(
            "B",
            "a dense 784→128 layer, batch 256, forward and backward, all threads",
            "ms",
            LINEAR,
            FUNCTIONS,
            FUNCTIONS,
            layer_rows,
        ),
        Workload(
            "C",
            "the memory function, 256 units, 400 pairs of digits of π, one thread",
            "ms an epoch",
            None,
            ("memory",),
            ("memory",),
            memory_rows,
        ),
        Workload(
            "D",
            "extra peak memory of a 1024→1024 layer, batch 1024, forward and backward",
            "MiB",
            None,
            ("F12", "F16"),
            FUNCTIONS,
            peak_rows,
        ),
        Workload(
            "E",
            "nn.Transfer in a PyTorch loop with Adam, 784-128-10 on MNIST, all threads",
            "ms a step",
            LINEAR,
            ("F03", "F07", "F12", "F16"),
            FUNCTIONS,
            loop_rows,
        ),
        Workload(
            "growth",
            "workload A's step over other batches, widths and densities",
            "ms a step",
            MLP,
            ("F03", "F12"),
            FUNCTIONS,
            growth_rows,
        ),
    )
}
QUICK_WORKLOADS = ("A",)
QUICK_FUNCTIONS = ("F03", "F07", "F09", "F12", "F16")


@dataclass(frozen=True, slots=True)
class Choice:
    """What to run."""

    workloads: tuple[str, ...] = tuple(WORKLOADS)
    functions: tuple[str, ...] = ()
    """Empty: each workload's own."""
    effort: Effort = FULL
    systems: Systems = ALL

    def functions_of(self, workload: Workload) -> tuple[str, ...]:
        """A workload's own, unless the user named some that it can measure."""
        return tuple(name for name in self.functions if name in workload.allowed) or workload.functions


def choose(
    workloads: Sequence[str] = (), functions: Sequence[str] = (), *, quick: bool = False, compile: bool = True
) -> tuple[Choice, list[str]]:
    """What a user asked for, checked, with sentences about what is left out."""
    _check("workload", workloads, tuple(WORKLOADS))
    _check("function", functions, FUNCTIONS)
    chosen = tuple(workloads) or (QUICK_WORKLOADS if quick else tuple(WORKLOADS))
    systems, notes = present(Systems(compile=compile and not quick, pykan="A" in chosen and not quick))
    if quick:
        notes.append("torch.compile and pykan are left out: they do not fit into a quick run.")
    if "D" in chosen and not _peak.is_available():
        notes.append("Workload D is left out: only Linux says how much memory a process held at most.")
    return Choice(
        chosen, tuple(functions) or (QUICK_FUNCTIONS if quick else ()), QUICK if quick else FULL, systems
    ), notes


def _check(what: str, names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise FtnnError(f"unknown {what} {name!r}; expected one of {', '.join(known)}")


def run(choice: Choice, say: Callable[[str], None] = lambda _: None) -> Iterator[Row]:
    """The rows, as they come. `say` is told what is being measured."""
    for name in choice.workloads:
        workload = WORKLOADS[name]
        functions = choice.functions_of(workload)
        for n, function in enumerate(functions):
            say(f"{name}: {workload.title}: {function} ({n + 1} of {len(functions)})")
            yield from workload.rows(function, choice.effort, choice.systems)
