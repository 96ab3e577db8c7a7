import copy
import pickle
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

import ftnn
from ftnn import Function, catalogue
from ftnn.errors import FormulaError
from ftnn.formula._expr import Expr
from ftnn.formula._text import to_text
from tests.formula.strategies import expressions, smooth_formulas

# ---- properties


def test_a_function_has_parameters_constants_and_ranges():
    f = Function("u*rect(p*x + q)*beta", init={"q": (-2, 3)}, constants={"u": (-1, 1)})
    assert f.formula == "u*rect(p*x + q)*beta"
    assert f.parameters == ("p", "q", "beta")
    assert f.constants == ("u",)
    assert f.init == {"q": (-2.0, 3.0)}
    assert f.choices == {"u": (-1.0, 1.0)}
    assert not f.has_memory
    assert str(f) == f.formula


def test_the_examples_of_the_documentation():
    f = Function("p*sin(q*x + r)", init={"p": (-0.1, 0.1), "q": (-10, 10), "r": (-10, 10)})
    assert f == catalogue["F12"]
    narrow = {"p": (-0.1, 0.1), "q": (-0.1, 0.1)}
    assert Function("rect(p*x + q)*u", init=narrow, constants={"u": (-1, 1)}) == catalogue["F08"]
    p, q, r, x = sympy.symbols("p q r x")
    assert f.derivative("x") == p * q * sympy.cos(q * x + r)
    assert f.derivative("p") == sympy.sin(q * x + r)
    assert f.plan.kind == "fused"
    assert f.latex() == sympy.latex(p * sympy.sin(q * x + r))


def test_calling_a_function_computes_in_float64_and_broadcasts():
    f = Function("p*x**2 + q")
    assert f(3, p=2, q=1) == 19
    assert f(np.arange(3)[:, None], p=np.ones(2), q=[0, 1]).tolist() == [[0, 1], [1, 2], [4, 5]]
    assert f(np.float32(0.1), p=1, q=0).dtype == np.float64
    assert np.isinf(Function("p/x")(0.0, p=1.0))  # without a warning


@pytest.mark.parametrize("values", [{}, {"p": 1}, {"p": 1, "q": 1, "r": 1}])
def test_a_call_with_wrong_names_lists_the_right_ones(values: dict[str, Any]):
    with pytest.raises(TypeError, match="takes p, q, not"):
        Function("p*x + q")(1.0, **values)


def test_a_parameter_that_folding_removes_is_still_a_parameter():
    f = Function("p*x + 0*q")
    assert f.parameters == ("p", "q")
    assert f(2.0, p=3.0, q=5.0) == 6.0
    assert f.derivative("q") == 0


def test_c_makes_a_memory_function():
    f = Function("tanh(p*x + q*C)")
    assert f.has_memory
    assert f.parameters == ("p", "q")
    assert f.derivative("C") == sympy.Symbol("q") * (1 - sympy.tanh(f.sympy.args[0]) ** 2)
    assert f(0.5, p=1.0, q=1.0, C=-0.5) == 0


@pytest.mark.parametrize("name", ["C", "u", "z", "sin"])
def test_derivatives_exist_only_by_x_and_the_parameters(name: str):
    with pytest.raises(FormulaError, match=r"no derivative with respect to .*; expected one of x, p, q"):
        Function("p*x + q*u", constants={"u": (1,)}).derivative(name)


# ---- invalid arguments


@pytest.mark.parametrize(
    ("formula", "arguments", "message", "place"),
    [
        ("p*q", {}, "the formula does not use x", "p*q"),
        ("sin(x)", {}, "no parameter to train", "sin(x)"),
        ("x*C", {}, "no parameter to train", "x*C"),
        ("u*x", {"constants": {"u": (1, -1)}}, "no parameter to train", "u*x"),
        ("p*x*u", {"constants": {"v": (1,)}}, "the constant 'v' does not occur", "p*x*u"),
        ("p*x", {"constants": {"x": (1,)}}, "x cannot be a constant: it is the connection's input", "x"),
        ("p*x*C", {"constants": {"C": (1,)}}, "C cannot be a constant", "C"),
        ("p*x*u", {"constants": {"u": ()}}, "must be drawn from finite numbers", "u"),
        ("p*x*u", {"constants": {"u": (1, float("nan"))}}, "must be drawn from finite numbers", "u"),
        ("p*x*u", {"constants": {"u": 1}}, "must be drawn from finite numbers", "u"),
        ("p*x*u", {"constants": {"u": "ab"}}, "must be drawn from finite numbers", "u"),
        (
            "p*x*u",
            {"init": {"u": (0, 1)}, "constants": {"u": (1,)}},
            "there is a range for 'u', which is not a parameter; the parameters are p",
            "u",
        ),
        ("p*x", {"init": {"q": (0, 1)}}, "there is a range for 'q', which is not a parameter", "p*x"),
        ("p*x", {"init": {"x": (0, 1)}}, "there is a range for 'x', which is not a parameter", "x"),
        ("q + p*x", {"init": {"p": (1, 0)}}, "finite and low ≤ high", "p"),
        ("q + p*x", {"init": {"p": (0, float("inf"))}}, "finite and low ≤ high", "p"),
        ("q + p*x", {"init": {"p": (0, 10**400)}}, "finite and low ≤ high, not .0, 1000+.*0", "p"),
        ("q + p*x", {"init": {"p": (0, 10**5000)}}, "finite and low ≤ high, not .0, a number of th", "p"),
        ("q + p*u*x", {"constants": {"u": (10**5000,)}}, "not .a number of thousands of digits,", "u"),
        ("q + p*x", {"init": {"p": 3}}, r"must be \(low, high\)", "p"),
        ("q + p*x", {"init": {"p": (1, 2, 3)}}, r"must be \(low, high\)", "p"),
        ("q + p*x", {"init": {"p": "no"}}, r"must be \(low, high\)", "p"),
    ],
)
def test_invalid_arguments_are_refused_and_marked(formula: str, arguments: Any, message: str, place: str):
    with pytest.raises(FormulaError, match=message) as caught:
        Function(formula, **arguments)
    assert formula[caught.value.start : caught.value.end] == place
    assert formula in str(caught.value)


