"""sin, cos and their quotients, as vector instructions.

x = n·π/2 + r by the magic-number trick: adding 1.5·2²³ (in float64 1.5·2⁵²; all scaled alike) rounds x·2/π
to an integer n in the low bits of the sum. π/2 is subtracted in three parts, so the relative error of r stays
small however near x is to a multiple of π/2. n is kept scaled by 2⁻¹² (2⁻²⁷), so that |n| ≥ 2¹³ (2²⁸, which
is |x| beyond 12866 or 4·10⁸), infinities and NaN all show in one bit of the exponent: a single test sends
vectors with such a lane to an out-of-line function. It reduces float32 up to 2³² in float64, all else lane by
lane.

sin and cos of the same x share all of this. For kernels that need only one of them, the functions in `ALONE`
are shorter: they reduce by multiples of π and need a single polynomial.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Sequence
from typing import Any, Literal

from llvmlite import ir

from ftnn.kernels.codegen.control import I64, loop, when
from ftnn.kernels.codegen.math.constants import CONSTANTS
from ftnn.kernels.codegen.vectors import Vectors

_PI_LOW = 1.2246467991473532e-16  # π minus float64's π
_FAR = 0x4F800000  # the bits of float32 2³²; those of larger numbers, infinities and NaN are greater

# The out-of-line function saves the registers it uses. Otherwise a caller with AVX2's sixteen registers would
# keep its sums in memory, just for a call that hardly ever happens.
_SAVES_ALL = ("x86_64", "amd64", "aarch64", "arm64")
_CONVENTION = "preserve_allcc" if platform.machine().lower() in _SAVES_ALL else "ccc"

_Reduction = Literal["quarter", "sin", "cos"]


def sin(v: Vectors, x: ir.Value) -> ir.Value:
    """sin x; 2.01 ulp, 2.0 in float64."""
    even, sine, cosine = _turned(v, x)
    return v.select(even, sine, _flip(v, cosine, v.iconst(v.sign_bit)))


def cos(v: Vectors, x: ir.Value) -> ir.Value:
    """cos x; 2.04 ulp, 2.0 in float64."""
    even, sine, cosine = _turned(v, x)
    return v.select(even, cosine, sine)


def _turned(v: Vectors, x: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Whether n is even, sin r and cos r, both negated in the quadrants where cos x is negative."""
    r, n = _reduce(
        v, x
    )  # in fact n + 1, whose bit 1 is the sign of cos x and whose bit 0 is set where n is even
    square = v.mul(r, r)
    # r·(1 + ...) rather than r + r³·(...): just as short, and keeps the sign of zero.
    c = CONSTANTS[v.dtype]
    sine = v.mul(r, v.horner(square, c.sin))
    cosine = v.horner(square, c.cos)
    turn = v.shl(n, v.bits - 2)
    sign = v.iand(turn, v.iconst(v.sign_bit))
    # AVX-512 sets each sign in one instruction, provided LLVM does not see that both need the same `and`.
    wide = v.lanes * v.bits >= 512
    cosine = v.copysign(cosine, v.from_bits(turn)) if wide else _flip(v, cosine, sign)
    return v.bits_set(n, 1), _flip(v, sine, sign), cosine


def _flip(v: Vectors, a: ir.Value, sign: ir.Value) -> ir.Value:
    return v.from_bits(v.ixor(v.to_bits(a), sign))


