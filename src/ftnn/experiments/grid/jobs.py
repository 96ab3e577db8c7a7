"""What goes to where stages run, and what comes back: plain data, without torch, to be read quickly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ftnn.experiments.grid.task import AnyTask, Tell
from ftnn.training import Epoch, Pass

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Kept:
    """A stage that is done, as far as those after it need it."""

    epochs: tuple[Epoch, ...]
    failed: str | None
    advice: str | None
    arrays: dict[str, Array]


@dataclass(frozen=True)
class Checkpoint:
    """A stage in hand, at the end of an epoch."""

    notes: dict[str, Any]
    """Plain data: where it is and what it did until then."""
    arrays: dict[str, Array]


@dataclass(frozen=True)
class Job:
    """A stage to run, with all that it needs."""

    task: AnyTask
    before: tuple[Kept, ...] = ()
    """The stages that lead to it, up to the first that failed."""
    checkpoint: Checkpoint | None = None

    def run(self, tell: Tell) -> Outcome:
        return self.task.run(self.before, self.checkpoint, tell)


# --- what comes back ---


@dataclass(frozen=True)
class Progress:
    """An epoch of a stage is done."""

    key: str
    epoch: int
    loss: float
    accuracy: float | None
    checkpoint: Checkpoint


@dataclass(frozen=True)
class Outcome:
    """A stage that is done."""

    key: str
    epochs: tuple[Epoch | Pass, ...]
    failed: str | None
    advice: str | None
    loss: float | None
    arrays: dict[str, Array]
    """What the stage trained: a layer and the output layer above it, or all; named as in a `state_dict`."""
    lwt_accuracy: float | None
    ft_accuracy: float | None
    digest: str
    """Of the whole network; for the last stage of a cell, what `ftnn train` says."""
    seconds: float
    """Processor time."""


@dataclass(frozen=True)
class Lost:
    """A worker that ran this stage is gone."""

    key: str
    reason: str


@dataclass(frozen=True)
class Broken:
    """A stage that raised an error: a fault of ours, not a failed training."""

    key: str
    error: str


Event = Progress | Outcome | Lost | Broken
