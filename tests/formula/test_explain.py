import re
import time
from typing import Any

import numpy as np
import pytest
import sympy

from ftnn import Function, catalogue
from ftnn.errors import FormulaError
from ftnn.formula import as_function
from ftnn.formula._catalogue import with_paper_ranges
from ftnn.formula._explain import Explanation
from ftnn.nn import Transfer


def explain(function: str, x: tuple[float, float] = (-1, 1), **arguments: Any) -> Explanation:
    """With the paper's ±0.1 for parameters without a range, so that results do not depend on a choice."""
    return function_of(function, **arguments).explain(x)


def function_of(function: str, **arguments: Any) -> Function:
    if function in catalogue:
        return catalogue[function]
    return with_paper_ranges(Function(function, **arguments))


# ---- does it reach zero


@pytest.mark.parametrize(
    ("function", "always"),
    [
        ("F01", True),
        ("F03", True),
        ("F12", False),
        ("F13", False),
        ("F15", False),  # touches zero without crossing it
        ("F19", True),
        ("F20", True),
        ("p*(cosh(q*x) - 1)", True),
        ("p*x**2", True),
        ("p*(x - 0.3)**2", True),  # between two points of any grid
        ("p*(x - q)**4", True),
        ("p*log(x)", True),  # at 1, the end of the grid
        ("p*tan(q*x)", True),
        ("rect(p*x + q)", False),
        ("p*sign(x - 2) + p", True),
    ],
)
def test_functions_that_reach_zero_are_reported(function: str, always: bool):
    explanation = explain(function)
    assert explanation.reaches_zero == 1 if always else 0 < explanation.reaches_zero < 1
    assert re.search(
        r"zero +reached for x in \[-1, 1\], for (every draw|\d+% of the draws)", str(explanation)
    )


@pytest.mark.parametrize(
    "function",
    [
        "p*cosh(q*x + r)",
        "p*logistic(q*x + r)",
        "F05",
        "F10",
        "F11",
        "p/x",  # changes sign across the pole
        "p*coth(x)",
        "p*csc(3*x)",
        "p*sech(q*x)",
        "p*(x**2 + 0.0001)",
        "where(x > 0, p, -p)",  # across a jump
        "p*gauss(q*x)",
        "p*sign(x - 2)",
    ],
)
def test_a_function_that_never_reaches_zero_gets_a_caution(function: str):
    explanation = explain(function)
    assert explanation.reaches_zero == 0
    assert "never reached for x in [-1, 1]; often harmless" in str(explanation)


def test_whether_zero_is_reached_depends_on_the_inputs_and_the_initial_ranges():
    assert explain("p*(x - 3)").reaches_zero == 0
    assert explain("p*(x - 3)", (0, 4)).reaches_zero == 1
    assert explain("p*(x - q)", init={"q": (3, 4)}).reaches_zero == 0
    assert 0 < explain("p*(x - q)", init={"q": (0, 4)}).reaches_zero < 1


# ---- what a silent input sends


@pytest.mark.parametrize("function", ["p*x", "p*x**2 + q*x", "F06", "p*sin(q*x)", "p*x/(1 + abs(q*x))"])
def test_functions_that_are_zero_at_zero_send_nothing_there(function: str):
    explanation = explain(function)
    assert explanation.silent is None
    assert "at x = 0" not in str(explanation)


def test_what_a_silent_input_sends_is_compared_with_what_inputs_change():
    # F(0) = p, and F(x) - F(0) = p*x/10 with a root mean square of |p|/10/√3 over [-1, 1].
    explanation = explain("p*(1 + x/10)")
    assert explanation.silent is not None
    assert explanation.silent[0] == "p"
    assert explanation.silent[1] == pytest.approx(10 * 3**0.5, rel=0.01)
    assert "is p, 17 times as large as its change with x; in your own training loop" in str(explanation)


def test_a_small_constant_part_is_no_caution():
    explanation = explain("p*(0.1 + x)")
    assert explanation.silent is not None
    assert explanation.silent[1] < 0.5
    assert "at x = 0" not in str(explanation)


@pytest.mark.parametrize("function", ["p/x", "p*log(x)", "memory"])
def test_nothing_is_said_where_a_silent_input_sends_what_is_not_finite_or_memory(function: str):
    assert explain(function).silent is None


def test_grounded_functions_send_nothing_at_zero():
    assert Function("p*cosh(q*x + r)").grounded().explain((-1, 1)).silent is None


# ---- poles and jumps


