from typing import Any

import mpmath
import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from numpy.typing import NDArray

from ftnn import Function, catalogue
from ftnn.formula._derive import differentiate, lower, simplify
from ftnn.formula._expr import Call, Expr, names, number, postorder, symbol
from ftnn.formula._numpy import evaluate
from ftnn.formula._ops import OPS, TARGETS, is_native
from ftnn.formula._parse import parse
from ftnn.formula._sympy import to_sympy
from tests.formula import oracle, rows
from tests.formula.strategies import smooth_formulas

# ---- each row, against SymPy's differentiation


@pytest.mark.parametrize("op", [op for op, row in OPS.items() if not row.is_comparison])
def test_every_derivative_matches_sympys(op: str):
    real = {sympy.Symbol(name): sympy.Symbol(name, real=True) for name in "abc"}
    # For a parameter, `rect_ada` has a surrogate gradient; for x, the true slope.
    for by in rows.arguments(op):
        if (op, by) == ("where", "a"):
            continue
        by_sympy = sympy.diff(to_sympy(rows.applied(op)).subs(real), real[sympy.Symbol(by)])
        with_x = tuple("x" if name == by else name for name in "abc")
        slope = to_sympy(differentiate(rows.applied(op, with_x), "x"))
        slope = slope.subs(sympy.Symbol("x"), sympy.Symbol(by))
        at = rows.points(op)
        for n in range(len(next(iter(at.values())))):
            place = {sympy.Symbol(name): sympy.Float(values[n], 30) for name, values in at.items()}
            expected = sympy.N(by_sympy.subs({real[k]: v for k, v in place.items()}), 25)
            actual = sympy.N(slope.subs(place), 25)
            assert abs(actual - expected) <= 1e-14 * (1 + abs(expected)), (op, by, place)


# ---- formulas, against numerical differences at many digits


@settings(max_examples=40)
@given(smooth_formulas())
def test_derivatives_of_random_formulas_match_numerical_differences(expr: Expr):
    values = {"x": 0.3, "p": -0.7, "q": 0.9, "r": 0.4}
    with mpmath.workdps(30):
        for name in names(expr):

            def along(t: Any, name: str = name) -> Any:
                return oracle.evaluate(expr, {**values, name: t})

            expected = mpmath.diff(along, values[name])
            slope = oracle.evaluate(differentiate(simplify(expr), name), values)
            assert abs(slope - expected) <= mpmath.mpf("1e-12") * (1 + abs(expected))


@settings(max_examples=40)
@given(smooth_formulas())
def test_numpy_evaluates_random_formulas_accurately(expr: Expr):
    values = {"x": 0.3, "p": -0.7, "q": 0.9, "r": 0.4}
    expected = oracle.evaluate(expr, values)
    assert abs(evaluate(expr, values) - float(expected)) <= 1e-12 * (1 + abs(float(expected)))


@settings(max_examples=40)
@given(smooth_formulas())
def test_lowering_leaves_only_native_operations_and_keeps_the_value(expr: Expr):
    values = {"x": 0.3, "p": -0.7, "q": 0.9, "r": 0.4}
    expected = float(oracle.evaluate(expr, values))
    for target in TARGETS:
        lowered = lower(expr, target)
        assert all(
            is_native(OPS[part.op].spelling(target)) for part in postorder(lowered) if isinstance(part, Call)
        )
        assert abs(float(oracle.evaluate(lowered, values)) - expected) <= 1e-9 * (1 + abs(expected))


# ---- the derivatives that the paper prints (sections 4.1-4.4)

PRINTED = {
    "F12": {
        "p": "sin(q*x + r)",
        "q": "p*cos(q*x + r)*x",
        "r": "p*cos(q*x + r)",
        "x": "p*q*cos(q*x + r)",
    },
    "F19": {"p": "2*p*(x - q)**2", "q": "-2*p**2*(x - q)", "x": "2*p**2*(x - q)"},
    "F08": {
        "p": "where(p*x + q >= 0, u*x, 0)",
        "q": "where(p*x + q >= 0, u, 0)",
        "x": "where(p*x + q >= 0, p*u, 0)",
    },
    "F06": {"p": "where(p >= 0, u*x, 0)", "x": "rect(p)*u"},
    "F07": {"p": "u*x"},
    "memory": {
        "p": "(1 - tanh(p*x + q*C + r)**2)*x",
        "q": "(1 - tanh(p*x + q*C + r)**2)*C",
        "r": "1 - tanh(p*x + q*C + r)**2",
        "x": "(1 - tanh(p*x + q*C + r)**2)*p",
    },
}


