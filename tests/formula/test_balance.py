"""Balanced ranges: what the rule promises, measured by independent random draws."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ftnn.errors import FormulaError
from ftnn.formula import Function, catalogue
from ftnn.formula._balance import balanced, initial_ranges, scaled_ranges
from ftnn.formula._inputs import Inputs
from ftnn.formula._trials import AWAKE, CURVATURE, TAIL

UNTUNED = (
    "p*cosh(q*x + r)",
    "p*gauss(q*x + r)",
    "p*softplus(q*x + r)",
    "p*tan(q*x + r)",
    "p*sech(q*x + r)",
    "p*x/(1 + abs(q*x))",
    "p*sin(q*x + r) + s*x",
    "p*x*exp(-(q*x)**2)",
    "p*exp(q*x)",
)
RELU = Inputs.of(np.maximum(Inputs.normal().array, 0))


def free(name: str) -> Function:
    """A catalogue function without the paper's ranges."""
    return Function(catalogue[name].formula, constants=catalogue[name].choices)


def sums(function: Function, x: np.ndarray, in_features: int, layers: int = 1) -> np.ndarray:
    """The sums of 400 random units over inputs drawn from x, (samples, units)."""
    random = np.random.default_rng(3)
    ranges = balanced(function, in_features, Inputs.of(x), layers).ranges
    inputs = random.choice(x, (200, in_features, 1))
    shape = (1, in_features, 400)
    values = {name: random.uniform(*bounds, shape) for name, bounds in ranges.items()}
    values |= {name: random.choice(choices, shape) for name, choices in function.choices.items()}
    return function(inputs, **values).sum(1)


@pytest.mark.parametrize("formula", UNTUNED)
def test_the_sums_of_a_layer_have_variance_1(formula: str):
    normal = np.random.default_rng(0).normal(size=2000)
    for x in (normal, np.maximum(normal, 0), np.tanh(normal)):
        assert sums(Function(formula), x, 30).var(0).mean() == pytest.approx(1, rel=0.2)


@pytest.mark.parametrize("layers", [1, 10])
@pytest.mark.parametrize("formula", UNTUNED)
def test_signals_and_errors_grow_alike(formula: str, layers: int):
    """κ from random draws and numerical slopes, independent of the rule's own."""
    function, random = Function(formula), np.random.default_rng(1)
    x = np.tanh(random.normal(size=(1, 1000)))
    ranges = balanced(function, 50, Inputs.of(x), layers).ranges
    values = {name: random.uniform(*bounds, (1000, 1)) for name, bounds in ranges.items()}
    y, step = function(x, **values), 1e-5
    slope = (function(x + step, **values) - function(x - step, **values)) / (2 * step)
    gain = (slope**2).mean() * x.var() / y.var(1).mean()
    assert gain == pytest.approx(1, abs=1.5 * CURVATURE / layers + 0.01)


@pytest.mark.parametrize("name", [name for name in catalogue if name not in ("F17", "F18", "memory")])
def test_all_conditions_hold_for_the_catalogue_or_nearly(name: str):
    for inputs in (None, RELU):
        balance = balanced(free(name), 100, inputs, 10)
        assert balance.violation < 2
        assert balance.tail < 2 * TAIL
        assert balance.awake > AWAKE / 2


def test_more_layers_demand_gentler_functions():
    shallow, deep = (balanced(Function("p*sin(q*x)"), 100, None, layers).ranges for layers in (1, 20))
    assert shallow["q"][1] > deep["q"][1]


def test_given_ranges_are_kept_and_the_others_fit_them():
    function = Function("p*sin(q*x + r)", init={"q": (3, 10 / 3)})
    balance = balanced(function, 100)
    assert balance.ranges["q"] == (3, 10 / 3)
    assert set(balance.ranges) == {"p", "q", "r"}
    assert catalogue["F12"].init == balanced(catalogue["F12"], 100).ranges


def test_given_amplitudes_are_not_scaled():
    function = Function("p*sin(q*x)", init={"p": (-5, 5)})
    assert balanced(function, 10).ranges["p"] == balanced(function, 1000).ranges["p"] == (-5, 5)
    assert scaled_ranges(function, {"p": (-5, 5), "q": (-1, 1)}, 3.0) == {"p": (-5, 5), "q": (-1, 1)}


