"""exp and what is made of it: hyperbolic functions, logistic, softplus, gauss; and erf.

float32. e^x = p·s·s with s = 2^m and |r| = |x - m·2·ln 2| ≤ ln 2: a power of two applied in two equal steps can
neither overflow nor underflow before the result does, so that one formula serves from denormals to infinity.
m comes by the magic-number trick; the magic number holds the exponent's bias too, so that s is one shift away.
Clamps let NaN through, and everything made of NaN by arithmetic is NaN.
"""

from __future__ import annotations

import math

from llvmlite import ir

from ftnn.kernels._libm import libm
from ftnn.kernels._vector import Vectors

_MAGIC = 1.5 * 2**23
_LN2 = (0.693147182464599609, -1.90465425190813e-09)  # high and low part
_LOWEST, _HIGHEST = -104.0, 89.0  # e^x is 0 below and infinite above
_HYPERBOLIC_LIMIT = 89.5  # sinh and cosh are infinite above

_EXPM1 = (1.0, 0.5, 0.16666572, 0.041660538, 0.0083370562, 0.0014114871, 0.00019551687)  # (e^r-1)/r
_EVEN = (1.0, 0.099897825)  # e^r = (even + r·odd)/(even - r·odd), both in r²
_ODD = (0.49999994, 0.0082832526)
_COSH = (2.0, 0.99998281528, 0.0837978808548)  # 2 cosh(r) in r², |r| ≤ ln(2)/2
_SINH = (2.0, 0.333330860632, 0.01673319060222)  # 2 sinh(r)/r in r²
_TANH_LIMIT = 9.01
_TANH = (1.0, 0.13383333749666862, 0.0034982267920390954, 2.064853780990372e-05, 1.3402041588532453e-08)
_TANH_BELOW = (1.0, 0.4671665511472371, 0.02588728350040321, 0.0003289777592078913, 7.797485100978693e-07)
_LOG1P = (1.0, 0.8695147929103096, 0.12463833431293514)
_LOG1P_BELOW = (1.0, 1.3695134149346266, 0.4760892282463064, 0.03135224477321453)
_ERF_LIMIT = 3.93
_ERF = (1.1283791453572827, 0.19078384765276737, 0.05279028758044154, 0.0037796098425594434,
        0.00028480859546258674, 2.04197031737807e-06)
_ERF_BELOW = (1.0, 0.5024105022776084, 0.1142575287183985, 0.014997438522122633, 0.0011652128314610167,
              3.800406984051347e-05)


def exp(v: Vectors, x: ir.Value) -> ir.Value:
    if v.dtype == "float64":
        return libm(v, "exp", x)
    r, bits = _root(v, v.minimum(v.maximum(x, v.const(_LOWEST)), v.const(_HIGHEST)))
    s = v.from_bits(bits)
    return v.mul(v.mul(_power(v, r), s), s)


