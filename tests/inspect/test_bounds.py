import math

import numpy as np
import pytest

import ftnn
from ftnn.formula._expr import INPUT, call, symbol
from ftnn.formula._numpy import evaluate
from ftnn.formula._ops import OPS, is_native
from ftnn.inspect._bounds import RULES, between, bounds

RNG = np.random.default_rng(0)
FORMULAS = [f.formula for name, f in ftnn.catalogue.items() if name != "memory"]


def test_every_native_numpy_operation_has_bounds():
    assert {name for name, op in OPS.items() if is_native(op.numpy)} <= set(RULES)


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if op.is_callable and name != "where"])
@pytest.mark.parametrize("width", [0.0, 0.3, 5.0, math.inf])
def test_an_operation_stays_within_its_bounds(name: str, width: float):
    arity = OPS[name].arity
    centre = RNG.uniform(-4, 4, (300, arity))
    lo, hi = centre - width, centre + width
    expr = call(name, *(symbol(letter) for letter in "xpq"[:arity]))
    # Other arguments are points; the input runs over its range.
    values = {letter: centre[:, n] for n, letter in enumerate("xpq"[:arity]) if n}
    result = bounds(expr, values, between(lo[:, 0], hi[:, 0]))
    for share in np.linspace(0, 1, 41):
        x = centre[:, 0] + (2 * share - 1) * min(width, 50.0)
        value = evaluate(expr, {INPUT: x, **values})
        assert np.isfinite(value[np.broadcast_to(result.sure, value.shape)]).all()
        finite = np.isfinite(value)
        slack = 1e-12 * (1 + np.abs(value))
        assert (result.lo <= value + slack)[finite].all()
        assert (result.hi >= value - slack)[finite].all()


@pytest.mark.parametrize("formula", [*FORMULAS, "p/(x - q)", "x**-2*p", "max(p*x, q)", "softplus(p*x) - r"])
@pytest.mark.parametrize("name", ["", "x", "p"])
def test_a_formula_and_its_slopes_stay_within_their_bounds(formula: str, name: str):
    constants = {"u": (-1.0, 1.0)} if "u" in formula.replace("softplus", "") else {}
    function = ftnn.Function(formula, constants=constants)
    expr = function.slope(name) if name else function.expr
    values = {n: RNG.normal(size=200) for n in (*function.parameters, *function.constants)}
    lo = RNG.normal(size=200)
    hi = lo + RNG.exponential(size=200)
    result = bounds(expr, values, between(lo, hi))
    for share in np.linspace(0, 1, 33):
        value = np.broadcast_to(evaluate(expr, {INPUT: lo + share * (hi - lo), **values}), 200)
        slack = 1e-12 * (1 + np.abs(value))
        inside = (result.lo <= value + slack) & (value - slack <= result.hi)
        assert (inside | ~np.isfinite(value)).all()
        assert np.isfinite(value[np.broadcast_to(result.sure, 200)]).all()


def test_bounds_detect_poles_and_narrow_bumps():
    assert not bounds(ftnn.Function("p/x").expr, {"p": 0.0}).sure
    assert not bounds(ftnn.Function("p*tan(x)").expr, {"p": 0.0}).sure
    bump = ftnn.Function("p*rect(1 - 1000000*abs(x - q))").expr  # two millionths wide
    assert not bounds(bump, {"p": 1.0, "q": 0.123456789}).constant
    assert not bounds(ftnn.Function("rect(p*x - q)").expr, {"p": 1e-9, "q": 1.0}).constant
    assert not bounds(ftnn.Function("p*step(x - q)").expr, {"p": 1.0, "q": 1e300}).constant


def test_bounds_prove_constant_expressions():
    assert bounds(ftnn.Function("rect(-p**2*x**2 - q)").expr, {"p": 3.0, "q": 0.1}).zero
    assert bounds(ftnn.Function("where(q > 0, p*sin(x), 7)").expr, {"p": 3.0, "q": -0.1}).constant
    assert bounds(ftnn.Function("where(q > 0, p/x, 7)").expr, {"p": 3.0, "q": -0.1}).lo == 7
    assert bounds(ftnn.Function("p*exp(x)*x**3").expr, {"p": 0.0}).zero


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_bounds_prove_nothing_for_infinite_or_nan_parameters(value: float):
    assert not bounds(ftnn.Function("rect(p)*x").expr, {"p": value}).constant
    assert not bounds(ftnn.Function("p*x").expr, {"p": value}).constant
