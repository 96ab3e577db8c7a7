"""log and powers, as vector instructions.

b·log2(a) must keep enough digits after the point: float32 powers are computed in float64 lanes, those of
float64 with log2(a) as a sum of two numbers.
"""

from __future__ import annotations

import math

from llvmlite import ir

from ftnn.kernels.codegen.math.constants import CONSTANTS
from ftnn.kernels.codegen.math.exponential import power
from ftnn.kernels.codegen.vectors import Vectors

_LOG2 = (2.885390081790086, 0.961796673341836, 0.5770835849604903, 0.4116727191911363, 0.34073010429765144)
"""log2((1 + q)/(1 - q))/q in q², √½ ≤ (1 + q)/(1 - q) ≤ √2, to 38 bits."""
_EXP2 = (1.00000000055509, 0.693147205767334, 0.240226468859554, 0.0555032871148964, 0.00961848925556233,
         0.00133999577653288, 0.000153457865024949)  # fmt: skip
"""2^f, |f| ≤ ½, to 29 bits."""
_THIRD = (1 / 3, 1.8503717077085943e-17)
_ATANH = (0.20000000000000176, 0.1428571428544255, 0.11111111197906187, 0.09090897080691966,
          0.07693172451442039, 0.06632843270005938, 0.06559853474731127)  # fmt: skip
"""((atanh(q)/q - 1)/q² - ⅓)/q² in q², for the same q: atanh(q)/q to 65 bits."""
_PER_ATANH = (2.8853900817779268, 4.0710547481862066e-17)
"""2/ln 2 in two parts: atanh(q) times this is log2((1 + q)/(1 - q))."""


def log(v: Vectors, x: ir.Value) -> ir.Value:
    """The natural logarithm, -inf at 0, NaN below; 1.23 ulp, 1.3 in float64."""
    c, zero = CONSTANTS[v.dtype], v.const(0.0)
    fraction, k = _split(v, x)
    f = v.sub(fraction, v.const(1.0))
    small = v.fma(v.mul(f, f), v.horner(f, c.log), v.mul(k, v.const(c.log_ln2[1])))
    result = v.fma(k, v.const(c.log_ln2[0]), v.add(small, f))
    ordinary = v.logical_and(v.gt(x, zero), v.lt(x, v.const(math.inf)))
    negative = v.select(v.lt(x, zero), v.const(math.nan), x)  # else infinity or NaN, unchanged
    return v.select(ordinary, result, v.select(v.eq(x, zero), v.const(-math.inf), negative))


