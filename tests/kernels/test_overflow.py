"""Formulas whose factors overflow or underflow if multiplied in another order than written."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import ftnn
from ftnn.nn import Partial, Transfer

Layer = Transfer | Partial


def layer(formula: str, kind: str, **values: float) -> Layer:
    if kind == "partial":
        built: Layer = Partial(1, 1, formula, [(0, 0)], bias=False)
    else:
        built = Transfer(1, 1, formula, bias=False, backend=kind)  # pyright: ignore[reportArgumentType]
    for name, value in values.items():
        built.theta[name].data.fill_(value)
    return built


each_kind = pytest.mark.parametrize("kind", ["auto", "cpu", "partial"])


@each_kind
@pytest.mark.parametrize(
    ("formula", "x", "values", "expected"),
    [
        ("p*x*x", 1e30, {"p": 0.0}, 0.0),
        ("p*q*x*x", 1e25, {"p": 1e-30, "q": 1e-5}, 1e15),
        ("log1p(x*q*q)", 0.0, {"q": -3.2e22}, 0.0),
        ("p*(x*q)*r", 1e20, {"p": 5e-5, "q": 1e-10, "r": 1e-37}, 5e-32),
        ("q*q*x*x", 1e-21, {"q": 1e10}, 1e-22),
        ("p*x*rect_ada(q*x)", 3.7e12, {"p": 1.6e-4, "q": 1.7e14}, 1.6e-4 * 3.7e12 * 1.7e14 * 3.7e12),
        ("p*(x - q)*(x - r)", 1e30, {"p": 0.0, "q": 1.0, "r": 1.0}, 0.0),
        ("sign(x/q)", 0.0, {"q": 0.0}, math.nan),
    ],
)
def test_values_are_those_of_the_formula_as_written(
    kind: str, formula: str, x: float, values: dict[str, float], expected: float
):
    out = layer(formula, kind, **values)(torch.full((1, 1), x))
    assert out.item() == pytest.approx(expected, rel=1e-5, nan_ok=True)


@each_kind
def test_slopes_are_those_of_the_formula_as_written(kind: str):
    built = layer("(abs(p*x) + 0.1)*q", kind, p=-9.2e26, q=4.8e17)
    x = torch.zeros(1, 1, requires_grad=True)
    built(x).sum().backward()
    assert x.grad is not None
    assert x.grad.item() == 0.0  # q*sign(p*x)*p, and sign(0) is 0; p*q is infinite


@pytest.mark.parametrize("kind", ["auto", "cpu", "partial", "reference"])
def test_division_is_not_replaced_by_multiplication_with_a_reciprocal(kind: str):
    smallest = torch.finfo(torch.float32).smallest_normal * torch.finfo(torch.float32).eps
    out = layer("p + 0/x", kind, p=0.25)(torch.full((1, 1), -smallest))  # 1/x is infinite
    assert out.item() == 0.25


@each_kind
@pytest.mark.parametrize(
    ("formula", "by", "x", "values"),
    [
        ("step(r)/x", "r", 0.0, {"r": -1.5}),  # 1/x is infinite
        ("p*sign(x)", "x", 1.0, {"p": math.inf}),
    ],
)
def test_a_slope_that_is_identically_zero_is_zero_even_beside_infinity(
    kind: str, formula: str, by: str, x: float, values: dict[str, float]
):
    built, rows = layer(formula, kind, **values), torch.full((1, 1), x, requires_grad=True)
    built(rows).sum().backward()
    slope = rows.grad if by == "x" else built.theta[by].grad
    assert slope is not None
    assert slope.item() == 0.0


@pytest.mark.parametrize("backend", ["auto", "cpu"])
def test_an_entry_of_a_mixed_matrix_is_not_affected_by_other_kinds(backend: Any):
    mixed = ftnn.Mixed(["x*p**3", "p/x*erf(x)"], [[0]])
    built = Transfer(1, 1, mixed, bias=False, backend=backend)
    built.theta["p"].data.fill_(-1.0)
    x = torch.zeros(1, 1, requires_grad=True)
    out = built(x)
    out.sum().backward()
    assert x.grad is not None
    assert (out.item(), x.grad.item()) == (0.0, -1.0)
