"""Elementary functions over their whole range: float32 against float64, float64 against long double."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mpmath
import numpy as np
import pytest
from llvmlite import ir

from ftnn.kernels.codegen.math import exponential, trig
from ftnn.kernels.codegen.math.constants import CONSTANTS
from ftnn.kernels.codegen.math.table import ACCURACY, ACCURACY64, FUNCTIONS
from ftnn.kernels.codegen.target import DType
from ftnn.kernels.codegen.vectors import Vectors
from tests.kernels import extended
from tests.kernels._harness import F32, F64, compile_map, libm, module_of, ulps


def c_library(name: str) -> Callable[[F64], F64]:
    """The C library's function: unlike NumPy's, its sin is accurate near every multiple of π."""
    return compile_map(lambda v, x: libm(v, name, x), "float64")


sin, cos, tan = c_library("sin"), c_library("cos"), c_library("tan")

TRUE: dict[str, Callable[[F64], F64]] = {
    "sin": sin,
    "cos": cos,
    "tan": tan,
    "cot": lambda x: 1 / tan(x),
    "sec": lambda x: 1 / cos(x),
    "csc": lambda x: 1 / sin(x),
    "exp": np.exp,
    "log": np.log,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "coth": lambda x: 1 / np.tanh(x),
    "sech": lambda x: 2 / (np.exp(x) + np.exp(-x)),
    "csch": lambda x: 1 / np.sinh(x),
    "logistic": lambda x: np.where(x < 0, np.exp(x), 1) / (1 + np.exp(-np.abs(x))),
    "softplus": lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    "gauss": lambda x: np.exp(-x * x),
    "erf": c_library("erf"),
    "sign": lambda x: np.where(np.isnan(x), x, np.sign(x)),
    "rect": lambda x: np.where(x < 0, 0, x),
}
"""Each function in float64, far more accurate than float32."""

FORMS: dict[str, tuple[str, Callable[..., ir.Value]]] = {
    **{name: (name, row.emit) for name, row in FUNCTIONS.items() if name in TRUE},
    "sin alone": ("sin", trig.sin_alone),
    "cos alone": ("cos", trig.cos_alone),
}


def around(*values: float, count: int = 3000) -> F32:
    """All float32 next to each of these values."""
    middle = np.array(values, np.float32).view(np.int32)[:, None]
    return (middle + np.arange(-count, count + 1, dtype=np.int32)).ravel().view(np.float32)


def sample() -> F32:
    """Every 4099th of all 2^32 float32, including infinities and NaN, and those around critical values."""
    with np.errstate(all="ignore"):
        everywhere = np.arange(0, 2**32, 4099, dtype=np.uint64).astype(np.uint32).view(np.float32)
        zero = np.arange(2000, dtype=np.uint32).view(np.float32)
        quarters = (np.arange(1, 8400, dtype=np.float64) * (math.pi / 2)).astype(np.float32)
        critical = [0.25, 0.35, 0.5, 0.9, 0.92, 1, 2.0**-126, 4, 9.01, 10, 10.2, 16.6, 17.3]
        critical += [87.3, 88.0, 88.72284, 89.41599, 89.5, 103.97, 8192, 12866.0, 12866.9, 2.0**32]
        # Near larger multiples of π/2, where the reduction subtracts the most.
        turns = np.exp(np.random.default_rng(0).uniform(math.log(8400), math.log(2**33), 100_000))
        wide = (np.floor(turns) * (math.pi / 2)).astype(np.float32)
        logs = np.arange(-300, 300) * (
            math.log(2) / 4
        )  # where reductions by ln 2 switch to the next multiple
        half = np.concatenate(
            [
                zero,
                around(*critical),
                around(*logs, count=20),
                around(*quarters, count=4),
                around(*wide, count=1),
                np.linspace(0, 20, 100001),
            ]
        )
        x = np.concatenate([everywhere, half, -half, [np.inf, -np.inf, np.nan]]).astype(np.float32)
    return np.concatenate([x, WORST, -WORST])


# Arguments with the largest error of each function, from the runs behind the stated accuracies.
WORST = np.array(
    [11.740725, 6.423664, 2.0372186, 5.588994, 1.0433589, 0.34791902, 0.520089, 0.063236244, 3.465644,
     0.9042963, 0.47663775, 0.78800714, 5450.4106, 378.31082, 11679.371, 5476.5815, 7057.5874, 7059.158,
     7.7823367, 7106.211, 2318553.75],
    np.float32,
)  # fmt: skip

SAMPLE = sample()


@pytest.mark.parametrize("form", FORMS)
def test_float32_accuracy_is_as_stated(form: str) -> None:
    name, emit = FORMS[form]
    with np.errstate(all="ignore"):
        error = ulps(compile_map(emit)(SAMPLE), TRUE[name](SAMPLE.astype(np.float64)))
    worst = error.argmax()
    assert error[worst] <= ACCURACY[form] <= 4, f"{error[worst]:.3f} ulp at {SAMPLE[worst]!r}"
    assert error[worst] >= ACCURACY[form] - 0.01  # the sample contains the largest error


FLOAT64_SAMPLE = extended.sample()


@extended.needed
@pytest.mark.parametrize("form", [form for form, (name, _) in FORMS.items() if name in extended.TRUE])
def test_float64_accuracy_is_as_stated(form: str) -> None:
    name, emit = FORMS[form]
    x = FLOAT64_SAMPLE[:: 8 if name == "erf" else 1]  # its oracle is slow
    with np.errstate(all="ignore"):
        error = extended.ulps(compile_map(emit, "float64")(x), extended.TRUE[name](x.astype(np.longdouble)))
    worst = error.argmax()
    assert error[worst] <= ACCURACY64[form] <= 4, f"{error[worst]:.3f} ulp at {x[worst]!r}"
    assert error[worst] >= ACCURACY64[form] - 0.7  # no accuracy is given away


MPMATH = set(extended.TRUE) & set(dir(mpmath))


@pytest.mark.parametrize("form", [form for form, (name, _) in FORMS.items() if name in MPMATH])
def test_float64_agrees_with_mpmath(form: str) -> None:
    name, emit = FORMS[form]
    x = np.array([1e-300, 1e-9, 0.3, 0.9215, 1.5707963267948966, 5.5, 80.25, 12867.96, 2.6e6, 1e22, 5.3e200])
    x = x[:7] if name in ("exp", "sinh", "cosh", "sech", "csch") else x
    x = np.concatenate([x, x if name == "log" else -x])
    with mpmath.workdps(400):
        true = [float(getattr(mpmath, name)(mpmath.mpf(float(one)))) for one in x]
    np.testing.assert_allclose(compile_map(emit, "float64")(x), true, rtol=4 * 2.0**-52, atol=0)


def test_docstrings_state_the_accuracy_of_the_table() -> None:
    emits = {
        **{name: row.emit for name, row in FUNCTIONS.items()},
        **{form: e for form, (_, e) in FORMS.items()},
    }
    for form, emit in emits.items():
        stated = re.findall(r"([0-9.]+) ulp, ([0-9.]+) in float64", emit.__doc__ or "")
        assert not ACCURACY[form] or stated == [(str(ACCURACY[form]), str(ACCURACY64[form]))], form


def test_every_function_has_an_oracle() -> None:
    assert set(FUNCTIONS) == {*TRUE, "pow", "powi"}
    assert {name for name, row in FUNCTIONS.items() if row.arity == 2} == {"pow"}
    assert all(row.arity == 1 for name, row in FUNCTIONS.items() if name != "pow")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("name", "coefficients"),
    [("cos", "cos"), ("sin", "sin"), ("tan", "tan"), ("exp", "expm1"), ("logistic", "odd"), ("tanh", "tanh"),
     ("log", "log")],
)  # fmt: skip
def test_a_wrong_coefficient_is_detected(
    name: str, coefficients: str, dtype: DType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last coefficient matters least."""
    table = CONSTANTS[dtype]
    *others, last = getattr(table, coefficients)
    monkeypatch.setitem(CONSTANTS, dtype, replace(table, **{coefficients: (*others, last * 1.05)}))
    x = np.linspace(0.3, 3, 10001).astype(np.float32)
    got = compile_map(FUNCTIONS[name].emit, dtype)(x)
    true = TRUE[name](x.astype(np.float64))
    if dtype == "float32":
        assert ulps(got, true).max() > ACCURACY[name]
    else:
        assert extended.ulps(got, true.astype(np.longdouble)).max() > ACCURACY64[name] + 0.5


