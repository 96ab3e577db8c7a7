"""A bar that shows how far long work has come, with elapsed and remaining time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskProgressColumn, TextColumn
from rich.text import Text

from ftnn._times import left as time_left
from ftnn._times import times


class _Times(ProgressColumn):
    def render(self, task: Task) -> Text:
        elapsed = (task.finished_time if task.finished else task.elapsed) or 0.0
        remaining = task.fields.get("left")
        if remaining is None and task.total:
            remaining = time_left(elapsed, task.completed / task.total)
        return Text(times(elapsed, None if task.finished else remaining), "cyan")


class Bar(Progress):
    """A bar on standard error, from 0 to 1, with `below` under it. A context manager."""

    def __init__(self, title: str = "", below: Callable[[], RenderableType] | None = None):
        self.text = ""
        """A line under the bar."""
        self._below = below or (lambda: Text(self.text, overflow="ellipsis", no_wrap=True))
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),
            TaskProgressColumn(),
            _Times(),
            console=Console(stderr=True, highlight=False),
            refresh_per_second=4,
        )
        self._bar = self.add_task(title, total=1.0)

    def show(self, done: float, title: str | None = None, left: float | None = None) -> None:
        """Show that a share `done` of the work is done; `left` replaces the usual estimate of the rest."""
        fields: dict[str, Any] = {} if left is None else {"left": left}
        self.update(self._bar, completed=done, description=title, **fields)

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        yield self._below()
