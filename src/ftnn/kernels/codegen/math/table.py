"""The table of elementary functions as vector instructions, and the simplest of them.

`FUNCTIONS["sin"](v, x)` emits the function at the position of `v` and returns its value. All are branch-free
except sin, cos and functions of them, which test for large arguments (beyond ±12866 in float32, ±4·10⁸ in
float64): emitting these ends in another basic block than it began in.

Both precisions share their algorithms and differ in their constants (`constants.py`). NaN and infinities
propagate, denormals are ordinary numbers, and the result is NaN only where the true value is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir

from ftnn.kernels.codegen.math import exponential as e
from ftnn.kernels.codegen.math import power as p
from ftnn.kernels.codegen.math import trig as t
from ftnn.kernels.codegen.vectors import Vectors


def sign(v: Vectors, a: ir.Value) -> ir.Value:
    """-1, 0 or 1; NaN stays NaN."""
    zero = v.const(0.0)
    not_positive = v.select(v.lt(a, zero), v.const(-1.0), v.add(a, zero))  # -0 becomes 0
    return v.select(v.gt(a, zero), v.const(1.0), not_positive)


def rect(v: Vectors, a: ir.Value) -> ir.Value:
    """a where a ≥ 0, else 0; NaN stays NaN."""
    return v.maximum(a, v.const(0.0))


@dataclass(frozen=True, slots=True)
class Elementary:
    """A row of the table."""

    emit: Callable[..., ir.Value]
    arity: int
    """The number of vectors it takes. (`powi` also takes an int.)"""
    ulp: float
    """The largest error of a float32 result, in units in the last place of the true value (2^-149 for
    denormals). Found by trying every float32; for sin, cos and functions of them every one from 2^-13 to 2^32
    and every 101st elsewhere; for pow and powi many. inf and NaN occur exactly where rounding the true value
    yields them."""
    ulp64: float
    """The same for float64, a little above the largest error of millions of numbers, which include those
    around every zero, pole, limit and switch of an argument reduction."""

    def __call__(self, v: Vectors, *operands: ir.Value | int) -> ir.Value:
        return self.emit(v, *operands)


FUNCTIONS = {
    "cos": Elementary(t.cos, 1, 2.04, 2.0),
    "cosh": Elementary(e.cosh, 1, 2.63, 2.6),
    "cot": Elementary(t.cot, 1, 2.94, 3.4),
    "coth": Elementary(e.coth, 1, 2.79, 2.7),
    "csc": Elementary(t.csc, 1, 3.37, 3.6),
    "csch": Elementary(e.csch, 1, 2.66, 2.7),
    "erf": Elementary(e.erf, 1, 2.5, 2.4),
    "exp": Elementary(e.exp, 1, 1.59, 1.9),
    "gauss": Elementary(e.gauss, 1, 1.93, 2.1),
    "log": Elementary(p.log, 1, 1.23, 1.3),
    "logistic": Elementary(e.logistic, 1, 3.5, 3.5),
    "pow": Elementary(p.pow, 2, 0.54, 2.1),
    "powi": Elementary(p.powi, 1, 3.44, 3.2),
    "rect": Elementary(rect, 1, 0.0, 0.0),
    "sec": Elementary(t.sec, 1, 3.08, 3.6),
    "sech": Elementary(e.sech, 1, 3.38, 3.5),
    "sign": Elementary(sign, 1, 0.0, 0.0),
    "sin": Elementary(t.sin, 1, 2.01, 2.0),
    "sinh": Elementary(e.sinh, 1, 3.51, 3.7),
    "softplus": Elementary(e.softplus, 1, 2.59, 3.1),
    "tan": Elementary(t.tan, 1, 2.72, 3.4),
    "tanh": Elementary(e.tanh, 1, 2.59, 2.8),
}
"""Every function by name."""

_ALONE = ("sin alone", "cos alone")
ACCURACY = {name: row.ulp for name, row in FUNCTIONS.items()} | dict.fromkeys(_ALONE, 2.74)
"""The stated accuracy of each function in float32, and of those in `trig.ALONE`."""
ACCURACY64 = {name: row.ulp64 for name, row in FUNCTIONS.items()} | dict.fromkeys(_ALONE, 1.7)
"""The same in float64."""
