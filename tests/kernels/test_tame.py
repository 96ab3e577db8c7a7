"""Elementary functions of small arguments: as accurate as stated, and used only where arguments are small."""

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
from tests.kernels._harness import compile_map, ulps
from tests.kernels.test_cpu import computed
from tests.kernels.test_math import FORMS, SAMPLE, TRUE
from tests.kernels.yardstick import Case, case

TAME = {form: (name, emit) for form, (name, emit) in FORMS.items() if name in LIMITS}


def tamed(emit: Callable[..., ir.Value]) -> Callable[..., ir.Value]:
    def inside(v: Vectors, x: ir.Value) -> ir.Value:
        with v.tamed():
            return emit(v, x)

    return inside


def stated(form: str) -> float:
    """What the docstring says; forms that are not written anew are as accurate as they always are."""
    own = getattr(small, form, None)
    found = re.findall(r"([0-9.]+) ulp", own.__doc__ or "") if own is not None else []
    return float(found[0]) if found else ACCURACY[form]


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("form", TAME)
def test_within_its_limit_each_is_as_near_to_the_truth_as_stated(form: str, quick: bool):
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
    assert error[worst] <= stated(form) <= 4, f"{error[worst]:.3f} ulp at {x[worst]!r}"


def test_every_function_that_has_another_form_has_a_limit():
    """One that has none may stand in a formula beside one that has, and must stay as it is."""

    def operations(emit: Any) -> int:
        text = compile_map(emit).code
        return sum(
            len(re.findall(rf" = {op} ", text)) for op in ("call", "fadd", "fsub", "fmul", "fdiv", "select")
        )

    for name, row in FUNCTIONS.items():
        if row.arity == 1 and name != "powi":
            differs = operations(row.emit) != operations(tamed(row.emit))
            assert differs == (name in LIMITS), name


def test_a_function_keeps_its_common_form_outside():
    def emit(v: Vectors, x: ir.Value) -> ir.Value:
        with v.tamed():
            FUNCTIONS["exp"](v, x)
        return FUNCTIONS["exp"](v, x)

    x = np.array([-200, 100, 3, np.nan, np.inf, -np.inf], np.float32)
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(compile_map(emit)(x), np.exp(x), rtol=1e-6)


# ---- bounds


def bounds(formula: str) -> dict[str, float] | None:
    """Of a formula of p and x, with |x| ≤ 3 and p = -2: the value of each bound, and its limit."""
    found = limits([regrouped(Function(formula).expr)])
    if found is None:
        return None
    from ftnn.formula._text import to_text

    names = {"x": 3.0, "p": 2.0, "abs": abs}
    assert LARGEST
    return {
        str(eval(to_text(bound).replace("|x|", "x"), {"__builtins__": {}}, names)): limit
        for bound, limit in found
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
def test_bounds_are_what_they_should_be(formula: str, expected: dict[str, float]):
    assert bounds(formula) == expected


@pytest.mark.parametrize(
    "formula", ["sin(p/x)", "exp(exp(p*x))", "sin(p*x) + cos(log(p + x))", "p*x", "sin(p)*x"]
)
def test_where_there_is_no_bound_or_no_use_for_one_there_is_none(formula: str):
    assert bounds(formula) is None


# ---- in kernels


@pytest.mark.parametrize("factor", [1.0, 100.0, 1e5])
@pytest.mark.parametrize("name", ["F05", "F10", "F11", "F12", "F13", "F14", "F15", "F16"])
def test_short_forms_give_what_the_common_ones_give(
    name: str, factor: float, monkeypatch: pytest.MonkeyPatch
):
    """Some inputs are moderate and some are not: both forms take turns."""
    given = case(ftnn.catalogue[name], 20, 40, 70)
    x = given.x.clone()
    x[:, ::3] *= factor
    if name in ("F05", "F14", "F15"):  # which would overflow
        x = x.clamp(-18, 18) if name == "F05" else x.clamp(-300, 300)
    given = Case(given.program, x, given.matrices, given.grad)
    found = computed(given, given.program.differentiable)

    def none(_: object) -> None:
        """No bound is known."""

    monkeypatch.setattr(dense_loops, "limits", none)
    monkeypatch.setattr(dense, "kernel", kernel.__wrapped__)  # which remembers nothing
    common = computed(given, given.program.differentiable)
    for one, other in zip(found, common, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=2e-6 * other.abs().amax().item())


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["F05", "F10", "F12", "F14", "F15", "F16"])
def test_what_is_not_finite_arrives_and_stays_where_it_is(name: str, wrong: float):
    given = case(ftnn.catalogue[name], 20, 40, 70)
    x = given.x.clone()
    x[3, 4] = wrong
    found = backend.transfer(given.program, x, given.matrices)
    others = torch.arange(70) != 3
    torch.testing.assert_close(found[others], backend.transfer(given.program, x[others], given.matrices))
    slope = backend.transfer_backward(given.program, given.grad, x, given.matrices, ("x",))[0]
    assert slope[others].isfinite().all()
    if math.isnan(wrong) or name == "F12":
        assert found[3].isnan().all()
        assert slope[3, 4].isnan()


def test_the_quick_reciprocal_is_emitted_only_where_it_is_asked_for():
    found = case(ftnn.catalogue["F16"], 1, 1, 1).program
    llvm.initialize_native_target()
    for quick in (False, True):
        target = Target("float32", 16, quick_reciprocal=quick)
        texts = [
            dense_forward(found, target),
            dense_backward(found, target, by_x=True, by_parameters=True),
        ]
        assert all(("rcp14" in text) is quick for text in texts)
