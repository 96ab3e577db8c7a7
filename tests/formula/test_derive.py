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
from ftnn.formula._ops import BACKENDS, OPS, is_native
from ftnn.formula._parse import parse
from ftnn.formula._sympy import to_sympy
from tests.formula import oracle, rows
from tests.formula.strategies import smooth_formulas

# ---- each row, against SymPy's own differentiation


@pytest.mark.parametrize("op", [op for op, row in OPS.items() if not row.is_comparison])
def test_every_derivative_is_what_sympy_finds_for_its_spelling(op: str):
    real = {sympy.Symbol(name): sympy.Symbol(name, real=True) for name in "abc"}
    # Written for a parameter, `rect_ada` has a decreed slope; for x, the true one.
    for by in rows.arguments(op):
        if (op, by) == ("where", "a"):
            continue
        spelled = to_sympy(rows.applied(op)).subs(real)
        theirs = sympy.diff(spelled, real[sympy.Symbol(by)])
        named = tuple("x" if name == by else name for name in "abc")
        ours = to_sympy(differentiate(rows.applied(op, named), "x")).subs(sympy.Symbol("x"), sympy.Symbol(by))
        at = rows.points(op)
        for n in range(len(next(iter(at.values())))):
            place = {sympy.Symbol(name): sympy.Float(values[n], 30) for name, values in at.items()}
            expected = sympy.N(theirs.subs({real[k]: v for k, v in place.items()}), 25)
            found = sympy.N(ours.subs(place), 25)
            assert abs(found - expected) <= 1e-14 * (1 + abs(expected)), (op, by, place)


# ---- formulas, against differences at many digits


@settings(max_examples=40)
@given(smooth_formulas())
def test_derivatives_of_drawn_formulas_are_the_limits_of_their_differences(expr: Expr):
    values = {"x": 0.3, "p": -0.7, "q": 0.9, "r": 0.4}
    with mpmath.workdps(30):
        for name in names(expr):

            def along(t: Any, name: str = name) -> Any:
                return oracle.evaluate(expr, {**values, name: t})

            expected = mpmath.diff(along, values[name])
            found = oracle.evaluate(differentiate(simplify(expr), name), values)
            assert abs(found - expected) <= mpmath.mpf("1e-12") * (1 + abs(expected))


@settings(max_examples=40)
@given(smooth_formulas())
def test_numpy_gives_drawn_formulas_to_all_digits_but_a_few(expr: Expr):
    values = {"x": 0.3, "p": -0.7, "q": 0.9, "r": 0.4}
    expected = oracle.evaluate(expr, values)
    assert abs(evaluate(expr, values) - float(expected)) <= 1e-12 * (1 + abs(float(expected)))


