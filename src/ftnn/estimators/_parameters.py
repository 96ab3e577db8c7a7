"""The estimators' parameters, checked in scikit-learn's way: when fitting, not before."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
import torch
from sklearn.utils import check_scalar

from ftnn.errors import FtnnError
from ftnn.formula import Function, Mixed
from ftnn.training._arguments import quoted

AnyFunction = str | Function | Mixed

DTYPES = {"float32": torch.float32, "float64": torch.float64}
_ALLOWED: dict[str, tuple[str, ...]] = {
    "activation": ("logistic", "relu", "tanh"),
    "solver": ("layerwise", "joint"),
    "engine": ("auto", "compiled", "torch"),
    "dtype": tuple(DTYPES),
}
_Ends = Literal["left", "both", "neither"]
_NUMBERS: dict[str, tuple[type, float | None, float | None, _Ends]] = {
    "gamma": (Real, -100, 100, "both"),
    "epochs": (Integral, 1, None, "left"),
    "fine_tuning_epochs": (Integral, 0, None, "left"),
    "batch_size": (Integral, 1, None, "left"),
    "clip": (Real, 0, None, "neither"),
    "momentum": (Real, 0, 1, "left"),
    "weight_decay": (Real, 0, None, "left"),
    "validation_fraction": (Real, 0, 1, "neither"),
    "n_iter_no_change": (Integral, 1, None, "left"),
    "tol": (Real, 0, None, "left"),
}


class ParameterError(FtnnError, ValueError):
    """A parameter of an estimator that cannot be used."""


def check_parameters(given: dict[str, Any]) -> None:
    """Refuses parameters that are not allowed, by name."""
    for name, (kind, low, high, ends) in _NUMBERS.items():
        value = given[name]
        if name == "clip" and value is None:
            continue
        if isinstance(value, bool) or (isinstance(value, float) and math.isnan(value)):
            raise ParameterError(f"{name}={value!r} is not allowed; it must be a number")
        check_scalar(value, name, kind, min_val=low, max_val=high, include_boundaries=ends)
    for name in ("early_stopping", "verbose"):
        if not isinstance(given[name], bool | np.bool_ | Integral):
            raise ParameterError(f"{name}={quoted(given[name])} is not allowed; it must be True or False")
    for name, allowed in _ALLOWED.items():
        value = given[name]
        if not isinstance(value, str) or value not in allowed:
            raise ParameterError(f"{name}={value!r} is not known; allowed are {', '.join(allowed)}")
    if not _is_widths(given["hidden_layer_sizes"]):
        raise ParameterError(
            f"hidden_layer_sizes={given['hidden_layer_sizes']!r} is not allowed; "
            "it must be the width of each hidden layer, such as (100, 50)"
        )
    if not _is_functions(given["function"]):
        raise ParameterError(
            f"function={given['function']!r} is not allowed; it must be a catalogue name, a formula, "
            "a Function, Mixed, or a list with one of these for each hidden layer"
        )


def _is_widths(given: Any) -> bool:
    try:
        widths: list[Any] = list(given) if isinstance(given, Iterable) else [given]
    except Exception:  # of a stranger's type, iterating may raise anything
        return False
    return all(isinstance(n, Integral) and n is not True and int(n) > 0 for n in widths)


def _is_functions(given: Any) -> bool:
    functions: list[Any] = list(given) if isinstance(given, list | tuple) else [given]
    return all(isinstance(function, AnyFunction) for function in functions)


@contextmanager
def value_errors() -> Generator[None]:
    """What ftnn refuses is, for scikit-learn, a ValueError."""
    try:
        yield
    except FtnnError as error:
        if isinstance(error, ValueError | TypeError):
            raise
        raise ParameterError(str(error)) from error
