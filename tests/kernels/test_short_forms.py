"""Short forms of elementary functions are accurate, and used only where arguments are small."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
import torch
from llvmlite import ir

import ftnn
from ftnn.formula import Function
from ftnn.kernels.codegen.bounds import LARGEST, limits
from ftnn.kernels.codegen.math import small
from ftnn.kernels.codegen.math.small import LIMITS
from ftnn.kernels.codegen.math.table import ACCURACY, FUNCTIONS
from ftnn.kernels.codegen.rewriting import regrouped
from ftnn.kernels.codegen.target import Target
from ftnn.kernels.codegen.vectors import Vectors
from ftnn.kernels.cpu import backend, dense
from ftnn.kernels.cpu.compiler import host, kernel
from ftnn.kernels.loops import dense as dense_loops
from ftnn.kernels.loops.dense import dense_backward, dense_forward
from tests.kernels import extended
from tests.kernels._harness import compile_map, ulps
from tests.kernels.test_cpu import computed
from tests.kernels.test_math import FLOAT64_SAMPLE, FORMS, SAMPLE, TRUE
from tests.kernels.yardstick import Case, case

TAME = {form: (name, emit) for form, (name, emit) in FORMS.items() if name in LIMITS}


def tamed(emit: Callable[..., ir.Value]) -> Callable[..., ir.Value]:
    def inside(v: Vectors, x: ir.Value) -> ir.Value:
        with v.tamed():
            return emit(v, x)

    return inside


def stated_accuracy(form: str) -> float:
    """The accuracy in the docstring of a short form, or that of the full form if there is no short one."""
    own = getattr(small, form, None)
    stated = re.findall(r"([0-9.]+) ulp", own.__doc__ or "") if own is not None else []
    return float(stated[0]) if stated else ACCURACY[form]


@extended.needed
@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("form", TAME)
def test_short_forms_of_float64_are_accurate(form: str, quick: bool):
    if quick and not host("float64").quick_reciprocal:
        pytest.skip("this CPU has no AVX-512")
    name, emit = TAME[form]
    x = FLOAT64_SAMPLE[np.abs(FLOAT64_SAMPLE) <= LIMITS[name]]
    assert len(x) > 1e5
    with np.errstate(all="ignore"):
        true = extended.TRUE[name](x.astype(np.longdouble))
        error = extended.ulps(compile_map(tamed(emit), "float64", quick_reciprocal=quick)(x), true)
    worst = error.argmax()
    assert error[worst] <= 4, f"{error[worst]:.3f} ulp at {x[worst]!r}"


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("form", TAME)
def test_short_forms_are_as_accurate_as_stated(form: str, quick: bool):
    if quick and not host("float32").quick_reciprocal:
        pytest.skip("this CPU has no AVX-512")
    name, emit = TAME[form]
    x = SAMPLE[np.abs(SAMPLE) <= LIMITS[name]]
    assert len(x) > 1e5
    with np.errstate(all="ignore"):
        error = ulps(
            compile_map(tamed(emit), lanes=16, quick_reciprocal=quick)(x), TRUE[name](x.astype(np.float64))
        )
    worst = error.argmax()
    assert error[worst] <= stated_accuracy(form) <= 4, f"{error[worst]:.3f} ulp at {x[worst]!r}"


def test_exactly_the_functions_with_a_short_form_have_a_limit():
    """A function without a limit may occur beside one with a limit, and must then keep its full form."""

    def operations(emit: Any) -> int:
        text = compile_map(emit).code
        return sum(
            len(re.findall(rf" = {op} ", text)) for op in ("call", "fadd", "fsub", "fmul", "fdiv", "select")
        )

    for name, row in FUNCTIONS.items():
        if row.arity == 1 and name != "powi":
            differs = operations(row.emit) != operations(tamed(row.emit))
            assert differs == (name in LIMITS), name


def test_the_full_form_is_emitted_outside_tamed():
    def emit(v: Vectors, x: ir.Value) -> ir.Value:
        with v.tamed():
            FUNCTIONS["exp"](v, x)
        return FUNCTIONS["exp"](v, x)

    x = np.array([-200, 100, 3, np.nan, np.inf, -np.inf], np.float32)
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(compile_map(emit)(x), np.exp(x), rtol=1e-6)


# ---- bounds


def bounds(formula: str) -> dict[str, float] | None:
    """The value of each bound of a formula of p and x at |x| ≤ 3 and p = -2, with its limit."""
    bounded = limits([regrouped(Function(formula).expr)])
    if bounded is None:
        return None
    from ftnn.formula._text import to_text

    names = {"x": 3.0, "p": 2.0, "abs": abs}
    assert LARGEST
    return {
        str(eval(to_text(bound).replace("|x|", "x"), {"__builtins__": {}}, names)): limit
        for bound, limit in bounded
    }


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("sin(p*x)", {"6.0": 12800.0}),
        ("exp(p - x)", {"5.0": 16.0}),
        ("exp(-p*x**2/4)", {"4.5": 16.0}),
        ("tanh(p*sin(x*p))", {"2.0": 16.0, "6.0": 12800.0}),
        ("sin(p*x)*exp(p*x)", {"6.0": 16.0}),
        ("exp(max(p, x))", {"5.0": 16.0}),
    ],
)
def test_bounds_of_arguments_are_correct(formula: str, expected: dict[str, float]):
    assert bounds(formula) == expected


@pytest.mark.parametrize(
    "formula", ["sin(p/x)", "exp(exp(p*x))", "sin(p*x) + cos(log(p + x))", "p*x", "sin(p)*x"]
)
def test_there_are_no_bounds_if_unknown_or_useless(formula: str):
    assert bounds(formula) is None


# ---- in kernels


@pytest.fixture(autouse=True)
def _large(kernels_for_large_layers: None) -> None: ...  # pyright: ignore[reportUnusedFunction]


@pytest.mark.parametrize("factor", [1.0, 100.0, 1e5])
@pytest.mark.parametrize("name", ["F05", "F10", "F11", "F12", "F13", "F14", "F15", "F16"])
def test_kernels_with_short_forms_match_those_without(
    name: str, factor: float, monkeypatch: pytest.MonkeyPatch
):
    """Some inputs are moderate and some are not, so both forms are used."""
    problem = case(ftnn.catalogue[name], 20, 40, 70)
    x = problem.x.clone()
    x[:, ::3] *= factor
    if name in ("F05", "F14", "F15"):  # would overflow
        x = x.clamp(-18, 18) if name == "F05" else x.clamp(-300, 300)
    problem = Case(problem.program, x, problem.matrices, problem.grad)
    short = computed(problem, problem.program.differentiable)

    def no_limits(_: object) -> None: ...

    monkeypatch.setattr(dense_loops, "limits", no_limits)
    monkeypatch.setattr(dense, "kernel", kernel.__wrapped__)  # without the memo
    common = computed(problem, problem.program.differentiable)
    for one, other in zip(short, common, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=2e-6 * other.abs().amax().item())


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["F05", "F10", "F12", "F14", "F15", "F16"])
def test_nan_and_infinity_propagate_but_affect_no_other_sample(name: str, wrong: float):
    problem = case(ftnn.catalogue[name], 20, 40, 70)
    x = problem.x.clone()
    x[3, 4] = wrong
    result = backend.transfer(problem.program, x, problem.matrices)
    others = torch.arange(70) != 3
    torch.testing.assert_close(result[others], backend.transfer(problem.program, x[others], problem.matrices))
    slope = backend.transfer_backward(problem.program, problem.grad, x, problem.matrices, ("x",))[0]
    assert slope[others].isfinite().all()
    if math.isnan(wrong) or name == "F12":
        assert result[3].isnan().all()
        assert slope[3, 4].isnan()


def test_the_quick_reciprocal_is_emitted_only_if_the_target_has_it():
    program = case(ftnn.catalogue["F16"], 1, 1, 1).program
    llvm.initialize_native_target()
    for quick in (False, True):
        target = Target("float32", 16, quick_reciprocal=quick)
        texts = [
            dense_forward(program, target),
            dense_backward(program, target, by_x=True, by_parameters=True),
        ]
        assert all(("rcp14" in text) is quick for text in texts)
