"""Helpers for running stages. Loads torch."""

from __future__ import annotations

import time
from typing import Any

import torch

from ftnn.experiments.grid.jobs import Array, Checkpoint, Progress
from ftnn.experiments.grid.task import OnProgress

SECONDS_BETWEEN = 0.5
"""The shortest time between two progress reports."""


class Running:
    """A running stage: measures its processor time over all its attempts, and reports progress."""

    def __init__(self, key: str, checkpoint: Checkpoint | None, on_progress: OnProgress):
        self._key, self._on_progress = key, on_progress
        self._earlier = 0.0 if checkpoint is None else float(checkpoint.notes["seconds"])
        self._start = time.process_time()
        self._reported = time.monotonic()

    @property
    def seconds(self) -> float:
        return self._earlier + time.process_time() - self._start

    @property
    def is_due(self) -> bool:
        """Whether it is time for the next report."""
        return time.monotonic() - self._reported >= SECONDS_BETWEEN

    def report(
        self, epoch: int, loss: float, accuracy: float | None, notes: dict[str, Any], arrays: dict[str, Array]
    ) -> None:
        """Report an epoch, with `notes` and `arrays` as a checkpoint to resume from."""
        self._reported = time.monotonic()
        checkpoint = Checkpoint({**notes, "seconds": self.seconds}, arrays)
        self._on_progress(Progress(self._key, epoch, loss, accuracy, checkpoint))


def arrays_of(net: torch.nn.Module) -> dict[str, Array]:
    return {name: tensor.detach().numpy().copy() for name, tensor in net.state_dict().items()}


def load_arrays(net: torch.nn.Module, arrays: dict[str, Array], *, strict: bool = True) -> None:
    tensors = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
    net.load_state_dict(tensors, strict=strict)