def test_amplitudes_shrink_with_the_number_of_inputs():
    few, many = (balanced(Function("p*tanh(q*x)"), n).ranges["p"][1] for n in (10, 1000))
    assert few / many == pytest.approx(10, rel=1e-4)
    few, many = (balanced(Function("p**2*x"), n).ranges["p"][1] for n in (10, 1000))
    assert few / many == pytest.approx(math.sqrt(10), rel=1e-4)


@pytest.mark.parametrize("scale", [0.01, 100.0])
def test_ranges_follow_the_scale_of_the_inputs(scale: float):
    function, normal = Function("p*sin(q*x + r)"), Inputs.normal().array
    plain, scaled = (balanced(function, 100, Inputs.of(factor * normal)) for factor in (1.0, scale))
    assert scaled.violation == plain.violation == 1
    ratio = plain.ranges["q"][1] / scaled.ranges["q"][1]
    assert 0.2 * scale < ratio < 5 * scale


def test_connections_that_can_only_be_positive_start_positive():
    assert balanced(Function("rect(p)*u*x", constants={"u": (-1, 1)}), 100).ranges["p"][0] == 0
    assert balanced(Function("p*x"), 100).ranges["p"][0] < 0


@pytest.mark.parametrize("formula", ["p*log(q*x)", "p*sqrt(q*x)", "p*x**q", "p*log(q + x)"])
def test_functions_stay_inside_their_domain(formula: str):
    positive = np.random.default_rng(0).uniform(0.2, 3, 1000)
    assert np.isfinite(sums(Function(formula), positive, 20)).all()
    assert set(balanced(Function(formula), 20).ranges) == {"p", "q"}  # expects positive inputs if it must


POSITIVE = Inputs.of(np.linspace(0.5, 2, 99))
NEGATIVE = Inputs.of(np.linspace(-2, -0.5, 99))


@pytest.mark.parametrize(
    ("formula", "inputs", "signs"),
    [
        ("p*sqrt(x - q)", None, {"q": -1}),
        ("p*log(x - q)", None, {"q": -1}),
        ("p*(x - q)**0.5", None, {"q": -1}),
        ("p*sqrt(-q)*x", None, {"q": -1}),
        ("p*log(-q)*x", None, {"q": -1}),
        ("sqrt(p)*x", None, {"p": 1}),
        ("p**0.5*x", None, {"p": 1}),
        ("sqrt(-p)*x", None, {"p": -1}),
        ("sqrt(p)*sqrt(q)*sqrt(-r)*x", None, {"p": 1, "q": 1, "r": -1}),
        ("p*sqrt(-q*x)", None, {"q": -1}),
        ("p*log(-q*x)", POSITIVE, {"q": -1}),
        ("p*sqrt(q*x)", NEGATIVE, {"q": -1}),
        ("p*log(q*x)", NEGATIVE, {"q": -1}),
    ],
)
def test_parameters_that_need_a_sign_get_it(formula: str, inputs: Inputs | None, signs: dict[str, int]):
    function = Function(formula)
    ranges = balanced(function, 20, inputs).ranges
    assert {name: np.sign(low) for name, (low, high) in ranges.items() if low * high > 0} == signs
    random = np.random.default_rng(0)
    x = np.abs(Inputs.normal().array) if inputs is None else inputs.array
    for given in (x, -x) if inputs is None and formula not in ("p*sqrt(-q*x)",) else (x,):
        values = {name: random.uniform(*bounds, (500, 1)) for name, bounds in ranges.items()}
        assert np.isfinite(function(given, **values)).all()


@pytest.mark.parametrize("formula", ["p*log(q*x)", "p*sqrt(q*x)", "p*sqrt(x - q)", "p*log(q + x)"])
def test_training_does_not_easily_take_a_parameter_out_of_the_domain(formula: str):
    function, random = Function(formula), np.random.default_rng(0)
    ranges = balanced(function, 20, POSITIVE).ranges
    for moved in (-1.9, 1.9):
        values = {name: random.uniform(*bounds, (500, 1)) for name, bounds in ranges.items()}
        values["q"] += moved
        assert np.isfinite(function(POSITIVE.array, **values)).all()


def test_distance_from_the_edge_of_the_domain_is_not_bought_with_much_curvature():
    """If q, which is in [1, 2], moved by 2, the function would not be finite at 0, but [2, 4] is steep."""
    assert balanced(Function("p*x*abs(x)**q"), 64, RELU, 10).ranges["q"] == (1, 2)


