"""Direct training of the paper's networks, next to the paper's best results."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ftnn.data import PaperCell, paper_best
from ftnn.experiments.grid.rows import Row, rows_of
from ftnn.experiments.paper.mnist.cells import ACTIVATIONS
from ftnn.experiments.paper.mnist.direct import Direct
from ftnn.experiments.paper.mnist.grids import LAYERS
from ftnn.experiments.report.entries import Grade, grade_of

ENOUGH = 95.0
"""The accuracy that counts as reached where the paper's network failed."""


@dataclass(frozen=True)
class DirectEntry:
    """One network of the paper's tables, trained directly with the lowest seed that was run."""

    paper: PaperCell
    """At its best γ; without accuracies if every γ failed."""
    accuracy: float | None
    """The final test accuracy; None if it failed."""
    validation_accuracy: float | None
    failed: str | None
    seconds: float | None

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's, in points, rounded like the paper; None if either failed."""
        if self.accuracy is None or self.paper.ft_accuracy is None:
            return None
        return round(self.accuracy - self.paper.ft_accuracy, 2)

    @property
    def is_reached(self) -> bool:
        """Whether it is as good as the paper's, or above 95 % where that failed."""
        if self.accuracy is None:
            return False
        paper = self.paper.ft_accuracy
        return self.accuracy > ENOUGH if paper is None else round(self.accuracy, 2) >= paper

    @property
    def grade(self) -> Grade:
        if self.paper.ft_accuracy is None:
            return "both-failed" if self.accuracy is None else "revived"
        return "failed" if self.accuracy is None else grade_of(self.difference)


@dataclass(frozen=True)
class DirectDepth:
    """The networks of one depth that were trained directly."""

    layers: int
    entries: tuple[DirectEntry, ...]

    @property
    def reached(self) -> int:
        return sum(entry.is_reached for entry in self.entries)

    @property
    def failed(self) -> int:
        return sum(entry.accuracy is None for entry in self.entries)


def direct(rows: Iterable[Row]) -> list[DirectDepth]:
    """The depths with results, each in the paper's order."""
    lowest: dict[tuple[int, str, str], Row] = {}
    for cell, row in sorted(rows_of(Direct, rows), key=lambda pair: pair[0].seed):
        if cell.matches_paper:
            lowest.setdefault((cell.hidden_layers, cell.function, cell.activation), row)
    found = [
        _entry(paper, row)
        for paper in paper_best()
        if (row := lowest.get((paper.hidden_layers, paper.function, paper.activation))) is not None
    ]
    depths = [
        DirectDepth(layers, tuple(entry for entry in found if entry.paper.hidden_layers == layers))
        for layers in LAYERS
    ]
    return [depth for depth in depths if depth.entries]


def _entry(paper: PaperCell, row: Row) -> DirectEntry:
    accuracies = (None, None) if row.failed else (row.ft_accuracy, row.validation_accuracy)
    return DirectEntry(paper, *accuracies, row.failed, row.cell_seconds)


def by_function(depth: DirectDepth) -> list[tuple[str, list[DirectEntry | None]]]:
    """For each function, its results with each activation; None if not run."""
    found = {(entry.paper.function, entry.paper.activation): entry for entry in depth.entries}
    functions = dict.fromkeys(entry.paper.function for entry in depth.entries)
    return [(function, [found.get((function, name)) for name in ACTIVATIONS]) for function in functions]
