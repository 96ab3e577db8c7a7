"""All vector functions by name (interim registry)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from llvmlite import ir

from ftnn.kernels import _exponential, _power, _trig
from ftnn.kernels._vector import Vectors


def sign(v: Vectors, a: ir.Value) -> ir.Value:
    one, zero = v.const(1.0), v.const(0.0)
    return v.select(v.gt(a, zero), one, v.select(v.lt(a, zero), v.const(-1.0), v.add(a, zero)))


def rect(v: Vectors, a: ir.Value) -> ir.Value:
    return v.select(v.lt(a, v.const(0.0)), v.const(0.0), a)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **{n: getattr(_trig, n) for n in ("sin", "cos", "tan", "cot", "sec", "csc")},
    **{n: getattr(_exponential, n) for n in ("exp", "logistic", "softplus", "gauss", "cosh", "sinh", "tanh", "coth", "sech", "csch", "erf")},
    **{n: getattr(_power, n) for n in ("log", "pow", "powi")},
    "sign": sign,
    "rect": rect,
}
