"""How to train, and the stages that follow from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ftnn.errors import FtnnError
from ftnn.training._history import StageName

Solver = Literal["layerwise", "joint"]


@dataclass(frozen=True)
class Settings:
    """How to train. The defaults are the paper's."""

    gamma: float = -2
    """The learning rate is 2^γ; for fine-tuning, 2^(γ - `fine_tuning_shift`)."""
    epochs: tuple[int, int] = (15, 15)
    """Of layer-wise training, for each hidden layer; of fine-tuning, at most. Joint training: the first."""
    batch_size: int = 16
    seed: int = 0
    clip: float | None = 1000.0
    """The largest allowed size of each parameter's gradient, summed over the mini-batch; None: no limit."""
    solver: Solver = "layerwise"
    momentum: float = 0.0
    weight_decay: float = 0.0
    fine_tuning_shift: float = 4
    threshold: float = 1e-4
    """Fine-tuning halves its rate when the loss improves by less than this."""

    def __post_init__(self) -> None:
        problems = [
            (not math.isfinite(self.gamma), f"gamma={self.gamma!r} must be a finite number"),
            (
                len(self.epochs) != 2 or min(self.epochs) < 0,
                f"epochs={self.epochs!r} must be two numbers of 0 or more",
            ),
            (self.batch_size < 1, f"batch_size={self.batch_size!r} must be 1 or more"),
            (self.seed < 0, f"seed={self.seed!r} must be 0 or more"),
            (self.clip is not None and not self.clip > 0, f"clip={self.clip!r} must be above 0, or None"),
            (
                self.solver not in ("layerwise", "joint"),
                f"solver={self.solver!r}: allowed are layerwise, joint",
            ),
            (not 0 <= self.momentum < 1, f"momentum={self.momentum!r} must be in [0, 1)"),
            (self.weight_decay < 0, f"weight_decay={self.weight_decay!r} must be 0 or more"),
        ]
        for wrong, message in problems:
            if wrong:
                raise FtnnError(message)

    @property
    def rate(self) -> float:
        return 2.0**self.gamma

    @property
    def fine_tuning_rate(self) -> float:
        return 2.0 ** (self.gamma - self.fine_tuning_shift)


@dataclass(frozen=True)
class Stage:
    """A part of a run: which layers learn, and for how long."""

    name: StageName
    layer: int
    """The hidden layer that learns, from 1; 0 for all."""
    epochs: int
    rate: float


def stages(settings: Settings, hidden_layers: int) -> list[Stage]:
    """The parts of a run, in order."""
    first, second = settings.epochs
    if settings.solver == "joint" or hidden_layers == 0:
        return [Stage("joint", 0, first, settings.rate)]
    layerwise = [Stage("lwt", layer, first, settings.rate) for layer in range(1, hidden_layers + 1)]
    return [*layerwise, Stage("ft", 0, second, settings.fine_tuning_rate)]
