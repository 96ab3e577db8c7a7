"""The progress shown while a grid runs."""

from __future__ import annotations

import pytest

from ftnn.experiments.grid import watch
from ftnn.experiments.grid.jobs import Outcome
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
