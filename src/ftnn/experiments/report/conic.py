"""Results of the conic problems, as data and as pictures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import contourpy
import numpy as np

from ftnn.experiments.grid.rows import Row
from ftnn.experiments.grid.task import AnyTask
from ftnn.experiments.paper.conic.cells import ConicCell, in_order
from ftnn.experiments.paper.conic.learned import decide, learned_quadric, points, rays_again, unit_sums
from ftnn.experiments.paper.conic.problems import PROBLEMS, Array, Problem, Quadric
from ftnn.experiments.paper.conic.rays import RayCheck
from ftnn.experiments.report import svg
from ftnn.experiments.report.files import write_files
from ftnn.experiments.report.svg import Frame

GRID = 161
"""Points along each axis at which a network is evaluated."""
DOTS = 220
"""How many of the training points to show."""
EXAMPLES = ((2.0, 3.0), (2.5, 2.0), (3.0, 4.0), (3.9, 3.0), (0.7, 1.0), (4.4, 1.4), (1.0, 4.4))
"""Points at which to print the answer of the paper's network."""

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
"""For a standalone picture; the report has the same classes."""

Parameters = Callable[[AnyTask], Mapping[str, Array] | None]
"""Returns the parameters that a stage trained, if known, like `Store.parameters`."""


@dataclass(frozen=True)
class ConicResult:
    """The result of one problem."""

    problem: str
    title: str
    about: str
    kind: str
    function: str
    units: int
    seed: int
    accuracy: float
    """The percentage of correct points or rays."""
    failed: str | None
    seconds: float
    digest: str
    results: int
    """The version of the results."""
    truth: tuple[Quadric, ...] = ()
    learned: Quadric | None = None
    """The learned boundary, if it is that of a single unit with known parameters."""
    rays: RayCheck | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def conic_results(parameters: Parameters, rows: Iterable[Row]) -> list[ConicResult]:
    return [_result(parameters, cell, row) for cell, row in in_order(rows)]


def _result(parameters: Parameters, cell: ConicCell, row: Row) -> ConicResult:
    problem, arrays = PROBLEMS[cell.problem], parameters(row.task)
    learned = None if arrays is None else learned_quadric(problem, arrays)
    rays = None if arrays is None or problem.kind != "rays" else rays_again(problem, arrays, cell.seed)
    return ConicResult(
        problem=cell.problem,
        title=problem.title,
        about=problem.about,
        kind=problem.kind,
        function=problem.function,
        units=problem.units,
        seed=cell.seed,
        accuracy=row.ft_accuracy or 0.0,
        failed=row.failed,
        seconds=row.seconds,
        digest=row.digest,
        results=row.task.version,
        truth=problem.regions,
        learned=learned,
        rays=rays,
    )


def figure(parameters: Parameters, result: ConicResult, *, alone: bool = False) -> str | None:
    """The boundary as SVG; None if there is none to draw."""
    if result.kind == "rays":
        return None
    arrays = parameters(ConicCell(result.problem, result.seed).task().at(result.results))
    return None if arrays is None else _boundary(PROBLEMS[result.problem], arrays, result.seed, alone=alone)


def write_conic(parameters: Parameters, results: Iterable[ConicResult], folder: Path) -> list[Path]:
    """Write `conic.json` and a picture of each boundary to a folder, which is created if missing."""
    results = list(results)
    files: dict[str, str] = {}
    for result in results:
        drawn = figure(parameters, result, alone=True)
        if drawn is not None:
            files[f"{result.problem}{f'-{result.seed}' if result.seed else ''}.svg"] = drawn
    files["conic.json"] = json.dumps([result.to_dict() for result in results], indent=2) + "\n"
    return write_files(folder, files)


# --- pictures ---


def _boundary(problem: Problem, arrays: Mapping[str, Array], seed: int, *, alone: bool = False) -> str:
    """A network's answers over the plane, and the truth."""
    low, high = problem.window
    frame = Frame(320, 320, problem.window, problem.window, left=24)
    along = np.linspace(low, high, GRID)
    plane = np.stack(np.meshgrid(along, along), -1).reshape(-1, 2)
    ticks = svg.round_ticks(low, high, 5)
    parts = [svg.axes(frame, ticks, ticks)]
    answers = decide(problem, arrays, plane).reshape(GRID, GRID)
    parts.append(_filled(frame, along, answers))
    if problem.kind == "built":
        for unit, sums in enumerate(unit_sums(problem, arrays, plane).T):
            parts.append(_lines(frame, along, sums.reshape(GRID, GRID), f"unit u{unit % 3}", level=0.0))
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
    """The area above 0; the even-odd rule leaves holes out."""
    maker = contourpy.contour_generator(along, along, values, fill_type="OuterOffset")
    regions: Any = maker.filled(0.0, np.inf)  # the type depends on fill_type
    polygons, offsets = regions
    outlines: list[str] = []
    for polygon, rings in zip(polygons, offsets, strict=True):
        corners, ends = np.asarray(polygon), np.asarray(rings)
        for begin, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
            part = corners[begin:end]
            outlines.append(svg.path(frame, part[:, 0], part[:, 1], close=True))
    return f'<path class="region" fill-rule="evenodd" d="{"".join(outlines)}"/>' if outlines else ""


def _dots(problem: Problem, seed: int, frame: Frame) -> list[str]:
    """Dots inside, circles outside: distinguishable without colour."""
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
