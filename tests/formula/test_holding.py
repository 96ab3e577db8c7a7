"""Holding ranges: what the rule promises, measured by independent random draws."""

from __future__ import annotations

import numpy as np
import pytest

from ftnn.formula import Function, catalogue
from ftnn.formula._balance import Inputs, balanced

PAPER = "tanh(p*x + q*C + r)"
HELD = (
    PAPER,
    "p*x + q*C",
    "C + p*tanh(q*x - C)",
    "p*x + logistic(q)*C",
    "p*sin(q*x + r*C + s)",
    "relu(p*x + q*C)",
    "p*tanh(q*x + r*C) + s*x",
    "tanh(p*x + 2*q*C/3)",
)


def kept(function: Function, in_features: int = 10) -> list[float]:
    """The shares of 2,000 connections that keep a tenth of a difference over 100 steps with x = 0.

    For the states before and after a first step, before and after a second, and two that are almost equal.
    """
    random = np.random.default_rng(5)
    ranges = balanced(function, in_features).ranges
    values = {name: random.uniform(*bounds, 2000) for name, bounds in ranges.items()}
    first = function(random.normal(size=2000), C=np.zeros(2000), **values)
    second = function(random.normal(size=2000), C=first, **values)
    shares = []
    for one, other in ((0 * first, first), (first, second), (first, first + 1e-5)):
        before = abs(one - other)
        for _ in range(100):
            one, other = (function(0.0, C=state, **values) for state in (one, other))
        assert np.isfinite(one).all()
        shares.append(float((abs(one - other) >= 0.1 * before).mean()))
    return shares


@pytest.mark.parametrize("formula", HELD)
def test_at_least_half_the_connections_keep_a_tenth_of_a_difference_for_100_steps(formula: str):
    assert min(kept(Function(formula))) >= 0.5


def test_the_papers_ranges_forget_at_once():
    assert balanced(catalogue["memory"], 10).ranges == dict.fromkeys("pqr", (-0.1, 0.1))
    assert max(kept(catalogue["memory"])) == 0


@pytest.mark.parametrize("in_features", [1, 3, 30, 300])
def test_layers_of_any_width_hold(in_features: int):
    assert min(kept(Function(PAPER), in_features)) >= 0.5


@pytest.mark.parametrize("formula", [PAPER, "p*x + q*C", "p*x + logistic(q)*C"])
def test_one_step_moves_the_sum_by_a_variance_of_about_1(formula: str):
    function, random = Function(formula), np.random.default_rng(3)
    for in_features in (10, 100):
        ranges = balanced(function, in_features).ranges
        values = {name: random.uniform(*bounds, (in_features, 400)) for name, bounds in ranges.items()}
        sums = function(random.normal(size=(200, in_features, 1)), C=0.0, **values).sum(1)
        assert 0.4 < sums.var(0).mean() < 2.5


def test_states_stay_finite_for_random_inputs():
    function, random = Function("p*x*C**2 + q*C + r*x"), np.random.default_rng(3)
    ranges = balanced(function, 10).ranges
    values = {name: random.uniform(*bounds, 300) for name, bounds in ranges.items()}
    state = np.zeros(300)
    for _ in range(100):
        state = function(random.normal(size=300), C=state, **values)
    assert np.median(abs(state)) < 100


def test_given_ranges_are_kept_and_the_others_fit_them():
    function = Function("p*x + q*r*C", init={"r": (2, 2)})
    ranges = balanced(function, 10).ranges
    assert ranges["r"] == (2, 2)
    assert ranges["q"] == pytest.approx((0.5, 0.5), rel=0.03)
    assert min(kept(function)) >= 0.5


def test_ranges_follow_the_scale_of_the_inputs():
    normal = Inputs.normal().array
    small, large = (
        balanced(Function(PAPER), 10, Inputs.of(scale * normal)).ranges["p"] for scale in (1, 100)
    )
    assert small[1] == pytest.approx(100 * large[1], rel=0.5)


@pytest.mark.parametrize("formula", ["p*x + 0*C", "p*sin(x)*C"])
def test_formulas_that_cannot_hold_start_anyway(formula: str):
    balance = balanced(Function(formula), 10)
    assert set(balance.ranges) == {"p"}
    assert not balance.holds


def test_the_report_says_how_many_connections_hold():
    explanation = Function(PAPER).explain()
    assert explanation.holds is not None
    assert explanation.gain is None
    assert explanation.ranges["q"] == (0.985, 1.015)
    share = f"{explanation.holds:.0%} of the connections hold a signal for 100 steps"
    assert f"p, q, r, for a layer of 100 standardised inputs: {share}" in str(explanation)
    assert "chosen" not in str(catalogue["memory"].explain())
    assert "nothing holds a signal, so these are the paper's ±0.1" in str(Function("p*sin(x)*C").explain())
