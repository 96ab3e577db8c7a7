"""Learning curves of π: accuracy over epochs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ftnn.experiments.grid.registry import Epochs
from ftnn.experiments.grid.rows import Row, rows_of
from ftnn.experiments.paper.pi import PiTask
from ftnn.experiments.report import svg
from ftnn.experiments.report.files import write_files
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
    state: str
    """What happens to the memory between epochs: reset or carried."""
    final: float | None
    failed: str | None
    seconds: float
    accuracies: Array

    @property
    def name(self) -> str:
        return f"{self.size}, {self.state}" + (f", seed {self.seed}" if self.seed else "")

    @property
    def size(self) -> str:
        """As the paper writes it."""
        return f"{self.hidden}H-{self.pairs}D"

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
    """All curves, ordered by state, pairs, hidden units and seed."""

    def accuracies(key: str) -> Array:
        values = (epoch["accuracy"] for epoch in epochs.get(key, ()))
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)

    drawn = [
        Curve(
            *(cell.hidden, cell.pairs, cell.seed, cell.state),
            *(row.ft_accuracy, row.failed, row.cell_seconds or row.seconds, accuracies(row.key)),
        )
        for cell, row in rows_of(PiTask, rows)
    ]
    return sorted(drawn, key=lambda curve: (curve.state, curve.pairs, curve.hidden, curve.seed))


def binned(values: Array, bins: int = BINS) -> tuple[Array, Array, Array, Array]:
    """(epoch, mean, smallest, largest) over spans of epochs: fewer points, but every jump stays visible."""
    parts = np.array_split(values, min(bins, len(values)))
    ends = np.cumsum([len(part) for part in parts])
    middles = np.array([end - (len(part) - 1) / 2 for part, end in zip(parts, ends, strict=True)])
    with np.errstate(all="ignore"):
        means, lows, highs = (np.array([f(part) for part in parts]) for f in (np.mean, np.min, np.max))
    return middles, means, lows, highs


def lowest_seeds(curves: Iterable[Curve]) -> list[Curve]:
    """Of each network and state, the curve with the lowest seed that can be drawn, in the same order."""
    lowest: dict[tuple[str, str], Curve] = {}
    for curve in curves:
        if len(curve.accuracies):
            lowest.setdefault((curve.size, curve.state), curve)
    return list(lowest.values())


def panels(curves: Sequence[Curve]) -> list[tuple[str, str]]:
    """(caption, picture) for each state and number of pairs, with a line per number of hidden units."""
    hidden = sorted({curve.hidden for curve in curves})
    groups: dict[tuple[str, int], list[Curve]] = defaultdict(list)
    for curve in lowest_seeds(curves):
        groups[curve.state, curve.pairs].append(curve)
    return [
        (f"{pairs} pairs, memory {state}", _panel(pairs, drawn, hidden))
        for (state, pairs), drawn in groups.items()
    ]


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


# --- the paper's figure: all curves in one plot ---

STYLE = """\
.line { fill: none; stroke-width: 1.3; stroke-linejoin: round }
.d0 { stroke: #2458a6 } .d1 { stroke: #d9730d } .d2 { stroke: #2f8f46 } .d3 { stroke: #8a4bbf }
.h0 { stroke-dasharray: 1.5 2.5 } .h1 { stroke-dasharray: 6 2.5 } .h2 { stroke-dasharray: 10 2 2 2 }
.grid { stroke: #8884; fill: none; stroke-width: .6 }
text { font: 11px system-ui, sans-serif; fill: #666 }
@media (prefers-color-scheme: dark) {
  .d0 { stroke: #8ab4f8 } text { fill: #aaa }
}
"""
"""For a standalone picture: a colour for each number of pairs, dashes for each number of hidden units."""


def whole_figure(drawn: Sequence[Curve]) -> str:
    """Curves in one plot, as in the paper's figure, with a legend."""
    hidden = sorted({curve.hidden for curve in drawn})
    pairs = sorted({curve.pairs for curve in drawn})
    epochs = max(len(curve.accuracies) for curve in drawn)
    frame = Frame(620, 360, (0, epochs), (0, 100), top=22, right=110, bottom=36)
    ticks = svg.round_ticks(0, epochs, 5)
    parts = [svg.axes(frame, ticks, (0, 20, 40, 60, 80, 100), "epoch", "accuracy, %")]
    for place, curve in enumerate(drawn):
        kind = f"line d{pairs.index(curve.pairs) % 4} h{hidden.index(curve.hidden) % 4}"
        middles, means, _, _ = binned(curve.accuracies)
        parts.append(svg.line(frame, middles, means, kind, curve.name))
        left, y = frame.width - frame.right + 8, frame.top + 8 + 18 * place
        parts.append(f'<path class="{kind}" d="M{left:g} {y:g}h24"/>')
        parts.append(svg.text(left + 29, y + 4, curve.size))
    state = ", ".join(sorted({curve.state for curve in drawn}))
    title = f"Learning curves of {len(drawn)} memory networks on digits of π, memory {state}"
    return svg.picture(frame, parts, title, STYLE)


def write_pi(curves: Iterable[Curve], folder: Path) -> list[Path]:
    """Write a picture for each state to a folder, which is created if missing."""
    groups: dict[str, list[Curve]] = defaultdict(list)
    for curve in lowest_seeds(curves):
        groups[curve.state].append(curve)
    return write_files(folder, {f"pi-{state}.svg": whole_figure(drawn) for state, drawn in groups.items()})
