"""How to train, and the stages that follow from it.

`Settings` defines each setting once: its name, default, check and description. `fit`, the estimators and
`ftnn train` spell their signatures out, for editors and for scikit-learn; a test compares them with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import partial
from numbers import Integral
from typing import Any, Literal, get_args

import numpy as np

from ftnn.errors import FtnnError
from ftnn.training._checks import one_of, quoted, real, whole
from ftnn.training._history import StageName

Solver = Literal["layerwise", "joint"]


def _about(check: Callable[[str, Any], Any], description: str) -> dict[str, Any]:
    """`check(name, value)` gives the value to keep, or raises."""
    return {"check": check, "description": description}


def _clip(name: str, value: Any) -> float | None:
    return None if value is None else real(name, value, "a number above 0, or None", lambda clip: clip > 0)


def _momentum(name: str, value: Any) -> float:
    return real(name, value, "a number of 0 or more and below 1", lambda momentum: 0 <= momentum < 1)


def _weight_decay(name: str, value: Any) -> float:
    return real(name, value, "a finite number of 0 or more", lambda decay: 0 <= decay < math.inf)


def _epochs(name: str, value: Any) -> tuple[int, int]:
    """A pair; a single number is both."""
    pair = (value, value) if isinstance(value, Integral) else value
    is_sequence = isinstance(pair, tuple | list) or (isinstance(pair, np.ndarray) and pair.ndim == 1)
    if not is_sequence or len(pair) != 2:
        raise FtnnError(f"{name}={quoted(value)} must be a whole number, or two of them such as (15, 15)")
    return whole(name, pair[0], least=0), whole(name, pair[1], least=0)


@dataclass(frozen=True)
class Settings:
    """How to train: the arguments of [`ftnn.training.fit`][] that decide the result.

    The defaults are the paper's.
    """

    gamma: float = field(
        default=-2,
        metadata=_about(real, "The learning rate is 2^γ; for fine-tuning, 2^(γ-4)."),
    )
    epochs: tuple[int, int] = field(
        default=(15, 15),
        metadata=_about(
            _epochs,
            "For each hidden layer, and for fine-tuning at most; joint training takes the first number.",
        ),
    )
    batch_size: int = field(
        default=16,
        metadata=_about(partial(whole, least=1), "Samples in a mini-batch; the last may be short."),
    )
    seed: int = field(default=0, metadata=_about(partial(whole, least=0), "The seed of all random numbers."))
    clip: float | None = field(
        default=1000.0,
        metadata=_about(
            _clip,
            "The largest size of each parameter's gradient, summed over the mini-batch; None: no limit.",
        ),
    )
    solver: Solver = field(
        default="layerwise",
        metadata=_about(
            partial(one_of, allowed=get_args(Solver)),
            "layerwise: one hidden layer after the other, then fine-tuning of all. joint: all at once.",
        ),
    )
    momentum: float = field(default=0.0, metadata=_about(_momentum, "The momentum of SGD."))
    weight_decay: float = field(default=0.0, metadata=_about(_weight_decay, "The weight decay of SGD."))
    fine_tuning_shift: float = field(
        default=4, metadata=_about(real, "Fine-tuning begins with the rate 2^(γ - this).")
    )
    threshold: float = field(
        default=1e-4,
        metadata=_about(real, "Fine-tuning halves its rate when the loss improves by less than this."),
    )

    def __post_init__(self) -> None:
        for setting in fields(self):
            value = setting.metadata["check"](setting.name, getattr(self, setting.name))
            object.__setattr__(self, setting.name, value)
        _learning_rate(self.gamma)
        _learning_rate(self.gamma, self.fine_tuning_shift)

    @property
    def rate(self) -> float:
        return _learning_rate(self.gamma)

    @property
    def fine_tuning_rate(self) -> float:
        return _learning_rate(self.gamma, self.fine_tuning_shift)


DESCRIPTIONS: dict[str, str] = {setting.name: setting.metadata["description"] for setting in fields(Settings)}
"""One line for each setting."""


def _learning_rate(gamma: float, shift: float = 0) -> float:
    """2^(γ - shift), if that is a number to learn with."""
    try:
        rate = 2.0 ** (gamma - shift)
    except OverflowError:
        rate = math.inf
    if not 0 < rate < math.inf:
        shifted = f" (and fine_tuning_shift={shift})" if shift else ""
        raise FtnnError(
            f"gamma={gamma}{shifted} gives a learning rate of 2^{gamma - shift:g}, "
            f"which is {'too large' if rate else 'too small'} for a floating-point number"
        )
    return rate


@dataclass(frozen=True)
class Stage:
    """A part of a run: which layers learn, and for how long."""

    name: StageName
    layer: int
    """The hidden layer that learns, from 1; 0 for all."""
    epochs: int
    rate: float


def stages_of(settings: Settings, hidden_layers: int) -> list[Stage]:
    """The parts of a run, in order."""
    first, second = settings.epochs
    if settings.solver == "joint" or hidden_layers == 0:
        return [Stage("joint", 0, first, settings.rate)]
    layerwise = [Stage("lwt", layer, first, settings.rate) for layer in range(1, hidden_layers + 1)]
    return [*layerwise, Stage("ft", 0, second, settings.fine_tuning_rate)]