@settings(max_examples=40)
@given(smooth_formulas())
def test_lowering_leaves_only_what_a_backend_has_and_the_same_value(expr: Expr):
    values = {"x": 0.3, "p": -0.7, "q": 0.9, "r": 0.4}
    expected = float(oracle.evaluate(expr, values))
    for backend in BACKENDS:
        lowered = lower(expr, backend)
        assert all(
            is_native(OPS[part.op].spelling(backend)) for part in postorder(lowered) if isinstance(part, Call)
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


def same(found: Any, printed: str) -> bool:
    """Whether two formulas are equal, by SymPy's algebra over the reals."""
    real = {
        s: sympy.Symbol(s.name, real=True) for s in found.free_symbols | to_sympy(parse(printed)).free_symbols
    }
    difference = (found - to_sympy(parse(printed))).subs(real)
    return sympy.simplify(sympy.piecewise_fold(difference.rewrite(sympy.Piecewise))) == 0


@pytest.mark.parametrize(("name", "by"), [(name, by) for name, found in PRINTED.items() for by in found])
def test_our_derivatives_are_those_that_the_paper_prints(name: str, by: str):
    assert same(catalogue[name].derivative(by), PRINTED[name][by])


@pytest.mark.parametrize(("name", "by"), [(name, by) for name, found in PRINTED.items() for by in found])
def test_and_so_are_their_numbers_on_both_sides_of_every_kink(name: str, by: str):
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


# ---- and where we differ from what is printed or published


def test_the_slope_of_f07_by_x_is_rect_of_p_times_u_though_the_paper_prints_u():
    slope = catalogue["F07"].derivative("x")
    assert same(slope, "rect(p)*u")
    assert not same(slope, "where(p >= 0, u, 0)")
    assert catalogue["F07"].derivative("x") == catalogue["F06"].derivative("x")


def test_the_sine_and_cosine_send_their_error_down_with_the_right_sign():
    # The authors' published layers have the opposite sign.
    x, p, q, r = 0.4, 0.3, 2.0, 0.1
    for name, expected in (("F12", p * q * np.cos(q * x + r)), ("F13", -p * q * np.sin(q * x + r))):
        function = catalogue[name]
        values = {"p": p, "q": q, "r": r}
        difference = (function(x + 1e-6, **values) - function(x - 1e-6, **values)) / 2e-6
        slope = evaluate(function.slope("x"), {"x": x, **values})
        assert slope == pytest.approx(expected, rel=1e-12)
        assert np.sign(slope) == np.sign(difference)


@pytest.mark.parametrize(("op", "at_zero"), [("rect", 1), ("rect_ada", 1), ("relu", 0)])
def test_a_rectifier_has_its_slope_at_zero(op: str, at_zero: int):
    for by in "x", "p":
        slope = differentiate(parse(f"{op}({by})"), by)
        assert evaluate(slope, {by: 0.0}) == at_zero
    assert evaluate(differentiate(parse(f"{op}(x)"), "x"), {"x": -1e-300}) == 0
    assert evaluate(differentiate(parse(f"{op}(x)"), "x"), {"x": 1e-300}) == 1


def test_the_decree_of_rect_ada_counts_by_parameters_and_nowhere_else():
    expr = parse("rect_ada(p*x + q*C)")
    below = {"p": 1.0, "x": -3.0, "q": 0.5, "C": 2.0}
    assert evaluate(differentiate(expr, "p"), below) == -3
    assert evaluate(differentiate(expr, "q"), below) == 2
    assert evaluate(differentiate(expr, "x"), below) == 0
    assert evaluate(differentiate(expr, "C"), below) == 0
    assert evaluate(expr, below) == 0


def test_a_decree_goes_through_what_stands_around_it():
    for text, slope in (
        ("sin(rect_ada(p))*x", 1.5),
        ("exp(rect_ada(p) + x)", np.exp(1.5)),
        ("rect_ada(p)**3*x", 0),
    ):
        assert evaluate(differentiate(parse(text), "p"), {"p": -0.7, "x": 1.5}) == pytest.approx(slope)


# ---- slopes at places where a careless rule gives NaN


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
def test_a_slope_is_finite_where_the_function_has_one(text: str, at: float, slope: float):
    assert evaluate(differentiate(simplify(parse(text)), "x"), {"x": at}) == slope


def test_a_power_of_zero_has_no_slope_by_its_exponent():
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
def test_numbers_zeros_and_ones_are_folded_and_nothing_else(text: str, folded: str):
    assert simplify(parse(text)) is parse(folded)


SIGNS = """(-x)**2 (-x)**3 (-x)**(-1) (-x)**(-2) (-x)**p (0-x)**3 -x*p x*-p -x*-p -(x-p) -(-x+p) x/-p -x/p
-(x/-p) x*(-2) (-2)*x -2*-x (-2)**3*x (-x)**1 (-x)**0 x--p x+-p -x-p 0-x 0-(0-x) 0*x/p x*0.5*4 2*(3*x)
where(x>0,-x,x)*where(x>0,1,0) (-p)*(-q)*(-x) where(x<0,1,0)*-p+where(x<0,p,q) abs(-x) max(-x,-p) min(2,3)*x
sign(-2)*x 1/2*x x**2**0.5"""


@pytest.mark.parametrize("text", SIGNS.split())
@pytest.mark.parametrize("x", [0.6, -0.6])
def test_folding_changes_no_value(text: str, x: float):
    values = {"x": x, "p": 2.0, "q": -0.3}
    expr = parse(text)
    if isinstance(
        expected := oracle.evaluate(expr, values), mpmath.mpf
    ):  # else it is a root of a negative number
        assert float(oracle.evaluate(simplify(expr), values)) == pytest.approx(float(expected), rel=1e-15)


@settings(max_examples=60)
@given(smooth_formulas())
def test_folding_changes_no_value_of_drawn_formulas(expr: Expr):
    values = {"x": 0.3, "p": -0.7, "q": 0.9, "r": 0.4}
    expected = float(oracle.evaluate(expr, values))
    assert float(oracle.evaluate(simplify(expr), values)) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_the_slope_of_what_does_not_occur_is_zero():
    assert differentiate(parse("p*x"), "q") is number(0)
    assert differentiate(symbol("x"), "x") is number(1)


def test_a_derivative_shares_what_it_repeats():
    """Of a function within a function, 100 deep, the derivative would have 5,000 parts if it were a tree."""
    expr = parse("sin(" * 99 + "x" + ")" * 99)
    assert len(list(postorder(differentiate(expr, "x")))) < 400


def test_names_with_a_meaning_in_the_rules_are_not_confused_with_it():
    function = Function("a/b + c*a**b*x")
    slope = evaluate(function.slope("b"), {"a": 2.0, "b": 3.0, "c": 0.5, "x": 1.5})
    assert slope == pytest.approx(-2 / 9 + 0.5 * 1.5 * 8 * np.log(2))


def test_what_is_lowered_may_divide_by_zero_where_nobody_looks():
    """tanh at 0, as kernels without it write it."""
    for backend in BACKENDS:
        assert oracle.evaluate(lower(parse("tanh(x)"), backend), {"x": 0.0}) == 0
