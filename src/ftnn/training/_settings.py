"""How to train, and the stages that follow from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal

import numpy as np

from ftnn.errors import FtnnError
from ftnn.training._arguments import learning_rate, one_of, quoted, real, whole
from ftnn.training._history import StageName

Solver = Literal["layerwise", "joint"]
SOLVERS: tuple[Solver, ...] = ("layerwise", "joint")


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
        checked = {
            "gamma": real("gamma", self.gamma),
            "epochs": as_pair(self.epochs),
            "batch_size": whole("batch_size", self.batch_size, least=1),
            "seed": whole("seed", self.seed, least=0),
            "clip": checked_clip(self.clip),
            "solver": one_of("solver", self.solver, SOLVERS),
            "momentum": real(
                "momentum", self.momentum, "a number of 0 or more and below 1", lambda given: 0 <= given < 1
            ),
            "weight_decay": real(
                "weight_decay",
                self.weight_decay,
                "a finite number of 0 or more",
                lambda given: 0 <= given < math.inf,
            ),
            "fine_tuning_shift": real("fine_tuning_shift", self.fine_tuning_shift),
            "threshold": real("threshold", self.threshold),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        learning_rate(self.gamma)
        learning_rate(self.gamma, self.fine_tuning_shift)

    @property
    def rate(self) -> float:
        return learning_rate(self.gamma)

    @property
    def fine_tuning_rate(self) -> float:
        return learning_rate(self.gamma, self.fine_tuning_shift)


def checked_clip(given: Any) -> float | None:
    """The largest allowed size of a gradient; None, or infinity, for any."""
    return None if given is None else real("clip", given, "a number above 0, or None", lambda clip: clip > 0)


def as_pair(given: Any) -> tuple[int, int]:
    """Epochs of layer-wise training and of fine-tuning; a single number is both."""
    if isinstance(given, Integral):
        given = (given, given)
    is_sequence = isinstance(given, tuple | list) or (isinstance(given, np.ndarray) and given.ndim == 1)
    if not is_sequence or len(given) != 2:
        raise FtnnError(f"epochs={quoted(given)} must be a whole number, or two of them such as (15, 15)")
    first, second = (whole("epochs", each, least=0) for each in given)
    return first, second


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
