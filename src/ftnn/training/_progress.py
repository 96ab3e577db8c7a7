"""Showing a person how training goes: a bar on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from typing import IO, Any, Protocol

from ftnn._times import left, times
from ftnn.errors import FtnnError
from ftnn.training._checks import quoted
from ftnn.training._history import Epoch, StageName

_TITLES = {"lwt": "layer-wise", "ft": "fine-tuning", "joint": "joint", "direct": "training",
           "lm": "Levenberg-Marquardt", "lbfgs": "L-BFGS"}  # fmt: skip


class Reporter(Protocol):
    """Receives the progress of `fit`."""

    def begin(self, stage: StageName, layer: int, epoch: int, epochs: int, steps: int) -> None:
        """An epoch of `steps` mini-batches begins."""
        ...

    def advance(self, steps: int, loss: float) -> None:
        """Another `steps` mini-batches are done."""
        ...

    def end(self, epoch: Epoch) -> None:
        """An epoch is done."""
        ...


class Silent:
    """Shows nothing."""

    def begin(self, stage: StageName, layer: int, epoch: int, epochs: int, steps: int) -> None: ...
    def advance(self, steps: int, loss: float) -> None: ...
    def end(self, epoch: Epoch) -> None: ...
    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *error: object) -> None: ...


def _title(stage: StageName, layer: int) -> str:
    return f"{_TITLES[stage]} {layer}" if layer else _TITLES[stage]


def _results(epoch: Epoch) -> str:
    parts = [f"loss {epoch.loss:.4f}"]
    if epoch.train_accuracy is not None:
        parts.append(f"train {epoch.train_accuracy:.2f} %")
    if epoch.test_accuracy is not None:
        parts.append(f"test {epoch.test_accuracy:.2f} %")
    elif epoch.test_loss is not None:
        parts.append(f"test loss {epoch.test_loss:.4f}")
    return ", ".join(parts) + (" (undone)" if epoch.undone else "")


class Lines(Silent):
    """Prints a line for each epoch, or now and then.

    **Arguments:**

    - `stream`: standard error by default.
    - `every`: the least number of seconds between two lines; the last epoch has a line in any case.
    - `total_epochs`: of the whole run, for the remaining time; None: it is not shown.
    """

    def __init__(self, stream: IO[str] | None = None, every: float = 0.0, total_epochs: int | None = None):
        self._stream = stream if stream is not None else sys.stderr
        self._every, self._total = every, total_epochs
        self._start = time.monotonic()
        self._printed: float | None = None
        self._done = 0
        self._held_back: Epoch | None = None

    def __exit__(self, *error: object) -> None:
        if self._held_back is not None:
            self._print(self._held_back)

    def end(self, epoch: Epoch) -> None:
        self._done += 1
        if self._printed is not None and time.monotonic() < self._printed + self._every:
            self._held_back = epoch
        else:
            self._print(epoch)

    def _print(self, epoch: Epoch) -> None:
        title, self._held_back, self._printed = _title(epoch.stage, epoch.layer), None, time.monotonic()
        took = f"{epoch.seconds:.1f} s"
        if self._total:
            elapsed, done = time.monotonic() - self._start, min(1.0, self._done / self._total)
            took = times(elapsed, left(elapsed, done))
        print(f"{title}, epoch {epoch.epoch}: {_results(epoch)}, {took}", file=self._stream, flush=True)


class Bars(Silent):
    """Shows a progress bar with elapsed and remaining time, and below it loss and accuracy."""

    def __init__(self, total_epochs: int):
        from ftnn._bars import Bar  # here because Rich takes a while to load

        self._bar, self._total = Bar(), max(total_epochs, 1)
        self._done = self._steps_done = 0
        self._steps = 1
        self._latest = ""

    def __enter__(self) -> Bars:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self._bar.show(1.0)  # a stage may end early
        self._bar.text = self._latest
        self._bar.stop()

    def begin(self, stage: StageName, layer: int, epoch: int, epochs: int, steps: int) -> None:
        self._steps, self._steps_done = max(steps, 1), 0
        self._bar.show(self._share, f"{_title(stage, layer)}, epoch {epoch}/{epochs}")

    def advance(self, steps: int, loss: float) -> None:
        self._steps_done += steps
        self._bar.text = f"loss {loss:.4f}" + (f"; last epoch: {self._latest}" if self._latest else "")
        self._bar.show(self._share)

    def end(self, epoch: Epoch) -> None:
        self._done, self._steps_done, self._latest = self._done + 1, 0, _results(epoch)
        self._bar.show(self._share)

    @property
    def _share(self) -> float:
        return min(1.0, (self._done + min(1.0, self._steps_done / self._steps)) / self._total)


SECONDS_BETWEEN = 5.0
"""The least time between two lines outside of a terminal."""


def reporter(progress: bool | Reporter | None, total_epochs: int) -> Any:
    """A reporter, as a context manager. True: a bar on a terminal, a line now and then elsewhere."""
    if progress is None or progress is False:
        return Silent()
    if progress is True:
        return Bars(total_epochs) if sys.stderr.isatty() else Lines(None, SECONDS_BETWEEN, total_epochs)
    if not all(callable(getattr(progress, name, None)) for name in ("begin", "advance", "end")):
        raise FtnnError(
            f"progress={quoted(progress)} must be True, False, or an object like ftnn.training.Lines"
        )
    return progress if hasattr(progress, "__enter__") else nullcontext(progress)