# ---- equality, repr and pickle


@pytest.mark.parametrize(
    "other",
    [
        "x*p + q",
        "q + p*x",
        "q + x*p",
        " p*x+q ",
        "(p*x) + (q)",
        "p*x + q - 0",
        "1*p*x + q",
        "p*x - -q",
        "p*x**1 + q",
    ],
)
def test_equality_ignores_the_order_of_operands_and_the_spelling_of_numbers(other: str):
    assert Function(other) == Function("p*x + q")
    assert hash(Function(other)) == hash(Function("p*x + q"))


def test_equality_ignores_the_order_of_nested_operands():
    assert Function("p*(x + q + 2)*r") == Function("r*((2 + q) + x)*p")
    assert Function("min(p, x, q)") == Function("min(q, min(x, p))")


@pytest.mark.parametrize(
    "other", ["p*(x + q)", "p*x - q", "p*x + r", "q*x + p", "p*x + q + 1", "p*x + q + 0*r"]
)
def test_equality_uses_no_algebra(other: str):
    if other == "p*x + q + 0*r":  # same expression after folding, but different parameters
        assert Function(other).parameters != Function("p*x + q").parameters
    assert Function(other) != Function("p*x + q")


def test_equality_compares_ranges_and_constants():
    f = Function("p*x*u", init={"p": (0, 1)}, constants={"u": (-1, 1)})
    assert f != Function("p*x*u", constants={"u": (-1, 1)})
    assert f != Function("p*x*u", init={"p": (0, 1)}, constants={"u": (1,)})
    assert f != Function("p*x*u", init={"p": (0, 1)})
    assert f == Function("u*x*p", init={"p": [0.0, 1.0]}, constants={"u": [-1.0, 1.0]})
    assert Function("p*x", init={"p": (-0.1, 0.1)}) != Function("p*x")  # whose layer chooses the range
    assert f != "p*x*u"


@pytest.mark.slow
@given(expressions, st.floats(-1e6, 1e6), st.floats(0, 10))
def test_repr_and_pickle_round_trip_any_function(expr: Expr, low: float, width: float):
    f = Function(f"slope*x + ({to_text(expr)})", init={"slope": (low, low + width)})
    again = eval(repr(f), {"Function": ftnn.Function})
    for other in (again, pickle.loads(pickle.dumps(f)), copy.copy(f), copy.deepcopy(f)):
        assert other == f
        assert hash(other) == hash(f)
        assert other.formula == f.formula
        assert other.init == f.init


@pytest.mark.parametrize("name", catalogue)
def test_repr_and_pickle_round_trip_the_catalogue(name: str):
    f = catalogue[name]
    assert eval(repr(f), {"Function": ftnn.Function}) == f
    assert pickle.loads(pickle.dumps(f)) == f


def test_repr_and_pickle_round_trip_a_composed_function_beyond_the_limits():
    f = Function("p*(" + " + ".join(f"sin({n}.5*x)" for n in range(60)) + ")")
    g = Function("q*(" + " + ".join(f"cos({n}.5*x)" for n in range(60)) + ")")
    long = ftnn.Mixed([f, g]).function
    with pytest.raises(FormulaError):
        Function(long.formula)
    assert eval(repr(long), {"Function": ftnn.Function}) == long
    assert pickle.loads(pickle.dumps(long)) == long


def test_a_function_is_immutable():
    f = Function("p*x*u", init={"p": (-3, 3)}, constants={"u": (1,)})
    f.init["p"] = (5, 6)
    f.choices["u"] = (7,)
    assert f.init == {"p": (-3.0, 3.0)}
    assert f.choices == {"u": (1.0,)}
    with pytest.raises(AttributeError):
        f.formula = "q*x"  # pyright: ignore[reportAttributeAccessIssue]


# ---- grounded


