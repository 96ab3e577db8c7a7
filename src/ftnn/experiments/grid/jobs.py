"""Messages between the scheduler and executors: plain data that loads without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ftnn.experiments.grid.task import AnyTask, OnProgress
from ftnn.training import Epoch, Pass

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Predecessor:
    """A finished stage: the part that later stages of its chain need."""

    epochs: tuple[Epoch, ...]
    failed: str | None
    advice: str | None
    arrays: dict[str, Array]
    validation_accuracy: float | None = None


@dataclass(frozen=True)
class Checkpoint:
    """An unfinished stage at the end of an epoch."""

    notes: dict[str, Any]
    """Its position and history, as plain data."""
    arrays: dict[str, Array]


@dataclass(frozen=True)
class Job:
    """A stage to run, with everything it needs."""

    task: AnyTask
    before: tuple[Predecessor, ...] = ()
    """The earlier stages of its chain, up to the first that failed."""
    checkpoint: Checkpoint | None = None

    def run(self, on_progress: OnProgress) -> Outcome:
        return self.task.run(self.before, self.checkpoint, on_progress)


# --- events ---


@dataclass(frozen=True)
class Progress:
    """A stage has finished an epoch."""

    key: str
    epoch: int
    loss: float
    accuracy: float | None
    checkpoint: Checkpoint


@dataclass(frozen=True)
class Outcome:
    """A finished stage."""

    key: str
    epochs: tuple[Epoch | Pass, ...]
    failed: str | None
    advice: str | None
    loss: float | None
    arrays: dict[str, Array]
    """What the stage trained: a layer and the output layer above it, or all; named as in a `state_dict`."""
    lwt_accuracy: float | None
    ft_accuracy: float | None
    """The final test accuracy, also of cells without fine-tuning."""
    digest: str
    """Of the whole network; after the last stage of a cell, the digest that `ftnn train` prints."""
    seconds: float
    """Processor time."""
    validation_accuracy: float | None = None
    """On held-out training samples; None if there are none."""
    lwt_validation_accuracy: float | None = None
    """The same before fine-tuning, if this is it."""


@dataclass(frozen=True)
class Lost:
    """The worker that ran this stage has died."""

    key: str
    reason: str


@dataclass(frozen=True)
class Broken:
    """The stage raised an exception: a bug, not a failed training."""

    key: str
    error: str


Event = Progress | Outcome | Lost | Broken