@pytest.mark.parametrize(
    ("function", "place"),
    [
        ("p/x", "x = 0"),
        ("p*x**(-2)", "x = 0"),
        ("p/(x - q)**2", "(x - q)**2 = 0"),
        ("p/(x - 0.3)**2", "(x - 0.3)**2 = 0"),
        ("p*log(x)", "x = 0"),
        ("p*log1p(-2*x)", "1 - 2*x = 0"),
        ("p*tan(3*x)", "cos(3*x) = 0"),
        ("p*sec(3*x)", "cos(3*x) = 0"),
        ("p*cot(x)", "sin(x) = 0"),
        ("p*csc(x)", "sin(x) = 0"),
        ("p*coth(x)", "x = 0"),
        ("p*csch(x - q)", "x - q = 0"),
        ("p*exp(x)/(exp(x) - 1)", "exp(x) - 1 = 0"),
    ],
)
def test_poles_are_reported(function: str, place: str):
    explanation = explain(function)
    assert [where for where, _ in explanation.poles] == [place]
    assert explanation.poles[0][1] == 1
    assert f"where {place}, for every draw of its parameters" in str(explanation)


def test_a_power_has_a_pole_where_its_exponent_is_negative():
    ((place, share),) = explain("q*x**p").poles
    assert place == "x = 0 and p < 0"
    assert 0.3 < share < 0.7
    assert explain("q*x**p", init={"p": (1, 2)}).poles == ()


def test_a_pole_that_only_training_can_reach_is_reported_as_such():
    explanation = explain("p*tan(q*x + r)")
    assert explanation.poles == (("cos(q*x + r) = 0", 0.0),)
    assert "outside x in [-1, 1] and the initial parameters, but training may reach it" in str(explanation)
    wide = explain("p*tan(q*x + r)", init={"q": (-10, 10), "r": (-10, 10)})
    assert wide.poles[0][1] > 0.5


def test_a_pole_that_far_inputs_reach_is_reported_too():
    explanation = Function("p/(x - q)").explain()
    assert explanation.ranges["q"][0] > 1
    assert explanation.poles == (("x - q = 0", 0.0),)


@pytest.mark.parametrize(
    ("function", "place"),
    [
        ("p*sign(x)", "x = 0"),
        ("p*step(x - q)", "x - q = 0"),
        ("where(x > 0.25, p, q)", "x - 0.25 = 0"),
        ("where(x > q, x, p)", "x - q = 0"),
        ("p*where(x < 0, -1, 1)", "x = 0"),
        ("where(x > 0, p, 1/x)", "x = 0"),
        ("where(x > 0, p + log(x + 0.5), 2*p)", "x = 0"),
    ],
)
def test_jumps_are_reported(function: str, place: str):
    explanation = explain(function)
    assert [where for where, _ in explanation.jumps] == [place]
    assert explanation.jumps[0][1] > 0.9
    assert "jump" in str(explanation)


@pytest.mark.parametrize(
    "function",
    [
        *catalogue,
        "p*exp(x)",
        "p*abs(x)",
        "where(x > 0, p*x, 0)",
        "where(x > 0, p*sqrt(x), 0)",  # steep, but not a jump
        "where(x > 0, p*x**0.1, 0)",
        "x*sign(x)*p",
        "p*x/(1 + x**2)",
        "p/2 + x",
        "p*sech(q*x)",  # which the paper calls discontinuous
        "p/cosh(x)",
        "p/(2 + sin(x))",
    ],
)
def test_functions_without_poles_or_jumps_report_none(function: str):
    explanation = explain(function)
    assert explanation.poles == ()
    assert explanation.jumps == ()


# ---- overflow


@pytest.mark.parametrize(
    "function",
    [
        "p*exp(100*x)",
        "p*exp(100*x)/2",
        "p*exp(100*x)/(1 + x**2)",
        "p*cosh(200*x)",
        "p*(exp(1000*x) - exp(999*x))",
        "p*(1e20*x)**2",
        "p*sinh(100*x)*log(x + 3)",
        "x*p*1e39",
    ],
)
def test_overflow_of_float32_is_reported_with_an_example(function: str):
    explanation = explain(function)
    assert explanation.overflows is not None
    example, size = explanation.overflows
    assert "x = 1" in example or "x = -1" in example
    assert size > 3.4e38
    assert "leaves float32" in str(explanation)
    assert "inf" not in str(explanation).partition("overflow")[2].partition("for example")[0]


def test_overflow_depends_on_the_inputs_the_ranges_and_the_slopes():
    assert explain("p*exp(x)", (-50, 50)).overflows is None
    assert explain("p*exp(x)", (-50, 100)).overflows is not None
    assert explain("p*exp(q*x)", init={"q": (-100, 0)}).overflows is not None
    assert explain("p*x*1e38", (0, 5)).overflows is not None  # the slope by p overflows, F does not


