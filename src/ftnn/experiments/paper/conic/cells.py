"""The problems as cells of one stage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ftnn.errors import FtnnError
from ftnn.experiments.grid.checks import COUNT, TEXT, check
from ftnn.experiments.grid.jobs import Array, Checkpoint, Outcome, Predecessor
from ftnn.experiments.grid.registry import Epochs, Line, Table
from ftnn.experiments.grid.rows import Addition, Row, imported, rows_of, versions
from ftnn.experiments.grid.scheduler import Watcher
from ftnn.experiments.grid.store import Store
from ftnn.experiments.grid.task import AnyTask, OnProgress, Task
from ftnn.experiments.paper.conic.learned import POINTS
from ftnn.experiments.paper.conic.problems import PROBLEMS, Problem
from ftnn.experiments.paper.values import distinct, first_layer
from ftnn.formula import catalogue


@dataclass(frozen=True)
class ConicCell:
    """One of the paper's conic hypersurfaces: see `PROBLEMS`."""

    problem: str
    seed: int = 0

    def __post_init__(self) -> None:
        check(vars(self), {"problem": TEXT, "seed": COUNT})
        if self.problem not in PROBLEMS:
            raise FtnnError(f"unknown conic problem {self.problem!r}; expected {', '.join(PROBLEMS)}")

    def task(self) -> ConicTask:
        return ConicTask(self)

    def __str__(self) -> str:
        return self.problem + (f" seed {self.seed}" if self.seed else "")


def conic_cells(problems: Sequence[str] = tuple(PROBLEMS), seeds: Sequence[int] = (0,)) -> list[ConicCell]:
    """All combinations of these values."""
    names = distinct("problems", problems)
    return [ConicCell(name, seed) for seed in distinct("seeds", seeds) for name in names]


class ConicTask(Task[ConicCell]):
    kind = "conic"
    results = 2
    cell_type = ConicCell

    @property
    def title(self) -> str:
        return "conic"

    @property
    def work(self) -> str:
        return "conic boundaries"

    @property
    def problem(self) -> Problem:
        return PROBLEMS[self.cell.problem]

    @property
    def epochs(self) -> int:
        return sum(self.problem.epochs)

    @property
    def effort(self) -> float:
        return self.epochs * POINTS

    def shapes(self, arrays: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
        problem = self.problem
        sizes = (problem.dimension, problem.units)
        shapes = dict.fromkeys(first_layer(catalogue[problem.function]).values(), sizes)
        output = {"output.weight": (2, problem.units), "output.bias": (2,)}
        return {**shapes, "hidden.0.bias": (problem.units,), **(output if problem.kind == "learned" else {})}

    def run(
        self, before: tuple[Predecessor, ...], checkpoint: Checkpoint | None, on_progress: OnProgress
    ) -> Outcome:
        """Takes seconds, so it is never resumed."""
        # Here because these load torch.
        from ftnn.experiments.paper.conic.solve import solve
        from ftnn.experiments.paper.running import Running

        running = Running(self.key, None, on_progress)
        solved = solve(self.cell.problem, self.cell.seed)
        return Outcome(self.key, **vars(solved), seconds=running.seconds)


def run_conic(store: Store, cells: Iterable[ConicCell], watcher: Watcher | None = None) -> list[Row]:
    """Run the cells that the store lacks, in this process. Returns the rows of all these cells."""
    tasks = {task.key: task for task in (cell.task() for cell in cells)}
    done = store.done(tasks)
    waiting: list[AnyTask] = [task for key, task in tasks.items() if key not in done]
    if watcher is not None:
        watcher.begin(waiting, len(tasks) - len(waiting), 1)
    for task in waiting:
        if watcher is not None:
            watcher.started(task)
        outcome = task.run((), None, lambda progress: None)
        store.record(task, outcome, versions())
        if watcher is not None:
            watcher.finished(task, outcome)
    return store.rows(tasks)


# --- the CSV table: one line per problem and seed ---

COLUMNS = ("problem", "seed", "accuracy", "seconds", "failed", "digest")


def in_order(rows: Iterable[Row]) -> list[tuple[ConicCell, Row]]:
    """The results of problems, in the order of these."""
    order = list(PROBLEMS)
    return sorted(rows_of(ConicTask, rows), key=lambda pair: (order.index(pair[0].problem), pair[0].seed))


def _lines(rows: Iterable[Row], epochs: Callable[[], Epochs]) -> Iterator[tuple[Row, list[Any]]]:
    for cell, row in in_order(rows):
        accuracy = "" if row.ft_accuracy is None else f"{row.ft_accuracy:.2f}"
        seconds = "" if row.cell_seconds is None else f"{row.cell_seconds:.1f}"
        yield row, [cell.problem, cell.seed, accuracy, seconds, row.failed or "", row.digest]


def _read(lines: Iterable[Line]) -> Iterator[tuple[str, Addition]]:
    for line in lines:
        row = imported(
            ConicCell(line.values["problem"], line.number("seed", int)).task(),
            line,
            ft_accuracy=line.number_or_none("accuracy"),
            failed=line.values["failed"] or None,
            cell_seconds=line.number_or_none("seconds"),
            digest=line.values["digest"],
        )
        yield line.place, (row, None, None)


TABLE = Table("conic", ConicTask.kind, COLUMNS, _lines, _read)
