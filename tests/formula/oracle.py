"""The definition of every operation in mpmath, independent of the table of operations."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import mpmath

from ftnn.formula._expr import Call, Expr, Number, Symbol, postorder


def _sign(a: Any) -> int:
    return (a > 0) - (a < 0)


def _logistic(a: Any) -> Any:
    return 1 / (1 + mpmath.exp(-a))


def _softplus(a: Any) -> Any:
    return mpmath.log(1 + mpmath.exp(a))


def _gauss(a: Any) -> Any:
    return mpmath.exp(-(a**2))


def _divided(a: Any, b: Any) -> Any:
    """NaN for a zero divisor, as in arrays; it does not matter in a branch that is not taken."""
    return a / b if b else mpmath.nan


def _positive(a: Any) -> Any:
    return max(a, mpmath.mpf(0))


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": _divided,
    "pow": mpmath.power,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
    "min": min,
    "max": max,
}
_UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": operator.neg,
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
    "logistic": _logistic,
    "softplus": _softplus,
    "gauss": _gauss,
    "erf": mpmath.erf,
    "rect": _positive,
    "rect_ada": _positive,
    "relu": _positive,
    "step": lambda a: int(a >= 0),
}


def _where(condition: bool, a: Any, b: Any) -> Any:
    return a if condition else b


MEANING: dict[str, Callable[..., Any]] = {**_UNARY, **_BINARY, "where": _where}


def evaluate(expr: Expr, values: Mapping[str, Any]) -> Any:
    """The value of `expr` at mpmath's precision."""
    computed: dict[Expr, Any] = {}
    for part in postorder(expr):
        match part:
            case Number(value):
                computed[part] = mpmath.mpf(value)
            case Symbol(name):
                computed[part] = mpmath.mpf(values[name])
            case Call(op, args):
                computed[part] = MEANING[op](*(computed[arg] for arg in args))
    return computed[expr]