def same(expr: Any, printed: str) -> bool:
    """Whether two formulas are equal, by SymPy's algebra over the reals."""
    difference = expr - to_sympy(parse(printed))
    difference = difference.subs({s: sympy.Symbol(s.name, real=True) for s in difference.free_symbols})
    return sympy.simplify(sympy.piecewise_fold(difference.rewrite(sympy.Piecewise))) == 0


@pytest.mark.parametrize(("name", "by"), [(name, by) for name, slopes in PRINTED.items() for by in slopes])
def test_derivatives_match_those_printed_in_the_paper(name: str, by: str):
    assert same(catalogue[name].derivative(by), PRINTED[name][by])


@pytest.mark.parametrize(("name", "by"), [(name, by) for name, slopes in PRINTED.items() for by in slopes])
def test_derivatives_match_the_papers_numerically_on_both_sides_of_kinks(name: str, by: str):
    grid: dict[str, NDArray[Any]] = {}
    expr, printed = catalogue[name].slope(by), parse(PRINTED[name][by])
    used = sorted({*names(expr), *names(printed)})
    for n, symbol_name in enumerate(used):
        values = (
            np.array([-1.0, 1.0])
            if symbol_name == "u"
            else np.array([-0.7, -0.2, 0.0, 0.3, 1.1]) * (1 + n / 7)
        )
        grid[symbol_name] = values.reshape([-1 if k == n else 1 for k in range(len(used))])
    np.testing.assert_allclose(
        *np.broadcast_arrays(evaluate(expr, grid), evaluate(printed, grid)), rtol=1e-13
    )


# ---- differences from the paper and its published code


def test_the_slope_of_f07_by_x_is_rect_p_times_u_unlike_in_the_paper():
    slope = catalogue["F07"].derivative("x")
    assert same(slope, "rect(p)*u")
    assert not same(slope, "where(p >= 0, u, 0)")
    assert catalogue["F07"].derivative("x") == catalogue["F06"].derivative("x")


def test_the_input_slopes_of_sine_and_cosine_have_the_right_sign():
    # The authors' published code has the opposite sign.
    x, p, q, r = 0.4, 0.3, 2.0, 0.1
    for name, expected in (("F12", p * q * np.cos(q * x + r)), ("F13", -p * q * np.sin(q * x + r))):
        function = catalogue[name]
        values = {"p": p, "q": q, "r": r}
        difference = (function(x + 1e-6, **values) - function(x - 1e-6, **values)) / 2e-6
        slope = evaluate(function.slope("x"), {"x": x, **values})
        assert slope == pytest.approx(expected, rel=1e-12)
        assert np.sign(slope) == np.sign(difference)


@pytest.mark.parametrize(("op", "at_zero"), [("rect", 1), ("rect_ada", 1), ("relu", 0)])
def test_the_slope_of_each_rectifier_at_zero(op: str, at_zero: int):
    for by in "x", "p":
        slope = differentiate(parse(f"{op}({by})"), by)
        assert evaluate(slope, {by: 0.0}) == at_zero
    assert evaluate(differentiate(parse(f"{op}(x)"), "x"), {"x": -1e-300}) == 0
    assert evaluate(differentiate(parse(f"{op}(x)"), "x"), {"x": 1e-300}) == 1


def test_the_surrogate_gradient_of_rect_ada_applies_only_to_parameters():
    expr = parse("rect_ada(p*x + q*C)")
    below = {"p": 1.0, "x": -3.0, "q": 0.5, "C": 2.0}
    assert evaluate(differentiate(expr, "p"), below) == -3
    assert evaluate(differentiate(expr, "q"), below) == 2
    assert evaluate(differentiate(expr, "x"), below) == 0
    assert evaluate(differentiate(expr, "C"), below) == 0
    assert evaluate(expr, below) == 0


def test_a_surrogate_gradient_follows_the_chain_rule():
    for text, slope in (
        ("sin(rect_ada(p))*x", 1.5),
        ("exp(rect_ada(p) + x)", np.exp(1.5)),
        ("rect_ada(p)**3*x", 0),
    ):
        assert evaluate(differentiate(parse(text), "p"), {"p": -0.7, "x": 1.5}) == pytest.approx(slope)


# ---- slopes where a careless rule gives NaN


@pytest.mark.parametrize(
    ("text", "at", "slope"),
    [
        ("rect(sqrt(x) - 1)", 0.0, 0),  # 0 times an infinite slope
        ("rect(-exp(x))", 800.0, 0),
        ("relu(-exp(x))", 800.0, 0),
        ("where(x > 0, log(x), 0)", -1.0, 0),
        ("where(x > 0, sqrt(x), 0)", 0.0, 0),
        ("max(log(x), 0)", 0.0, 0),
        ("x**2", 0.0, 0),
        ("x**3", -2.0, 12),
        ("(-x)**2", 3.0, 6),
        ("tanh(x)", 800.0, 0),
        ("sech(x)", 800.0, 0),
        ("coth(x)", 800.0, 0),
        ("logistic(x)", -800.0, 0),
        ("softplus(x)", 800.0, 1),
        ("softplus(x)", -800.0, 0),
        ("gauss(x)", 800.0, 0),
        ("erf(x)", 800.0, 0),
    ],
)
def test_slopes_are_finite_where_the_function_is_differentiable(text: str, at: float, slope: float):
    assert evaluate(differentiate(simplify(parse(text)), "x"), {"x": at}) == slope


