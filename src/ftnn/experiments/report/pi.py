"""Learning curves of π: accuracy over epochs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ftnn.experiments.grid.registry import Epochs
from ftnn.experiments.grid.rows import Row, rows_of
from ftnn.experiments.paper.pi import PiTask
from ftnn.experiments.report import svg
from ftnn.experiments.report.svg import Frame

Array = np.ndarray[Any, np.dtype[Any]]
BINS = 200
"""Points of a drawn curve: enough for the screen of a phone."""
LAST = 500
"""The number of final epochs of which the best is reported."""


@dataclass(frozen=True)
class Curve:
    """The accuracies of one network, in percent, by epoch; empty if the store has none."""

    hidden: int
    pairs: int
    seed: int
    final: float | None
    failed: str | None
    seconds: float
    accuracies: Array

    @property
    def name(self) -> str:
        return f"{self.hidden}H-{self.pairs}D" + (f", seed {self.seed}" if self.seed else "")

    @cached_property
    def best_of_last(self) -> float | None:
        last = self.accuracies[-LAST:]
        return max(last[np.isfinite(last)].tolist(), default=None)

    @cached_property
    def reached(self) -> int | None:
        """The first epoch with at least 99 %."""
        epochs = np.flatnonzero(self.accuracies >= 99)
        return int(epochs[0]) + 1 if len(epochs) else None

    def typical_after(self, epoch: int) -> float | None:
        """The median accuracy of all later epochs; None if there are none."""
        later = self.accuracies[epoch:]
        later = later[np.isfinite(later)]
        return float(np.median(later)) if len(later) else None


def curves(rows: Iterable[Row], epochs: Epochs) -> list[Curve]:
    """All curves, ordered by pairs, hidden units and seed."""

    def accuracies(key: str) -> Array:
        values = (epoch["accuracy"] for epoch in epochs.get(key, ()))
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)

    drawn = [
        Curve(
            cell.hidden, cell.pairs, cell.seed, row.ft_accuracy, row.failed, row.seconds, accuracies(row.key)
        )
        for cell, row in rows_of(PiTask, rows)
    ]
    return sorted(drawn, key=lambda curve: (curve.pairs, curve.hidden, curve.seed))


def binned(values: Array, bins: int = BINS) -> tuple[Array, Array, Array, Array]:
    """(epoch, mean, smallest, largest) over spans of epochs: fewer points, but every jump stays visible."""
    parts = np.array_split(values, min(bins, len(values)))
    ends = np.cumsum([len(part) for part in parts])
    middles = np.array([end - (len(part) - 1) / 2 for part, end in zip(parts, ends, strict=True)])
    with np.errstate(all="ignore"):
        means, lows, highs = (np.array([f(part) for part in parts]) for f in (np.mean, np.min, np.max))
    return middles, means, lows, highs


def panels(curves: Sequence[Curve]) -> list[tuple[int, str]]:
    """(pairs, picture) for each number of pairs, with a line per number of hidden units."""
    hidden = sorted({curve.hidden for curve in curves})
    pictures: list[tuple[int, str]] = []
    for pairs in sorted({curve.pairs for curve in curves}):
        drawn = [curve for curve in curves if curve.pairs == pairs and len(curve.accuracies)]
        if drawn:
            pictures.append((pairs, _panel(pairs, drawn, hidden)))
    return pictures


def _panel(pairs: int, drawn: Sequence[Curve], hidden: Sequence[int]) -> str:
    epochs = max(len(curve.accuracies) for curve in drawn)
    frame = Frame(360, 250, (0, epochs), (0, 100), top=22, right=16, bottom=36)
    parts = [svg.axes(frame, svg.round_ticks(0, epochs, 5), (0, 20, 40, 60, 80, 100), "epoch", "accuracy, %")]
    areas: list[str] = []
    lines: list[str] = []
    for curve in drawn:
        kind = f"s{hidden.index(curve.hidden) % 6}"
        middles, means, lows, highs = binned(curve.accuracies)
        areas.append(svg.band(frame, middles, lows, highs, f"area {kind}"))
        lines.append(svg.line(frame, middles, means, f"line {kind}", curve.name))
    names = ", ".join(curve.name for curve in drawn)
    return svg.picture(frame, [*parts, *areas, *lines], f"Accuracy against epoch of {names}, {pairs} pairs")