def _root(v: Vectors, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """r and the bits of s, for x in [-104, 104]."""
    magic = v.const(_MAGIC + 127)
    shifted = v.fma(x, v.const(0.5 / math.log(2)), magic)
    m = v.sub(shifted, magic)
    r = v.fma(m, v.const(-2 * _LN2[0]), x)
    r = v.fma(m, v.const(-2 * _LN2[1]), r)
    return r, v.shl(v.to_bits(shifted), 23)


def _power(v: Vectors, r: ir.Value) -> ir.Value:
    """e^r, |r| ≤ ln 2."""
    return v.fma(v.horner(r, _EXPM1), r, v.const(1.0))


def logistic(v: Vectors, x: ir.Value) -> ir.Value:
    """1/(1 + e^-x)."""
    one = v.const(1.0)
    if v.dtype == "float64":
        e = libm(v, "exp", v.neg(v.abs(x)))
        return v.div(v.select(v.lt(x, v.const(0.0)), e, one), v.add(one, e))
    r, bits = _root(v, v.minimum(v.maximum(x, v.const(_LOWEST)), v.const(_HIGHEST)))
    s, inverse = v.from_bits(bits), v.from_bits(v.isub(v.iconst(254 << 23), bits))
    # Here is a division anyway, so e^r may be a quotient, whose two halves are shorter than _EXPM1.
    square = v.mul(r, r)
    even, odd = v.horner(square, _EVEN), v.horner(square, _ODD)
    rising = v.mul(s, v.fma(r, odd, even))  # e^(x/2), but for a factor that falling = e^(-x/2) has too
    falling = v.fma(v.neg(r), odd, even)
    return v.div(rising, v.fma(inverse, falling, rising))


def softplus(v: Vectors, x: ir.Value) -> ir.Value:
    """log(1 + e^x)."""
    e = exp(v, v.neg(v.abs(x)))
    positive = v.maximum(x, v.const(0.0))
    if v.dtype == "float64":
        return v.add(positive, libm(v, "log1p", e))
    log1p = v.div(v.mul(e, v.horner(e, _LOG1P)), v.horner(e, _LOG1P_BELOW))
    return v.add(positive, log1p)


def gauss(v: Vectors, x: ir.Value) -> ir.Value:
    """e^(-x²)."""
    limit = 28.0 if v.dtype == "float64" else 10.5  # the result is 0 from there, and the square still finite
    x = v.minimum(v.abs(x), v.const(limit))
    square = v.mul(x, x)
    rest = v.fma(x, x, v.neg(square))  # what rounding took from the square, which counts if the square is large
    if v.dtype == "float64":
        e = libm(v, "exp", v.neg(square))
        return v.fma(v.neg(rest), e, e)
    r, bits = _root(v, v.maximum(v.neg(square), v.const(_LOWEST)))
    p, s = _power(v, v.sub(r, rest)), v.from_bits(bits)
    return v.mul(v.mul(p, s), s)


def cosh(v: Vectors, x: ir.Value) -> ir.Value:
    if v.dtype == "float64":
        return libm(v, "cosh", x)
    even, odd, sum_, difference = _hyperbolic(v, x)
    return v.fma(even, sum_, v.mul(odd, difference))


def sinh(v: Vectors, x: ir.Value) -> ir.Value:
    if v.dtype == "float64":
        return libm(v, "sinh", x)
    even, odd, sum_, difference = _hyperbolic(v, x)
    # In this order: even·difference alone may overflow where the sum does not.
    return v.copysign(v.fma(even, difference, v.mul(odd, sum_)), x)


def _hyperbolic(v: Vectors, x: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value, ir.Value]:
    """2 cosh r, 2 sinh r, 2^n/4 + 2^-n/4 and 2^n/4 - 2^-n/4, where |x| = n·ln 2 + r.

    Near 0 n is 0 and sinh x nothing but sinh r: right relative to itself. Where 2^-n would be denormal it is 0.
    """
    x = v.minimum(v.abs(x), v.const(_HYPERBOLIC_LIMIT))
    magic = v.const(_MAGIC + 125)
    shifted = v.fma(x, v.const(1 / math.log(2)), magic)
    n = v.sub(shifted, magic)
    r = v.fma(n, v.const(-_LN2[0]), x)
    r = v.fma(n, v.const(-_LN2[1]), r)
    square = v.mul(r, r)
    up = v.shl(v.to_bits(shifted), 23)
    down = _saturating_isub(v, v.iconst(250 << 23), up)
    s, inverse = v.from_bits(up), v.from_bits(down)
    even, odd = v.horner(square, _COSH), v.mul(r, v.horner(square, _SINH))
    return even, odd, v.add(s, inverse), v.sub(s, inverse)


def _saturating_isub(v: Vectors, a: ir.Value, b: ir.Value) -> ir.Value:
    """a - b, at least 0, of exponents alone: in 16-bit halves, for which x86 and ARM have an instruction."""
    halves = ir.VectorType(ir.IntType(16), 2 * v.lanes)
    a, b = (v.cast("bitcast", bits, halves) for bits in (a, b))
    return v.cast("bitcast", v.intrinsic(f"llvm.usub.sat.v{2 * v.lanes}i16", halves, a, b), v.int_type)


def tanh(v: Vectors, x: ir.Value) -> ir.Value:
    if v.dtype == "float64":
        return libm(v, "tanh", x)
    return v.div(*_tanh_parts(v, x))


def coth(v: Vectors, x: ir.Value) -> ir.Value:
    if v.dtype == "float64":
        return v.div(v.const(1.0), libm(v, "tanh", x))
    above, below = _tanh_parts(v, x)
    return v.div(below, above)


def _tanh_parts(v: Vectors, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    x = v.minimum(v.maximum(x, v.const(-_TANH_LIMIT)), v.const(_TANH_LIMIT))
    square = v.mul(x, x)
    return v.mul(x, v.horner(square, _TANH)), v.horner(square, _TANH_BELOW)


def sech(v: Vectors, x: ir.Value) -> ir.Value:
    one, minus = v.const(1.0), v.neg(v.abs(x))
    if v.dtype == "float64":
        e = libm(v, "exp", minus)
        return v.div(v.add(e, e), v.fma(e, e, one))
    r, bits = _root(v, v.maximum(minus, v.const(_LOWEST)))
    root = v.from_bits(bits)
    half = v.mul(_power(v, r), root)
    e = v.mul(half, root)
    return v.mul(v.div(v.add(half, half), v.fma(e, e, one)), root)  # the last step may round to a denormal


def csch(v: Vectors, x: ir.Value) -> ir.Value:
    one, minus = v.const(1.0), v.neg(v.abs(x))
    if v.dtype == "float64":
        e, less = libm(v, "exp", minus), libm(v, "expm1", minus)
        above, root = v.add(e, e), one
    else:
        r, bits = _root(v, v.maximum(minus, v.const(_LOWEST)))
        root = v.from_bits(bits)
        half = v.mul(_power(v, r), root)
        above, squared = v.add(half, half), v.mul(root, root)
        less = v.fma(v.mul(squared, v.horner(r, _EXPM1)), r, v.sub(squared, one))  # e^-|x| - 1
    # 2e/(1 - e²), where 1 - e would have lost all near 0.
    below = v.mul(less, v.add(less, v.const(2.0)))
    return v.copysign(v.mul(v.div(above, below), root), x)


def erf(v: Vectors, x: ir.Value) -> ir.Value:
    if v.dtype == "float64":
        return libm(v, "erf", x)
    x = v.minimum(v.maximum(x, v.const(-_ERF_LIMIT)), v.const(_ERF_LIMIT))
    square = v.mul(x, x)
    return v.div(v.mul(x, v.horner(square, _ERF)), v.horner(square, _ERF_BELOW))
