from typing import Any

import numpy as np
import pytest

import ftnn
from ftnn import Function, Mixed, catalogue
from ftnn.errors import FormulaError, FtnnError, ShapeError


def test_a_mixed_function_selects_by_kind():
    mixed = Mixed(["F12", "F03", "p*x + beta"])
    assert mixed.functions == (catalogue["F12"], catalogue["F03"], Function("p*x + beta"))
    f = mixed.function
    assert set(f.parameters) == {"p", "q", "r", "beta"}
    assert f.constants == ("kind",)
    assert f.choices == {"kind": (0, 1, 2)}
    values = {"p": 0.3, "q": 0.7, "r": -0.2, "beta": 5.0}
    x = np.linspace(-1, 1, 5)
    for kind, one in enumerate(mixed.functions):
        own = {name: values[name] for name in one.parameters}
        np.testing.assert_allclose(f(x, kind=kind, **values), one(x, **own), rtol=1e-15)


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("name", ["x", "p", "q", "r"])
def test_the_slopes_of_a_mixed_function_are_those_of_each_kind(kind: int, name: str):
    mixed = Mixed(["F12", "F03"])
    values = {"x": 0.4, "p": 0.3, "q": 0.7, "r": -0.2}
    from ftnn.formula._numpy import evaluate

    own = mixed.functions[kind]
    expected = evaluate(own.slope(name), values) if name in ("x", *own.parameters) else 0
    assert evaluate(mixed.function.slope(name), {**values, "kind": kind}) == expected


def test_constants_of_the_kinds_are_constants_of_the_mixed_function():
    mixed = Mixed(["F08", "F12"])
    assert set(mixed.function.constants) == {"u", "kind"}
    assert Mixed(["F08"]).function.constants == ("u",)


def test_a_single_kind_needs_no_selection():
    mixed = Mixed(["F12"])
    assert "where" not in mixed.function.formula
    assert mixed.function.expr is catalogue["F12"].expr


def test_the_kind_constant_avoids_parameter_names():
    mixed = Mixed(["kind*x", "kind_*x**2"])
    assert mixed.kind_name == "kind__"
    assert set(mixed.function.parameters) == {"kind", "kind_"}


def test_the_surrogate_gradient_of_rect_ada_works_in_a_mixed_function():
    from ftnn.formula._numpy import evaluate

    slope = Mixed(["F07", "F06"]).function.slope("p")
    values = {"x": 2.0, "p": -0.5, "u": -1.0}
    assert evaluate(slope, {**values, "kind": 0}) == -2
    assert evaluate(slope, {**values, "kind": 1}) == 0


def test_separable_kinds_share_matrix_products():
    plan = Mixed(["F03", "F04", "F06"]).function.plan
    assert plan.kind == "gemm"
    assert plan.gemms == 3  # x, x**2 and x**3
    assert Mixed(["F03", "F12"]).function.plan.kind == "fused"


def test_kinds_are_assigned_by_rows_columns_or_array():
    assert Mixed(["F01", "F02"], "rows").kinds(2, 3).tolist() == [[0, 0], [1, 1], [0, 0]]  # pyright: ignore
    assert Mixed(["F01", "F02"], "columns").kinds(3, 2).tolist() == [[0, 1, 0], [0, 1, 0]]  # pyright: ignore
    assert Mixed(["F01", "F02"]).kinds(3, 2) is None
    table = [[0, 1, 1], [1, 0, 0]]
    assert Mixed(["F01", "F02"], table).kinds(3, 2).tolist() == table  # pyright: ignore
    assert Mixed(["F01", "F02"], np.uint8(table)).kinds(3, 2).tolist() == table  # pyright: ignore


@pytest.mark.parametrize(
    ("assign", "error", "message"),
    [
        ("diagonal", FtnnError, "unknown assign='diagonal'; expected one of random, rows, columns"),
        ([[0, 2]], FtnnError, "assign has kinds 0 to 2; expected 0 to 1"),
        ([[0, -1]], FtnnError, "assign has kinds -1 to 0"),
        ([0, 1], ShapeError, r"assign must be an integer array \(out, in\)"),
        ([[0.0, 1.0]], ShapeError, "not float64"),
        (3, ShapeError, "an integer array"),
        (None, ShapeError, "an integer array"),
    ],
)
def test_an_invalid_assignment_is_refused(assign: Any, error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        Mixed(["F01", "F02"], assign)


def test_an_assignment_of_the_wrong_shape_is_refused():
    with pytest.raises(ShapeError, match=r"assign has shape .1, 2., but the matrix is .out, in. = .3, 2."):
        Mixed(["F01", "F02"], [[0, 1]]).kinds(2, 3)


def test_an_empty_mixture_is_refused():
    with pytest.raises(FtnnError, match="needs at least one function"):
        Mixed([])


def test_a_name_that_is_a_parameter_and_a_constant_is_refused():
    with pytest.raises(FormulaError, match="'u' is a parameter of one kind and a constant of another"):
        Mixed(["F08", "u*x"])


def test_an_invalid_kind_is_refused():
    with pytest.raises(FormulaError):
        Mixed(["F01", "p*foo(x)"])
    with pytest.raises(TypeError):
        Mixed([ftnn.Mixed(["F01"])])  # pyright: ignore[reportArgumentType]


def test_the_repr_of_mixed_shows_kinds_and_assignment():
    assert repr(Mixed(["p**2*x"], "rows")) == "Mixed([Function('p**2*x')], assign='rows')"
    assert repr(Mixed(["p**2*x"], [[0]])) == "Mixed([Function('p**2*x')], assign=<(1, 1) array>)"


def test_memory_functions_can_be_mixed():
    mixed = Mixed(["memory", "tanh(p*x + C)"])
    assert mixed.function.has_memory


def test_a_parameter_that_folding_removes_from_its_kind_stays_a_parameter():
    mixed = Mixed(["p*x", "where(r >= p, x, x)*p", "x*(q + u)**0"])
    assert mixed.function.parameters == ("p", "r", "q", "u")
