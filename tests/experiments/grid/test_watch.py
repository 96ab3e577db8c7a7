"""The progress shown while a grid runs."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from ftnn._bars import Bar
from ftnn.experiments.grid import watch
from ftnn.experiments.grid.jobs import Checkpoint, Outcome, Progress
from ftnn.experiments.grid.task import AnyTask
from tests.experiments.quick import cell


def outcome(task: AnyTask, failed: str | None = None) -> Outcome:
    return Outcome(task.key, (), failed, None, 0.5, {}, 90.0, None, "a" * 64, 3.0)


def test_lines_show_finished_stages_and_the_remaining_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = 0.0
    monkeypatch.setattr(watch.time, "monotonic", lambda: clock)
    last = cell(layers=2, width=8).task()
    first, second = last.chain
    with watch.watcher() as watcher:
        watcher.begin([first, second, last], 1, 2)
        watcher.started(first)
        clock = 10.0
        watcher.finished(first, outcome(first))
        watcher.lost(second, "gone")
        watcher.finished(second, outcome(second, "oh"))
        watcher.finished(last, None)
    rate = 10 / first.effort
    then = rate * last.effort / 2
    left = rate * (second.effort + last.effort) / 2
    assert capsys.readouterr().err.splitlines() == [
        f"F03-logistic γ=-2, LWT 1: 90.00 %, 3.0 s (2 of 4 stages, about {left:.0f} s left)",
        "F03-logistic γ=-2, LWT 2: gone; running it again",
        f"F03-logistic γ=-2, LWT 2: 90.00 %, failed: oh, 3.0 s (3 of 4 stages, about {then:.0f} s left)",
    ]


def progress(task: AnyTask, epoch: int) -> Progress:
    return Progress(task.key, epoch, 0.25, None, Checkpoint({}, {}))


def test_a_long_stage_has_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = 0.0
    monkeypatch.setattr(watch.time, "monotonic", lambda: clock)
    task = cell(epochs=(10, 0)).task().chain[0]
    with watch.watcher() as watcher:
        watcher.begin([task], 0, 1)
        watcher.started(task)
        for epoch in range(1, 10):
            clock += 10
            watcher.progress(task, progress(task, epoch))
    assert capsys.readouterr().err.splitlines() == [
        "F03-logistic γ=-2, LWT 1: epoch 3 of 10, loss 0.2500 (0 of 1 stages, about 70 s left)",
        "F03-logistic γ=-2, LWT 1: epoch 6 of 10, loss 0.2500 (0 of 1 stages, about 40 s left)",
        "F03-logistic γ=-2, LWT 1: epoch 9 of 10, loss 0.2500 (0 of 1 stages, about 10 s left)",
    ]


def test_the_bar_counts_the_effort_of_running_stages() -> None:
    task = cell(epochs=(10, 0)).task().chain[0]
    watcher = watch.Watch()
    watcher._bar = bar = Bar("", watcher._table)
    watcher.begin([task], 0, 1)
    watcher.started(task)
    assert bar.tasks[0].completed == 0
    watcher.progress(task, progress(task, 4))
    assert bar.tasks[0].completed == pytest.approx(0.4)
    assert bar.tasks[0].fields["left"] > 0
    console = Console(width=80, file=io.StringIO())
    with console.capture() as captured:
        console.print(bar.get_renderable())
    assert "0 of 1 stages" in captured.get()
    assert "0:00 elapsed, 0:00 left" in captured.get()
    assert "4/10" in captured.get()
