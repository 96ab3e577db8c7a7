"""Elementary functions as vector instructions: the table of all of them, and the simplest ones.

Called as `FUNCTIONS["sin"](v, x)`, each emits itself at the position of `v` and gives its value. All are free of
branches but one: an argument of sin, cos and their kin beyond ±12866 goes through a function out of line, so
that emitting may end in another basic block than it began in.

float32 has polynomials of our own, float64 calls the C library lane by lane. NaN and infinities arrive
everywhere, denormals are numbers like any other, and a function of finite value is never NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from llvmlite import ir

from ftnn.kernels import _exponential as e
from ftnn.kernels import _power as p
from ftnn.kernels import _trig as t
from ftnn.kernels._vector import Vectors


def sign(v: Vectors, a: ir.Value) -> ir.Value:
    """-1, 0 or 1; NaN stays NaN."""
    zero = v.const(0.0)
    negative_or_zero = v.select(v.lt(a, zero), v.const(-1.0), v.add(a, zero))  # -0 becomes 0
    return v.select(v.gt(a, zero), v.const(1.0), negative_or_zero)


def rect(v: Vectors, a: ir.Value) -> ir.Value:
    """a where a ≥ 0, else 0; NaN stays NaN."""
    return v.maximum(a, v.const(0.0))


def step(v: Vectors, a: ir.Value) -> ir.Value:
    """1 where a ≥ 0, else 0; NaN stays NaN."""
    return v.select(v.ge(a, v.const(0.0)), v.const(1.0), rect(v, a))  # rect, likely there already, has the NaN


@dataclass(frozen=True, slots=True)
class Elementary:
    """A row of the table."""

    emit: Callable[..., ir.Value]
    arity: int
    """Of vectors: `powi` takes one, and an int."""
    ulp: float
    """How far at most a float32 result is from the true value, in units of its last place: measured over every
    float32 (for pow and powi over dense samples). inf and NaN are where the rounded true value has them."""

    def __call__(self, v: Vectors, *operands: ir.Value | int) -> ir.Value:
        return self.emit(v, *operands)


FUNCTIONS: Mapping[str, Elementary] = MappingProxyType(
    {
        "cos": Elementary(t.cos, 1, 4.0),
        "cosh": Elementary(e.cosh, 1, 4.0),
        "cot": Elementary(t.cot, 1, 4.0),
        "coth": Elementary(e.coth, 1, 4.0),
        "csc": Elementary(t.csc, 1, 4.0),
        "csch": Elementary(e.csch, 1, 4.0),
        "erf": Elementary(e.erf, 1, 4.0),
        "exp": Elementary(e.exp, 1, 4.0),
        "gauss": Elementary(e.gauss, 1, 4.0),
        "log": Elementary(p.log, 1, 4.0),
        "logistic": Elementary(e.logistic, 1, 4.0),
        "pow": Elementary(p.pow, 2, 4.0),
        "powi": Elementary(p.powi, 1, 4.0),
        "rect": Elementary(rect, 1, 0.0),
        "sec": Elementary(t.sec, 1, 4.0),
        "sech": Elementary(e.sech, 1, 4.0),
        "sign": Elementary(sign, 1, 0.0),
        "sin": Elementary(t.sin, 1, 4.0),
        "sinh": Elementary(e.sinh, 1, 4.0),
        "softplus": Elementary(e.softplus, 1, 4.0),
        "step": Elementary(step, 1, 0.0),
        "tan": Elementary(t.tan, 1, 4.0),
        "tanh": Elementary(e.tanh, 1, 4.0),
    }
)
"""Every function by name."""

ACCURACY: Mapping[str, float] = MappingProxyType(
    {name: row.ulp for name, row in FUNCTIONS.items()} | {"sin alone": 4.0, "cos alone": 4.0}
)
"""The stated accuracy of each function in float32, in units in the last place; also of `_trig.ALONE`."""
