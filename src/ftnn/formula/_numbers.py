"""Constant folding: operations on numbers, computed in float64 when an expression is built."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable


def _positive(a: float) -> float:
    return max(a, 0.0)


_FROM_MATH = ("exp", "log", "log1p", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "erf")
_FROM_OPERATOR = ("add", "sub", "mul", "lt", "le", "gt", "ge", "eq", "ne")
_UNARY: dict[str, Callable[[float], float]] = {
    **{name: getattr(math, name) for name in _FROM_MATH},
    "neg": operator.neg,
    "abs": abs,
    "cot": lambda a: 1 / math.tan(a),
    "sec": lambda a: 1 / math.cos(a),
    "csc": lambda a: 1 / math.sin(a),
    "coth": lambda a: 1 / math.tanh(a),
    "csch": lambda a: 1 / math.sinh(a),
    "sech": lambda a: 1 / math.cosh(a),
    "logistic": lambda a: 1 / (1 + math.exp(-a)),
    "softplus": lambda a: max(a, 0) + math.log1p(math.exp(-abs(a))),
    "gauss": lambda a: math.exp(-a * a),
    "rect": _positive,
    "rect_ada": _positive,
    "relu": _positive,
    "sign": lambda a: (a > 0) - (a < 0),
    "step": lambda a: float(a >= 0),
}
_BINARY: dict[str, Callable[[float, float], float]] = {
    **{name: getattr(operator, name) for name in _FROM_OPERATOR},
    "div": operator.truediv,
    "pow": math.pow,
    "min": min,
    "max": max,
}


def compute(op: str, *values: float) -> float | None:
    """The result, infinite on overflow; None if it is NaN or a pole."""
    function = (_UNARY if len(values) == 1 else _BINARY).get(op)
    if function is None:
        return None
    try:
        # As floats, because 0*-2 is -0, which integers lack.
        result = float(function(*map(float, values)))
    except OverflowError:
        return math.inf
    except (ArithmeticError, ValueError):
        return None
    return None if math.isnan(result) else result


def round32(value: float) -> float:
    """The nearest float32, infinite if out of range."""
    try:
        return struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
