"""exp and functions built on it (hyperbolic functions, logistic, softplus, gauss), and erf, as instructions.

float32. e^x = e^r·s·s with s = 2^m and |r| = |x - m·2·ln 2| ≤ ln 2: a power of two applied in two equal steps
neither overflows nor underflows before the result does, so one formula covers everything from denormals to
infinity. m is found by the magic-number trick; the magic number includes the exponent's bias, so s is one
shift away. Clamps and arithmetic preserve NaN.
"""

from __future__ import annotations

import math

from llvmlite import ir

from ftnn.kernels.codegen.math import small
from ftnn.kernels.codegen.math.libm import libm
from ftnn.kernels.codegen.vectors import Vectors

_MAGIC = 1.5 * 2**23
_LN2 = (0.693147182464599609, -1.90465429995e-09)  # high and low part
_LOWEST, _HIGHEST = -105.0, 89.0  # 2e^x is 0 below, e^x infinite above
_HYPERBOLIC_LIMIT = 89.5  # sinh and cosh are infinite above
_TANH_LIMIT, _ERF_LIMIT = 10.0, 4.0  # tanh and erf are 1 above

_EXPM1 = (1.0, 0.5000005, 0.16666572, 0.041660514, 0.008337333, 0.0014115267, 0.0001955233)  # (e^r - 1)/r
_EVEN, _ODD = (1.3000001, 0.1298672), (0.65, 0.010768187)  # e^r = (even + r·odd)/(even - r·odd), in r²
_SMALL_SINH = (1.0, 0.16666692, 0.0083313305, 0.00020271062)  # sinh(x)/x in x², |x| ≤ 0.9
_TANH = (1.0, -0.3333127, 0.13110453)  # tanh(r)/r in r², |r| ≤ ln(2)/4
# (log(1 + e) - e)/e² is the quotient of these, 0 ≤ e ≤ 1
_LOG1P, _LOG1P_BELOW = (-0.4999999, -0.45073527, -0.07225354), (1.0, 1.5681323, 0.6899747, 0.075702116)
# erf(x)/x in x², |x| < 0.92
_ERF = (1.1283791, -0.37612498, 0.11281846, -0.026767721, 0.004994832, -0.0005999412)
# log(1 - erf(x)), 0.92 ≤ x ≤ 4
_LOG_ERFC = (-0.000195678, -1.1276757, -0.63718224, -0.10393158, 0.022226913, -0.0030432153, 0.00019593701)


def exp(v: Vectors, x: ir.Value) -> ir.Value:
    """e^x; 1.59 ulp."""
    if v.dtype == "float64":
        return libm(v, "exp", x)
    if v.tame:
        return small.exp(v, x)
    r, s = _root(v, _clamp(v, x, _LOWEST, _HIGHEST))
    return v.mul(v.mul(_power(v, r), s), s)


def _clamp(v: Vectors, x: ir.Value, low: float, high: float) -> ir.Value:
    return v.minimum(v.maximum(x, v.const(low)), v.const(high))