@pytest.mark.parametrize(
    "function", [*catalogue, "p/x", "p*log(x)", "p*tan(3*x)", "p*sqrt(x)", "x**p", "p*coth(x)"]
)
def test_poles_and_nan_do_not_count_as_overflow(function: str):
    assert explain(function).overflows is None


# ---- sleep and death


@pytest.mark.parametrize("function", ["F08", "F09", "p*rect(x)", "where(x > 0.5, p, 0)", "p*max(x, 0)"])
def test_functions_that_are_zero_on_an_interval_are_reported_as_sleeping(function: str):
    explanation = explain(function)
    assert explanation.sleeps > 0.3
    assert explanation.dead == 0
    assert "sleep" in str(explanation)


def test_a_function_asleep_over_all_inputs_is_not_dead():
    explanation = explain("p*rect(x - 2)")
    assert explanation.sleeps == 1
    assert explanation.dead == 0
    assert explanation.can_die == ""


def test_the_report_says_whether_a_function_can_die_and_revive():
    f06, f07 = explain("F06"), explain("F07")
    assert f06.dead == f07.dead == 0  # they start alive
    for explanation in (f06, f07):
        assert re.fullmatch(r"p = -0\.\d+, u = -?1", explanation.can_die)
    assert not f06.can_revive
    assert f07.can_revive
    assert "and then never moves again" in str(f06)
    assert "and can revive: its parameters still move" in str(f07)


def test_functions_that_start_dead_are_reported():
    explanation = explain("rect(p)*x", init={"p": (-0.2, -0.1)})
    assert explanation.dead == 1
    assert "zero for every input, for every draw" in str(explanation)
    assert explain("p*rect(-x**2 - 1)").dead == 1


@pytest.mark.parametrize("function", ["F01", "F03", "F05", "F12", "F15", "F16", "F19", "p*abs(x)", "memory"])
def test_functions_that_cannot_die_are_not_reported_as_dead(function: str):
    explanation = explain(function)
    assert explanation.sleeps == explanation.dead == 0
    assert explanation.can_die == ""


# ---- the whole report


def test_the_report_has_derivatives_and_the_plan_with_its_reason():
    explanation = explain("F03")
    p, q, x = sympy.symbols("p q x")
    assert explanation.derivatives == {"x": 2 * p * x + q, "p": x**2, "q": x}
    assert explanation.plan.kind == "gemm"
    assert str(explanation).split("\n") == [
        "F(x)        p*x**2 + q*x",
        "parameters  p in [-0.1, 0.1], q in [-0.1, 0.1]",
        "∂F/∂x       2*p*x + q",
        "∂F/∂p       x**2",
        "∂F/∂q       x",
        "computed    by GEMM: it is a sum of g(p)·h(x): 2 matrix products",
        "zero        reached for x in [-1, 1], for every draw of its parameters",
    ]
    assert "fused: sin(q*x + r) mixes x with parameters" in str(explain("F12"))
    assert "it uses C, its own previous value" in str(explain("memory"))
    assert "constants   u in {-1, 1}" in str(explain("F20"))


def test_the_report_fits_long_names():
    text = str(explain("a_very_long_name_of_a_parameter*x"))
    assert "∂F/∂a_very_long_name_of_a_parameter  x\n" in text
    assert len({line.index("  ") for line in text.split("\n")}) > 1


def test_the_report_is_deterministic():
    assert str(explain("F12")) == str(explain("F12"))


@pytest.mark.parametrize("x", [(1, 1), (2, 1), (0, float("inf")), (float("nan"), 1), 3, (1,), ("a", "b")])
def test_an_invalid_range_of_inputs_is_refused(x: Any):
    with pytest.raises(FormulaError, match="the range of inputs must be"):
        catalogue["F12"].explain(x)


@pytest.mark.parametrize(
    ("formula", "x"),
    [
        ("p*log(x)", (-2, -1)),  # NaN everywhere
        ("p*sqrt(-1)*x", (-1, 1)),
        ("p*x/0", (-1, 1)),
        ("p + 0*x", (-1, 1)),
        ("0*p*x", (-1, 1)),
        ("where(0 < x < 0.5, p, 0)", (-1, 1)),
        ("p*x**(-1/3)", (-1, 1)),
        ("p*tan(x)*log(x)*x**q/sin(x)", (-5, 5)),
        ("p*exp(exp(exp(x)))", (-1, 3)),
        ("p*x", (-1e300, 1e300)),
        ("where(kind == 0, p*x, q)*kind", (-1, 1)),
    ],
)
def test_unusual_functions_are_explained_without_a_warning(formula: str, x: tuple[float, float]):
    for function in (function_of(formula), Function(formula)):
        assert str(function.explain(x)).startswith("F(x) ")


