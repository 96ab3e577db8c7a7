"""Functions that are not of the catalogue, and cells that are not of the paper's tables."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ftnn.experiments._grids import FUNCTIONS
from ftnn.experiments._rows import Row
from ftnn.experiments._tasks import Cell
from ftnn.experiments.report._grid import Rate, Run, by_seed, is_in_tables, run_of

_Group = tuple[str, str, int, str]


@dataclass(frozen=True)
class Custom:
    """A function with an activation at a depth, over all learning rates and seeds."""

    function: str
    """As it was written: a name, or a formula with the ranges that are not ±0.1."""
    activation: str
    layers: int
    setting: str
    """What differs from the paper's experiment; empty where nothing does."""
    rates: tuple[Rate, ...]

    @property
    def runs(self) -> tuple[Run, ...]:
        return tuple(run for rate in self.rates for run in rate.runs)

    @property
    def failed(self) -> int:
        return sum(run.failed is not None for run in self.runs)

    @property
    def verdict(self) -> str:
        """In a word."""
        if not self.failed:
            return "trains"
        return "fails" if self.failed == len(self.runs) else "trains at some γ"

    @property
    def best(self) -> tuple[float, float] | None:
        """(accuracy, γ) of the best run; None where all failed."""
        found = [
            (run.ft, rate.gamma)
            for rate in self.rates
            for run in rate.runs
            if run.ft is not None and not run.failed
        ]
        return max(found, default=None)

    @property
    def reasons(self) -> list[tuple[str, int]]:
        """How the failed ones failed, the most frequent first."""
        return Counter(reason_of(run.failed) for run in self.runs if run.failed).most_common()


def reason_of(failed: str) -> str:
    """The sort of a failure, without the numbers that differ from run to run."""
    if "chance" in failed:
        return "no better than chance"
    return failed.partition(" in ")[0]  # "the loss was not finite in epoch 3 of …"


def custom(rows: Iterable[Row], best_epochs: Mapping[str, float]) -> tuple[list[Custom], list[Custom]]:
    """(functions of a person's own, other cells of the catalogue's), grouped."""
    found: dict[_Group, dict[float, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        cell = row.task.cell
        if row.task.kind == "ft" and isinstance(cell, Cell) and not is_in_tables(row):
            group = cell.function, cell.activation, cell.hidden_layers, cell.setting
            found[group][cell.gamma].append(run_of(row, best_epochs))
    groups = [
        Custom(
            *group, tuple(Rate(gamma, None, by_seed(rates[gamma])) for gamma in sorted(rates, reverse=True))
        )
        for group, rates in sorted(found.items())
    ]
    own = [group for group in groups if group.function not in FUNCTIONS]
    return own, [group for group in groups if group.function in FUNCTIONS]
