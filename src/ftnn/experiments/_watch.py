"""Telling a person how a grid goes: a live table on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import IO, Any

from ftnn._printable import printable
from ftnn.experiments._conic_learned import POINTS
from ftnn.experiments._jobs import Outcome, Progress
from ftnn.experiments._tasks import Cell, ConicCell, PiCell, Task


def effort(task: Task) -> float:
    """How much work a stage is, up to a factor that depends on its function."""
    cell = task.cell
    if isinstance(cell, PiCell):
        return task.epochs * cell.hidden * cell.pairs
    if isinstance(cell, ConicCell):
        return task.epochs * POINTS
    # The first layer has 784 inputs, four fifths of them 0, and sends no error down; the others 128.
    first, others = 784 * 0.2, 2.0 * cell.width
    layers = first * (cell.hidden_layers == 1) + others * (cell.hidden_layers > 1)
    if task.kind == "ft":
        layers = first + others * (cell.hidden_layers - 1)
    return task.epochs * cell.width * layers


class Pace:
    """How long what remains will take, from what was done."""

    def __init__(self, slots: int):
        self._slots = slots
        self._seconds: dict[str, float] = defaultdict(float)
        self._effort: dict[str, float] = defaultdict(float)

    def add(self, task: Task, seconds: float) -> None:
        for name in (_family(task), ""):
            self._seconds[name] += seconds
            self._effort[name] += effort(task)

    def remaining(self, tasks: Iterable[Task]) -> float | None:
        """Seconds; None as long as nothing is known."""
        if not self._effort:
            return None
        total = 0.0
        for task in tasks:
            name = _family(task) if _family(task) in self._effort else ""
            total += effort(task) * self._seconds[name] / self._effort[name]
        return total / self._slots


def _family(task: Task) -> str:
    return task.cell.function if isinstance(task.cell, Cell) else "memory"


class _Counting:
    """What both ways of telling know."""

    def __init__(self) -> None:
        self._pace = Pace(1)
        self._left: dict[str, Task] = {}
        self._total = self._done = 0
        self._begun: dict[str, float] = {}

    def begin(self, waiting: list[Task], done: int, slots: int) -> None:
        self._pace = Pace(slots)
        self._total, self._done = len(waiting) + done, done
        self._left = {task.key: task for task in waiting}

    def started(self, task: Task) -> None:
        self._begun[task.key] = time.monotonic()

    def progress(self, task: Task, progress: Progress) -> None: ...

    def finished(self, task: Task, outcome: Outcome | None) -> None:
        self._done += 1
        self._left.pop(task.key, None)
        begun = self._begun.pop(task.key, None)
        if outcome is not None and begun is not None:
            self._pace.add(task, time.monotonic() - begun)

    def lost(self, task: Task, reason: str) -> None:
        self._begun.pop(task.key, None)

    @property
    def _counts(self) -> str:
        seconds = self._pace.remaining(self._left.values())
        return f"{self._done} of {self._total} stages" + (f", about {_time(seconds)} left" if seconds else "")


class Lines(_Counting):
    """A line for each stage that is done."""

    def __init__(self, stream: IO[str] | None = None):
        super().__init__()
        self._stream = stream if stream is not None else sys.stderr

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *error: object) -> None: ...

    def _say(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def finished(self, task: Task, outcome: Outcome | None) -> None:
        super().finished(task, outcome)
        if outcome is not None:
            self._say(f"{_ending(task, outcome)} ({self._counts})")

    def lost(self, task: Task, reason: str) -> None:
        super().lost(task, reason)
        self._say(_loss(task, reason))


class Live(_Counting):
    """A table of what runs, kept up to date."""

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.live import Live as RichLive

        self._console = Console(stderr=True, highlight=False)
        self._running: dict[str, tuple[Task, Progress | None]] = {}
        self._live = RichLive(console=self._console, refresh_per_second=4, get_renderable=self._table)

    def __enter__(self) -> Live:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._running.clear()
        self._live.stop()

    def _table(self) -> Any:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, title=self._counts, title_justify="left")
        for name in ("cell", "stage"):
            table.add_column(name, no_wrap=True)
        for name in ("epoch", "loss", "test %"):
            table.add_column(name, justify="right", no_wrap=True)
        for task, progress in list(self._running.values()):
            cells = ["", "", ""]
            if progress is not None:
                accuracy = "" if progress.accuracy is None else f"{progress.accuracy:.2f}"
                cells = [f"{progress.epoch}/{task.epochs}", f"{progress.loss:.4f}", accuracy]
            table.add_row(*map(Text, (printable(str(task.cell)), task.title, *cells)))
        return table

    def started(self, task: Task) -> None:
        super().started(task)
        self._running[task.key] = (task, None)

    def progress(self, task: Task, progress: Progress) -> None:
        self._running[task.key] = (task, progress)

    def finished(self, task: Task, outcome: Outcome | None) -> None:
        super().finished(task, outcome)
        self._running.pop(task.key, None)
        if outcome is not None:
            self._console.print(_ending(task, outcome), markup=False)

    def lost(self, task: Task, reason: str) -> None:
        super().lost(task, reason)
        self._running.pop(task.key, None)
        self._console.print(_loss(task, reason), markup=False)


def watcher() -> Lines | Live:
    """What suits where standard error goes."""
    return Live() if sys.stderr.isatty() else Lines()


def _ending(task: Task, outcome: Outcome) -> str:
    accuracy = outcome.ft_accuracy if outcome.ft_accuracy is not None else outcome.lwt_accuracy
    shown = "" if accuracy is None else f"{accuracy:.2f} %"
    failed = f"failed: {outcome.failed}" if outcome.failed else ""
    parts = (shown, failed, f"{outcome.seconds:.1f} s")
    return printable(f"{task.cell}, {task.title}: " + ", ".join(part for part in parts if part))


def _loss(task: Task, reason: str) -> str:
    return printable(f"{task.cell}, {task.title}: {reason}; it is run again")


def _time(seconds: float) -> str:
    minutes, hours = seconds / 60, seconds / 3600
    return f"{hours:.1f} h" if hours >= 2 else f"{minutes:.0f} min" if minutes >= 2 else f"{seconds:.0f} s"