def test_amplitudes_that_must_keep_their_sign_are_fragile():
    assert balanced(Function("sqrt(p)*x"), 100).fragile
    assert not balanced(Function("sqrt(p)*x*q"), 100).fragile


@pytest.mark.parametrize(
    ("bounds", "sign"), [((-2.0, -1.0), "negative"), ((1.0, 2.0), "positive"), ((-1.0, 1.0), None)]
)
def test_given_ranges_decide_what_inputs_are_expected(bounds: tuple[float, float], sign: str | None):
    function = Function("p*sqrt(q*x)", init={"q": bounds})
    if sign is None:
        with pytest.raises(FormulaError, match=r"from -2.2 to 2.2 and q in \[-1, 1\]; change"):
            balanced(function, 10)
    else:
        assert balanced(function, 10).assumes == sign


def test_a_function_that_is_never_finite_for_its_inputs_is_refused():
    with pytest.raises(
        FormulaError,
        match=r"keep the function finite for inputs from -2 to 2; .* or give ranges, "
        "as in FORMULA where p in",
    ):
        balanced(Function("p*log(q*x)"), 10, Inputs.of(np.linspace(-2, 2, 99)))
    with pytest.raises(FormulaError, match=r"-0.5 and q in \[0.5, 2\]; .* or give other ranges, as in FORM"):
        balanced(Function("p*log(q*x)", init={"q": (0.5, 2)}), 10, NEGATIVE)
    assert initial_ranges(Function("p*log(x - x)")) == {"p": (-0.1, 0.1)}


def test_a_function_whose_slope_is_never_finite_is_refused_for_its_slope():
    """F(0) is 0, but the slopes by x and q are not finite there, so q could not be trained."""
    pixels = Inputs.of(np.linspace(0, 1, 99))
    with pytest.raises(FormulaError, match=r"keep its slopes finite .* \(the slope by x is not at x = 0\)"):
        balanced(Function("p*sqrt(abs(q*x))"), 10, pixels)


def test_extreme_inputs_count_for_the_domain():
    x = np.concatenate([np.full(10_000, 1.0), np.linspace(0.5, 2, 10_000), [-1.0]])
    with pytest.raises(FormulaError, match="from -1 to 2"):
        balanced(Function("p*sqrt(q*x)"), 10, Inputs.of(x))


@pytest.mark.parametrize(
    ("formula", "fragile"), [("p*tan(q*x + r)", True), ("p*sin(q*x + r)", False), ("p*cosh(q*x)", False)]
)
def test_functions_that_training_takes_to_a_pole_are_fragile(formula: str, fragile: bool):
    assert balanced(Function(formula), 100).fragile is fragile


@pytest.mark.parametrize(
    ("formula", "explosive"),
    [
        ("p*exp(q*x)", True),
        ("p*sinh(q*x + r)", True),
        ("p*exp((q*x)**2)", True),
        ("p*x*abs(x)**q", True),
        ("p*x**q", True),
        ("p*x*q**2", False),
        ("p*x**3 + q*x**2 + r*x", False),
        ("p*softplus(q*x + r)", False),
        ("p*exp(-(q*x)**2)", False),
        ("p*tan(q*x + r)", False),
    ],
)
def test_functions_that_grow_like_exponentials_are_explosive(formula: str, explosive: bool):
    assert balanced(Function(formula), 100).explosive is explosive


def test_functions_of_one_sign_have_a_common_signal():
    assert balanced(Function("p**2*x"), 100).common > 0.4
    assert balanced(Function("p*x"), 100).common < 0.05


def test_constant_and_large_functions_keep_the_papers_ranges():
    large = "p*" + "tanh(q + " * 90 + "x" + ")" * 90
    for formula in ("p + 0*x", large, large.replace("x", "x + C")):
        ranges = balanced(Function(formula), 100).ranges
        assert set(ranges.values()) == {(-0.1, 0.1)}


def test_inputs_without_spread_count_as_unit_normal():
    assert Inputs.of(np.full(9, 3.0)) == Inputs.of([]) == Inputs.of([np.nan, np.inf]) == Inputs.normal()
    assert np.var(Inputs.normal().array) == pytest.approx(1)
