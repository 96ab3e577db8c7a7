"""What every operation means, in mpmath: independent of the table of operations that it checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import mpmath

from ftnn.formula._expr import Call, Expr, Number, Symbol, postorder


def _sign(a: Any) -> int:
    return (a > 0) - (a < 0)


MEANING: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "neg": lambda a: -a,
    "pow": lambda a, b: mpmath.power(a, b),
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "where": lambda condition, a, b: a if condition else b,
    "exp": mpmath.exp,
    "log": mpmath.log,
    "log1p": mpmath.log1p,
    "sqrt": mpmath.sqrt,
    "abs": abs,
    "sign": _sign,
    "sin": mpmath.sin,
    "cos": mpmath.cos,
    "tan": mpmath.tan,
    "cot": mpmath.cot,
    "sec": mpmath.sec,
    "csc": mpmath.csc,
    "sinh": mpmath.sinh,
    "cosh": mpmath.cosh,
    "tanh": mpmath.tanh,
    "coth": mpmath.coth,
    "sech": mpmath.sech,
    "csch": mpmath.csch,
    "logistic": lambda a: 1 / (1 + mpmath.exp(-a)),
    "softplus": lambda a: mpmath.log(1 + mpmath.exp(a)),
    "gauss": lambda a: mpmath.exp(-(a**2)),
    "erf": mpmath.erf,
    "rect": lambda a: max(a, mpmath.mpf(0)),
    "rect_ada": lambda a: max(a, mpmath.mpf(0)),
    "relu": lambda a: max(a, mpmath.mpf(0)),
    "step": lambda a: int(a >= 0),
    "min": min,
    "max": max,
}


def evaluate(expr: Expr, values: Mapping[str, Any]) -> Any:
    """The value of `expr` at mpmath's precision."""
    done: dict[Expr, Any] = {}
    for part in postorder(expr):
        match part:
            case Number(value):
                done[part] = mpmath.mpf(value)
            case Symbol(name):
                done[part] = mpmath.mpf(values[name])
            case Call(op, args):
                done[part] = MEANING[op](*(done[arg] for arg in args))
    return done[expr]
