"""Shows the progress of a grid: a bar and a live table on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from typing import Any

from ftnn._printable import printable
from ftnn.experiments.grid.jobs import Outcome, Progress
from ftnn.experiments.grid.task import AnyTask

SECONDS_BETWEEN = 30.0
"""The least time between two lines about running stages, outside of a terminal."""


class Watch:
    """Prints finished stages and the remaining time on standard error, and how running stages go.

    On a terminal, a bar shows elapsed and remaining time, and a table the running stages. Elsewhere, there is
    a line about one of them now and then.
    """

    def __init__(self) -> None:
        self._slots = 1
        self._total = self._done = 0
        self._unfinished: dict[str, AnyTask] = {}
        self._effort = 0.0  # of all stages that this run has to do
        self._begun: dict[str, float] = {}
        self._latest: dict[str, tuple[AnyTask, Progress | None]] = {}
        # (seconds, effort) of finished stages by family; "" is the sum of all.
        self._spent: dict[str, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
        self._printed = time.monotonic()
        self._bar: Any = None

    def __enter__(self) -> Watch:
        if sys.stderr.isatty():
            from ftnn._bars import Bar

            self._bar = Bar("", self._table)
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._latest.clear()
        if self._bar is not None:
            self._show()
            self._bar.stop()

    # --- events from the scheduler ---

    def begin(self, waiting: list[AnyTask], done: int, slots: int) -> None:
        self._slots, self._total, self._done = slots, len(waiting) + done, done
        self._unfinished = {task.key: task for task in waiting}
        self._effort = self._effort_left()
        self._show()

    def started(self, task: AnyTask) -> None:
        self._begun[task.key] = time.monotonic()
        self._latest[task.key] = (task, None)

    def progress(self, task: AnyTask, progress: Progress) -> None:
        self._latest[task.key] = (task, progress)
        if self._bar is None and time.monotonic() >= self._printed + SECONDS_BETWEEN:
            self._print(f"{task}: epoch {progress.epoch} of {task.epochs}, loss {progress.loss:.4f}")
        self._show()

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
        self._printed = time.monotonic()
        if self._bar is not None:
            self._bar.console.print(printable(line), markup=False)
            self._show()
        else:
            left = self._left()
            after = f" ({self._counts}{f', about {_time(left)} left' if left else ''})"
            print(printable(line) + (after if counts else ""), file=sys.stderr, flush=True)

    def _show(self) -> None:
        """Bring the bar up to date."""
        if self._bar is not None:
            done = 1 - self._effort_left() / self._effort if self._effort else 1.0
            self._bar.show(min(max(done, 0.0), 1.0), self._counts, self._left() or None)

    @property
    def _counts(self) -> str:
        return f"{self._done} of {self._total} stages"

    def _share(self, task: AnyTask) -> float:
        """How much of a running stage is done, from 0 to 1."""
        _, progress = self._latest.get(task.key, (task, None))
        return 0.0 if progress is None or not task.epochs else min(1.0, progress.epoch / task.epochs)

    def _effort_left(self) -> float:
        return sum(task.effort * (1 - self._share(task)) for task in self._unfinished.values())

    def _left(self) -> float:
        """The estimated time until all is done; 0 if nothing is known yet."""
        unfinished = self._unfinished.values()
        return sum(self._seconds(task) * (1 - self._share(task)) for task in unfinished) / self._slots

    def _seconds(self, task: AnyTask) -> float:
        """The estimated time of a task, by finished stages, or else by running ones; 0 before either."""
        for family in (task.family, ""):
            seconds, effort = self._spent[family]
            if effort:
                return task.effort * seconds / effort
        now = time.monotonic()
        running = [other for other, _ in self._latest.values() if self._share(other)]
        effort = sum(other.effort * self._share(other) for other in running)
        return (
            task.effort * sum(now - self._begun[other.key] for other in running) / effort if effort else 0.0
        )

    def _table(self) -> Any:
        from rich.table import Table
        from rich.text import Text

        if not self._latest:
            return Text("")
        table = Table(box=None, pad_edge=False)
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
