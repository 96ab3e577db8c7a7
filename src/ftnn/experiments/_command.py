"""What `ftnn reproduce` and `ftnn store` do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ftnn.data._paper import paper_accuracies
from ftnn.errors import FtnnError, InterruptedByUserError
from ftnn.experiments import _exchange
from ftnn.experiments._grids import mnist_cells, pi_cells
from ftnn.experiments._local import LocalExecutor
from ftnn.experiments._rows import Damaged, Row
from ftnn.experiments._scheduler import Executor, run
from ftnn.experiments._store import Store, ended
from ftnn.experiments._tasks import Cell, PiCell, Task
from ftnn.experiments._watch import watcher
from ftnn.training import Pass


@dataclass(frozen=True)
class Line:
    """A cell beside the paper's."""

    cell: Cell
    lwt_accuracy: float | None
    """None where it failed."""
    ft_accuracy: float | None
    paper: tuple[float | None, float | None] | None
    """The paper's accuracies, None where it failed; None as a whole where the paper has no such cell."""
    seconds: float | None
    failed: str | None
    digest: str

    def as_json(self) -> dict[str, Any]:
        lwt, ft = self.paper or (None, None)
        return {
            **asdict(self.cell),
            "lwt_accuracy": self.lwt_accuracy,
            "ft_accuracy": self.ft_accuracy,
            "paper_lwt_accuracy": lwt,
            "paper_ft_accuracy": ft,
            "seconds": self.seconds,
            "failed": self.failed,
            "digest": self.digest,
        }


def run_mnist(
    layers: str,
    functions: Sequence[str],
    activations: str,
    gammas: str,
    seeds: str,
    *,
    jobs: int | None,
    ray: str | None,
    store: Path,
    **settings: Any,
) -> list[Line]:
    """Run the cells that are not in the store; returns all that were asked for."""
    cells = mnist_cells(layers, functions, activations, gammas, seeds, **settings)
    rows = _run([cell.task() for cell in cells], jobs, ray, store)
    return [_line(cell, rows[cell.task().key]) for cell in cells]


def run_pi(
    hidden: str, pairs: str, seeds: str, epochs: int, *, jobs: int | None, ray: str | None, store: Path
) -> list[dict[str, Any]]:
    """Run the curves that are not in the store; returns how each ended."""
    cells = pi_cells(hidden, pairs, seeds, epochs)
    rows = _run([cell.task() for cell in cells], jobs, ray, store)
    with Store(store, must_exist=True) as opened:
        return [_curve(opened, cell, rows[cell.task().key]) for cell in cells]


def _curve(store: Store, cell: PiCell, row: Row) -> dict[str, Any]:
    passes = [each for each in store.epochs(row.key) if isinstance(each, Pass)]
    last = [each.accuracy for each in passes[-max(1, len(passes) // 10) :] if each.accuracy is not None]
    return {
        "hidden": cell.hidden,
        "pairs": cell.pairs,
        "seed": cell.seed,
        "epochs": len(passes),
        "accuracy": row.ft_accuracy,
        "best": max(last, default=None),
        "seconds": row.cell_seconds,
        "failed": row.failed,
        "digest": row.digest,
    }


def _run(tasks: list[Task], jobs: int | None, ray: str | None, path: Path) -> dict[str, Row]:
    if ray is not None and jobs is not None:
        raise FtnnError("--jobs is for this machine, and --ray for a cluster: give one of them")
    with Store(path) as store:
        if len(store.done(task.key for task in tasks)) < len({task.key for task in tasks}):
            with watcher() as watching:
                try:
                    run(tasks, store, _executor(jobs, ray), watching)
                except KeyboardInterrupt:
                    raise InterruptedByUserError(
                        f"interrupted; what was done is in {path}, and the same command goes on from there"
                    ) from None
        return {row.key: row for row in store.rows(task.key for task in tasks)}


def _executor(jobs: int | None, ray: str | None) -> Executor:
    if ray is None:
        return LocalExecutor(jobs)
    from ftnn.experiments._ray import RayExecutor  # only where it is asked for: Ray is an extra

    return RayExecutor(ray)


def _line(cell: Cell, row: Row) -> Line:
    lwt, ft = (None, None) if row.failed else (row.lwt_accuracy, row.ft_accuracy)
    return Line(cell, lwt, ft, papers(cell), row.cell_seconds, row.failed, row.digest)


def papers(cell: Cell) -> tuple[float | None, float | None] | None:
    """The paper's accuracies of this cell, layer-wise and fine-tuned; None where it has no such cell."""
    if not cell.is_papers:
        return None
    return paper_accuracies(cell.function, cell.activation, cell.hidden_layers, cell.gamma)


@dataclass(frozen=True)
class Contents:
    """What a store has."""

    lines: list[Line]
    stages: dict[str, int]
    """How many stages of each kind there are."""
    curves: int
    seconds: float
    """Processor time of all stages."""
    outdated: int
    """Stages of an earlier version of the results, which count for nothing else here."""
    damaged: list[Damaged]
    """Rows that make no sense, and count for nothing either."""

    def summary(self) -> list[str]:
        lwt, ft = self.stages.get("lwt", 0), self.stages.get("ft", 0)
        return [
            f"{len(self.lines)} cells, {self.curves} curves of π",
            f"{lwt} stages of layer-wise training and {ft} of fine-tuning, each once: {self.seconds:.0f} s",
            *(
                [f"{self.outdated} more of an ftnn that trained otherwise: they are not shown, and run again"]
                if self.outdated
                else []
            ),
        ]

    def as_json(self) -> dict[str, Any]:
        return {
            "cells": [line.as_json() for line in self.lines],
            "stages": self.stages,
            "curves": self.curves,
            "seconds": self.seconds,
            "outdated": self.outdated,
            "damaged": [asdict(each) for each in self.damaged],
        }


def contents(path: Path) -> Contents:
    with Store(path, must_exist=True) as store:
        rows, damaged = store.survey()
        outdated = store.count() - len(rows) - len(damaged)
    lines = [_line(cell, row) for cell, row in ended(rows)]
    lines.sort(
        key=lambda line: (line.cell.function, line.cell.activation, line.cell.hidden_layers, -line.cell.gamma)
    )
    kinds = Counter(str(row.task.kind) for row in rows)
    return Contents(lines, dict(kinds), kinds["pi"], sum(row.seconds for row in rows), outdated, damaged)


def export_store(path: Path, file: Path, what: Any, parameters: bool) -> tuple[int, int, list[Damaged]]:
    """Returns how many rows were written, how many cells were left out, and which are damaged."""
    damaged: list[Damaged] = []
    with Store(path, must_exist=True) as store:
        rows, left_out = _exchange.export(store, file, what, parameters=parameters, tell=damaged.append)
    return rows, left_out, damaged


def import_into(path: Path, files: Sequence[Path]) -> dict[Path, tuple[int, int]]:
    with Store(path) as store:
        return _exchange.import_files(store, files)
