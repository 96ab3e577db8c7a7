"""Parameters that scale a whole function: known cases, and numerically for generated formulas."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ftnn import Function, catalogue
from ftnn.formula._amplitudes import amplitudes, takes_negative
from ftnn.formula._expr import Expr, call, number, symbol
from ftnn.formula._numpy import evaluate
from ftnn.formula._text import to_text
from tests.formula.separable import WRITTEN

KNOWN: dict[str, tuple[dict[str, float], bool]] = {
    "p*sin(q*x + r)": ({"p": 1}, True),
    "p*x**2 + q*x": ({"p": 1, "q": 1}, True),
    "p**2*x": ({"p": 1 / 2}, False),
    "p**3*x": ({"p": 1 / 3}, True),
    "p**2*(x - q)**2*u": ({"p": 1 / 2}, False),
    "rect(p*x + q)*u": ({"p": 1, "q": 1}, False),
    "rect_ada(p)*u*x": ({"p": 1}, False),
    "p*rect(q*x + r)": ({"p": 1}, True),
    "rect(q*x + r)*p": ({"p": 1}, True),
    "rect(q*x + r)*p + rect(s*x + t)*v": ({"p": 1, "v": 1}, True),
    "p*sin(q*x + r) + s*x": ({"p": 1, "s": 1}, True),
    "p*tanh(q*x) + r": ({"p": 1, "r": 1}, True),
    "p*q*x": ({"p": 1}, True),
    "q*p*x": ({"q": 1}, True),
    "p**2*q*x": ({"q": 1}, True),
    "(p*x + q)*r": ({"r": 1}, True),
    "x/q": ({"q": -1}, True),
    "p*x**q": ({"p": 1}, True),
    "(p*x)**3": ({"p": 1 / 3}, True),
    "sqrt(p*x)": ({"p": 2}, False),
    "abs(p)*x": ({"p": 1}, False),
    "abs(p*x)*q": ({"q": 1}, True),
    "sign(p)*q*x": ({"q": 1}, True),
    "step(p*x)*p*x": ({"p": 1}, False),
    "p*abs(p)*x": ({"p": 1 / 2}, True),
    "p*rect(p)*x": ({"p": 1 / 2}, False),
    "where(p*x > q, p*x, q)": ({"p": 1, "q": 1}, False),
    "where(p*x == q, p*x, q)": ({"p": 1, "q": 1}, True),
    "where(x > 0, p*x, 0)": ({"p": 1}, True),
    "where(p > 0, p*x, 0*q)": ({"p": 1}, False),
    "min(p*x, q)": ({"p": 1, "q": 1}, False),
    "p*sin(p/q)*x": ({"p": 1, "q": 1}, True),
    "logistic(p*x + q)*u": ({}, False),
    "p*x + 1": ({}, False),
    "p*x + q**2": ({"p": 1, "q": 1 / 2}, False),
    "where(p > 1, p*x, 0)": ({}, False),
    "min(p*x, 1)": ({}, False),
    "p*exp(p*x)": ({}, False),
    "x**p": ({}, False),
    "p*x + q*C": ({}, False),
}


def function_of(formula: str) -> Function:
    return Function(formula, constants={"u": (-1, 1)} if "*u" in formula else None)


@pytest.mark.parametrize(("formula", "expected"), KNOWN.items())
def test_amplitudes_of_known_formulas(formula: str, expected: tuple[dict[str, float], bool]):
    function = function_of(formula)
    exponents = amplitudes(function)
    assert exponents == pytest.approx(expected[0])
    assert takes_negative(function, exponents) == expected[1]


def scaled_values(values: Mapping[str, np.ndarray], exponents: Mapping[str, float], s: float):
    factors = {name: np.sign(s) * abs(s) ** e for name, e in exponents.items()}
    return {name: value * factors.get(name, 1.0) for name, value in values.items()}


def check(function: Function, *scales: float) -> dict[str, float]:
    """F with scaled parameters is the scaled F, at random points. Returns the exponents."""
    exponents = amplitudes(function)
    random = np.random.default_rng(0)
    values = {name: random.normal(size=200) for name in ("x", *function.parameters)}
    values |= {name: random.choice(choices, 200) for name, choices in function.choices.items()}
    before = evaluate(function.expr, values)
    for s in scales:
        if exponents and (s > 0 or takes_negative(function, exponents)):
            after = evaluate(function.expr, scaled_values(values, exponents, s))
            finite = np.isfinite(before) & np.isfinite(after)
            largest = np.abs(s * before[finite]).max(initial=0)
            np.testing.assert_allclose(
                after[finite], s * before[finite], rtol=1e-12, atol=1e-12 * min(largest, abs(s))
            )
    return exponents


NAMES = [name for name in catalogue if name != "memory"]


@pytest.mark.parametrize("name", NAMES)
def test_scaling_the_amplitudes_scales_catalogue_functions(name: str):
    assert bool(check(catalogue[name], 3.7, 0.01, -0.3, -41)) == (name != "F10")


@pytest.mark.parametrize("formula", [*WRITTEN, *(f for f in KNOWN if "C" not in f)])
def test_scaling_the_amplitudes_scales_written_formulas(formula: str):
    check(function_of(formula), 3.7, 0.01, -0.3, -41)


leaves = st.sampled_from([*map(symbol, "xpqr"), number(0), number(1), number(-2)])


def compound(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    unary = st.sampled_from(["neg", "rect", "abs", "sign", "step", "sqrt", "tanh", "cos", "rect_ada", "relu"])
    binary = st.sampled_from(["add", "sub", "mul", "mul", "div", "min", "max"])
    powers = st.sampled_from([2, 3, -1, 0.5, 1.5]).map(number)
    condition = st.builds(call, st.sampled_from(["lt", "ge", "eq", "ne"]), inner, inner)
    return st.one_of(
        st.builds(call, unary, inner),
        st.builds(call, binary, inner, inner),
        st.builds(call, st.just("pow"), inner, powers),
        st.builds(call, st.just("where"), condition, inner, inner),
    )


trees = st.recursive(leaves, compound, max_leaves=6)


def test_scaling_the_amplitudes_scales_generated_formulas():
    found: list[dict[str, float]] = []

    @settings(max_examples=600)
    @given(tree=trees, terms=st.booleans())
    def one(tree: Expr, terms: bool) -> None:
        expr = call("add", call("mul", symbol("p"), symbol("x")), tree) if terms else tree
        assume("x" in expr.names and expr.names & set("pqr"))
        # With powers of two, scaled values are rounded alike, so that cancelled digits do not matter.
        found.append(check(Function(to_text(expr)), 64.0, 1 / 64, -64.0, -1 / 64))

    one()
    assert sum(map(bool, found)) > 100
    assert any(len(exponents) > 1 for exponents in found)
    assert any(set(exponents.values()) - {1.0} for exponents in found)
