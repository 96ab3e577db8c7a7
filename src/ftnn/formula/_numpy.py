"""Expressions evaluated with NumPy in float64: for `explain`, for calling a `Function`, and as an oracle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Any

import numpy as np

from ftnn.formula._derive import lower
from ftnn.formula._expr import Call, Expr, Number, Symbol, postorder
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
def steps(expr: Expr) -> tuple[tuple[Expr, tuple[Expr, ...]], ...]:
    """What NumPy computes for `expr`, arguments before what uses them; and what is not needed after each."""
    parts = tuple(postorder(lower(expr, "numpy")))
    last = {arg: place for place, part in enumerate(parts) if isinstance(part, Call) for arg in part.args}
    dead: list[list[Expr]] = [[] for _ in parts]
    for part, place in last.items():
        dead[place].append(part)
    return tuple(zip(parts, map(tuple, dead), strict=True))


def evaluate(expr: Expr, values: Mapping[str, Any]) -> Array:
    """The value of `expr`, broadcast over `values`. Poles and overflows give inf or NaN without a warning."""
    done: dict[Expr, Any] = {}
    part = expr
    with np.errstate(all="ignore"):
        for part, dead in steps(expr):
            match part:
                case Number(value):
                    done[part] = np.float64(value)
                case Symbol(name):
                    done[part] = np.asarray(values[name], dtype=np.float64)
                case _:
                    done[part] = _native(OPS[part.op].numpy)(*(done[arg] for arg in part.args))
            for other in dead:
                del done[other]
    return np.asarray(done[part], dtype=np.float64)
