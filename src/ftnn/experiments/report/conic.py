"""What the store has of the conic hypersurfaces, as plain data and pictures."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from ftnn import _atomic
from ftnn.errors import FtnnError
from ftnn.experiments.grid.rows import Row, rows_of
from ftnn.experiments.grid.task import AnyTask
from ftnn.experiments.paper.conic.cells import ConicCell, ConicTask
from ftnn.experiments.paper.conic.learned import learned_quadric, rays_again
from ftnn.experiments.paper.conic.problems import PROBLEMS, Quadric
from ftnn.experiments.paper.conic.rays import RayCheck
from ftnn.experiments.report.conic_figure import boundary


@dataclass(frozen=True)
class ConicResult:
    """One problem, as it came out."""

    problem: str
    title: str
    about: str
    kind: str
    function: str
    units: int
    seed: int
    accuracy: float
    """In percent: of the points, or of the rays, that are as they should be."""
    failed: str | None
    seconds: float
    digest: str
    truth: tuple[Quadric, ...] = ()
    learned: Quadric | None = None
    """The boundary that was learned, where one unit learned it and its parameters are known."""
    rays: RayCheck | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class HasParameters(Protocol):
    def parameters(self, task: AnyTask) -> dict[str, Any] | None:
        """What was trained, as `Store.parameters` gives it."""
        ...


def conic_results(store: HasParameters, rows: Iterable[Row]) -> list[ConicResult]:
    """What the rows of conic problems say."""
    return [_result(store, cell, row) for cell, row in rows_of(ConicTask, rows)]


def _result(store: HasParameters, cell: ConicCell, row: Row) -> ConicResult:
    problem, arrays = PROBLEMS[cell.problem], store.parameters(row.task)
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
        truth=problem.regions,
        learned=learned,
        rays=rays,
    )


def figure(store: HasParameters, result: ConicResult, *, alone: bool = False) -> str | None:
    """The boundary as SVG; None where there is none to draw."""
    if result.kind == "rays":
        return None
    arrays = store.parameters(ConicCell(result.problem, result.seed).task())
    return None if arrays is None else boundary(PROBLEMS[result.problem], arrays, result.seed, alone=alone)


def write_conic(store: HasParameters, results: Iterable[ConicResult], folder: Path) -> list[Path]:
    """Write `conic.json` and a picture of each boundary into a folder, which is made."""
    results = list(results)
    files: dict[str, str] = {}
    for result in results:
        drawn = figure(store, result, alone=True)
        if drawn is not None:
            files[f"{result.problem}{f'-{result.seed}' if result.seed else ''}.svg"] = drawn
    files["conic.json"] = json.dumps([result.to_dict() for result in results], indent=2) + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            _atomic.write(folder / name, text.encode())
    except OSError as error:
        raise FtnnError(f"--out {folder}: {error.strerror or error}") from error
    return [folder / name for name in files]