@pytest.mark.parametrize("name", ["sin", "cos", "tan", "exp", "log", "tanh", "erf", "sinh", "sech", "csch"])
def test_the_oracle_agrees_with_mpmath(name: str) -> None:
    x = np.array([1e-30, 0.3, 0.9215, 1.5707964, 5.5, 80.25, 12867.96, 2.6e6, 1e22, 5.3e37], np.float32)
    x = x if name in ("sin", "cos", "tan", "log", "tanh", "erf") else x[:6]
    with mpmath.workdps(60):
        true = [float(getattr(mpmath, name)(mpmath.mpf(float(one)))) for one in x]
    np.testing.assert_allclose(TRUE[name](x.astype(np.float64)), true, rtol=2e-15)


LANES: dict[DType, Any] = {
    "float32": SAMPLE[:: len(SAMPLE) // 40000],
    "float64": FLOAT64_SAMPLE[:: len(FLOAT64_SAMPLE) // 40000],
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("form", FORMS)
def test_values_depend_on_neither_lane_count_nor_neighbours(form: str, dtype: DType) -> None:
    emit, x = FORMS[form][1], LANES[dtype]
    one = compile_map(emit, dtype, lanes=16)(x)
    mixed = np.random.default_rng(0).permutation(len(x))
    for lanes in (1, 3, 8):
        got = compile_map(emit, dtype, lanes=lanes)(x[mixed])
        np.testing.assert_array_equal(got, one[mixed])


VALUES = {
    "exp": [(0.0, 1.0), (-math.inf, 0.0), (math.inf, math.inf), (-1000.0, 0.0), (1000.0, math.inf)],
    "log": [(1.0, 0.0), (0.0, -math.inf), (-0.0, -math.inf), (-1e-45, math.nan), (math.inf, math.inf)],
    "sin": [(0.0, 0.0), (-0.0, -0.0), (1e-45, 1e-45), (math.inf, math.nan), (-math.inf, math.nan)],
    "cos": [(0.0, 1.0), (-0.0, 1.0), (1e-45, 1.0), (math.inf, math.nan)],
    "sin alone": [(0.0, 0.0), (-0.0, -0.0), (1e-45, 1e-45), (math.inf, math.nan)],
    "cos alone": [(0.0, 1.0), (-0.0, 1.0), (1e-45, 1.0), (math.inf, math.nan)],
    "tan": [(0.0, 0.0), (-0.0, -0.0), (-1e-45, -1e-45), (math.inf, math.nan)],
    "cot": [(0.0, math.inf), (-0.0, -math.inf), (-1e-45, -math.inf)],
    "csc": [(0.0, math.inf), (-0.0, -math.inf), (1e-45, math.inf)],
    "sec": [(0.0, 1.0), (math.inf, math.nan)],
    "sinh": [(0.0, 0.0), (-0.0, -0.0), (1e-45, 1e-45), (-90.0, -math.inf), (math.inf, math.inf)],
    "cosh": [(0.0, 1.0), (-90.0, math.inf), (math.inf, math.inf)],
    "tanh": [(0.0, 0.0), (-1e-45, -1e-45), (-math.inf, -1.0), (30.0, 1.0), (math.inf, 1.0)],
    "coth": [(0.0, math.inf), (-0.0, -math.inf), (-1e-45, -math.inf), (-math.inf, -1.0)],
    "sech": [(0.0, 1.0), (-math.inf, 0.0), (200.0, 0.0)],
    "csch": [(0.0, math.inf), (-0.0, -math.inf), (math.inf, 0.0), (-200.0, -0.0)],
    "logistic": [(0.0, 0.5), (-math.inf, 0.0), (math.inf, 1.0), (30.0, 1.0)],
    "softplus": [(-math.inf, 0.0), (math.inf, math.inf), (3e38, 3e38)],
    "gauss": [(0.0, 1.0), (1e-20, 1.0), (-math.inf, 0.0), (3e38, 0.0)],
    "erf": [(0.0, 0.0), (-0.0, -0.0), (-math.inf, -1.0), (5.0, 1.0)],
    "sign": [(0.0, 0.0), (-0.0, 0.0), (-math.inf, -1.0), (1e-45, 1.0)],
    "rect": [(0.0, 0.0), (-1e-45, 0.0), (-math.inf, 0.0), (math.inf, math.inf)],
}


FLOAT64_VALUES = {
    "exp": [(-800.0, 0.0), (710.0, math.inf), (1e300, math.inf), (-745.1, 5e-324)],
    "log": [(-5e-324, math.nan)],
    "sin": [(5e-324, 5e-324), (-5e-324, -5e-324)],
    "tan": [(5e-324, 5e-324)],
    "sinh": [(5e-324, 5e-324), (-711.0, -math.inf)],
    "cosh": [(711.0, math.inf), (-1e300, math.inf)],
    "tanh": [(-5e-324, -5e-324), (30.0, 1.0), (-1e300, -1.0)],
    "logistic": [(40.0, 1.0), (-800.0, 0.0)],
    "sech": [(800.0, 0.0)],
    "csch": [(-800.0, -0.0), (5e-324, math.inf)],
    "gauss": [(1e-200, 1.0), (1e300, 0.0)],
    "softplus": [(1e308, 1e308)],
    "erf": [(7.0, 1.0), (-1e300, -1.0)],
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("form", FORMS)
def test_special_values_are_exact(form: str, dtype: DType) -> None:
    values = [*VALUES[form], (math.nan, math.nan)]
    if dtype == "float64":  # other values are beyond the range of float32 only
        values = [(x, true) for x, true in values if x == 0 or not math.isfinite(x)]
        values += FLOAT64_VALUES.get(form, [])
    x, true = np.array(values, dtype).T
    got = compile_map(FORMS[form][1], dtype)(x)
    np.testing.assert_array_equal(got, true)
    number = ~np.isnan(true)
    np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(true[number]))


@pytest.mark.parametrize("form", ["sin", "cos", "sin alone", "cos alone", "tanh", "erf"])
def test_bounded_functions_stay_within_one(form: str) -> None:
    for got in (compile_map(FORMS[form][1])(SAMPLE), compile_map(FORMS[form][1], "float64")(FLOAT64_SAMPLE)):
        assert np.nanmax(np.abs(got)) == 1


# ---- sharing, and the cost of the hot path


def instructions(text: str) -> list[str]:
    """The instructions of a module's loop, without free ones such as bitcasts, addresses and phis."""
    start = text.index('define void @"map"')
    body = text[start : text.index("\n}", start)]
    free = ("bitcast", "getelementptr", "phi", "load", "extractvalue", "insertelement", "shufflevector")
    return [line for line in body.splitlines() if " = " in line and not any(f" = {f} " in line for f in free)]


def cost(*emits: Callable[..., ir.Value]) -> int:
    text = str(module_of(lambda v, x: [emit(v, x) for emit in emits], "float32", 16, 1, len(emits)))
    counted = [line for line in instructions(text) if "ftnn.reduce" not in line and "select" not in line]
    return len(counted) - 2  # those of the loop itself


def test_sin_and_cos_of_one_argument_share_reduction_and_branch() -> None:
    text = str(module_of(lambda v, x: [trig.sin(v, x), trig.cos(v, x)], "float32", 16, 1, 2))
    assert len(re.findall(r"call .*ftnn\.reduce", text)) == 1
    both, each = cost(trig.sin, trig.cos), (cost(trig.sin), cost(trig.cos))
    assert both <= max(each) + 2


@pytest.mark.parametrize(
    ("emits", "limit"),
    [
        ([trig.sin, trig.cos], 25),
        ([trig.sin_alone], 16),
        ([trig.cos_alone], 18),
        ([exponential.exp], 16),
        ([exponential.logistic], 17),
        ([exponential.tanh], 15),
        ([exponential.sinh, exponential.cosh], 22),
    ],
)
def test_hot_functions_have_few_instructions(emits: list[Callable[..., ir.Value]], limit: int) -> None:
    assert cost(*emits) <= limit


def test_the_out_of_range_path_preserves_live_registers() -> None:
    def emit(v: Vectors, x: ir.Value) -> list[ir.Value]:
        live = [v.mul(x, v.const(k)) for k in range(1, 21)]  # more than there are registers
        waves = [trig.sin(v, x), trig.cos(v, x), trig.sin_alone(v, x), trig.cos_alone(v, x)]
        return [*waves, *(v.add(one, v.sub(wave, wave)) for one in live for wave in waves[:1])]

    x = np.concatenate([np.linspace(-3e4, 3e4, 4001), [1e30, -1e37]]).astype(np.float32)
    for lanes in (8, 16):
        got = compile_map(emit, lanes=lanes, results=24)(x)
        for wave, name in zip(got, ("sin", "cos", "sin", "cos"), strict=False):
            assert ulps(wave, TRUE[name](x.astype(np.float64))).max() <= 3
        for k, one in enumerate(got[4:], 1):
            np.testing.assert_array_equal(one, x * np.float32(k))
