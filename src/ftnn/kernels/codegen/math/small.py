"""Short forms of elementary functions for arguments known to be small: no clamps, no tests, less reduction.

Kernels use them after bounding the arguments (`bounds.py`); `LIMITS` says how large an argument
may be. NaN exceeds every bound, so these functions never receive one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from llvmlite import ir

from ftnn.kernels.codegen.math.constants import CONSTANTS
from ftnn.kernels.codegen.vectors import Vectors

LIMITS = {
    **dict.fromkeys(("cos", "cot", "csc", "sec", "sin", "tan"), 12800.0),
    **dict.fromkeys(("cosh", "coth", "exp", "logistic", "sinh", "softplus", "tanh"), 16.0),
}
"""The largest argument of each function that has a short form or is computed from one. A little below what
they support, because bounds are rounded too."""


def exp(v: Vectors, x: ir.Value) -> ir.Value:
    """e^x, |x| ≤ 16; 2.6 ulp."""
    c = CONSTANTS[v.dtype]
    r, n = _reduced(v, x, c.magic)
    double = v.dtype == "float64"
    power = from_second_order(v, r, c.short_exp[2:]) if double else v.horner(r, c.short_exp)
    return v.from_bits(v.iadd(v.to_bits(power), n))


def from_second_order(v: Vectors, r: ir.Value, coefficients: Sequence[float]) -> ir.Value:
    """1 + r + r²·(…), rounded less often than by Horner's scheme; long polynomials need the square anyway."""
    return v.add(v.fma(v.mul(r, r), v.horner(r, coefficients), r), v.const(1.0))


def logistic(v: Vectors, x: ir.Value) -> ir.Value:
    """1/(1 + e^-x), |x| ≤ 16; 3.3 ulp."""
    return reciprocal(v, v.add(exp(v, v.neg(x)), v.const(1.0)))


def cosh(v: Vectors, x: ir.Value) -> ir.Value:
    """cosh x, |x| ≤ 16; 3.1 ulp."""
    even, odd, more, less = _hyperbolic(v, x)
    return v.fma(even, more, v.mul(odd, less))


def sinh(v: Vectors, x: ir.Value) -> ir.Value:
    """sinh x, |x| ≤ 16; 3.51 ulp. sinh(-0) is 0."""
    even, odd, more, less = _hyperbolic(v, x)
    return v.fma(even, less, v.mul(odd, more))


def _reduced(v: Vectors, x: ir.Value, magic: float) -> tuple[ir.Value, ir.Value]:
    """r, and n (plus the magic number's own low bits) in exponent position, where x = n·ln 2 + r."""
    c, number = CONSTANTS[v.dtype], v.const(magic)
    shifted = v.fma(x, v.const(1 / math.log(2)), number)
    n, r = v.sub(shifted, number), x
    for part in c.short_ln2:
        r = v.fma(n, v.const(-part), r)
    return r, v.shl(v.to_bits(shifted), c.mantissa)


def _hyperbolic(v: Vectors, x: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value, ir.Value]:
    """2·cosh r, 2·sinh r, (2^n + 2^-n)/4 and (2^n - 2^-n)/4, as in `exponential.py`."""
    c = CONSTANTS[v.dtype]
    r, up = _reduced(v, x, c.magic + c.bias - 2)
    square = v.mul(r, r)
    s, inverse = v.from_bits(up), v.from_bits(v.isub(v.iconst(2 * (c.bias - 2) << c.mantissa), up))
    even, odd = v.horner(square, c.cosh), v.mul(r, v.horner(square, c.sinh))
    return even, odd, v.add(s, inverse), v.sub(s, inverse)


def reciprocal(v: Vectors, a: ir.Value) -> ir.Value:
    """1/a, for a and 1/a of moderate size: 1 ulp."""
    one = v.const(1.0)
    if not v.target.quick_reciprocal:
        return v.div(one, a)
    return _refined(v, a, _rough_reciprocal(v, a))


def quotient(v: Vectors, a: ir.Value, b: ir.Value) -> ir.Value:
    """a/b, for b and 1/b of moderate size: 1 ulp. Dividing sixteen numbers takes 16 cycles, this takes 4."""
    if not v.target.quick_reciprocal:
        return v.div(a, b)
    r = _rough_reciprocal(v, b)
    first = v.mul(a, r)
    return v.fma(v.fma(v.neg(b), first, a), r, first)


def _refined(v: Vectors, a: ir.Value, r: ir.Value) -> ir.Value:
    """1/a with twice as many digits as r, by Newton's method."""
    return v.fma(v.fma(v.neg(a), r, v.const(1.0)), r, r)


def _rough_reciprocal(v: Vectors, a: ir.Value) -> ir.Value:
    """1/a with half of the digits or more."""
    double = v.dtype == "float64"
    kind = ir.IntType(8 if double else 16)
    name = f"llvm.x86.avx512.rcp14.{'pd' if double else 'ps'}.512"

    def emit() -> ir.Value:
        function = v.external(name, v.type, v.type, v.type, kind)
        return v.builder.call(function, [a, v.const(0.0), ir.Constant(kind, -1)])

    r = v.once(name, (a,), emit)
    return _refined(v, a, r) if double else r