def test_a_power_of_zero_has_slope_zero_by_its_exponent():
    slope = differentiate(parse("x**p"), "p")
    assert evaluate(slope, {"x": 0.0, "p": 2.0}) == 0
    assert evaluate(slope, {"x": 2.0, "p": 3.0}) == pytest.approx(8 * np.log(2))


# ---- folding


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("p*x - 0", "p*x"),
        ("p*x + 0", "p*x + 0"),
        ("0*x + p", "0*x + p"),
        ("1*p*x*1", "p*x"),
        ("p*x/1", "p*x"),
        ("(p*x)**1", "p*x"),
        ("(p*x)**0", "1"),
        ("2*3*x", "6*x"),
        ("sqrt(4)*x", "2*x"),
        ("2**10*x", "1024*x"),
        ("sin(0)*x + cos(0)*p", "0*x + p"),
        ("--x", "x"),
        ("x - -p", "x + p"),
        ("x + -p", "x - p"),
        ("x*2", "2*x"),
        ("where(1 < 2, x, p)", "x"),
        ("where(x > 0, p, p)", "p"),
        ("x - x", "x - x"),
        ("log(0)*x", "log(0)*x"),
        ("1/0*x", "1/0*x"),
        ("(0 - 8)**(1/3)*x", "(-8)**0.3333333333333333*x"),
        ("exp(1000)*x", "exp(1000)*x"),
    ],
)
def test_only_numbers_zeros_and_ones_are_folded(text: str, folded: str):
    assert simplify(parse(text)) is parse(folded)


SIGNS = """(-x)**2 (-x)**3 (-x)**(-1) (-x)**(-2) (-x)**p (0-x)**3 -x*p x*-p -x*-p -(x-p) -(-x+p) x/-p -x/p
-(x/-p) x*(-2) (-2)*x -2*-x (-2)**3*x (-x)**1 (-x)**0 x--p x+-p -x-p 0-x 0-(0-x) 0*x/p x*0.5*4 2*(3*x)
where(x>0,-x,x)*where(x>0,1,0) (-p)*(-q)*(-x) where(x<0,1,0)*-p+where(x<0,p,q) abs(-x) max(-x,-p) min(2,3)*x
sign(-2)*x 1/2*x x**2**0.5"""


@pytest.mark.parametrize("text", SIGNS.split())
@pytest.mark.parametrize("x", [0.6, -0.6])
def test_folding_keeps_the_value(text: str, x: float):
    values = {"x": x, "p": 2.0, "q": -0.3}
    expr = parse(text)
    expected = oracle.evaluate(expr, values)
    if isinstance(expected, mpmath.mpf):  # else it is a root of a negative number
        assert float(oracle.evaluate(simplify(expr), values)) == pytest.approx(float(expected), rel=1e-15)


@settings(max_examples=60)
@given(smooth_formulas())
def test_folding_keeps_the_value_of_random_formulas(expr: Expr):
    values = {"x": 0.3, "p": -0.7, "q": 0.9, "r": 0.4}
    expected = float(oracle.evaluate(expr, values))
    assert float(oracle.evaluate(simplify(expr), values)) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_the_slope_by_an_absent_name_is_zero():
    assert differentiate(parse("p*x"), "q") is number(0)
    assert differentiate(symbol("x"), "x") is number(1)


def test_a_derivative_shares_repeated_parts():
    """As a tree, the derivative of 100 nested functions would have 5,000 parts."""
    expr = parse("sin(" * 99 + "x" + ")" * 99)
    assert len(list(postorder(differentiate(expr, "x")))) < 400


def test_parameters_named_like_rule_arguments_are_not_confused_with_them():
    function = Function("a/b + c*a**b*x")
    slope = evaluate(function.slope("b"), {"a": 2.0, "b": 3.0, "c": 0.5, "x": 1.5})
    assert slope == pytest.approx(-2 / 9 + 0.5 * 1.5 * 8 * np.log(2))


def test_lowered_tanh_is_exact_at_zero():
    """Without a native tanh, the lowered formula divides by zero in a branch that is not taken."""
    for target in TARGETS:
        assert oracle.evaluate(lower(parse("tanh(x)"), target), {"x": 0.0}) == 0
