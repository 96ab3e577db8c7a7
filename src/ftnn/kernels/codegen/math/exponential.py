"""exp and functions built on it (hyperbolic functions, logistic, softplus, gauss), and erf, as instructions.

e^x = e^r·s·s with s = 2^m and |r| = |x - m·2·ln 2| ≤ ln 2: a power of two applied in two equal steps
neither overflows nor underflows before the result does, so one formula covers everything from denormals to
infinity. m is found by the magic-number trick; the magic number includes the exponent's bias, so s is one
shift away. Clamps and arithmetic preserve NaN.
"""

from __future__ import annotations

import math

from llvmlite import ir

from ftnn.kernels.codegen.math import small
from ftnn.kernels.codegen.math.constants import CONSTANTS
from ftnn.kernels.codegen.vectors import Vectors


def exp(v: Vectors, x: ir.Value) -> ir.Value:
    """e^x; 1.59 ulp, 1.9 in float64."""
    if v.tame:
        return small.exp(v, x)
    r, s = _root(v, _clamp(v, x))
    return v.mul(v.mul(power(v, r), s), s)


def _clamp(v: Vectors, x: ir.Value) -> ir.Value:
    c = CONSTANTS[v.dtype]
    return v.minimum(v.maximum(x, v.const(c.lowest)), v.const(c.highest))


