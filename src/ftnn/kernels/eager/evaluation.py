"""Evaluate expressions over torch tensors, one operation at a time, each distinct part once."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor

from ftnn.formula._derive import lower
from ftnn.formula._expr import Call, Expr, Number, Symbol, postorder
from ftnn.formula._numbers import round32
from ftnn.formula._ops import OPS, is_native


@cache
def _native(spelling: str) -> Callable[..., Any]:
    module, _, name = spelling.rpartition(".")
    return getattr(operator if module else torch, name)


def check_spellings() -> None:
    """Raise if the table of operations uses a function that torch does not have."""
    for op in OPS.values():
        if is_native(op.torch):
            _native(op.torch)


check_spellings()

# torch.minimum and maximum take tensors only, a selection between two numbers would have torch's default
# dtype, and a number divided by x would be computed as a product with 1/x. The others accept numbers.
_TENSORS_ONLY = ("min", "max", "where", "div")


@dataclass(frozen=True, slots=True)
class Schedule:
    """An evaluation order for several expressions, with the values that each step needs last."""

    steps: tuple[tuple[Expr, tuple[Expr, ...]], ...]
    results: tuple[Expr, ...]
    live: int
    """The largest number of computed arrays alive at once."""


@lru_cache(maxsize=1024)
def schedule(results: tuple[Expr, ...]) -> Schedule:
    """The order in which to evaluate `results`."""
    lowered = tuple(lower(expr, "torch") for expr in results)
    order = [
        (part, dict.fromkeys(part.args) if isinstance(part, Call) else {}) for part in postorder(*lowered)
    ]
    last_use = {arg: part for part, args in order for arg in args}
    steps: list[tuple[Expr, tuple[Expr, ...]]] = []
    live = most = 0
    for part, args in order:
        dead = tuple(arg for arg in args if last_use[arg] is part and arg not in lowered)
        live += isinstance(part, Call)
        most = max(most, live)
        live -= sum(isinstance(arg, Call) for arg in dead)
        steps.append((part, dead))
    return Schedule(tuple(steps), lowered, most)


def evaluate(results: tuple[Expr, ...], values: dict[str, Tensor]) -> list[Tensor]:
    """The expressions' values, broadcast over `values`. Torch can differentiate them (no surrogates)."""
    plan = schedule(results)
    like = next(iter(values.values()))
    done: dict[Expr, Any] = {}
    for part, dead in plan.steps:
        match part:
            case Number(value):
                done[part] = _rounded(value, like.dtype)
            case Symbol(name):
                done[part] = values[name]
            case Call(op, args):
                operands = [done[arg] for arg in args]
                if op in _TENSORS_ONLY or not any(isinstance(value, Tensor) for value in operands):
                    operands = [_tensor(value, like) for value in operands]
                done[part] = _native(OPS[op].torch)(*operands)
        for arg in dead:
            del done[arg]
    return [_tensor(done[expr], like) for expr in plan.results]


def _rounded(value: int | float, dtype: torch.dtype) -> int | float:
    """A number rounded to `dtype`, infinite if too large: torch would raise, or compute in float64."""
    exact = isinstance(value, int) and abs(value) <= 2**24
    return value if exact or dtype == torch.float64 else round32(value)


def _tensor(value: Any, like: Tensor) -> Tensor:
    """A number as a tensor; a tensor unchanged."""
    # Filled rather than built from data, which a tracer would store as a constant of the graph.
    return value if isinstance(value, Tensor) else like.new_full((), value)