def _reduce(v: Vectors, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """r in [-π/4, π/4] and n + 1 in the low bits of integers, where x = n·π/2 + r."""

    def emit() -> tuple[ir.Value, ir.Value]:
        c = CONSTANTS[v.dtype]
        magic = v.const((c.magic + 1) * c.quarter_scale)
        shifted = v.fma(x, v.const(2 / math.pi * c.quarter_scale), magic)
        return _subtract(v, x, v.sub(shifted, magic), shifted, "quarter", 1 / c.quarter_scale)

    return v.once("reduce", (x,), emit)


def tan(v: Vectors, x: ir.Value) -> ir.Value:
    """tan x; 2.72 ulp, 3.4 in float64."""
    even, tangent = _tangent(v, x)
    one = v.const(1.0)
    return v.div(v.select(even, tangent, v.const(-1.0)), v.select(even, one, tangent))


def cot(v: Vectors, x: ir.Value) -> ir.Value:
    """1/tan x; 2.94 ulp, 3.4 in float64."""
    one = v.const(1.0)
    even, tangent = _tangent(v, x)
    return v.div(v.select(even, one, v.neg(tangent)), v.select(even, tangent, one))


def _tangent(v: Vectors, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Whether n is even, and tan r: shorter and more accurate than a quotient of sin and cos."""
    r, n = _reduce(v, x)
    square = v.mul(r, r)
    tangent = v.fma(v.mul(r, square), v.horner(square, CONSTANTS[v.dtype].tan), r)
    return v.bits_set(n, 1), v.copysign(tangent, r)  # restores r = -0


def sec(v: Vectors, x: ir.Value) -> ir.Value:
    """1/cos x; 3.08 ulp, 3.6 in float64."""
    return v.div(v.const(1.0), cos(v, x))


def csc(v: Vectors, x: ir.Value) -> ir.Value:
    """1/sin x; 3.37 ulp, 3.6 in float64."""
    return v.div(v.const(1.0), sin(v, x))


def sin_alone(v: Vectors, x: ir.Value) -> ir.Value:
    """sin x where cos x is not needed; 2.74 ulp, 1.7 in float64."""

    def emit() -> ir.Value:
        c = CONSTANTS[v.dtype]
        scale = 2 * c.quarter_scale
        magic = v.const(c.magic * scale)
        shifted = v.fma(x, v.const(1 / math.pi * scale), magic)
        return _half_turn(v, *_subtract(v, x, v.sub(shifted, magic), shifted, "sin", 2 / scale))

    return v.once("sin alone", (x,), emit)


def cos_alone(v: Vectors, x: ir.Value) -> ir.Value:
    """cos x where sin x is not needed; 2.74 ulp, 1.7 in float64."""

    def emit() -> ir.Value:
        # cos x = sin(x + π/2): a half is added before rounding and subtracted after it.
        c = CONSTANTS[v.dtype]
        scale = 2 * c.quarter_scale
        magic, half = v.const(c.magic * scale), v.const(0.5 * scale)
        shifted = v.add(v.fma(x, v.const(1 / math.pi * scale), half), magic)
        n = v.sub(v.sub(shifted, magic), half)
        return _half_turn(v, *_subtract(v, x, n, shifted, "cos", 2 / scale))

    return v.once("cos alone", (x,), emit)


ALONE: dict[str, Callable[[Vectors, ir.Value], ir.Value]] = {"sin": sin_alone, "cos": cos_alone}
"""Shorter forms, for arguments of which only sin or only cos is needed."""


def _half_turn(v: Vectors, r: ir.Value, n: ir.Value) -> ir.Value:
    """sin(r + n·π), |r| ≤ π/2."""
    square, coefficients = v.mul(r, r), CONSTANTS[v.dtype].sin_half
    if v.dtype == "float64":  # the longer polynomial's product would exceed 1
        sine = v.fma(v.mul(r, square), v.horner(square, coefficients[1:]), r)
        sine = v.copysign(v.clamp(sine, v.const(1.0)), r)  # rounding may lead beyond 1, and loses -0
    else:
        sine = v.mul(r, v.horner(square, coefficients))
    return _flip(v, sine, v.shl(n, v.bits - 1))


def _subtract(
    v: Vectors, x: ir.Value, n: ir.Value, shifted: ir.Value, reduction: _Reduction, unscale: float
) -> tuple[ir.Value, ir.Value]:
    """x - n·π/2 (n still scaled) and n as integers; lanes out of range are corrected out of line."""
    r = x
    for part in CONSTANTS[v.dtype].half_pi:
        r = v.fma(n, v.const(-part * unscale), r)
    bits = v.to_bits(shifted)
    if v.tame:
        return r, bits
    # Nothing else uses this mask, so LLVM turns it into one test of the whole vector.
    any_outside = v.any(_outside(v, n))
    b = v.builder
    before, cold, after = b.block, b.append_basic_block("wide"), b.append_basic_block("reduced")
    b.cbranch(any_outside, cold, after).set_weights([1, 1 << 20])
    b.position_at_end(cold)
    wide = b.call(_wide(v, reduction), [x, n, r, bits], cconv=_CONVENTION)
    wide_r, wide_bits = b.extract_value(wide, 0), b.extract_value(wide, 1)
    b.branch(after)
    b.position_at_end(after)
    merged = b.phi(v.type), b.phi(v.int_type)
    for phi, fast, slow in zip(merged, (r, bits), (wide_r, wide_bits), strict=True):
        phi.add_incoming(fast, before)
        phi.add_incoming(slow, cold)
    return merged


def _outside(v: Vectors, n: ir.Value) -> ir.Value:
    """Where the scaled n is out of range: one bit of the exponent is set from 2 on, and in NaN."""
    return v.bits_set(v.to_bits(n), 1 << (v.bits - 2))


def _wide(v: Vectors, reduction: _Reduction) -> ir.Function:
    """A function (x, scaled n, r, n) → (r, n) of the module that corrects the lanes out of range.

    The other lanes are left alone, so that no value depends on its neighbours.
    """
    name = f"ftnn.reduce.{reduction}.{v.lanes}x{v.bits}"
    if name in v.builder.module.globals:
        return v.builder.module.globals[name]
    function, f = _out_of_line(v, name, [v.type, v.type, v.type, v.int_type], ["noinline", "nounwind"])
    x, scaled, r, n = function.args
    b, far = f.builder, _outside(f, scaled)
    if v.dtype == "float32":
        better_r, better_n = _by_float64(f, x, reduction)
        r, n = f.select(far, better_r, r), f.select(far, better_n, n)
        size = f.iand(f.to_bits(x), f.iconst(f.sign_bit - 1))
        far = b.icmp_unsigned(">", size, f.iconst(_FAR))
    far_lanes, far_x = _lane_by_lane(v, reduction), f.select(far, x, f.const(0.0))
    results = when(
        f, f.any(far), lambda: [b.call(far_lanes, [far_x, r, n], cconv=_CONVENTION)], [_pair(b, r, n)]
    )
    b.ret(results[0])
    return function


def _by_float64(f: Vectors, x: ir.Value, reduction: _Reduction) -> tuple[ir.Value, ir.Value]:
    """r and n of float32 lanes up to 2³².

    In float64, x - n·π/2 is exact for the first part of π/2, because both are multiples of 2⁻⁵².
    """
    d = f.double()
    turn = math.pi / 2 if reduction == "quarter" else math.pi
    rest = _PI_LOW / 2 if reduction == "quarter" else _PI_LOW
    # cos x = sin(x + π/2), as in `cos_alone`.
    shift, magic = d.const(0.5 if reduction == "cos" else 0.0), d.const(1.5 * 2.0**52)
    exact = f.cast("fpext", x, d.type)
    shifted = d.add(d.fma(exact, d.const(1 / turn), shift), magic)
    turns = d.sub(d.sub(shifted, magic), shift)
    angle = d.fma(turns, d.const(-rest), d.fma(turns, d.const(-turn), exact))
    whole = d.cast("trunc", d.to_bits(shifted), f.int_type)
    if reduction == "quarter":
        whole = f.iadd(whole, f.iconst(1))
    return d.cast("fptrunc", angle, f.type), whole


def _lane_by_lane(v: Vectors, reduction: _Reduction) -> ir.Function:
    """A function (x, r, n) → (r, n) of the module that corrects the lanes whose x is not 0.

    libm's float64 sin and cos are accurate for every number, however large; asin recovers r from them.
    """
    name = f"ftnn.far.{reduction}.{v.lanes}x{v.bits}"
    if name in v.builder.module.globals:
        return v.builder.module.globals[name]
    rare = ["noinline", "cold", "nounwind", "minsize", "optsize"]
    function, f = _out_of_line(v, name, [v.type, v.type, v.int_type], rare)
    xs, rs, ns = function.args
    b: Any = f.builder
    narrow = v.dtype == "float32"

    def each(lane: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
        x = b.extract_element(xs, lane)

        def correct() -> list[ir.Value]:
            angle, n = _far_lane(v, b, b.fpext(x, ir.DoubleType()) if narrow else x, reduction)
            corrected = (b.fptrunc(angle, v.scalar) if narrow else angle, n)
            return [b.insert_element(all, one, lane) for all, one in zip(carried, corrected, strict=True)]

        return when(f, b.fcmp_unordered("!=", x, ir.Constant(v.scalar, 0.0)), correct, carried)

    b.ret(_pair(b, *loop(f, ir.Constant(I64, v.lanes), each, [rs, ns])))
    return function


def _out_of_line(
    v: Vectors, name: str, args: Sequence[ir.Type], attributes: Sequence[str]
) -> tuple[ir.Function, Vectors]:
    """A new function of the module that returns r and n, and `Vectors` at its start."""
    kind = ir.FunctionType(ir.LiteralStructType([v.type, v.int_type]), args)
    function = ir.Function(v.builder.module, kind, name)
    function.linkage = "internal"
    function.calling_convention = _CONVENTION
    for attribute in attributes:
        function.attributes.add(attribute)
    return function, Vectors(ir.IRBuilder(function.append_basic_block("entry")), v.target)


def _pair(b: Any, r: ir.Value, n: ir.Value) -> ir.Value:
    """The return value of such a function."""
    empty = ir.Constant(b.function.function_type.return_type, ir.Undefined)
    return b.insert_value(b.insert_value(empty, r, 0), n, 1)


def _far_lane(v: Vectors, b: ir.IRBuilder, x: Any, reduction: _Reduction) -> tuple[Any, Any]:
    """The reduced angle, in float64, and n (n + 1 for quarter turns) of one lane."""
    double, whole = ir.DoubleType(), ir.IntType(v.bits)

    def call(name: str, a: Any) -> Any:
        return b.call(v.external(name, double, double), [a])

    if reduction != "quarter":
        return call("asin", call(reduction, x)), ir.Constant(whole, 0)
    sine, cosine = call("sin", x), call("cos", x)
    odd = b.fcmp_ordered(">", call("llvm.fabs.f64", sine), call("llvm.fabs.f64", cosine))
    small, large = b.select(odd, cosine, sine), b.select(odd, sine, cosine)
    lower = b.fcmp_ordered("<", large, ir.Constant(double, 0.0))
    # In the four quadrants sin x is sin r, cos r, -sin r, -cos r, and cos x is the next of these.
    angle = call("asin", b.select(b.xor(odd, lower), b.fneg(small), small))
    upper = b.select(lower, ir.Constant(whole, 3), ir.Constant(whole, 1))
    return angle, b.add(upper, b.zext(odd, whole))
