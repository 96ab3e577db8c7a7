"""`Vectors` emits correct instructions, each once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from llvmlite import ir

from ftnn.formula._numbers import round32
from ftnn.kernels.codegen.target import DType
from ftnn.kernels.codegen.vectors import Vectors
from tests.kernels._harness import F32, Emit, compile_map, module_of

SPECIAL = np.array([0.0, -0.0, 1.5, -1.5, 2.5, 1e-40, -3e38, np.inf, -np.inf, np.nan], np.float32)
PAIRS = [np.repeat(SPECIAL, len(SPECIAL)), np.tile(SPECIAL, len(SPECIAL))]


def body(emit: Emit) -> str:
    return str(module_of(emit, "float32", 8, arity=2))


def emitted(text: str, opcode: str) -> int:
    return sum(f" {opcode} " in line for line in text.splitlines() if " = " in line)


def test_the_same_operation_on_the_same_operands_is_emitted_once() -> None:
    text = body(lambda v, a, b: v.mul(v.add(a, b), v.add(a, b)))
    assert emitted(text, "fadd") == 1


def test_operands_of_commuting_operations_may_be_swapped() -> None:
    text = body(lambda v, a, b: v.add(v.mul(v.add(a, b), v.add(b, a)), v.sub(v.fma(a, b, a), v.fma(b, a, a))))
    assert (emitted(text, "fadd"), emitted(text, "call")) == (2, 1)


def test_operands_of_other_operations_may_not_be_swapped() -> None:
    text = body(lambda v, a, b: v.mul(v.sub(a, b), v.sub(b, a)))
    assert emitted(text, "fsub") == 2


def test_values_emitted_in_a_scope_are_forgotten_at_its_end() -> None:
    def emit(v: Vectors, a: ir.Value, b: ir.Value) -> ir.Value:
        outside = v.add(a, b)
        with v.scope():
            assert v.add(a, b) is outside
            inside = v.mul(a, b)
            assert v.mul(a, b) is inside
        assert v.mul(a, b) is not inside
        return outside

    assert emitted(body(emit), "fmul") == 2


def test_a_constant_is_one_object_in_every_scope() -> None:
    def emit(v: Vectors, a: ir.Value, b: ir.Value) -> ir.Value:
        with v.scope():
            inside = v.const(0.1)
        assert v.const(0.1) is inside
        assert v.const(round32(0.1)) is inside
        assert v.const(-0.0) is not v.const(0.0)
        assert v.double().const(0.1) is not inside
        return a

    body(emit)


def test_the_float64_sibling_shares_the_memo() -> None:
    def emit(v: Vectors, a: ir.Value, b: ir.Value) -> ir.Value:
        wide = v.double()
        first = wide.cast("fpext", a, wide.type)
        assert v.double().cast("fpext", a, wide.type) is first
        return a

    body(emit)


def test_emitting_twice_gives_the_same_text() -> None:
    def emit(v: Vectors, a: ir.Value, b: ir.Value) -> ir.Value:
        return v.add(v.mul(a, b), v.fma(b, a, v.mul(b, a)))

    assert body(emit) == body(emit)


def test_no_fast_math_flag_is_set() -> None:
    text = body(lambda v, a, b: v.fma(v.div(v.sub(v.add(a, b), a), b), v.neg(a), v.sqrt(v.mul(a, b))))
    assert not any(
        f" {flag} " in text for flag in ("fast", "reassoc", "contract", "nnan", "ninf", "nsz", "arcp", "afn")
    )


BINARY: dict[str, Callable[[F32, F32], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "copysign": np.copysign,
    "minimum": np.minimum,
    "maximum": np.maximum,
}


@pytest.mark.parametrize("lanes", [1, 3, 8, 16])
@pytest.mark.parametrize("name", BINARY)
def test_arithmetic_matches_numpy(name: str, lanes: int) -> None:
    got = compile_map(lambda v, a, b: getattr(v, name)(a, b), lanes=lanes, arity=2)(*PAIRS)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got, BINARY[name](PAIRS[0], PAIRS[1]))


@pytest.mark.parametrize("name", ["minimum", "maximum"])
@pytest.mark.parametrize("constant_first", [True, False])
def test_minimum_and_maximum_with_a_constant_keep_nan(name: str, constant_first: bool) -> None:
    def emit(v: Vectors, a: ir.Value) -> ir.Value:
        operands = (v.const(1.0), a) if constant_first else (a, v.const(1.0))
        return getattr(v, name)(*operands)

    compiled = compile_map(emit)
    np.testing.assert_array_equal(compiled(SPECIAL), getattr(np, name)(SPECIAL, np.float32(1)))
    assert emitted(compiled.code, "fcmp") == 1


def test_minimum_with_a_nan_constant_is_nan() -> None:
    got = compile_map(lambda v, a: v.minimum(a, v.const(math.nan)))(SPECIAL)
    assert np.isnan(got).all()


@pytest.mark.parametrize("limit", [0.0, 2.0, np.inf])
def test_clamp_keeps_nan_without_testing_for_it(limit: float) -> None:
    compiled = compile_map(lambda v, a, b: v.clamp(a, b), arity=2)
    got = compiled(SPECIAL, np.full_like(SPECIAL, limit))
    np.testing.assert_array_equal(got, np.clip(SPECIAL, -np.float32(limit), np.float32(limit)))
    assert emitted(compiled.code, "fcmp") == 2


UNARY: dict[str, Callable[[F32], Any]] = {
    "neg": np.negative,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "floor": np.floor,
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", UNARY)
def test_unary_functions_match_numpy(name: str, dtype: DType) -> None:
    x = SPECIAL.astype(dtype)
    with np.errstate(all="ignore"):
        true = UNARY[name](x)
    got = compile_map(lambda v, a: getattr(v, name)(a), dtype)(x)
    np.testing.assert_array_equal(got, true)
    np.testing.assert_array_equal(np.signbit(got[~np.isnan(got)]), np.signbit(true[~np.isnan(true)]))


COMPARISONS = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons_match_numpy_also_for_nan(name: str) -> None:
    def emit(v: Vectors, a: ir.Value, b: ir.Value) -> ir.Value:
        return v.select(getattr(v, name)(a, b), v.const(1.0), v.const(0.0))

    got = compile_map(emit, arity=2)(*PAIRS)
    np.testing.assert_array_equal(got == 1, COMPARISONS[name](*PAIRS))


def test_masks_combine_with_and_or_not() -> None:
    def emit(v: Vectors, a: ir.Value, b: ir.Value) -> ir.Value:
        low, nan = v.lt(a, b), v.logical_or(v.isnan(a), v.isnan(b))
        return v.select(v.logical_and(v.logical_not(low), v.logical_not(nan)), v.const(1.0), v.const(0.0))

    got = compile_map(emit, arity=2)(*PAIRS)
    np.testing.assert_array_equal(got == 1, PAIRS[0] >= PAIRS[1])


def test_fma_rounds_once() -> None:
    a = np.array([1 + 2.0**-12], np.float32)
    got = compile_map(lambda v, x: v.fma(x, x, v.neg(v.mul(x, x))))(a)
    assert got[0] == 2.0**-24  # the rounding error of the square


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_integer_operations_and_casts_match_numpy(dtype: DType) -> None:
    def emit(v: Vectors, a: ir.Value) -> ir.Value:
        bits = v.ixor(v.to_bits(a), v.iconst(v.sign_bit))
        number = v.cast("fptosi", v.from_bits(bits), v.int_type)
        number = v.iadd(v.shl(number, 2), v.ashr(v.isub(v.iconst(0), number), 1))
        return v.to_float(v.ixor(v.iand(number, v.iconst(-2)), v.iconst(1)))

    x = np.arange(-9, 10).astype(dtype)
    n = -np.arange(-9, 10)
    np.testing.assert_array_equal(compile_map(emit, dtype)(x), (((n << 2) + (-n >> 1)) & -2) | 1)


@pytest.mark.parametrize("lanes", [1, 3, 8, 16])
def test_any_detects_a_single_lane(lanes: int) -> None:
    def emit(v: Vectors, a: ir.Value) -> ir.Value:
        any_positive = v.any(v.gt(a, v.const(0.0)))
        return v.splat(v.builder.select(any_positive, ir.Constant(v.scalar, 1.0), ir.Constant(v.scalar, 0.0)))

    x = np.zeros((lanes + 1, lanes), np.float32)
    x[np.arange(lanes), np.arange(lanes)] = 1
    got = compile_map(emit, lanes=lanes)(x.ravel()).reshape(x.shape)
    np.testing.assert_array_equal(got, np.repeat([*[1] * lanes, 0], lanes).reshape(x.shape))


@pytest.mark.parametrize("lanes", [1, 2, 3, 7, 8, 16])
def test_hsum_adds_lanes_in_a_fixed_order(lanes: int) -> None:
    x = np.random.default_rng(lanes).normal(size=(50, lanes)).astype(np.float32)
    got = compile_map(lambda v, a: v.splat(v.hsum(a)), lanes=lanes)(x.ravel()).reshape(x.shape)
    rest, odd = x, list[F32]()
    while rest.shape[1] > 1:
        half = rest.shape[1] // 2
        if rest.shape[1] % 2:
            odd.append(rest[:, -1])
        rest = rest[:, :half] + rest[:, half : 2 * half]
    total = rest[:, 0]
    for one in odd:
        total = total + one
    np.testing.assert_array_equal(got, np.repeat(total[:, None], lanes, 1))


def test_constants_are_rounded_to_the_type() -> None:
    assert round32(0.1) == float(np.float32(0.1))
    assert round32(-1e300) == -math.inf
    assert math.isnan(round32(math.nan))
    for value in (0.1, -0.0, 1e-42, math.inf, math.nan):

        def emit(v: Vectors, a: ir.Value, value: float = value) -> ir.Value:
            return v.const(value)

        got = compile_map(emit)(np.zeros(1))
        np.testing.assert_array_equal(got[:1].view(np.int32), np.array([value], np.float32).view(np.int32))


@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
def test_hsums_gives_the_sum_of_each_vector(lanes: int) -> None:
    """Vector n is x·n + n; the sum of its lanes goes into lane n."""

    def emit(v: Vectors, x: ir.Value) -> ir.Value:
        return v.hsums([v.fma(x, v.const(n), v.const(n)) for n in range(v.lanes)])

    x = np.arange(lanes, dtype=np.float64)
    sums = compile_map(emit, "float64", lanes)(x)
    np.testing.assert_array_equal(sums, [n * x.sum() + n * lanes for n in range(lanes)])


def test_largest_is_nan_if_any_lane_is() -> None:
    def emit(v: Vectors, x: ir.Value) -> ir.Value:
        return v.splat(v.largest(x))

    x = np.array([1, 5, -7, 2, 0, 3, 4, 1, 1, 2, 3, np.nan, 9, 1, 1, 1], np.float32)
    np.testing.assert_array_equal(compile_map(emit)(x), [5.0] * 8 + [np.nan] * 8)
