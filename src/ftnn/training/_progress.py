"""Showing a person how training goes: bars on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import IO, Any, Protocol

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
    """Prints a line for each epoch."""

    def __init__(self, stream: IO[str] | None = None):
        self._stream = stream if stream is not None else sys.stderr

    def end(self, epoch: Epoch) -> None:
        title = _title(epoch.stage, epoch.layer)
        print(
            f"{title}, epoch {epoch.epoch}: {_results(epoch)}, {epoch.seconds:.1f} s",
            file=self._stream,
            flush=True,
        )


class Bars(Silent):
    """Shows two progress bars, for this epoch and the whole run, with loss, accuracy and remaining time."""

    def __init__(self, total_epochs: int):
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=Console(stderr=True),
        )
        self._all = self._progress.add_task("all epochs", total=total_epochs, note="")
        self._epoch = self._progress.add_task("", total=1, note="")

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def begin(self, stage: StageName, layer: int, epoch: int, epochs: int, steps: int) -> None:
        title = f"{_title(stage, layer)}, epoch {epoch}/{epochs}"
        self._progress.reset(self._epoch, total=steps, description=title)

    def advance(self, steps: int, loss: float) -> None:
        self._progress.update(self._epoch, advance=steps, note=f"loss {loss:.4f}")

    def end(self, epoch: Epoch) -> None:
        self._progress.update(self._all, advance=1, note=_results(epoch))


def reporter(progress: bool | Reporter | None, total_epochs: int) -> Any:
    """A reporter, as a context manager. True: bars on a terminal, lines elsewhere."""
    if progress is None or progress is False:
        return Silent()
    if progress is True:
        return Bars(total_epochs) if sys.stderr.isatty() else Lines()
    if not all(callable(getattr(progress, name, None)) for name in ("begin", "advance", "end")):
        raise FtnnError(
            f"progress={quoted(progress)} must be True, False, or an object like ftnn.training.Lines"
        )
    return progress if hasattr(progress, "__enter__") else nullcontext(progress)
