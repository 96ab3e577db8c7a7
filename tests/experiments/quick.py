"""Cells that train in a moment, and ways to run them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ftnn.experiments import Cell, DirectCell, PiCell, Store
from ftnn.experiments.grid.exchange import import_files
from ftnn.experiments.grid.jobs import Event, Job, Outcome, Progress
from ftnn.experiments.grid.scheduler import run
from ftnn.experiments.grid.task import AnyTask


def cell(function: str = "F03", layers: int = 1, gamma: float = -2, seed: int = 0, **settings: Any) -> Cell:
    settings = {"data": "mnist:200", "width": 8, "epochs": (2, 2), **settings}
    return Cell(function, "logistic", layers, gamma, seed, **settings)


class Inline:
    """An executor that runs a stage when it is asked for events."""

    def __init__(self, slots: int = 1):
        self.slots = slots
        self.jobs: list[Job] = []
        self.ran: list[AnyTask] = []
        self.closed = False

    def submit(self, job: Job) -> None:
        self.jobs.append(job)

    def events(self, seconds: float) -> list[Event]:
        if not self.jobs:
            return []
        job = self.jobs.pop(0)
        self.ran.append(job.task)
        events: list[Event] = []
        events.append(job.run(events.append))
        return events

    def close(self) -> None:
        self.closed = True


class Quiet:
    """A watcher that records events and prints nothing."""

    def __init__(self) -> None:
        self.begun: tuple[list[AnyTask], int, int] | None = None
        self.finished_tasks: list[AnyTask] = []
        self.lost_tasks: list[AnyTask] = []

    def begin(self, waiting: list[AnyTask], done: int, slots: int) -> None:
        self.begun = (waiting, done, slots)

    def started(self, task: AnyTask) -> None: ...
    def progress(self, task: AnyTask, progress: Progress) -> None: ...
    def finished(self, task: AnyTask, outcome: Outcome | None) -> None:
        self.finished_tasks.append(task)

    def lost(self, task: AnyTask, reason: str) -> None:
        self.lost_tasks.append(task)


def run_inline(cells: Iterable[Cell | DirectCell | PiCell], store: Store) -> Inline:
    executor = Inline()
    run([each.task() for each in cells], store, executor, Quiet())
    return executor


def import_file(store: Store, path: Path) -> tuple[int, int]:
    """Returns the number of rows in the file, and how many were new."""
    return import_files(store, [path])[path]


def digests(store: Store) -> dict[str, str]:
    """The digest of each stage."""
    return {row.key: row.digest for row in store.rows()}
