"""What the store has of the conic hypersurfaces, as plain data and pictures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from ftnn import _atomic
from ftnn.errors import FtnnError
from ftnn.experiments._conic_figure import boundary
from ftnn.experiments._conic_learned import learned_quadric, rays_again
from ftnn.experiments._conic_problems import PROBLEMS, Array, Problem, Quadric
from ftnn.experiments._conic_rays import RayCheck
from ftnn.experiments._grids import names, seed_numbers
from ftnn.experiments._jobs import Job
from ftnn.experiments._rows import Row
from ftnn.experiments._store import Store
from ftnn.experiments._tasks import ConicCell, Task
from ftnn.experiments._versions import versions


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


def conic_cells(problems: str | None = None, seeds: str = "0") -> list[ConicCell]:
    """The problems of this list, with commas; all, if there is none."""
    chosen = list(PROBLEMS) if problems is None else names("--problems", problems)
    numbers = seed_numbers(seeds)
    return list(dict.fromkeys(ConicCell(name, seed) for seed in numbers for name in chosen))


def run_conic(store: Store, cells: Iterable[ConicCell]) -> list[ConicResult]:
    """Run what the store has not, here and now, for it takes seconds; then say what it has of these cells."""
    tasks = {task.key: task for task in (cell.task() for cell in cells)}
    done = store.done(tasks)
    for key, task in tasks.items():
        if key not in done:
            from ftnn.experiments._execute import execute  # only now: it loads torch

            store.record(task, execute(Job(task), lambda progress: None), versions())
    return [found for row in store.rows(tasks) if (found := conic_result(store, row)) is not None]


class HasParameters(Protocol):
    def parameters(self, task: Task) -> dict[str, Any] | None:
        """What was trained, as `Store.parameters` gives it."""
        ...


def conic_result(store: HasParameters, row: Row) -> ConicResult | None:
    """What a row says; None where it is about something else."""
    cell = row.task.cell
    if not isinstance(cell, ConicCell):
        return None
    problem, arrays = PROBLEMS[cell.problem], store.parameters(row.task)
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
        learned=None if arrays is None else learned_quadric(problem, arrays),
        rays=_rays(problem, arrays, cell.seed),
    )


def _rays(problem: Problem, arrays: Mapping[str, Array] | None, seed: int) -> RayCheck | None:
    return rays_again(problem, arrays, seed) if arrays is not None and problem.kind == "rays" else None


def figure(store: HasParameters, result: ConicResult, *, alone: bool = False) -> str | None:
    """The boundary as SVG; None where there is none to draw."""
    cell = ConicCell(result.problem, result.seed)
    arrays = store.parameters(cell.task()) if result.kind != "rays" else None
    return None if arrays is None else boundary(PROBLEMS[result.problem], arrays, result.seed, alone=alone)


def write_conic(store: Store, results: Iterable[ConicResult], folder: Path) -> list[Path]:
    """Write `conic.json` and a picture of each boundary into a folder, which is made."""
    found = list(results)
    files: dict[str, str] = {}
    for result in found:
        drawn = figure(store, result, alone=True)
        if drawn is not None:
            files[f"{result.problem}{f'-{result.seed}' if result.seed else ''}.svg"] = drawn
    files["conic.json"] = json.dumps([result.to_dict() for result in found], indent=2) + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            _atomic.write(folder / name, text.encode())
    except OSError as error:
        raise FtnnError(f"--out {folder}: {error.strerror or error}") from error
    return [folder / name for name in files]
