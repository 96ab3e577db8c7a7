"""Expressions evaluated with NumPy in float64: for `explain`, for calling a `Function`, and as an oracle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Any

import numpy as np

from ftnn.formula._derive import lower
from ftnn.formula._expr import Expr, Number, Symbol, postorder
from ftnn.formula._ops import OPS

Array = np.ndarray[Any, np.dtype[np.float64]]


@cache
def _native(spelling: str) -> Callable[..., Any]:
    module, _, name = spelling.rpartition(".")
    if module == "special":
        from scipy import special

        return getattr(special, name)
    return getattr(np, name)


@lru_cache(maxsize=512)
def _steps(expr: Expr) -> tuple[Expr, ...]:
    """What NumPy computes for `expr`, arguments before what uses them."""
    return tuple(postorder(lower(expr, "numpy")))


def evaluate(expr: Expr, values: Mapping[str, Any]) -> Array:
    """The value of `expr`, broadcast over `values`. Poles and overflows give inf or NaN without a warning."""
    done: dict[Expr, Any] = {}
    steps = _steps(expr)
    with np.errstate(all="ignore"):
        for part in steps:
            match part:
                case Number(value):
                    done[part] = np.float64(value)
                case Symbol(name):
                    done[part] = np.asarray(values[name], dtype=np.float64)
                case _:
                    done[part] = _native(OPS[part.op].numpy)(*(done[arg] for arg in part.args))
    return np.asarray(done[steps[-1]], dtype=np.float64)