def _split(v: Vectors, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """f and k, where x = f·2^k and √½ ≤ f < √2, for positive numbers."""
    c = CONSTANTS[v.dtype]
    tiny = v.lt(x, v.const(c.smallest))  # a denormal's exponent does not give its size
    bits = v.to_bits(v.select(tiny, v.mul(x, v.const(2.0**c.denormal_bits)), x))
    exponent = v.ashr(v.isub(bits, v.iconst(c.sqrt_half)), c.mantissa)
    fraction = v.from_bits(v.isub(bits, v.shl(exponent, c.mantissa)))
    return fraction, v.sub(v.to_float(exponent), v.select(tiny, v.const(c.denormal_bits), v.const(0.0)))


def pow(v: Vectors, a: ir.Value, b: ir.Value) -> ir.Value:
    """a to the power b, with all special cases of C's pow; 0.54 ulp, 2.1 in float64."""
    zero, one, infinity = v.const(0.0), v.const(1.0), v.const(math.inf)
    size = _size(v, a, b)
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
    """a to the power n, a compile-time integer; 3.44 ulp, 3.2 in float64."""
    if n == 0:
        return v.const(1.0)
    if n in (-2, -1):  # the reciprocal first, as a² may overflow or underflow where 1/a² does not
        return _product(v, v.div(v.const(1.0), a), -n)
    if 0 < n <= 6:
        return _product(v, a, n)
    if abs(n) <= 8 and v.dtype == "float32":  # rounding that often in float32 would cost 5 ulp
        d = v.double()
        product = _product(d, d.cast("fpext", a, d.type), abs(n))
        return d.cast("fptrunc", product if n > 0 else d.div(d.const(1.0), product), v.type)
    size = _size(v, a, v.const(n))
    return v.copysign(size, a) if n % 2 else size


def _product(v: Vectors, a: ir.Value, n: int) -> ir.Value:
    if n == 1:
        return a
    half = _product(v, a, n // 2)
    square = v.mul(half, half)
    return v.mul(square, a) if n % 2 else square


def _size(v: Vectors, a: ir.Value, b: ir.Value) -> ir.Value:
    """|a|^b."""
    return _size32(v, a, b) if v.dtype == "float32" else _size64(v, a, b)


def _size32(v: Vectors, a: ir.Value, b: ir.Value) -> ir.Value:
    """|a|^b in float32, rounded once."""
    d = v.double()
    base, b = (d.cast("fpext", one, d.type) for one in (v.abs(a), b))
    bits = d.to_bits(base)
    exponent = d.ashr(
        d.isub(bits, d.iconst(CONSTANTS["float64"].sqrt_half)), 52
    )  # no float32 is denormal here
    fraction = d.from_bits(d.isub(bits, d.shl(exponent, 52)))
    quotient = d.div(d.sub(fraction, d.const(1.0)), d.add(fraction, d.const(1.0)))
    log2 = d.fma(quotient, d.horner(d.mul(quotient, quotient), _LOG2), d.to_float(exponent))
    y = d.minimum(d.maximum(d.mul(b, _ends(d, base, log2)), d.const(-200.0)), d.const(200.0))
    magic = d.const(1.5 * 2**52 + 1023)
    shifted = d.add(y, magic)
    root = d.horner(d.sub(y, d.sub(shifted, magic)), _EXP2)
    return d.cast("fptrunc", d.mul(root, d.from_bits(d.shl(d.to_bits(shifted), 52))), v.type)


def _ends(d: Vectors, base: ir.Value, log2: ir.Value) -> ir.Value:
    """log2(base), also where base is 0, infinite or NaN."""
    log2 = d.select(d.eq(base, d.const(0.0)), d.const(-math.inf), log2)
    return d.select(d.lt(base, d.const(math.inf)), log2, base)


def _size64(v: Vectors, a: ir.Value, b: ir.Value) -> ir.Value:
    """|a|^b in float64: 2^y, where y = b·log2|a| and the error of y are two numbers."""
    base = v.abs(a)
    log2, log2_rest = _log2(v, base)
    log2 = _ends(v, base, log2)
    product = v.mul(b, log2)
    y = v.minimum(v.maximum(product, v.const(-1080.0)), v.const(1030.0))
    rest = v.fma(b, log2_rest, v.fma(b, log2, v.neg(product)))
    rest = v.select(v.eq(y, product), rest, v.const(0.0))  # beyond these limits it may be NaN
    # 2^y = e^r·s·s, as in `exponential.py`.
    c = CONSTANTS[v.dtype]
    magic = v.const(c.magic + c.bias)
    shifted = v.fma(y, v.const(0.5), magic)
    r = v.mul(v.add(v.fma(v.sub(shifted, magic), v.const(-2.0), y), rest), v.const(c.ln2[0]))
    s = v.from_bits(v.shl(v.to_bits(shifted), c.mantissa))
    return v.mul(v.mul(power(v, r), s), s)


def _log2(v: Vectors, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """log2(x) as a sum of two numbers, to 63 bits, for positive x.

    With x = f·2^k and q = (f - 1)/(f + 1), it is k + 2/ln 2·atanh(q), and atanh(q) = q·(1 + q²·(⅓ + …)). Each
    value that matters for the first 63 bits comes with its rounding error, its rest.
    """
    one, third = v.const(1.0), v.const(_THIRD[0])
    f, k = _split(v, x)
    below = v.add(f, one)
    below_rest = v.sub(f, v.sub(below, one))
    above, inverse = v.sub(f, one), v.div(one, below)
    q = v.mul(above, inverse)
    minus_q = v.neg(q)
    q_rest = v.mul(v.fma(minus_q, below_rest, v.fma(minus_q, below, above)), inverse)
    square = v.mul(q, q)
    square_rest = v.fma(v.add(q, q), q_rest, v.fma(q, q, v.neg(square)))
    tail = v.mul(square, v.horner(square, _ATANH))
    inner = v.add(third, tail)
    inner_rest = v.add(v.add(v.sub(third, inner), tail), v.const(_THIRD[1]))
    u, u_rest = _times(v, (square, square_rest), (inner, inner_rest))
    bend, bend_rest = _times(v, (q, q_rest), (u, u_rest))
    atanh = v.add(q, bend)
    atanh_rest = v.add(v.add(v.sub(q, atanh), bend), v.add(bend_rest, q_rest))
    per_atanh = v.const(_PER_ATANH[0]), v.const(_PER_ATANH[1])
    log2, log2_rest = _times(v, (atanh, atanh_rest), per_atanh)
    total = v.add(k, log2)
    return total, v.add(v.add(v.sub(k, total), log2), log2_rest)


_Pair = tuple[ir.Value, ir.Value]
"""A number and its rounding error."""


def _times(v: Vectors, a: _Pair, b: _Pair) -> _Pair:
    product = v.mul(a[0], b[0])
    return product, v.add(v.fma(a[0], b[0], v.neg(product)), v.fma(a[0], b[1], v.mul(a[1], b[0])))
