"""What stages of all experiments do as they run. Loads torch."""

from __future__ import annotations

import time
from typing import Any

import torch

from ftnn.experiments.grid.jobs import Array, Checkpoint, Progress
from ftnn.experiments.grid.task import Tell

SECONDS_BETWEEN = 0.5
"""Where epochs are shorter than this, not each of them is told."""


class Running:
    """A stage as it runs: its processor time, over all processes that had a part in it, and who is told."""

    def __init__(self, key: str, checkpoint: Checkpoint | None, tell: Tell):
        self._key, self._tell = key, tell
        self._before = 0.0 if checkpoint is None else float(checkpoint.notes["seconds"])
        self._start = time.process_time()
        self._told = time.monotonic()

    @property
    def seconds(self) -> float:
        return self._before + time.process_time() - self._start

    @property
    def is_due(self) -> bool:
        """Whether it is time to tell again."""
        return time.monotonic() - self._told >= SECONDS_BETWEEN

    def tell(
        self, epoch: int, loss: float, accuracy: float | None, notes: dict[str, Any], arrays: dict[str, Array]
    ) -> None:
        """Tell of an epoch, with what the stage needs to go on from here."""
        self._told = time.monotonic()
        checkpoint = Checkpoint({**notes, "seconds": self.seconds}, arrays)
        self._tell(Progress(self._key, epoch, loss, accuracy, checkpoint))


def arrays_of(net: torch.nn.Module) -> dict[str, Array]:
    return {name: tensor.detach().numpy().copy() for name, tensor in net.state_dict().items()}


def load_arrays(net: torch.nn.Module, arrays: dict[str, Array], *, strict: bool = True) -> None:
    tensors = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
    net.load_state_dict(tensors, strict=strict)
