"""Cells that take a moment, and ways to run them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ftnn.experiments import Cell, PiCell, Store
from ftnn.experiments._execute import execute
from ftnn.experiments._jobs import Job, Outcome, Progress
from ftnn.experiments._scheduler import Event, run
from ftnn.experiments._tasks import Task


def cell(function: str = "F03", layers: int = 1, gamma: float = -2, seed: int = 0, **settings: Any) -> Cell:
    given: dict[str, Any] = {"data": "mnist:200", "width": 8, "epochs": (2, 2), **settings}
    return Cell(function, "logistic", layers, gamma, seed, **given)


class Inline:
    """An executor that runs a stage when it is asked what has happened."""

    def __init__(self, slots: int = 1):
        self.slots = slots
        self.jobs: list[Job] = []
        self.ran: list[Task] = []
        self.closed = False

    def submit(self, job: Job) -> None:
        self.jobs.append(job)

    def events(self, seconds: float) -> list[Event]:
        if not self.jobs:
            return []
        job = self.jobs.pop(0)
        self.ran.append(job.task)
        told: list[Event] = []
        told.append(execute(job, told.append))
        return told

    def close(self) -> None:
        self.closed = True


class Quiet:
    """A watcher that keeps what it is told."""

    def __init__(self) -> None:
        self.begun: tuple[list[Task], int, int] | None = None
        self.finished_tasks: list[Task] = []
        self.lost_tasks: list[Task] = []

    def begin(self, waiting: list[Task], done: int, slots: int) -> None:
        self.begun = (waiting, done, slots)

    def started(self, task: Task) -> None: ...
    def progress(self, task: Task, progress: Progress) -> None: ...
    def finished(self, task: Task, outcome: Outcome | None) -> None:
        self.finished_tasks.append(task)

    def lost(self, task: Task, reason: str) -> None:
        self.lost_tasks.append(task)


def run_inline(cells: Iterable[Cell | PiCell], store: Store) -> Inline:
    executor = Inline()
    run([each.task() for each in cells], store, executor, Quiet())
    return executor


def digests(store: Store) -> dict[str, str]:
    """The digest of each stage."""
    return {row.key: row.digest for row in store.rows()}
