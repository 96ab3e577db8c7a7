"""Short forms of elementary functions for arguments known to be small: no clamps, no tests, less reduction.

float32 only. Kernels use them after bounding the arguments (`bounds.py`); `LIMITS` says how large an argument
may be. NaN exceeds every bound, so these functions never receive one.
"""

from __future__ import annotations

import math

from llvmlite import ir

from ftnn.kernels.codegen.vectors import Vectors

_MAGIC = 1.5 * 2**23
_LN2 = 0.693147182464599609  # a single part, off by 2e-9, times n ≤ 24
_EXP = (1.0, 0.9999997, 0.49999148, 0.16667654, 0.04189818, 0.008289205)  # e^r, |r| ≤ ln(2)/2
COSH = (2.0, 1.0000006, 0.083333604, 0.002789086)  # 2·cosh(r) in r², |r| ≤ ln(2)/2
SINH = (2.0, 0.33333176, 0.016735565)  # 2·sinh(r)/r in r²

LIMITS = {
    **dict.fromkeys(("cos", "cot", "csc", "sec", "sin", "tan"), 12800.0),
    **dict.fromkeys(("cosh", "coth", "exp", "logistic", "sinh", "softplus", "tanh"), 16.0),
}
"""The largest argument of each function that has a short form or is computed from one. A little below what
they support, because bounds are rounded too."""


def exp(v: Vectors, x: ir.Value) -> ir.Value:
    """e^x, |x| ≤ 16; 2.6 ulp."""
    r, n = _reduced(v, x, _MAGIC)
    return v.from_bits(v.iadd(v.to_bits(v.horner(r, _EXP)), n))


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
    number = v.const(magic)
    shifted = v.fma(x, v.const(1 / math.log(2)), number)
    r = v.fma(v.sub(shifted, number), v.const(-_LN2), x)
    return r, v.shl(v.to_bits(shifted), 23)


def _hyperbolic(v: Vectors, x: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value, ir.Value]:
    """2·cosh r, 2·sinh r, (2^n + 2^-n)/4 and (2^n - 2^-n)/4, as in `exponential.py`."""
    r, up = _reduced(v, x, _MAGIC + 125)
    square = v.mul(r, r)
    s, inverse = v.from_bits(up), v.from_bits(v.isub(v.iconst(250 << 23), up))
    even, odd = v.horner(square, COSH), v.mul(r, v.horner(square, SINH))
    return even, odd, v.add(s, inverse), v.sub(s, inverse)


def reciprocal(v: Vectors, a: ir.Value) -> ir.Value:
    """1/a, for a and 1/a of moderate size: 1 ulp."""
    one = v.const(1.0)
    if not v.target.quick_reciprocal:
        return v.div(one, a)
    r = _rcp14(v, a)
    return v.fma(v.fma(v.neg(a), r, one), r, r)


def quotient(v: Vectors, a: ir.Value, b: ir.Value) -> ir.Value:
    """a/b, for b and 1/b of moderate size: 1 ulp. Dividing sixteen numbers takes 16 cycles, this takes 4."""
    if not v.target.quick_reciprocal:
        return v.div(a, b)
    r = _rcp14(v, b)
    first = v.mul(a, r)
    return v.fma(v.fma(v.neg(b), first, a), r, first)


def _rcp14(v: Vectors, a: ir.Value) -> ir.Value:
    kind = ir.IntType(16)
    name = "llvm.x86.avx512.rcp14.ps.512"

    def emit() -> ir.Value:
        function = v.external(name, v.type, v.type, v.type, kind)
        return v.builder.call(function, [a, v.const(0.0), ir.Constant(kind, -1)])

    return v.once(name, (a,), emit)
