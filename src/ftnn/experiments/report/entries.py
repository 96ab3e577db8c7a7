"""Our results next to the paper's: the cells of its tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from ftnn.data import PaperCell, paper_best, paper_grid
from ftnn.experiments.grid.rows import Row, rows_of
from ftnn.experiments.paper.mnist.cells import Cell, FineTuning
from ftnn.experiments.paper.mnist.functions import FUNCTIONS
from ftnn.experiments.paper.mnist.grids import GAMMAS, LAYERS
from ftnn.experiments.report.texts import accuracy

NEAR = 0.3
"""Points of accuracy up to which two results count as equal."""
FAR = 1.0
"""Points beyond which a difference needs an explanation."""

Grade = Literal[
    "missing", "both-failed", "failed", "revived", "far-worse", "worse", "near", "better", "far-better"
]
"""How ours compares; `revived`: failed in the paper only."""


@dataclass(frozen=True)
class Run:
    """The result of one seed."""

    seed: int
    lwt: float | None
    ft: float | None
    """Accuracies in percent, as measured, even if the run counts as failed."""
    failed: str | None
    seconds: float | None
    """The time of the cell if nothing is shared; None if unknown."""
    validation: float | None = None
    """The final accuracy on the validation images; None if there are none."""
    best: float | None = None
    """The best test accuracy of any fine-tuning epoch: the result of selecting by test data."""


@dataclass(frozen=True)
class Rate:
    """A cell at one learning rate, 2^γ."""

    gamma: float
    paper: PaperCell | None
    """None if the paper does not have this γ."""
    runs: tuple[Run, ...] = ()
    """Ordered by seed."""

    @property
    def first(self) -> Run | None:
        """The run with the lowest seed, which the tables show: it is not selected by its result."""
        return self.runs[0] if self.runs else None

    @property
    def spread(self) -> float | None:
        """The largest minus the smallest final accuracy, over the seeds that trained."""
        accuracies = [run.ft for run in self.runs if run.ft is not None and not run.failed]
        return max(accuracies) - min(accuracies) if len(accuracies) > 1 else None


@dataclass(frozen=True)
class Entry:
    """One cell of the paper's three tables: a function, an activation and a depth."""

    layers: int
    function: str
    activation: str
    paper: PaperCell
    """At its best γ; without accuracies if every γ failed."""
    rates: tuple[Rate, ...]
    """Ordered from the largest γ to the smallest."""

    @cached_property
    def shown(self) -> Rate | None:
        """The paper's best γ; if it has none, our best γ, or one that failed too. None if not run."""
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
    def is_done(self) -> bool:
        """Whether the outcome is known: where the paper has no γ, more runs could still train."""
        return self.run is not None and (self.paper.gamma is not None or self.has_trained or self.is_complete)

    @property
    def gamma(self) -> float | None:
        return self.shown.gamma if self.shown else self.paper.gamma

    def difference(self, stage: Literal["lwt", "ft"]) -> float | None:
        """Ours minus the paper's, in points, rounded like the paper; None if either failed."""
        return None if self.run is None else self.difference_of(self.run, stage)

    def difference_of(self, run: Run, stage: Literal["lwt", "ft"]) -> float | None:
        """The same for any run at the γ shown."""
        paper = self.paper.lwt_accuracy if stage == "lwt" else self.paper.ft_accuracy
        ours = run.lwt if stage == "lwt" else run.ft
        return None if run.failed or ours is None or paper is None else round(ours - paper, 2)

    @property
    def best_rate(self) -> Rate | None:
        """The γ of our best result on test images, as the paper's seem to be chosen; None if all failed."""
        trained = [rate for rate in self.rates if _accuracy(rate) >= 0]
        return max(trained, key=_accuracy, default=None)

    @property
    def chosen(self) -> Rate | None:
        """Our own γ: of all the paper's, the best on validation images. None if unknown, or if all failed."""
        runs = [
            (run, rate) for rate in self.rates if rate.gamma in GAMMAS and (run := rate.first) is not None
        ]
        known = [
            (run.validation, rate) for run, rate in runs if not run.failed and run.validation is not None
        ]
        if not self.is_complete or len(known) < sum(not run.failed for run, _ in runs):
            return None
        return max(known, key=lambda pair: pair[0], default=(None, None))[1]

    @property
    def is_complete(self) -> bool:
        """Whether all γ of the paper were run."""
        return {rate.gamma for rate in self.rates if rate.runs} >= set(GAMMAS)

    @property
    def evidence(self) -> str:
        """Other runs of this cell: other seeds, and our best γ if it differs."""
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


def entries(rows: Iterable[Row], best_epochs: Mapping[str, float], data: str = Cell.data) -> list[Entry]:
    """All 180 cells of the paper's tables, with our results on this data."""
    runs: dict[Place, dict[float, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for cell, row in rows_of(FineTuning, rows):
        if is_in_tables(cell, data):
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
        validation=row.validation_accuracy,
        best=best_epochs.get(row.key),
    )


def is_papers(cell: Cell, data: str) -> bool:
    """Whether everything but depth, γ and seed is as in the paper's tables, if trained on this data."""
    return cell.function in FUNCTIONS and cell.data == data and replace(cell, data=Cell.data).matches_paper


def is_in_tables(cell: Cell, data: str) -> bool:
    return cell.hidden_layers in LAYERS and is_papers(cell, data)
