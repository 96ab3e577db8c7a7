"""Shows the progress of a grid: a live table on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from typing import Any

from ftnn._printable import printable
from ftnn.experiments.grid.jobs import Outcome, Progress
from ftnn.experiments.grid.task import AnyTask


class Watch:
    """Prints finished stages and the remaining time on standard error; on a terminal, also running stages."""

    def __init__(self) -> None:
        self._slots = 1
        self._total = self._done = 0
        self._unfinished: dict[str, AnyTask] = {}
        self._begun: dict[str, float] = {}
        self._latest: dict[str, tuple[AnyTask, Progress | None]] = {}
        # (seconds, effort) of finished stages by family; "" is the sum of all.
        self._spent: dict[str, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
        self._live: Any = None

    def __enter__(self) -> Watch:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True, highlight=False)
            self._live = Live(console=console, refresh_per_second=4, get_renderable=self._table)
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._latest.clear()
        if self._live is not None:
            self._live.stop()

    # --- events from the scheduler ---

    def begin(self, waiting: list[AnyTask], done: int, slots: int) -> None:
        self._slots, self._total, self._done = slots, len(waiting) + done, done
        self._unfinished = {task.key: task for task in waiting}

    def started(self, task: AnyTask) -> None:
        self._begun[task.key] = time.monotonic()
        self._latest[task.key] = (task, None)

    def progress(self, task: AnyTask, progress: Progress) -> None:
        self._latest[task.key] = (task, progress)

    def finished(self, task: AnyTask, outcome: Outcome | None) -> None:
        self._done += 1
        self._unfinished.pop(task.key, None)
        self._latest.pop(task.key, None)
        begun = self._begun.pop(task.key, None)
        if outcome is None:
            return
        if begun is not None:
            for family in (task.family, ""):
                seconds, effort = self._spent[family]
                self._spent[family] = seconds + time.monotonic() - begun, effort + task.effort
        self._print(_describe(task, outcome))

    def lost(self, task: AnyTask, reason: str) -> None:
        self._begun.pop(task.key, None)
        self._latest.pop(task.key, None)
        self._print(f"{task}: {reason}; running it again", counts=False)

    # --- output ---

    def _print(self, line: str, *, counts: bool = True) -> None:
        if self._live is not None:
            self._live.console.print(printable(line), markup=False)
        else:
            print(printable(line) + (f" ({self._counts})" if counts else ""), file=sys.stderr, flush=True)

    @property
    def _counts(self) -> str:
        left = sum(map(self._seconds, self._unfinished.values())) / self._slots
        return f"{self._done} of {self._total} stages" + (f", about {_time(left)} left" if left else "")

    def _seconds(self, task: AnyTask) -> float:
        """The estimated time of a task; 0 before any stage has finished."""
        for family in (task.family, ""):
            seconds, effort = self._spent[family]
            if effort:
                return task.effort * seconds / effort
        return 0.0

    def _table(self) -> Any:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, title=self._counts, title_justify="left")
        for name in ("cell", "stage"):
            table.add_column(name, no_wrap=True)
        for name in ("epoch", "loss", "test %"):
            table.add_column(name, justify="right", no_wrap=True)
        for task, progress in list(self._latest.values()):
            cells = ["", "", ""]
            if progress is not None:
                accuracy = "" if progress.accuracy is None else f"{progress.accuracy:.2f}"
                cells = [f"{progress.epoch}/{task.epochs}", f"{progress.loss:.4f}", accuracy]
            table.add_row(*map(Text, (printable(str(task.cell)), task.title, *cells)))
        return table


def watcher() -> Watch:
    """A context manager that shows the progress of `run`."""
    return Watch()


def _describe(task: AnyTask, outcome: Outcome) -> str:
    accuracy = outcome.ft_accuracy if outcome.ft_accuracy is not None else outcome.lwt_accuracy
    parts = (
        "" if accuracy is None else f"{accuracy:.2f} %",
        f"failed: {outcome.failed}" if outcome.failed else "",
        f"{outcome.seconds:.1f} s",
    )
    return f"{task}: " + ", ".join(part for part in parts if part)


def _time(seconds: float) -> str:
    minutes, hours = seconds / 60, seconds / 3600
    return f"{hours:.1f} h" if hours >= 2 else f"{minutes:.0f} min" if minutes >= 2 else f"{seconds:.0f} s"
