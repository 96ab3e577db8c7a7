"""The settings of training, and the stages they imply.

`Settings` defines each setting once: its name, default, check and description. `fit`, the estimators and
`ftnn train` spell out their signatures, for editors and scikit-learn; a test compares them with `Settings`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from numbers import Integral, Real
from typing import Any, Literal, get_args

import numpy as np

from ftnn.errors import FtnnError
from ftnn.training._checks import one_of, quoted, real, whole
from ftnn.training._history import StageName
from ftnn.training._rules import RULES, CompiledRule, Rule
from ftnn.training._schedules import HALVING, Schedule, check_schedule
from ftnn.training._schedules import describe as describe_schedule

Solver = Literal["direct", "layerwise", "joint", "lm", "lbfgs"]
SECOND_ORDER = ("lm", "lbfgs")
"""The solvers that use curvature: each epoch is an iteration over all samples."""

TOO_SMALL = (2, 3)
"""Sizes of mini-batches over which sums are not normalised by default: over two samples, all would be ±1.
Single samples are normalised by running statistics, which works well."""


def _about(check: Callable[[str, Any], Any], description: str) -> dict[str, Any]:
    """`check(name, value)` returns the value to store, or raises."""
    return {"check": check, "description": description}


def _clip(name: str, value: Any) -> float | None:
    return None if value is None else real(name, value, "a number above 0, or None", lambda clip: clip > 0)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise FtnnError(f"{name}={quoted(value)} must be True or False")
    return bool(value)


def _momentum(name: str, value: Any) -> float:
    return real(name, value, "a number of 0 or more and below 1", lambda momentum: 0 <= momentum < 1)


def _weight_decay(name: str, value: Any) -> float:
    return real(name, value, "a finite number of 0 or more", lambda decay: 0 <= decay < math.inf)


def _epochs(name: str, value: Any) -> tuple[int, int]:
    """A pair of numbers; a single number stands for both."""
    pair = (value, value) if isinstance(value, Integral) else value
    is_sequence = isinstance(pair, tuple | list) or (isinstance(pair, np.ndarray) and pair.ndim == 1)
    if not is_sequence or len(pair) != 2:
        raise FtnnError(f"{name}={quoted(value)} must be a whole number, or two of them such as (15, 15)")
    return whole(name, pair[0], least=0), whole(name, pair[1], least=0)


def _optional(check: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    return lambda name, value: None if value is None else check(name, value)


def _learning_rate(name: str, value: Any) -> float:
    return real(name, value, "a finite number above 0", lambda rate: 0 < rate < math.inf)


def _rule(name: str, value: Any) -> Rule:
    if isinstance(value, Rule):
        return value
    if not isinstance(value, str) or value not in RULES:
        raise FtnnError(
            f"{name}={quoted(value)} is unknown; expected one of {', '.join(RULES)}, an ftnn.training.Rule, "
            "or a function that makes a torch optimizer from parameters"
        )
    return RULES[value]


def _bounds(name: str, value: Any) -> dict[str, tuple[float, float]]:
    """Two numbers for each name, infinite for None."""
    message = (
        f"{name}={quoted(value)} must map names of parameters to (low, high), such as {{'q': (0, None)}}"
    )
    if not isinstance(value, Mapping):
        raise FtnnError(message)
    checked: dict[str, tuple[float, float]] = {}
    for key, pair in value.items():
        if not isinstance(key, str) or not isinstance(pair, tuple | list) or len(pair) != 2:
            raise FtnnError(message)
        numbers = (-math.inf if pair[0] is None else pair[0], math.inf if pair[1] is None else pair[1])
        try:
            low, high = (float(real(name, number, allowed=lambda n: n == n)) for number in numbers)
        except FtnnError:  # it quotes only the number
            raise FtnnError(message) from None
        if not low < high:
            raise FtnnError(f"{name}: {key!r} has ({low:g}, {high:g}); expected low < high")
        checked[key] = (low, high)
    return checked


_BY_SOLVER: dict[str, dict[str, Any]] = {
    "layerwise": {"epochs": (15, 15), "batch_size": 16, "optimizer": "sgd", "gamma": -2},
    "joint": {"epochs": (15, 15), "batch_size": 16, "optimizer": "sgd", "gamma": -2, "schedule": "constant"},
    "direct": {
        "epochs": (10, 10),
        "batch_size": 32,
        "optimizer": "adamw",
        "schedule": "one-cycle",
        "clip_norm": 1.0,
        "normalise": True,
        "calibrate": True,
    },
    **{solver: {"epochs": (200, 200), "calibrate": True} for solver in SECOND_ORDER},
}
"""Defaults that depend on the solver; those of layer-wise and joint training are the paper's. The direct
solver's learning rate and weight decay depend on the network."""


