"""Decision boundaries on the plane, drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import contourpy
import numpy as np

from ftnn.experiments.paper.conic.learned import decide, points, unit_sums
from ftnn.experiments.paper.conic.problems import Array, Problem
from ftnn.experiments.report import svg
from ftnn.experiments.report.svg import Frame

GRID = 161
"""Points on each side at which a network is asked."""
DOTS = 220
"""Of the points that were learned from, so many are shown."""
EXAMPLES = ((2.0, 3.0), (2.5, 2.0), (3.0, 4.0), (3.9, 3.0), (0.7, 1.0), (4.4, 1.4), (1.0, 4.4))
"""Points beside which the paper's network's answer is written."""

STYLE = """\
.region { fill: #3b6fb6; fill-opacity: .16 }
.boundary { fill: none; stroke: #2458a6; stroke-width: 2 }
.truth { fill: none; stroke: #777; stroke-width: 1.2; stroke-dasharray: 4 3 }
.unit { fill: none; stroke-width: 1.6 }
.u0 { stroke: #d9730d }
.u1 { stroke: #2f8f46; stroke-dasharray: 6 3 }
.u2 { stroke: #8a4bbf; stroke-dasharray: 2 3 }
.in { fill: #2458a6 } .out { fill: none; stroke: #999; stroke-width: .9 }
.grid { stroke: #8884; fill: none; stroke-width: .6 }
text { font: 11px system-ui, sans-serif; fill: #666 }
.answer { font-weight: 600; font-size: 12px; fill: #333 }
@media (prefers-color-scheme: dark) {
  .boundary { stroke: #8ab4f8 } .in { fill: #8ab4f8 } text { fill: #aaa } .answer { fill: #eee }
}
"""
"""For a picture that stands alone; the report has the same classes."""


def boundary(problem: Problem, arrays: Mapping[str, Array], seed: int, *, alone: bool = False) -> str:
    """What a network answers over the plane, beside what it should."""
    low, high = problem.window
    frame = Frame(320, 320, problem.window, problem.window, left=24)
    along = np.linspace(low, high, GRID)
    plane = np.stack(np.meshgrid(along, along), -1).reshape(-1, 2)
    ticks = svg.round_ticks(low, high, 5)
    parts = [svg.axes(frame, ticks, ticks)]
    answers = decide(problem, arrays, plane).reshape(GRID, GRID)
    parts.append(_filled(frame, along, answers))
    if problem.kind == "built":
        sums = unit_sums(problem, arrays, plane)
        for unit in range(problem.units):
            parts.append(
                _lines(frame, along, sums[:, unit].reshape(GRID, GRID), f"unit u{unit % 3}", level=0.0)
            )
        parts += _examples(problem, arrays, frame)
    else:
        parts += _dots(problem, seed, frame)
        truth = np.min([region.value(plane) for region in problem.regions], axis=0).reshape(GRID, GRID)
        parts.append(_lines(frame, along, truth, "truth", level=1.0))
        parts.append(_lines(frame, along, answers, "boundary", level=0.0))
    return svg.picture(frame, parts, f"{problem.title}. {problem.about}", STYLE if alone else "")


def _lines(frame: Frame, along: Array, values: Array, kind: str, level: float) -> str:
    lines = contourpy.contour_generator(along, along, values, line_type="Separate").lines(level)
    outlines = "".join(svg.path(frame, each[:, 0], each[:, 1]) for each in map(np.asarray, lines))
    return f'<path class="{kind}" d="{outlines}"/>' if outlines else ""


def _filled(frame: Frame, along: Array, values: Array) -> str:
    """All that is above 0; holes are left out by the even-odd rule."""
    maker = contourpy.contour_generator(along, along, values, fill_type="OuterOffset")
    regions: Any = maker.filled(0.0, np.inf)  # its type depends on fill_type
    polygons, offsets = regions
    outlines: list[str] = []
    for polygon, places in zip(polygons, offsets, strict=True):
        corners, ends = np.asarray(polygon), np.asarray(places)
        for begin, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
            part = corners[begin:end]
            outlines.append(svg.path(frame, part[:, 0], part[:, 1], close=True))
    return f'<path class="region" fill-rule="evenodd" d="{"".join(outlines)}"/>' if outlines else ""


def _dots(problem: Problem, seed: int, frame: Frame) -> list[str]:
    """Dots inside, rings outside: told apart without colour."""
    shown = points(problem, seed, "train")[:DOTS]
    return [
        _dot(frame.to_x(x), frame.to_y(y), inside, 1.9)
        for (x, y), inside in zip(shown.tolist(), problem.truth(shown).tolist(), strict=True)
    ]


def _dot(x: float, y: float, inside: bool, radius: float) -> str:
    return f'<circle class="{"in" if inside else "out"}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"/>'


def _examples(problem: Problem, arrays: Mapping[str, Array], frame: Frame) -> list[str]:
    answers = decide(problem, arrays, np.array(EXAMPLES)) > 0
    parts: list[str] = []
    for (x, y), inside in zip(EXAMPLES, answers.tolist(), strict=True):
        left, top = frame.to_x(x), frame.to_y(y)
        parts.append(_dot(left, top, inside, 2.4))
        parts.append(svg.text(left + 5, top + 4, "1" if inside else "0", "answer"))
    return parts
