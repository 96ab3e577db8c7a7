"""Folding keeps every NaN, infinity and sign of the formula as written."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ftnn.errors import FormulaError
from ftnn.formula import Function, catalogue
from ftnn.formula._derive import lower, simplify
from ftnn.formula._expr import (
    ONE,
    ZERO,
    Call,
    Expr,
    Number,
    Symbol,
    call,
    number,
    plus,
    postorder,
    symbol,
    times,
)
from ftnn.formula._parse import parse
from ftnn.formula._text import to_text
from ftnn.nn import Transfer

from .strategies import COMPARISONS

SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.0, 1e308, 5e-324)

MEANING: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "neg": np.negative,
    "pow": np.power,
    "abs": np.abs,
    "where": np.where,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}


def as_written(expr: Expr, values: dict[str, float]) -> float:
    """IEEE arithmetic, operation by operation, without folding."""
    computed: dict[Expr, Any] = {}
    with np.errstate(all="ignore"):
        for part in postorder(expr):
            match part:
                case Number(value):
                    computed[part] = np.float64(value)
                case Symbol(name):
                    computed[part] = np.float64(values[name])
                case Call(op, args):
                    computed[part] = MEANING[op](*(computed[arg] for arg in args))
    return float(computed[expr])


def same(a: float, b: float) -> bool:
    """Whether two numbers are equal, including the sign of zero; NaN equals NaN."""
    return (np.isnan(a) and np.isnan(b)) or (a == b and np.signbit(a) == np.signbit(b))


def assert_equal_everywhere(before: Expr, after: Expr) -> None:
    for x, p in itertools.product(SPECIAL, repeat=2):
        values = {"x": x, "p": p}
        expected, actual = as_written(before, values), as_written(after, values)
        assert same(expected, actual), (
            f"{to_text(before)} = {expected}, but {to_text(after)} = {actual}, at {values}"
        )


@pytest.mark.parametrize(
    "text",
    [
        "p + 0*x",
        "p + (x - x)",
        "(p + x) - x",
        "x + 0",
        "0 + x",
        "x - 0",
        "0 - x",
        "x + -0.0",
        "-0.0 + x",
        "x - -0.0",
        "-0.0 - x",
        "-0*x",
        "0/x",
        "x/1",
        "x*1",
        "x**0",
        "x**-0.0",
        "x**1",
        "(-x)**2",
        "(-x)*p",
        "(-2)*x",
        "x*(-p)",
        "x - (-p)",
        "x + (-p)",
        "-(-x)",
        "-(0*1)*x",
        "1/(0*(0 - 2))*x",
        "1/(x + 0)",
        "where(x > 0, p, p)",
        "where(x > 0, 1, 0)*p",
        "p*where(x > 0, 0, 1)",
        "where(x > 0, p, 0) + where(x > 0, 0, p)",
        "where(1 < 2, x, p)",
        "where(0 == -0.0, x, p)",
    ],
)
def test_folding_keeps_nan_infinities_and_signs(text: str):
    written = parse(text, rule=True)
    assert_equal_everywhere(written, simplify(written))
    assert_equal_everywhere(written, lower(written, "numpy"))


_leaves = st.sampled_from([symbol("x"), symbol("p"), *map(number, (0, -0.0, 1, -1, 2, -3, 0.5))])


def _grown(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    condition = st.builds(call, st.sampled_from(COMPARISONS), inner, inner)
    power = st.sampled_from([number(n) for n in (-2, -1, 0, 1, 2, 3)])
    return st.one_of(
        st.builds(call, st.sampled_from(("add", "sub", "mul", "div")), inner, inner),
        st.builds(call, st.just("neg"), inner),
        st.builds(call, st.just("pow"), inner, power),
        st.builds(call, st.just("where"), condition, inner, inner),
    )


@pytest.mark.slow
@settings(max_examples=300)
@given(st.recursive(_leaves, _grown, max_leaves=8))
def test_folding_keeps_every_value_of_random_formulas(expr: Expr):
    assert_equal_everywhere(expr, simplify(expr))


@pytest.mark.parametrize("text", ["p + 0*x", "p + (x - x)", "(p + x) - x"])
def test_nan_and_infinity_propagate_through_cancelling_terms(text: str):
    for x in (np.nan, np.inf, -np.inf):
        assert np.isnan(Function(text)(x, p=1.0))
    assert Function(text).slope("p") is ONE
    assert Function(text).slope("x") is ZERO


def test_minus_zero_differs_from_zero():
    assert number(-0.0) is not ZERO
    assert number(0.0) is ZERO
    assert parse("-0.0") is parse("-0") is number(-0.0)
    assert to_text(number(-0.0)) == "-0.0"
    assert to_text(call("pow", number(-0.0), symbol("x"))) == "(-0.0)**x"


def test_an_absent_term_removes_its_factors():
    x, p = symbol("x"), symbol("p")
    mask = parse("where(x > 0, 1, 0)")
    assert times(ZERO, x) is times(x, ZERO) is ZERO
    assert plus(ZERO, x) is plus(x, ZERO) is x
    assert times(mask, p) is times(p, mask) is parse("where(x > 0, p, 0)")
    assert times(call("neg", mask), p) is parse("-where(x > 0, p, 0)")
    assert plus(parse("where(x > 0, p, 0)"), parse("where(x > 0, 0, x)")) is parse("where(x > 0, p, x)")


# ---- the catalogue: training results depend on these to the bit


SLOPES = {
    "F01": {
        "x": "p**2",
        "p": "x*(2*p)",
    },
    "F02": {
        "x": "p**3",
        "p": "x*(3*p**2)",
    },
    "F03": {
        "x": "p*(2*x) + q",
        "p": "x**2",
        "q": "x",
    },
    "F04": {
        "x": "p*(3*x**2) + q*(2*x) + r",
        "p": "x**3",
        "q": "x**2",
        "r": "x",
    },
    "F05": {
        "x": "p*(exp(q*x)*q)",
        "p": "exp(q*x)",
        "q": "p*(exp(q*x)*x)",
    },
    "F06": {
        "x": "rect(p)*u",
        "p": "x*where(p < 0, 0, u)",
    },
    "F07": {
        "x": "rect_ada(p)*u",
        "p": "x*u",
    },
    "F08": {
        "x": "u*where(p*x + q < 0, 0, p)",
        "p": "u*where(p*x + q < 0, 0, x)",
        "q": "where(p*x + q < 0, 0, u)",
    },
    "F09": {
        "x": "p*where(q*x + r < 0, 0, q)",
        "p": "rect(q*x + r)",
        "q": "p*where(q*x + r < 0, 0, x)",
        "r": "where(q*x + r < 0, 0, p)",
    },
    "F10": {
        "x": "u*(logistic(p*x + q)*(1 - logistic(p*x + q))*p)",
        "p": "u*(logistic(p*x + q)*(1 - logistic(p*x + q))*x)",
        "q": "u*(logistic(p*x + q)*(1 - logistic(p*x + q)))",
    },
    "F11": {
        "x": "p*(logistic(q*x + r)*(1 - logistic(q*x + r))*q)",
        "p": "logistic(q*x + r)",
        "q": "p*(logistic(q*x + r)*(1 - logistic(q*x + r))*x)",
        "r": "p*(logistic(q*x + r)*(1 - logistic(q*x + r)))",
    },
    "F12": {
        "x": "p*(cos(q*x + r)*q)",
        "p": "sin(q*x + r)",
        "q": "p*(cos(q*x + r)*x)",
        "r": "p*cos(q*x + r)",
    },
    "F13": {
        "x": "-(p*(sin(q*x + r)*q))",
        "p": "cos(q*x + r)",
        "q": "-(p*(sin(q*x + r)*x))",
        "r": "-(p*sin(q*x + r))",
    },
    "F14": {
        "x": "p*(cosh(q*x + r)*q)",
        "p": "sinh(q*x + r)",
        "q": "p*(cosh(q*x + r)*x)",
        "r": "p*cosh(q*x + r)",
    },
    "F15": {
        "x": "p*(sinh(q*x + r)*q)",
        "p": "cosh(q*x + r) - 1",
        "q": "p*(sinh(q*x + r)*x)",
        "r": "p*sinh(q*x + r)",
    },
    "F16": {
        "x": "p*((1 - tanh(q*x + r)**2)*q)",
        "p": "tanh(q*x + r)",
        "q": "p*((1 - tanh(q*x + r)**2)*x)",
        "r": "p*(1 - tanh(q*x + r)**2)",
    },
    "F17": {
        "x": "p**2*(2*x)",
        "p": "x**2*(2*p)",
    },
    "F18": {
        "x": "u*(p**2*(2*x))",
        "p": "u*(x**2*(2*p))",
    },
    "F19": {
        "x": "p**2*(2*(x - q))",
        "p": "(x - q)**2*(2*p)",
        "q": "-(p**2*(2*(x - q)))",
    },
    "F20": {
        "x": "u*(p**2*(2*(x - q)))",
        "p": "u*((x - q)**2*(2*p))",
        "q": "-(u*(p**2*(2*(x - q))))",
    },
    "memory": {
        "x": "(1 - tanh(p*x + q*C + r)**2)*p",
        "C": "(1 - tanh(p*x + q*C + r)**2)*q",
        "p": "(1 - tanh(p*x + q*C + r)**2)*x",
        "q": "(1 - tanh(p*x + q*C + r)**2)*C",
        "r": "1 - tanh(p*x + q*C + r)**2",
    },
}


def test_folding_leaves_the_catalogue_as_written():
    for name, function in catalogue.items():
        assert to_text(function.expr) == function.formula, name


@pytest.mark.parametrize("name", SLOPES)
def test_derivatives_of_the_catalogue_contain_no_zero_terms(name: str):
    slopes = SLOPES[name]
    assert {by: to_text(catalogue[name].slope(by)) for by in slopes} == slopes


# ---- F(x) - F(0)


@pytest.mark.parametrize("text", ["p/x*erf(x)", "p*x/x", "p*x*log(x)", "p + x**-1*x", "0*exp(p/x) + p*x"])
def test_a_function_not_finite_at_zero_as_written_cannot_be_grounded(text: str):
    with pytest.raises(FormulaError, match="cannot be grounded"):
        Function(text).grounded()


@pytest.mark.parametrize(
    ("text", "grounded"),
    [
        ("p*x*exp(q)", "p*x*exp(q)"),
        ("p*sin(q*x + r)", "p*sin(q*x + r) - p*sin(r)"),
        ("p/(x + q) + r*x", "p/(x + q) + r*x - p/q"),
        ("p*(0 - x)*cosh(q)", "p*(0 - x)*cosh(q)"),
    ],
)
def test_grounding_subtracts_only_terms_that_remain_at_zero(text: str, grounded: str):
    function = Function(text, init={"q": (0.5, 1.0)}).grounded()
    assert to_text(function.expr) == grounded
    assert function.grounded() == function


# ---- in a layer


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "text", ["p + 0*x", "p + (x - x)", "(p + x) - x", "p*x + 0*x", "p*x*0 + q", "p + 0/x"]
)
def test_a_layer_propagates_nan_and_infinity(text: str, dtype: torch.dtype, backend: Any):
    layer = Transfer(3, 2, text, bias=False, dtype=dtype, backend=backend)
    for bad in (torch.nan, torch.inf, -torch.inf):
        x = torch.ones(4, 3, dtype=dtype)
        x[2, 1] = bad
        expected = sum(layer.function(x[2, i].item(), **_values(layer, i)) for i in range(3))
        assert bool(torch.isfinite(layer(x)[[0, 1, 3]]).all())
        assert np.array_equal(np.isnan(layer(x)[2].detach().numpy()), np.isnan(expected))


def _values(layer: Transfer, i: int) -> dict[str, Any]:
    return {name: layer.matrix(name)[:, i].detach().numpy() for name in layer.function.parameters}