def _root(v: Vectors, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """r and s, for x that is not much below `lowest` or above `-lowest`."""
    c = CONSTANTS[v.dtype]
    magic = v.const(c.magic + c.bias)
    shifted = v.fma(x, v.const(0.5 / math.log(2)), magic)
    m = v.sub(shifted, magic)
    r = v.fma(m, v.const(-2 * c.ln2[0]), x)
    r = v.fma(m, v.const(-2 * c.ln2[1]), r)
    return r, v.from_bits(v.shl(v.to_bits(shifted), c.mantissa))


def power(v: Vectors, r: ir.Value) -> ir.Value:
    """e^r, |r| ≤ ln 2."""
    c = CONSTANTS[v.dtype]
    if v.dtype == "float64":
        return small.from_second_order(v, r, c.expm1[1:])
    return v.fma(v.horner(r, c.expm1), r, v.const(1.0))


def logistic(v: Vectors, x: ir.Value) -> ir.Value:
    """1/(1 + e^-x); 3.5 ulp, 3.5 in float64."""
    if v.tame and v.dtype == "float32":
        return small.logistic(v, x)
    c = CONSTANTS[v.dtype]
    r, s = _root(v, x if v.tame else _clamp(v, x))
    inverse = v.from_bits(v.isub(v.iconst(2 * c.bias << c.mantissa), v.to_bits(s)))
    # A division is needed anyway, so e^r may be a quotient, whose two halves are shorter than `expm1`.
    square = v.mul(r, r)
    even, odd = v.horner(square, c.even), v.horner(square, c.odd)
    rising = v.mul(s, v.fma(r, odd, even))  # e^(x/2), up to a factor shared with e^(-x/2)
    falling = v.fma(v.neg(r), odd, even)
    return _divide(v, rising, v.fma(inverse, falling, rising))


def _divide(v: Vectors, a: ir.Value, b: ir.Value) -> ir.Value:
    return small.quotient(v, a, b) if v.tame else v.div(a, b)


def softplus(v: Vectors, x: ir.Value) -> ir.Value:
    """log(1 + e^x); 2.59 ulp, 3.1 in float64."""
    c = CONSTANTS[v.dtype]
    e = exp(v, v.neg(v.abs(x)))
    positive = v.maximum(x, v.const(0.0))
    bend = v.div(v.mul(e, v.horner(e, c.log1p)), v.horner(e, c.log1p_below))
    return v.add(positive, v.fma(bend, e, e))


def gauss(v: Vectors, x: ir.Value) -> ir.Value:
    """e^(-x²); 1.93 ulp, 2.1 in float64."""
    c = CONSTANTS[v.dtype]
    x = v.minimum(v.abs(x), v.const(c.gauss_limit))  # whose square is still finite
    square = v.mul(x, x)
    rest = v.fma(x, x, v.neg(square))  # the square's rounding error, which is large if the square is
    r, s = _root(v, v.maximum(v.neg(square), v.const(c.lowest)))
    return v.mul(v.mul(power(v, v.sub(r, rest)), s), s)


def cosh(v: Vectors, x: ir.Value) -> ir.Value:
    """cosh x; 2.63 ulp, 2.6 in float64."""
    if v.tame:
        return small.cosh(v, x)
    even, odd, more, less = _hyperbolic(v, x)
    return v.fma(even, more, v.mul(odd, less))


def sinh(v: Vectors, x: ir.Value) -> ir.Value:
    """sinh x; 3.51 ulp, 3.7 in float64."""
    if v.tame:
        return small.sinh(v, x)
    even, odd, more, less = _hyperbolic(v, x)
    # In this order: even·less alone may overflow where the sum does not.
    return v.copysign(v.fma(even, less, v.mul(odd, more)), x)


def _hyperbolic(v: Vectors, x: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value, ir.Value]:
    """2·cosh r, 2·sinh r, (2^n + 2^-n)/4 and (2^n - 2^-n)/4, where |x| = n·ln 2 + r.

    Near 0, n is 0 and sinh x is exactly sinh r, so its relative error stays small.
    """
    c = CONSTANTS[v.dtype]
    x = v.minimum(v.abs(x), v.const(c.hyperbolic_limit))
    magic = v.const(c.magic + c.bias - 2)
    shifted = v.fma(x, v.const(1 / math.log(2)), magic)
    n = v.sub(shifted, magic)
    r = v.fma(n, v.const(-c.ln2[0]), x)
    r = v.fma(n, v.const(-c.ln2[1]), r)
    square = v.mul(r, r)
    up = v.shl(v.to_bits(shifted), c.mantissa)
    s, inverse = (
        v.from_bits(up),
        v.from_bits(_saturating_isub(v, v.iconst(2 * (c.bias - 2) << c.mantissa), up)),
    )
    even, odd = v.horner(square, c.cosh), v.mul(r, v.horner(square, c.sinh))
    return even, odd, v.add(s, inverse), v.sub(s, inverse)


def _saturating_isub(v: Vectors, a: ir.Value, b: ir.Value) -> ir.Value:
    """a - b, but at least 0, where only the upper 16 bits are not 0: x86 has this for 16 bits only."""
    pieces = v.lanes * v.bits // 16
    kind = ir.VectorType(ir.IntType(16), pieces)
    a, b = (v.cast("bitcast", bits, kind) for bits in (a, b))
    return v.cast("bitcast", v.intrinsic(f"llvm.usub.sat.v{pieces}i16", kind, a, b), v.int_type)


def tanh(v: Vectors, x: ir.Value) -> ir.Value:
    """tanh x, within ±1; 2.59 ulp, 2.8 in float64. tanh(-0) is 0."""
    return _divide(v, *_tanh_parts(v, x))


def coth(v: Vectors, x: ir.Value) -> ir.Value:
    """1/tanh x; 2.79 ulp, 2.7 in float64."""
    above, below = _tanh_parts(v, x)
    return v.copysign(v.div(below, above), x)  # also at -0


def _tanh_parts(v: Vectors, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Numerator and denominator of tanh x. With x = k·ln(2)/2 + r, tanh(k·ln(2)/2) is (2^k - 1)/(2^k + 1).

    Both are rounded once, which keeps their order, so |tanh x| never exceeds 1.
    """
    c = CONSTANTS[v.dtype]
    if not v.tame:
        x = v.minimum(v.maximum(x, v.const(-c.tanh_limit)), v.const(c.tanh_limit))
    magic, one = v.const(c.magic + c.bias), v.const(1.0)
    shifted = v.fma(x, v.const(2 / math.log(2)), magic)
    r = v.fma(v.sub(shifted, magic), v.const(-0.5 * math.log(2)), x)  # k is too small to need a second part
    whole = v.from_bits(v.shl(v.to_bits(shifted), c.mantissa))
    less, more = v.sub(whole, one), v.add(whole, one)
    rest = v.mul(r, v.horner(v.mul(r, r), c.tanh))
    return v.fma(more, rest, less), v.fma(less, rest, more)


def sech(v: Vectors, x: ir.Value) -> ir.Value:
    """1/cosh x; 3.38 ulp, 3.5 in float64."""
    one = v.const(1.0)
    half, root, e = _falling(v, v.abs(x))
    return v.mul(v.div(v.add(half, half), v.fma(e, e, one)), root)


def csch(v: Vectors, x: ir.Value) -> ir.Value:
    """1/sinh x; 2.66 ulp, 2.7 in float64."""
    one, size = v.const(1.0), v.abs(x)
    half, root, e = _falling(v, size)
    near = v.lt(size, v.const(0.9))  # where 1 - e² would lose digits
    above = v.select(near, one, v.add(half, half))
    sinh = v.mul(size, v.horner(v.mul(size, size), CONSTANTS[v.dtype].small_sinh))
    below = v.select(near, sinh, v.fma(v.neg(e), e, one))
    return v.copysign(v.mul(v.div(above, below), v.select(near, one, root)), x)


def _falling(v: Vectors, size: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """e^-size as two factors, the second of which may yield a denormal and is applied last; and e^-size."""
    r, root = _root(v, v.maximum(v.neg(size), v.const(CONSTANTS[v.dtype].lowest)))
    half = v.mul(power(v, r), root)
    return half, root, v.mul(half, root)


def erf(v: Vectors, x: ir.Value) -> ir.Value:
    """The error function; 2.5 ulp, 2.4 in float64."""
    c = CONSTANTS[v.dtype]
    size = v.minimum(v.abs(x), v.const(c.erf_limit))
    r, root = _root(v, v.horner(size, c.log_erfc))
    far = v.fma(v.neg(v.mul(power(v, r), root)), root, v.const(1.0))
    near = v.mul(x, v.horner(v.mul(size, size), c.erf))
    return v.select(v.lt(size, v.const(0.92)), near, v.copysign(far, x))