def without_meaning(name: str, value: Any, solver: str | None) -> str:
    """Why a second-order solver refuses a setting of the others."""
    return (
        f"{name}={quoted(value)} has no meaning for solver={quoted(solver)}, which chooses its steps itself "
        "and uses all samples in each"
    )


@dataclass(frozen=True)
class Settings:
    """How to train: the arguments of [`ftnn.training.fit`][] that decide the result.

    None means the solver's default, which replaces it when the object is created.
    """

    gamma: float | None = field(
        default=None,
        metadata=_about(
            _optional(real),
            "The learning rate is 2^γ; for fine-tuning, 2^(γ-4). Implies the layerwise solver.",
        ),
    )
    epochs: tuple[int, int] | None = field(
        default=None,
        metadata=_about(
            _optional(_epochs),
            "For each hidden layer, and for fine-tuning at most; other solvers take the first number.",
        ),
    )
    batch_size: int | None = field(
        default=None,
        metadata=_about(
            _optional(partial(whole, least=1)), "Samples in a mini-batch; the last may be short."
        ),
    )
    seed: int = field(default=0, metadata=_about(partial(whole, least=0), "The seed of all random numbers."))
    clip: float | None = field(
        default=1000.0,
        metadata=_about(
            _clip,
            "The largest size of each parameter's gradient, summed over the mini-batch; None: no limit.",
        ),
    )
    solver: Solver | None = field(
        default=None,
        metadata=_about(
            _optional(partial(one_of, allowed=get_args(Solver))),
            "direct: all layers at once. layerwise: one hidden layer after the other, then fine-tuning of "
            "all. joint: all at once, by plain SGD. lm: Levenberg-Marquardt, for networks of up to a few "
            "thousand parameters. lbfgs: L-BFGS, for larger ones.",
        ),
    )
    optimizer: Any = field(
        default=None,
        metadata=_about(
            _optional(_rule), "The update rule: adam, adamw, momentum, nesterov, rmsprop or sgd."
        ),
    )
    learning_rate: float | None = field(
        default=None,
        metadata=_about(_optional(_learning_rate), "The largest learning rate, instead of gamma."),
    )
    schedule: Schedule | None = field(
        default=None,
        metadata=_about(
            _optional(check_schedule),
            "How the learning rate changes: constant, cosine, halving, one-cycle, warm-up or warm-up cosine.",
        ),
    )
    momentum: float = field(default=0.0, metadata=_about(_momentum, "The momentum of SGD."))
    weight_decay: float | None = field(
        default=None, metadata=_about(_optional(_weight_decay), "The weight decay.")
    )
    clip_norm: float | None = field(
        default=None,
        metadata=_about(
            _clip, "The largest norm of all gradients together, means over the mini-batch; inf: no limit."
        ),
    )
    normalise: bool | None = field(
        default=None,
        metadata=_about(
            _optional(_flag),
            "Whether hidden layers train with normalised sums, which end up in their parameters; only for "
            "the direct solver.",
        ),
    )
    calibrate: bool | None = field(
        default=None,
        metadata=_about(
            _optional(_flag),
            "Whether a network that is as it was drawn is first drawn again from ranges that suit the data; "
            "not for layerwise and joint.",
        ),
    )
    starts: int | None = field(
        default=None,
        metadata=_about(
            _optional(partial(whole, least=1)),
            "How many starts lm and lbfgs try at once; half of them end after 10, 20, 40 … iterations.",
        ),
    )
    bounds: Any = field(
        default=None,
        metadata=_about(
            _optional(_bounds),
            "The bounds of parameters by name, such as {'q': (0, None)}; only for lm.",
        ),
    )
    fine_tuning_shift: float = field(
        default=4, metadata=_about(real, "Fine-tuning begins with the rate 2^(γ - this).")
    )
    threshold: float = field(
        default=1e-4,
        metadata=_about(
            real, "The halving schedule halves the rate when the loss improves by less than this."
        ),
    )

    def __post_init__(self) -> None:
        if self.gamma is not None and self.learning_rate is not None:
            raise FtnnError(
                f"gamma={quoted(self.gamma)} and learning_rate={quoted(self.learning_rate)} both set the "
                "learning rate: set only one of them"
            )
        self._check("momentum")
        with_momentum = None
        if self.momentum:
            with_momentum = Rule("p - rate*m", {"m": "mu*m + g"}, {"mu": self.momentum})
        if self.momentum and self.optimizer not in (None, "sgd", with_momentum):
            raise FtnnError(
                f"momentum={quoted(self.momentum)} is for SGD, not for optimizer={quoted(self.optimizer)}"
            )
        self._set("solver", self.solver or ("direct" if self.gamma is None else "layerwise"))
        self._check("solver")
        self._refuse_for_solver()
        if self.weight_decay is None and (self.optimizer is not None or self.momentum):
            self._set("weight_decay", 0.0)
        normalise = self.normalise
        for name, value in _BY_SOLVER[self.solver or ""].items():
            is_rate = name in ("gamma", "learning_rate")
            has_rate = self.gamma is not None or self.learning_rate is not None
            if getattr(self, name) is None and not (is_rate and has_rate):
                self._set(name, value)
        if self.weight_decay is None and self.solver != "direct":
            self._set("weight_decay", 0.0)
        for setting in fields(self):
            self._check(setting.name)
        if normalise is None and self.batch_size in TOO_SMALL:
            self._set("normalise", False)
        for name in ("normalise", "calibrate"):
            if getattr(self, name) and name not in _BY_SOLVER[self.solver or ""]:
                raise FtnnError(f"{name}=True is for the direct solver, not for solver={quoted(self.solver)}")
            self._set(name, bool(getattr(self, name)))
        if self.momentum:
            self._set("optimizer", with_momentum)
        if self.gamma is not None:
            _ = self.rate, self.fine_tuning_rate

    def _refuse_for_solver(self) -> None:
        """Raise an error for settings that have no meaning for the solver."""
        second_order = self.solver in SECOND_ORDER
        only_first = ("gamma", "batch_size", "optimizer", "learning_rate", "schedule", "weight_decay")
        for name in (*only_first, "clip_norm", "momentum"):
            value = getattr(self, name)
            # A gamma of 0 is a rate of 1.
            has_zero = name in ("weight_decay", "momentum") and isinstance(value, Real)
            is_off = value is None or (has_zero and value == 0)
            if second_order and not is_off:
                raise FtnnError(without_meaning(name, value, self.solver))
        if self.starts is not None and not second_order:
            raise FtnnError(
                f"starts={quoted(self.starts)} is for the solvers lm and lbfgs, not for "
                f"solver={quoted(self.solver)}"
            )
        if self.bounds is not None and self.solver != "lm":
            raise FtnnError(f"bounds={quoted(self.bounds)} needs solver='lm', not {quoted(self.solver)}")

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _check(self, name: str) -> None:
        check = self.__dataclass_fields__[name].metadata["check"]
        self._set(name, check(name, getattr(self, name)))

    def completed(self, defaults: Callable[[], Mapping[str, float]]) -> Settings:
        """These settings with a learning rate and a weight decay, from `defaults` unless they are set."""
        if self.solver in SECOND_ORDER:
            return self
        if self.weight_decay is not None and (self.gamma is not None or self.learning_rate is not None):
            return self
        chosen = defaults()
        rate = self.learning_rate if self.gamma is None else None
        if self.gamma is None and rate is None:
            rate = chosen["learning_rate"]
        decay = chosen["weight_decay"] if self.weight_decay is None else self.weight_decay
        return replace(self, learning_rate=rate, weight_decay=decay)

    @property
    def rate(self) -> float:
        if self.learning_rate is not None:
            return self.learning_rate
        if self.solver in SECOND_ORDER:
            return 1.0
        assert self.gamma is not None, "the direct solver's learning rate depends on the network"
        return _power(self.gamma)

    @property
    def fine_tuning_rate(self) -> float:
        if self.learning_rate:
            return self.learning_rate * _power(-self.fine_tuning_shift)
        return _power(self.gamma or 0, self.fine_tuning_shift)

    @property
    def largest_norm(self) -> float | None:
        """The largest norm of all gradients together; None: no limit."""
        return None if self.clip_norm == math.inf else self.clip_norm

    @property
    def rule(self) -> CompiledRule:
        """The update rule, with its weight decay."""
        return self.optimizer.compiled(self.weight_decay or 0.0)

    def describe(self) -> dict[str, Any]:
        """Everything that determines a result, as JSON. Settings newer than ftnn 0.1 appear only if used."""
        names = ("gamma", "epochs", "batch_size", "seed", "clip", "solver", "momentum", "weight_decay",
                 "fine_tuning_shift", "threshold")  # fmt: skip
        described: dict[str, Any] = {name: getattr(self, name) for name in names}
        if self.optimizer is not None and not self.momentum and self.optimizer != RULES["sgd"]:
            described["rule"] = self.optimizer.describe()
        if self.learning_rate is not None:
            described["learning_rate"] = self.learning_rate
        if self.schedule is not None and not (self.solver == "joint" and self.schedule == "constant"):
            described["schedule"] = describe_schedule(self.schedule)
        if self.largest_norm is not None:
            described["clip_norm"] = self.largest_norm
        if self.normalise:
            described["normalise"] = True
        if self.calibrate:
            described["calibrate"] = True
        if self.starts is not None:
            described["starts"] = self.starts
        if self.bounds is not None:
            described["bounds"] = {name: list(map(str, pair)) for name, pair in self.bounds.items()}
        return described


DESCRIPTIONS: dict[str, str] = {setting.name: setting.metadata["description"] for setting in fields(Settings)}
"""A one-line description of each setting."""


def _power(gamma: float, shift: float = 0) -> float:
    """2^(γ - shift), checked to be a usable learning rate."""
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
    """A part of a run: which layers are trained, and for how long."""

    name: StageName
    layer: int
    """The hidden layer to train, from 1; 0 for all."""
    epochs: int
    rate: float
    schedule: Schedule


def stages_of(settings: Settings, hidden_layers: int) -> list[Stage]:
    """The parts of a run, in order."""
    first, second = settings.epochs or (0, 0)
    schedule, rate = settings.schedule, settings.rate
    if settings.solver in ("direct", "lm", "lbfgs"):
        return [Stage(settings.solver, 0, first, rate, schedule or "constant")]
    if settings.solver == "joint" or hidden_layers == 0:
        return [Stage("joint", 0, first, rate, schedule or "constant")]
    layerwise = [
        Stage("lwt", layer, first, rate, schedule or "constant") for layer in range(1, hidden_layers + 1)
    ]
    return [*layerwise, Stage("ft", 0, second, settings.fine_tuning_rate, schedule or HALVING)]
