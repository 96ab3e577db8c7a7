"""Evaluation of expressions with NumPy in float64: for `explain`, for calling a `Function`, and in tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Any

import numpy as np

from ftnn.formula._derive import lower
from ftnn.formula._expr import Call, Expr, Number, Symbol, postorder
from ftnn.formula._ops import OPS

Array = np.ndarray[Any, np.dtype[np.float64]]
Steps = tuple[tuple[Expr, tuple[Expr, ...]], ...]
"""Parts in order of evaluation, each with the parts that are no longer needed after it."""


@cache
def _native(spelling: str) -> Callable[..., Any]:
    module, _, name = spelling.rpartition(".")
    if module == "special":
        from scipy import special

        return getattr(special, name)
    return getattr(np, name)


def schedule(*roots: Expr) -> Steps:
    """The evaluation of `roots`, which use only operations that NumPy has natively."""
    parts = tuple(postorder(*roots))
    last_use = {arg: place for place, part in enumerate(parts) if isinstance(part, Call) for arg in part.args}
    unused: list[list[Expr]] = [[] for _ in parts]
    results = set(roots)
    for part, place in last_use.items():
        if part not in results:
            unused[place].append(part)
    return tuple(zip(parts, map(tuple, unused), strict=True))


def run(steps: Steps, values: Mapping[str, Any]) -> dict[Expr, Any]:
    """The values of a schedule's roots. Poles and overflows give inf or NaN without a warning."""
    computed: dict[Expr, Any] = {}
    with np.errstate(all="ignore"):
        for part, unused in steps:
            match part:
                case Number(value):
                    computed[part] = np.float64(value)
                case Symbol(name):
                    computed[part] = np.asarray(values[name], dtype=np.float64)
                case Call(op, args):
                    computed[part] = _native(OPS[op].numpy)(*(computed[arg] for arg in args))
            for arg in unused:
                del computed[arg]
    return computed


@lru_cache(maxsize=512)
def steps(expr: Expr) -> Steps:
    """The schedule of `expr`."""
    return schedule(lower(expr, "numpy"))


def evaluate(expr: Expr, values: Mapping[str, Any]) -> Array:
    """The value of `expr`, broadcast over `values`."""
    (value,) = run(steps(expr), values).values()
    return np.asarray(value, dtype=np.float64)
