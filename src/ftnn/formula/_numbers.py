"""Operations on numbers, computed in float64 when an expression is built."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable


def _positive(a: float) -> float:
    return max(a, 0.0)


_UNARY: dict[str, Callable[[float], float]] = {
    "neg": operator.neg,
    "abs": abs,
    "exp": math.exp,
    "sqrt": math.sqrt,
    "log": math.log,
    "log1p": math.log1p,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "cot": lambda a: 1 / math.tan(a),
    "sec": lambda a: 1 / math.cos(a),
    "csc": lambda a: 1 / math.sin(a),
    "sinh": math.sinh,
    "cosh": math.cosh,
    "tanh": math.tanh,
    "coth": lambda a: 1 / math.tanh(a),
    "csch": lambda a: 1 / math.sinh(a),
    "sech": lambda a: 1 / math.cosh(a),
    "logistic": lambda a: 1 / (1 + math.exp(-a)),
    "softplus": lambda a: max(a, 0) + math.log1p(math.exp(-abs(a))),
    "gauss": lambda a: math.exp(-a * a),
    "erf": math.erf,
    "rect": _positive,
    "rect_ada": _positive,
    "relu": _positive,
    "sign": lambda a: (a > 0) - (a < 0),
    "step": lambda a: float(a >= 0),
}
_BINARY: dict[str, Callable[[float, float], float]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "pow": math.pow,
    "min": min,
    "max": max,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
}


def compute(op: str, *values: float) -> float | None:
    """The result, infinite if it overflows; None if it is not a number or has a pole."""
    function = (_UNARY if len(values) == 1 else _BINARY).get(op)
    if function is None:
        return None
    try:
        # As floats: integers have no -0, and 0*-2 is -0.
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
