"""Cells that are not in the paper's tables: other functions, and other settings."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ftnn.experiments.grid.rows import Row, rows_of
from ftnn.experiments.paper.mnist.cells import Cell, FineTuning
from ftnn.experiments.paper.mnist.functions import FUNCTIONS
from ftnn.experiments.report.entries import Rate, Run, by_seed, is_in_tables, run_of


@dataclass(frozen=True)
class Custom:
    """A function, an activation and a depth that are not in the paper's tables, over all γ and seeds."""

    function: str
    """A name, or a formula with its ranges."""
    activation: str
    layers: int
    setting: str
    """The differences from the paper's settings; empty if there are none."""
    rates: tuple[Rate, ...]

    @property
    def runs(self) -> tuple[Run, ...]:
        return tuple(run for rate in self.rates for run in rate.runs)

    @property
    def failed(self) -> int:
        return sum(run.failed is not None for run in self.runs)

    @property
    def verdict(self) -> str:
        if not self.failed:
            return "trains"
        return "fails" if self.failed == len(self.runs) else "trains at some γ"

    @property
    def best(self) -> tuple[float, float] | None:
        """(accuracy, γ) of the best run; None if all failed."""
        trained = [
            (run.ft, rate.gamma)
            for rate in self.rates
            for run in rate.runs
            if run.ft is not None and not run.failed
        ]
        return max(trained, default=None)

    @property
    def reasons(self) -> list[tuple[str, int]]:
        """(reason, count) of the failed runs, the most frequent first."""
        return Counter(reason_of(run.failed) for run in self.runs if run.failed).most_common()


def reason_of(failed: str) -> str:
    """The type of a failure, without the numbers that vary from run to run."""
    if "chance" in failed:
        return "no better than chance"
    return failed.partition(" in ")[0]  # "the loss was not finite in epoch 3 of …"


def custom(
    rows: Iterable[Row], best_epochs: Mapping[str, float], data: str = Cell.data
) -> tuple[list[Custom], list[Custom]]:
    """(custom functions, other cells of catalogue functions)."""
    runs: dict[tuple[str, str, int, str], dict[float, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for cell, row in rows_of(FineTuning, rows):
        if not is_in_tables(cell, data):
            group = cell.function, cell.activation, cell.hidden_layers, cell.setting
            runs[group][cell.gamma].append(run_of(row, best_epochs))
    groups = [
        Custom(
            *group, tuple(Rate(gamma, None, by_seed(rates[gamma])) for gamma in sorted(rates, reverse=True))
        )
        for group, rates in sorted(runs.items())
    ]
    own = [group for group in groups if group.function not in FUNCTIONS]
    return own, [group for group in groups if group.function in FUNCTIONS]
