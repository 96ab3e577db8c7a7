"""log and powers, as vector instructions.

float32 powers are computed in float64 lanes, where b·log2(a) keeps enough digits after the point.
"""

from __future__ import annotations

import math

from llvmlite import ir

from ftnn.kernels.codegen.math.libm import libm
from ftnn.kernels.codegen.vectors import Vectors

_SQRT_HALF, _SQRT_HALF_DOUBLE = 0x3F3504F3, 0x3FE6A09E667F3BCD  # as bits
_LN2 = (0.693359375, -0.00021219444)  # the high part times an exponent is exact
_LOG = (-0.5, 0.3333391, -0.25001338, 0.19963063, -0.16577585, 0.14914769, -0.14267491, 0.087004356)
"""(log(1 + f) - f)/f², √½ ≤ 1 + f ≤ √2."""
_LOG2 = (2.885390081790086, 0.961796673341836, 0.5770835849604903, 0.4116727191911363, 0.34073010429765144)
"""log2((1 + q)/(1 - q))/q in q², √½ ≤ (1 + q)/(1 - q) ≤ √2, to 38 bits."""
_EXP2 = (1.00000000055509, 0.693147205767334, 0.240226468859554, 0.0555032871148964, 0.00961848925556233,
         0.00133999577653288, 0.000153457865024949)  # fmt: skip
"""2^f, |f| ≤ ½, to 29 bits."""


def log(v: Vectors, x: ir.Value) -> ir.Value:
    """The natural logarithm, -inf at 0, NaN below; 1.23 ulp."""
    if v.dtype == "float64":
        return libm(v, "log", x)
    zero = v.const(0.0)
    tiny = v.lt(x, v.const(2.0**-126))  # a denormal's exponent does not give its size
    bits = v.to_bits(v.select(tiny, v.mul(x, v.const(2.0**25)), x))
    exponent = v.ashr(v.isub(bits, v.iconst(_SQRT_HALF)), 23)
    f = v.sub(v.from_bits(v.isub(bits, v.shl(exponent, 23))), v.const(1.0))
    k = v.sub(v.to_float(exponent), v.select(tiny, v.const(25.0), zero))
    small = v.fma(v.mul(f, f), v.horner(f, _LOG), v.mul(k, v.const(_LN2[1])))
    result = v.fma(k, v.const(_LN2[0]), v.add(small, f))
    ordinary = v.logical_and(v.gt(x, zero), v.lt(x, v.const(math.inf)))
    negative = v.select(v.lt(x, zero), v.const(math.nan), x)  # else infinity or NaN, unchanged
    return v.select(ordinary, result, v.select(v.eq(x, zero), v.const(-math.inf), negative))


def pow(v: Vectors, a: ir.Value, b: ir.Value) -> ir.Value:
    """a to the power b, with all special cases of C's pow; 0.54 ulp."""
    if v.dtype == "float64":
        return libm(v, "pow", a, b)
    zero, one, infinity = v.const(0.0), v.const(1.0), v.const(math.inf)
    size = _size(v, a, v.cast("fpext", b, v.double().type))
    whole, half = v.eq(v.floor(b), b), v.mul(b, v.const(0.5))
    odd = v.logical_and(whole, v.ne(v.floor(half), half))
    result = v.select(odd, v.copysign(size, a), size)
    negative = v.logical_and(v.lt(a, zero), v.gt(a, v.const(-math.inf)))
    result = v.select(v.logical_and(negative, v.logical_not(whole)), v.const(math.nan), result)
    # 1 to any power and anything to the power 0 is 1, even for NaN; so is -1 to an infinite power.
    endless = v.logical_and(v.eq(v.abs(a), one), v.eq(v.abs(b), infinity))
    is_one = v.logical_or(v.logical_or(v.eq(b, zero), v.eq(a, one)), endless)
    return v.select(is_one, one, result)


def powi(v: Vectors, a: ir.Value, n: int) -> ir.Value:
    """a to the power n, a compile-time integer; 3.44 ulp."""
    if n == 0:
        return v.const(1.0)
    if n in (-2, -1):  # the reciprocal first, as a² may overflow or underflow where 1/a² does not
        return _product(v, v.div(v.const(1.0), a), -n)
    if 0 < n <= 6:
        return _product(v, a, n)
    if v.dtype == "float64":
        return libm(v, "pow", a, v.const(n))
    d = v.double()
    if abs(n) <= 8:  # rounding that often in float32 would cost 5 ulp
        product = _product(d, d.cast("fpext", a, d.type), abs(n))
        return d.cast("fptrunc", product if n > 0 else d.div(d.const(1.0), product), v.type)
    size = _size(v, a, d.const(n))
    return v.copysign(size, a) if n % 2 else size


def _product(v: Vectors, a: ir.Value, n: int) -> ir.Value:
    if n == 1:
        return a
    half = _product(v, a, n // 2)
    square = v.mul(half, half)
    return v.mul(square, a) if n % 2 else square


def _size(v: Vectors, a: ir.Value, b: ir.Value) -> ir.Value:
    """|a|^b for float64 lanes b, rounded once, to float32."""
    d = v.double()
    base = d.cast("fpext", v.abs(a), d.type)
    bits = d.to_bits(base)
    exponent = d.ashr(d.isub(bits, d.iconst(_SQRT_HALF_DOUBLE)), 52)
    fraction = d.from_bits(d.isub(bits, d.shl(exponent, 52)))
    quotient = d.div(d.sub(fraction, d.const(1.0)), d.add(fraction, d.const(1.0)))
    log2 = d.fma(quotient, d.horner(d.mul(quotient, quotient), _LOG2), d.to_float(exponent))
    log2 = d.select(d.eq(base, d.const(0.0)), d.const(-math.inf), log2)
    log2 = d.select(d.lt(base, d.const(math.inf)), log2, base)  # infinity, NaN
    y = d.minimum(d.maximum(d.mul(b, log2), d.const(-200.0)), d.const(200.0))
    magic = d.const(1.5 * 2**52 + 1023)
    shifted = d.add(y, magic)
    power = d.horner(d.sub(y, d.sub(shifted, magic)), _EXP2)
    return d.cast("fptrunc", d.mul(power, d.from_bits(d.shl(d.to_bits(shifted), 52))), v.type)