def _root(v: Vectors, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """r and s, for x in [-105, 105]."""
    magic = v.const(_MAGIC + 127)
    shifted = v.fma(x, v.const(0.5 / math.log(2)), magic)
    m = v.sub(shifted, magic)
    r = v.fma(m, v.const(-2 * _LN2[0]), x)
    r = v.fma(m, v.const(-2 * _LN2[1]), r)
    return r, v.from_bits(v.shl(v.to_bits(shifted), 23))


def _power(v: Vectors, r: ir.Value) -> ir.Value:
    """e^r, |r| ≤ ln 2."""
    return v.fma(v.horner(r, _EXPM1), r, v.const(1.0))


def logistic(v: Vectors, x: ir.Value) -> ir.Value:
    """1/(1 + e^-x); 3.5 ulp."""
    if v.dtype == "float64":
        e, one = libm(v, "exp", v.neg(v.abs(x))), v.const(1.0)
        return v.div(v.select(v.lt(x, v.const(0.0)), e, one), v.add(one, e))
    if v.tame:
        return small.logistic(v, x)
    r, s = _root(v, _clamp(v, x, _LOWEST, _HIGHEST))
    inverse = v.from_bits(v.isub(v.iconst(254 << 23), v.to_bits(s)))
    # A division is needed anyway, so e^r may be a quotient, whose two halves are shorter than _EXPM1.
    square = v.mul(r, r)
    even, odd = v.horner(square, _EVEN), v.horner(square, _ODD)
    rising = v.mul(s, v.fma(r, odd, even))  # e^(x/2), up to a factor shared with e^(-x/2)
    falling = v.fma(v.neg(r), odd, even)
    return v.div(rising, v.fma(inverse, falling, rising))


def softplus(v: Vectors, x: ir.Value) -> ir.Value:
    """log(1 + e^x); 2.59 ulp."""
    e = exp(v, v.neg(v.abs(x)))
    positive = v.maximum(x, v.const(0.0))
    if v.dtype == "float64":
        return v.add(positive, libm(v, "log1p", e))
    bend = v.div(v.mul(e, v.horner(e, _LOG1P)), v.horner(e, _LOG1P_BELOW))
    return v.add(positive, v.fma(bend, e, e))


def gauss(v: Vectors, x: ir.Value) -> ir.Value:
    """e^(-x²); 1.93 ulp."""
    limit = (
        28.0 if v.dtype == "float64" else 10.5
    )  # the result is 0 from here on, and the square is still finite
    x = v.minimum(v.abs(x), v.const(limit))
    square = v.mul(x, x)
    rest = v.fma(x, x, v.neg(square))  # the square's rounding error, which is large if the square is
    if v.dtype == "float64":
        e = libm(v, "exp", v.neg(square))
        return v.fma(v.neg(rest), e, e)
    r, s = _root(v, v.maximum(v.neg(square), v.const(_LOWEST)))
    return v.mul(v.mul(_power(v, v.sub(r, rest)), s), s)


def cosh(v: Vectors, x: ir.Value) -> ir.Value:
    """cosh x; 2.63 ulp."""
    if v.dtype == "float64":
        return libm(v, "cosh", x)
    if v.tame:
        return small.cosh(v, x)
    even, odd, more, less = _hyperbolic(v, x)
    return v.fma(even, more, v.mul(odd, less))


def sinh(v: Vectors, x: ir.Value) -> ir.Value:
    """sinh x; 3.51 ulp."""
    if v.dtype == "float64":
        return libm(v, "sinh", x)
    if v.tame:
        return small.sinh(v, x)
    even, odd, more, less = _hyperbolic(v, x)
    # In this order: even·less alone may overflow where the sum does not.
    return v.copysign(v.fma(even, less, v.mul(odd, more)), x)


def _hyperbolic(v: Vectors, x: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value, ir.Value]:
    """2·cosh r, 2·sinh r, (2^n + 2^-n)/4 and (2^n - 2^-n)/4, where |x| = n·ln 2 + r.

    Near 0, n is 0 and sinh x is exactly sinh r, so its relative error stays small.
    """
    x = v.minimum(v.abs(x), v.const(_HYPERBOLIC_LIMIT))
    magic = v.const(_MAGIC + 125)
    shifted = v.fma(x, v.const(1 / math.log(2)), magic)
    n = v.sub(shifted, magic)
    r = v.fma(n, v.const(-_LN2[0]), x)
    r = v.fma(n, v.const(-_LN2[1]), r)
    square = v.mul(r, r)
    up = v.shl(v.to_bits(shifted), 23)
    s, inverse = v.from_bits(up), v.from_bits(_saturating_isub(v, v.iconst(250 << 23), up))
    even, odd = v.horner(square, small.COSH), v.mul(r, v.horner(square, small.SINH))
    return even, odd, v.add(s, inverse), v.sub(s, inverse)


def _saturating_isub(v: Vectors, a: ir.Value, b: ir.Value) -> ir.Value:
    """a - b, but at least 0, for numbers whose lower halves are 0: x86 has this for 16 bits only."""
    halves = ir.VectorType(ir.IntType(16), 2 * v.lanes)
    a, b = (v.cast("bitcast", bits, halves) for bits in (a, b))
    return v.cast("bitcast", v.intrinsic(f"llvm.usub.sat.v{2 * v.lanes}i16", halves, a, b), v.int_type)


def tanh(v: Vectors, x: ir.Value) -> ir.Value:
    """tanh x, within ±1; 2.59 ulp. tanh(-0) is 0."""
    if v.dtype == "float64":
        return libm(v, "tanh", x)
    divide = small.quotient if v.tame else Vectors.div
    return divide(v, *_tanh_parts(v, x))


def coth(v: Vectors, x: ir.Value) -> ir.Value:
    """1/tanh x; 2.79 ulp."""
    if v.dtype == "float64":
        return v.div(v.const(1.0), libm(v, "tanh", x))
    above, below = _tanh_parts(v, x)
    return v.copysign(v.div(below, above), x)  # also at -0


def _tanh_parts(v: Vectors, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Numerator and denominator of tanh x. With x = k·ln(2)/2 + r, tanh(k·ln(2)/2) is (2^k - 1)/(2^k + 1).

    Both are rounded once, which keeps their order, so |tanh x| never exceeds 1.
    """
    x = x if v.tame else _clamp(v, x, -_TANH_LIMIT, _TANH_LIMIT)
    magic, one = v.const(_MAGIC + 127), v.const(1.0)
    shifted = v.fma(x, v.const(2 / math.log(2)), magic)
    r = v.fma(v.sub(shifted, magic), v.const(-0.5 * math.log(2)), x)  # k is too small to need a second part
    power = v.from_bits(v.shl(v.to_bits(shifted), 23))
    less, more = v.sub(power, one), v.add(power, one)
    rest = v.mul(r, v.horner(v.mul(r, r), _TANH))
    return v.fma(more, rest, less), v.fma(less, rest, more)


def sech(v: Vectors, x: ir.Value) -> ir.Value:
    """1/cosh x; 3.38 ulp."""
    one, size = v.const(1.0), v.abs(x)
    if v.dtype == "float64":
        e = libm(v, "exp", v.neg(size))
        return v.div(v.add(e, e), v.fma(e, e, one))
    half, root, e = _falling(v, size)
    return v.mul(v.div(v.add(half, half), v.fma(e, e, one)), root)


def csch(v: Vectors, x: ir.Value) -> ir.Value:
    """1/sinh x; 2.66 ulp."""
    one, size = v.const(1.0), v.abs(x)
    if v.dtype == "float64":
        e, less = libm(v, "exp", v.neg(size)), libm(v, "expm1", v.neg(size))
        return v.copysign(v.div(v.add(e, e), v.mul(less, v.add(less, v.const(2.0)))), x)
    half, root, e = _falling(v, size)
    near = v.lt(size, v.const(0.9))  # where 1 - e² would lose digits
    above = v.select(near, one, v.add(half, half))
    sinh = v.mul(size, v.horner(v.mul(size, size), _SMALL_SINH))
    below = v.select(near, sinh, v.fma(v.neg(e), e, one))
    return v.copysign(v.mul(v.div(above, below), v.select(near, one, root)), x)


def _falling(v: Vectors, size: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """e^-size as two factors, the second of which may yield a denormal and is applied last; and e^-size."""
    r, root = _root(v, v.maximum(v.neg(size), v.const(_LOWEST)))
    half = v.mul(_power(v, r), root)
    return half, root, v.mul(half, root)


def erf(v: Vectors, x: ir.Value) -> ir.Value:
    """The error function; 2.5 ulp."""
    if v.dtype == "float64":
        return libm(v, "erf", x)
    size = v.minimum(v.abs(x), v.const(_ERF_LIMIT))
    r, root = _root(v, v.horner(size, _LOG_ERFC))
    far = v.fma(v.neg(v.mul(_power(v, r), root)), root, v.const(1.0))
    near = v.mul(x, v.horner(v.mul(size, size), _ERF))
    return v.select(v.lt(size, v.const(0.92)), near, v.copysign(far, x))