@pytest.mark.parametrize(
    "formula",
    [
        " + ".join(f"p{n}*x**{n}" for n in range(1, 66)),  # 3**66 corners
        "p*" + "tanh(" * 100 + "q*x" + ")" * 100,
        "p*" + "sech(" * 30 + "q*x" + ")" * 30,
        "*".join(f"(p{n} + x)" for n in range(30)),
    ],
)
def test_large_functions_are_explained_in_a_few_seconds(formula: str):
    start = time.process_time()
    assert str(Function(formula).explain())
    assert time.process_time() - start < 10  # two on an idle machine


# ---- the ranges that a layer chooses


@pytest.mark.parametrize("formula", ["p*sin(q*x + r)", "p*log(q*x)", "p*x**q", "p*log(x - q)", "p/x"])
def test_the_report_has_the_ranges_that_a_layer_draws_from(formula: str):
    explanation = Function(formula).explain()
    assert explanation.ranges == Transfer(100, 3, formula).ranges
    assert explanation.x == (-1, 1)


@pytest.mark.parametrize(
    ("formula", "x", "inputs"),
    [
        ("p*sin(q*x)", None, "standardised inputs: errors pass"),
        ("p*log(q*x)", None, "positive inputs, as F is not finite for both signs: errors pass"),
        (
            "p*sqrt(q*x) where q in [-2, -1]",
            None,
            "negative inputs, as F is not finite for both signs: errors",
        ),
        ("p*sin(q*x)", (0, 255), "inputs spread over [0, 255]: errors pass"),
        ("p*log(q - 100)*x", None, "standardised inputs: no range keeps F finite, so the layer refuses it"),
        ("p*log(q*x)", (-1, 1), "inputs spread over [-1, 1]: no range keeps F finite, so the layer refuses"),
        ("p + 0*x", None, "standardised inputs: no ranges can be compared, so these are the paper's ±0.1"),
    ],
)
def test_the_report_says_for_which_inputs_ranges_were_chosen(formula: str, x: Any, inputs: str):
    assert f"for a layer of 100 {inputs}" in str(as_function(formula).explain(x))


def test_ranges_for_given_inputs_are_those_of_calibration():
    wide, narrow = (Function("p*sin(q*x + r)").explain(x).ranges["q"] for x in ((0.0, 255.0), (0.0, 1.0)))
    assert wide[1] < 0.02 < narrow[1]


# ---- does it leave its domain

ROOT, POWER, LOG = "p*sqrt(q*x)", "p*x**q", "p*log(q*x)"


@pytest.mark.parametrize("function", [ROOT, POWER, LOG])
@pytest.mark.parametrize("init", [None, {"p": (-1, 1), "q": (-2, 2)}, {"p": (1, 2), "q": (0.3, 0.5)}])
def test_the_share_of_draws_and_inputs_outside_the_domain_is_reported(function: str, init: Any):
    explanation = Function(function, init=init).explain()
    assert explanation.outside is not None
    points, draws, example = explanation.outside
    assert points == pytest.approx(0.5, abs=0.02)  # half of the inputs are negative
    assert draws == 1
    assert re.search(r"domain +left for \d\d% of draws and inputs \(for every draw", str(explanation))
    place = {name: float(value) for name, value in re.findall(r"(\w) = ([-\d.e]+)", example)}
    with np.errstate(all="ignore"):
        assert np.isnan(Function(function)(place.pop("x"), **place))


def test_the_share_outside_the_domain_depends_on_the_inputs():
    explanation = Function("p*sqrt(x + q)", init={"p": (0, 1), "q": (1, 1)}).explain((-3, 5))
    assert explanation.outside is not None
    assert explanation.outside[:2] == (pytest.approx(0.25, abs=0.01), 1)
    explanation = Function("p*sqrt(q)*x", init={"p": (0, 1), "q": (-1, 3)}).explain()
    assert explanation.outside is not None
    assert explanation.outside[0] == explanation.outside[1] == pytest.approx(0.25, abs=0.08)


def test_a_domain_that_only_training_leaves_is_reported_as_such():
    explanation = Function(LOG).explain((0.1, 1))  # the chosen range of q is positive
    assert explanation.outside is not None
    assert explanation.outside[:2] == (0, 0)
    assert "not left for x in [0.1, 1] and the initial parameters, but training may: NaN" in str(explanation)


@pytest.mark.parametrize(
    "function",
    [
        *catalogue,
        "p*sqrt(1 + (q*x)**2)",
        "p*where(x > 0, log(x), 0)",
        "p*tan(q*x)",
        "p*exp(1000*x)*(exp(1000*x) - exp(999*x + q))",  # inf - inf is an overflow
    ],
)
def test_poles_and_overflow_do_not_count_as_leaving_the_domain(function: str):
    assert function_of(function).explain().outside is None
