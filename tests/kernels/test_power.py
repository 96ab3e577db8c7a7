"""Powers: float32 against C's pow in float64, float64 against its long double."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ftnn.kernels.codegen.math.table import ACCURACY, FUNCTIONS
from tests.kernels import extended
from tests.kernels._harness import Compiled, compile_map, libm, ulps

POW, POWI = FUNCTIONS["pow"].emit, FUNCTIONS["powi"].emit


@pytest.fixture(scope="module")
def true_pow() -> Compiled:
    """C's pow."""
    return compile_map(lambda v, a, b: libm(v, "pow", a, b), "float64", arity=2)


@pytest.mark.parametrize("lanes", [1, 3, 8, 16])
def test_pow_has_the_special_cases_of_c(true_pow: Compiled, lanes: int) -> None:
    half = [0.0, 1e-45, 1e-30, 0.3, 0.5, 1, 1.0000001, 1.5, 2, 3, 4, 7, 1e10, 16777215, 3e38, np.inf, np.nan]
    values = np.array([*half, *(-one for one in half)], np.float32)
    a, b = (grid.ravel() for grid in np.meshgrid(values, values))
    true = true_pow(a, b)
    got = compile_map(POW, lanes=lanes, arity=2)(a, b)
    assert ulps(got, true).max() <= ACCURACY["pow"]
    number = ~np.isnan(true)
    np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(true[number]))


def test_pow_is_accurate_for_all_arguments(true_pow: Compiled) -> None:
    rng = np.random.default_rng(0)
    count = 1_000_000
    anything = rng.integers(0, 0x7F800000, count, dtype=np.uint32).view(np.float32)
    near_one = (1 + rng.normal(scale=1e-3, size=count)).astype(np.float32)
    a = np.concatenate([anything, near_one, anything])
    # Exponents that give a finite result, including denormals; then arbitrary exponents.
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        b = (rng.uniform(-151, 129, 2 * count) / np.log2(a[: 2 * count].astype(np.float64))).astype(
            np.float32
        )
    b = np.concatenate([b, rng.integers(0, 2**32, count, dtype=np.uint32).view(np.float32)])
    error = ulps(compile_map(POW, arity=2)(a, b), true_pow(a, b))
    assert error.max() <= ACCURACY["pow"]


@extended.needed
def test_float64_pow_has_the_special_cases_of_c() -> None:
    half = [0.0, 5e-324, 1e-310, 0.3, 0.5, 1, 1.0000001, 1.5, 2, 3, 7, 2.0**53 - 1, 1e308, np.inf, np.nan]
    values = np.array([*half, *(-one for one in half)])
    a, b = (grid.ravel() for grid in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        true = np.power(a.astype(np.longdouble), b.astype(np.longdouble))
    for lanes in (1, 3, 8):
        got = compile_map(POW, "float64", lanes=lanes, arity=2)(a, b)
        assert extended.ulps(got, true).max() <= FUNCTIONS["pow"].ulp64
        number = ~np.isnan(true)
        np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(true[number]))


@extended.needed
def test_float64_pow_is_accurate_for_all_arguments() -> None:
    rng = np.random.default_rng(0)
    count = 100_000
    anything = rng.integers(0, 0x7FF0 << 48, count).view(np.float64)
    near_one = 1 + rng.normal(scale=1e-3, size=count)
    a = np.concatenate([anything, near_one, rng.uniform(0.3, 3, count), anything])
    # Exponents that give a finite result, including denormals; then arbitrary exponents.
    with np.errstate(all="ignore"):
        b = rng.uniform(-1076, 1025, 3 * count) / np.log2(a[: 3 * count])
        b = np.concatenate([b, rng.integers(-(2**63), 2**63 - 1, count).view(np.float64)])
        true = np.power(a.astype(np.longdouble), b.astype(np.longdouble))
    error = extended.ulps(compile_map(POW, "float64", arity=2)(a, b), true)
    assert error.max() <= FUNCTIONS["pow"].ulp64 <= 4


POWERS = [*range(-9, 11), 17, -33, 100, -127, 1001]


@pytest.mark.parametrize("n", POWERS)
def test_powi_is_accurate(true_pow: Compiled, n: int) -> None:
    everywhere = np.arange(0, 2**32, 100003, dtype=np.uint64).astype(np.uint32).view(np.float32)
    near = np.linspace(0.5, 2, 20001, dtype=np.float32)
    x = np.concatenate([everywhere, near, -near, np.array([0, -0.0, np.inf, -np.inf, np.nan], np.float32)])
    with np.errstate(invalid="ignore"):
        got = compile_map(lambda v, a: POWI(v, a, n))(x)
        true = true_pow(x, np.full_like(x, n))
    assert ulps(got, true).max() <= ACCURACY["powi"]


@extended.needed
@pytest.mark.parametrize("n", POWERS)
def test_float64_powi_is_accurate(n: int) -> None:
    everywhere = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 20_000).view(np.float64)
    x = np.concatenate([everywhere, np.linspace(-2, 2, 20001), [0.0, -0.0, np.inf, -np.inf, np.nan]])
    with np.errstate(all="ignore"):
        true = np.power(x.astype(np.longdouble), np.longdouble(n))
    got = compile_map(lambda v, a: POWI(v, a, n), "float64")(x)
    assert extended.ulps(got, true).max() <= FUNCTIONS["powi"].ulp64 <= 4
    number = ~np.isnan(true)
    np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(true[number]))


def test_powi_multiplies_for_small_exponents() -> None:
    code = compile_map(lambda v, a: [POWI(v, a, 2), POWI(v, a, 3), POWI(v, a, 5)], results=3).code
    assert code.count(" fmul ") == 4  # a², a²·a, (a²)², (a²)²·a


def test_pow_agrees_with_python_on_negative_bases() -> None:
    a, b = np.array([-2, -2, -0.5, -8], np.float32), np.array([3, -2, -3, 1 / 3], np.float32)
    np.testing.assert_array_equal(compile_map(POW, arity=2)(a, b), [-8, 0.25, -8, math.nan])
