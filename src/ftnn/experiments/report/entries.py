"""The paper's cells beside ours."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from ftnn.data import PaperCell, paper_best, paper_grid
from ftnn.experiments.grid.rows import Row, rows_of
from ftnn.experiments.paper.mnist.cells import Cell, FineTuning
from ftnn.experiments.paper.mnist.functions import FUNCTIONS
from ftnn.experiments.paper.mnist.grids import GAMMAS, LAYERS
from ftnn.experiments.report.texts import accuracy

NEAR = 0.3
"""Points of accuracy up to which two results count as alike."""
FAR = 1.0
"""Points beyond which a difference wants a reason."""

Grade = Literal[
    "missing", "both-failed", "failed", "revived", "far-worse", "worse", "near", "better", "far-better"
]
"""How ours compares; `revived`: the paper failed and ours did not."""


@dataclass(frozen=True)
class Run:
    """One seed's result."""

    seed: int
    lwt: float | None
    ft: float | None
    """Accuracies in percent; as they were measured, even where the run counts as failed."""
    failed: str | None
    seconds: float | None
    """What the cell takes alone; None where it is not known."""
    best: float | None = None
    """The best test accuracy of any epoch of fine-tuning: what one gets who chooses by the test data."""


@dataclass(frozen=True)
class Rate:
    """A cell at one learning rate, 2^γ."""

    gamma: float
    paper: PaperCell | None
    """None where the paper has no such γ."""
    runs: tuple[Run, ...] = ()
    """By seed."""

    @property
    def first(self) -> Run | None:
        """The run of the lowest seed, which is what the tables show: nothing is chosen by its result."""
        return self.runs[0] if self.runs else None

    @property
    def spread(self) -> float | None:
        """Of the final accuracy over the seeds that trained: largest less smallest."""
        accuracies = [run.ft for run in self.runs if run.ft is not None and not run.failed]
        return max(accuracies) - min(accuracies) if len(accuracies) > 1 else None


@dataclass(frozen=True)
class Entry:
    """A function with an activation at a depth: one cell of the paper's three tables."""

    layers: int
    function: str
    activation: str
    paper: PaperCell
    """At its best γ; without accuracies where all failed."""
    rates: tuple[Rate, ...]
    """From the largest γ to the smallest."""

    @cached_property
    def shown(self) -> Rate | None:
        """At the paper's best γ. Where it has none, at ours, or at one that failed too; None: not run."""
        if self.paper.gamma is not None:
            return next((r for r in self.rates if r.gamma == self.paper.gamma and r.runs), None)
        done = [rate for rate in self.rates if rate.first is not None]
        return max(done, key=_accuracy, default=None)

    @property
    def run(self) -> Run | None:
        return self.shown.first if self.shown else None

    @property
    def spread(self) -> float | None:
        return self.shown.spread if self.shown else None

    @property
    def has_trained(self) -> bool:
        return self.run is not None and self.run.failed is None

    @property
    def gamma(self) -> float | None:
        return self.shown.gamma if self.shown else self.paper.gamma

    def difference(self, stage: Literal["lwt", "ft"]) -> float | None:
        """Ours less the paper's, in points, rounded as the paper is; None where either has none."""
        return None if self.run is None else self.difference_of(self.run, stage)

    def difference_of(self, run: Run, stage: Literal["lwt", "ft"]) -> float | None:
        """The same for any run at the γ that is shown."""
        paper = self.paper.lwt_accuracy if stage == "lwt" else self.paper.ft_accuracy
        ours = run.lwt if stage == "lwt" else run.ft
        return None if run.failed or ours is None or paper is None else round(ours - paper, 2)

    @property
    def best_rate(self) -> Rate | None:
        """The γ with our own best result; None where nothing trained."""
        trained = [rate for rate in self.rates if _accuracy(rate) >= 0]
        return max(trained, key=_accuracy, default=None)

    @property
    def is_whole(self) -> bool:
        """Whether all of the paper's γ were run."""
        return {rate.gamma for rate in self.rates if rate.runs} >= set(GAMMAS)

    @property
    def evidence(self) -> str:
        """What other runs say of this cell: its other seeds, and our best γ where it is another."""
        parts: list[str] = []
        if self.shown is not None and len(self.shown.runs) > 1:
            others = [f"{run.seed}: {result_of(run)}" for run in self.shown.runs[1:]]
            parts.append(f"seed{'s'[: len(others) > 1]} " + ", ".join(others))
        best = self.best_rate
        if best is not None and best.first is not None and best is not self.shown:
            paper = "" if best.paper is None else f" (paper {accuracy(best.paper.ft_accuracy)})"
            parts.append(f"γ = {best.gamma:g}: {result_of(best.first)}{paper}")
        return "; ".join(parts)

    @property
    def grade(self) -> Grade:
        if self.run is None:
            return "missing"
        if self.paper.ft_accuracy is None:
            return "revived" if self.has_trained else "both-failed"
        if not self.has_trained:
            return "failed"
        return grade_of(self.difference("ft"))


def grade_of(difference: float | None) -> Grade:
    if difference is None:
        return "missing"
    if abs(difference) <= NEAR:
        return "near"
    if difference < 0:
        return "worse" if difference >= -FAR else "far-worse"
    return "better" if difference <= FAR else "far-better"


def result_of(run: Run) -> str:
    return accuracy(None if run.failed else run.ft)


def _accuracy(rate: Rate) -> float:
    run = rate.first
    return -1.0 if run is None or run.failed or run.ft is None else run.ft


Place = tuple[int, str, str]


def entries(rows: Iterable[Row], best_epochs: Mapping[str, float]) -> list[Entry]:
    """All 180 cells of the paper's tables with what these rows have of them."""
    runs: dict[Place, dict[float, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for cell, row in rows_of(FineTuning, rows):
        if is_in_tables(cell):
            place = cell.hidden_layers, cell.function, cell.activation
            runs[place][cell.gamma].append(run_of(row, best_epochs))
    paper: dict[Place, dict[float, PaperCell]] = defaultdict(dict)
    for known in paper_grid():
        assert known.gamma is not None
        paper[known.hidden_layers, known.function, known.activation][known.gamma] = known
    cells: list[Entry] = []
    for best in paper_best():
        place = best.hidden_layers, best.function, best.activation
        rates = [
            Rate(gamma, paper[place].get(gamma), by_seed(runs[place].get(gamma, [])))
            for gamma in sorted({*paper[place], *runs[place]}, reverse=True)
        ]
        cells.append(Entry(*place, best, tuple(rates)))
    return cells


def by_seed(runs: Iterable[Run]) -> tuple[Run, ...]:
    return tuple(sorted(runs, key=lambda run: run.seed))


def run_of(row: Row, best_epochs: Mapping[str, float]) -> Run:
    return Run(
        seed=row.task.cell.seed,
        lwt=row.lwt_accuracy,
        ft=row.ft_accuracy,
        failed=row.failed,
        seconds=row.cell_seconds,
        best=best_epochs.get(row.key),
    )


def is_in_tables(cell: Cell) -> bool:
    """Whether it is a cell of the paper's tables."""
    return cell.function in FUNCTIONS and cell.hidden_layers in LAYERS and cell.is_papers