@pytest.mark.parametrize("name", catalogue)
def test_a_grounded_function_is_f_of_x_minus_f_of_0(name: str):
    f = catalogue[name]
    ground = f.grounded()
    random = np.random.default_rng(0)
    values = {n: random.uniform(*f.init[n], 50) for n in f.parameters}
    values |= {n: random.choice(f.choices[n], 50) for n in f.constants}
    memory = {"C": random.uniform(-1, 1, 50)} if f.has_memory else {}
    ground_values = {n: values[n] for n in (*ground.parameters, *ground.constants)} | (
        memory if ground.has_memory else {}
    )
    x = random.uniform(-2, 2, 50)
    assert np.all(ground(0.0, **ground_values) == 0)
    np.testing.assert_allclose(
        ground(x, **ground_values),
        f(x, **values, **memory) - f(0.0, **values, **memory),
        rtol=1e-12,
        atol=1e-15,
    )
    assert Function(ground.formula, init=ground.init, constants=ground.choices) == ground
    assert ground.init == {n: f.init[n] for n in ground.parameters}


def test_a_function_that_is_0_at_0_is_already_grounded():
    assert catalogue["F03"].grounded() == catalogue["F03"]
    assert Function("p*sin(q*x)").grounded() == Function("p*sin(q*x)")


def test_grounding_f11_subtracts_its_value_at_0():
    f = catalogue["F11"]
    assert f.grounded() == Function("p*logistic(q*x + r) - p*logistic(r)", init=f.init)


@pytest.mark.parametrize("formula", ["p/x", "p*log(x)", "p*coth(x)", "p*csc(q*x)", "p*x + log(x)*q", "p*x/x"])
def test_a_function_not_finite_at_zero_cannot_be_grounded(formula: str):
    with pytest.raises(FormulaError, match=r"cannot be grounded: F.0. = .* is not finite") as caught:
        Function(formula).grounded()
    assert formula in str(caught.value)


def test_whether_a_function_can_be_grounded_depends_on_initial_ranges():
    assert Function("sqrt(p + x)*p", init={"p": (0.1, 0.2)}).grounded()(0.0, p=0.15) == 0
    with pytest.raises(FormulaError, match="cannot be grounded"):
        Function("sqrt(p + x)*p", init={"p": (-0.1, 0.1)}).grounded()


@settings(max_examples=25)
@given(smooth_formulas())
def test_any_smooth_function_can_be_grounded(expr: Expr):
    f = Function(to_text(expr))
    values = dict.fromkeys(f.parameters, 0.3)
    ground = f.grounded()
    ground_values = dict.fromkeys(ground.parameters, 0.3)
    assert abs(ground(0.0, **ground_values)) < 1e-14
    assert ground(0.7, **ground_values) == pytest.approx(f(0.7, **values) - f(0.0, **values), abs=1e-9)


# ---- SymPy and LaTeX


def test_latex_of_the_catalogue():
    assert catalogue["F19"].latex() == "p^{2} \\left(- q + x\\right)^{2}"
    assert catalogue["F15"].latex() == "p \\left(\\cosh{\\left(q x + r \\right)} - 1\\right)"


def test_sympy_symbols_are_plain_for_any_name():
    f = Function("lambda_*sin(beta*x) + E*I*x + S*N")
    assert {s.name for s in f.sympy.free_symbols} == {"lambda_", "beta", "E", "I", "S", "N", "x"}
    assert f.derivative("E") == sympy.Symbol("I") * sympy.Symbol("x")


def test_sympy_handles_deep_nesting_quickly():
    f = Function("p*" + "tanh(" * 60 + "q*x" + ")" * 60)
    assert sympy.Symbol("q") in f.derivative("x").free_symbols
    value = sympy.lambdify(sympy.symbols("p q x"), f.sympy, "math")(1.0, 0.5, 1.0)
    assert value == pytest.approx(f(1.0, p=1.0, q=0.5))


def test_sympy_handles_numbers_that_are_not_real():
    f = Function("where(sqrt(-1) < x, p, q*x)")
    assert f.derivative("q") == sympy.Symbol("x")  # comparisons with NaN are false
    assert f(2.0, p=1.0, q=3.0) == 6


@pytest.mark.parametrize("arguments", [{"init": {"p": (0, 10**400)}}, {"constants": {"q": (10**400,)}}])
def test_ranges_and_constants_beyond_float64_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(FormulaError, match=r"must be \(low, high\)|must be drawn from finite numbers"):
        Function("p*x + q", **arguments)


@pytest.mark.parametrize("bad", [[("p", (0, 1))], 3, "p"])
def test_ranges_and_constants_that_are_no_dictionaries_are_refused(bad: Any):
    with pytest.raises(FormulaError, match=r"^init must be a dictionary, such as {'p': \(0, 1\)}, not"):
        Function("p*x", init=bad)
    with pytest.raises(FormulaError, match=r"^constants must be a dictionary, such as {'u': \(-1, 1\)}, not"):
        Function("p*x*u", constants=bad)
