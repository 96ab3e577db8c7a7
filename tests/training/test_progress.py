"""What a person sees of the progress of training."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from ftnn import _bars
from ftnn._times import clock, left, times
from ftnn.training import Epoch, Lines, _progress, fit
from ftnn.training._progress import Bars
from tests.training.problems import blobs, network


def epoch(number: int) -> Epoch:
    return Epoch("direct", 0, number, 0.1, 0.5, None, None, None, 2.0)


def test_durations_are_short_texts() -> None:
    assert [clock(seconds) for seconds in (0.2, 65, 3599.6, 7384)] == ["0:00", "1:05", "1:00:00", "2:03:04"]
    assert left(10, 0.25) == 30
    assert left(10, 0) is None
    assert times(10, 30) == "0:10 elapsed, 0:30 left"


class Clock:
    """Replaces the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.now = 100.0
        monkeypatch.setattr(_progress.time, "monotonic", lambda: self.now)


def test_lines_come_now_and_then_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, out = Clock(monkeypatch), io.StringIO()
    with Lines(out, every=5, total_epochs=10) as lines:
        for number in range(1, 9):
            clock.now += 2
            lines.end(epoch(number))
    assert out.getvalue().splitlines() == [
        "training, epoch 1: loss 0.5000, 0:02 elapsed, 0:18 left",
        "training, epoch 4: loss 0.5000, 0:08 elapsed, 0:12 left",
        "training, epoch 7: loss 0.5000, 0:14 elapsed, 0:06 left",
        "training, epoch 8: loss 0.5000, 0:16 elapsed, 0:04 left",  # a stage ended early
    ]


def test_outside_of_a_terminal_training_prints_few_lines(capsys: pytest.CaptureFixture[str]) -> None:
    x, y = blobs(samples=40)
    fit(network(), x, y, epochs=200, solver="direct", progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert 2 <= len(lines) < 20
    assert lines[-1].startswith("training, epoch 200: ")
    assert "elapsed, 0:00 left" in lines[-1]


def shown(bar: _bars.Bar) -> list[str]:
    console = Console(width=80, file=io.StringIO(), force_terminal=False)
    with console.capture() as captured:
        console.print(bar.get_renderable())
    return captured.get().splitlines()


def test_a_bar_shows_elapsed_and_remaining_time_in_80_columns() -> None:
    now = 0.0
    bars = Bars(total_epochs=4)
    bar = bars._bar
    bar.get_time = bar.tasks[0]._get_time = lambda: now
    bar.reset(bar.task_ids[0])
    bars.begin("direct", 0, 1, 4, steps=10)
    bars.end(epoch(1))
    bars.begin("direct", 0, 2, 4, steps=10)
    now = 30.0
    bars.advance(5, 0.25)
    first, second = shown(bar)
    assert first.startswith("training, epoch 2/4 ")
    assert first.rstrip().endswith("38% 0:30 elapsed, 0:50 left")
    assert second.strip() == "loss 0.2500; last epoch: loss 0.5000"
