"""The estimators' parameters, checked when fitting, as scikit-learn expects."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from functools import partial
from math import ceil
from numbers import Integral
from typing import Any, get_args

import numpy as np
import torch

from ftnn.errors import FtnnError
from ftnn.formula import Function, Mixed
from ftnn.nn import Network
from ftnn.nn._activations import activation_formula
from ftnn.training._checks import one_of, quoted, real, whole
from ftnn.training._engine import EngineName
from ftnn.training._settings import SECOND_ORDER, Settings
from ftnn.training._start import defaults_for

AnyFunction = str | Function | Mixed

DTYPES = {"float32": torch.float32, "float64": torch.float64}
SETTINGS = (
    *("gamma", "solver", "optimizer", "learning_rate", "schedule", "batch_size", "clip", "momentum"),
    *("weight_decay", "clip_norm", "normalise", "calibrate", "starts", "bounds"),
)
"""The parameters that are settings of `ftnn.training.fit`, with the same names."""


class ParameterError(FtnnError, ValueError, TypeError):
    """An invalid parameter of an estimator."""


def _flag(name: str, value: Any) -> None:
    if not isinstance(value, bool | np.bool_ | Integral):
        raise FtnnError(f"{name}={quoted(value)} must be True or False")


def _widths(name: str, value: Any) -> None:
    try:
        widths: list[Any] = list(value) if isinstance(value, Iterable) else [value]
    except Exception:  # iterating over an unknown type may raise anything
        widths = [None]
    if not all(isinstance(width, Integral) and width is not True and int(width) > 0 for width in widths):
        raise FtnnError(f"{name}={value!r} must be the width of each hidden layer, such as (100, 50)")


def _functions(name: str, value: Any) -> None:
    functions: list[Any] = list(value) if isinstance(value, list | tuple) else [value]
    if not all(isinstance(function, AnyFunction) for function in functions):
        raise FtnnError(
            f"{name}={value!r} must be a catalogue name, a formula, a Function, Mixed, or a list with one of "
            "these for each hidden layer"
        )


def _activations(name: str, value: Any) -> None:
    for activation in value if isinstance(value, list | tuple) else [value]:
        activation_formula(activation)


_CHECKS: dict[str, Callable[[str, Any], object]] = {
    "function": _functions,
    "hidden_layer_sizes": _widths,
    "activation": _activations,
    "epochs": lambda name, value: value is None or whole(name, value, least=1),
    "fine_tuning_epochs": partial(whole, least=0),
    "engine": partial(one_of, allowed=get_args(EngineName)),
    "standardise": _flag,
    "early_stopping": _flag,
    "validation_fraction": partial(
        real, expected="a number above 0 and below 1", allowed=lambda value: 0 < value < 1
    ),
    "n_iter_no_change": partial(whole, least=1),
    "tol": partial(real, expected="a number of 0 or more", allowed=lambda value: value >= 0),
    "verbose": _flag,
    "dtype": partial(one_of, allowed=tuple(DTYPES)),
}


GAMMA = -4
"""Does well across data sets, by the paper's method; the paper chooses for each function."""
LAYERWISE_EPOCHS = 100
"""At most, for each stage: training by the paper's method ends when the loss no longer falls."""

ITERATIONS = 200
"""At most, of the second-order solvers."""
WEIGHT_DECAY = 0.3
"""Of AdamW, the direct solver's default for estimators: their data are mostly few, and easily overfitted."""
BATCHES, SMALLEST, LARGEST = 25, 16, 64
"""How many mini-batches to aim at, and the bounds of their size: for few samples, small ones do better."""
LARGEST_RATE = 0.01
"""Of the direct solver by default: for few samples, larger ones do not pay."""
STEPS, LEAST_EPOCHS = 1000, 10
"""The least numbers of steps and of epochs."""


def settings_of(parameters: Mapping[str, Any], samples: int, **others: Any) -> dict[str, Any]:
    """The settings of training for a number of samples, from an estimator's valid parameters.

    `others` replace parameters.
    """
    settings = {name: parameters[name] for name in (*SETTINGS, "epochs")} | others
    solver = settings["solver"] or ("direct" if settings["gamma"] is None else "layerwise")
    defaults = {"solver": solver, "weight_decay": 0.0, "epochs": LAYERWISE_EPOCHS}
    if solver == "direct":
        batch_size = settings["batch_size"] or even_batch(samples)
        defaults |= {"batch_size": batch_size, "epochs": enough_epochs(samples, batch_size)}
        if not settings["momentum"] and settings["optimizer"] in (None, "adamw"):
            defaults |= {"optimizer": "adamw", "weight_decay": WEIGHT_DECAY}
    elif solver in SECOND_ORDER:
        defaults["epochs"] = ITERATIONS
    elif settings["learning_rate"] is None:
        defaults["gamma"] = GAMMA
    given = {name: value for name, value in settings.items() if value is not None}
    return settings | defaults | given


def settings_for(
    parameters: Mapping[str, Any], samples: int, network: Network, **others: Any
) -> dict[str, Any]:
    """`settings_of`, with the learning rate that suits the network, if none is given."""
    settings = settings_of(parameters, samples, **others)
    if settings["solver"] == "direct" and settings["gamma"] is settings["learning_rate"] is None:
        settings["learning_rate"] = min(LARGEST_RATE, defaults_for(network)["learning_rate"])
    return settings


def even_batch(samples: int) -> int:
    """The size of mini-batches: about 25, of 16 to 64 samples; the last is nearly full.

    Sums are normalised over each mini-batch; over a last one of a few samples, they would be noise.
    """
    most = min(max(samples // BATCHES, SMALLEST), LARGEST)
    if samples <= most:
        return samples
    sizes = range(ceil(0.75 * most), most + 1)
    return max(sizes, key=lambda size: (((samples - 1) % size + 1) / size, size))


def enough_epochs(samples: int, batch_size: int) -> int:
    """At least `LEAST_EPOCHS`, and enough for `STEPS` steps: an epoch over few samples has few of them."""
    return max(LEAST_EPOCHS, ceil(STEPS / ceil(samples / batch_size)))


def check_parameters(parameters: Mapping[str, Any]) -> None:
    """Refuse invalid parameters, by name. scikit-learn checks `random_state`."""
    settings = {name: parameters[name] for name in SETTINGS}
    with value_errors():
        Settings(**settings)
        for name, check in _CHECKS.items():
            check(name, parameters[name])


@contextmanager
def value_errors() -> Generator[None]:
    """Turn ftnn's errors into a `ValueError`, as scikit-learn expects."""
    try:
        yield
    except FtnnError as error:
        if isinstance(error, ValueError | TypeError):
            raise
        raise ParameterError(str(error)) from error
