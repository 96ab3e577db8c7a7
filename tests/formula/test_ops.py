from dataclasses import replace

import numpy as np
import pytest
import torch

from ftnn.formula._expr import call, symbol
from ftnn.formula._numpy import evaluate as by_numpy
from ftnn.formula._ops import BACKENDS, FUNCTIONS, OPS, check, is_native
from ftnn.kernels.eager.evaluation import evaluate as by_torch
from tests.formula import oracle, rows

ASKED_FOR = """exp log sqrt abs sign sin cos tan cot sec csc sinh cosh tanh coth sech csch logistic rect
rect_ada softplus relu gauss erf min max where"""


# ---- every row is right


def test_the_table_has_all_operations_of_the_language():
    assert set(ASKED_FOR.split()) <= set(FUNCTIONS)
    assert {op.symbol for op in OPS.values()} >= {"+", "-", "*", "/", "**", "<", "<=", ">", ">=", "==", "!="}


def test_every_operation_has_a_meaning_to_be_checked_against():
    assert set(oracle.MEANING) == set(OPS)
    assert set(rows.BACKENDS) == set(BACKENDS)


@pytest.mark.parametrize("backend", rows.BACKENDS)
@pytest.mark.parametrize("op", OPS)
def test_every_backend_computes_what_the_operation_means(op: str, backend: str):
    assert rows.value_fault(op, backend) == ""


@pytest.mark.parametrize("op", OPS)
def test_every_derivative_is_that_of_what_the_operation_means(op: str):
    assert rows.slope_fault(op) == ""


@pytest.mark.parametrize("op", [op for op, row in OPS.items() if not row.is_comparison and op != "where"])
def test_a_nan_that_comes_in_comes_out(op: str):
    names = rows.arguments(op)
    for hit in names:
        at = {name: np.array([np.nan if name == hit else 0.7]) for name in names}
        expr = call(op, *map(symbol, names))
        assert np.isnan(by_numpy(expr, at)).all()
        assert by_torch((expr,), {n: torch.from_numpy(v) for n, v in at.items()})[0].isnan().all()
        assert np.isnan(rows.by_triton(expr, at)).all()


@pytest.mark.parametrize("backend", ["numpy", "torch", "triton"])
def test_no_function_overflows_where_its_value_is_moderate(backend: str):
    limits = {
        "sech": 0,
        "csch": 0,
        "coth": 1,
        "tanh": 1,
        "logistic": 1,
        "gauss": 0,
        "erf": 1,
        "softplus": 800,
    }
    for op, limit in limits.items():
        found = rows.BACKENDS[backend](call(op, symbol("a")), {"a": np.array([800.0, 30000.0])[:1]})
        assert np.allclose(np.asarray(found, float), limit), op


# ---- the checks above can fail


@pytest.mark.parametrize("backend", rows.BACKENDS)
@pytest.mark.parametrize("op", OPS)
def test_a_row_that_is_broken_in_a_backend_is_noticed(op: str, backend: str):
    with rows.table_with(rows.broken(op, backend)):
        assert rows.value_fault(op, backend) != ""
    assert rows.value_fault(op, backend) == ""  # whole again: nothing of it was remembered


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("op", OPS)
def test_and_only_those_rows_are_blamed_that_are_spelled_with_it(op: str, backend: str):
    concerned = {other for other in OPS if rows.uses(other, op, backend)}
    with rows.table_with(rows.broken(op, backend)):
        blamed = {other for other in OPS if rows.value_fault(other, backend)}
    assert op in blamed
    assert blamed <= concerned


@pytest.mark.parametrize(("op", "argument"), [(op, n) for op, row in OPS.items() for n in range(row.arity)])
def test_a_broken_derivative_is_noticed_and_no_other_row_blamed(op: str, argument: int):
    with rows.table_with(rows.with_broken_slope(op, argument)):
        assert {other for other in OPS if rows.slope_fault(other)} == {op}


def test_a_broken_decree_is_noticed():
    for decree in (None, ("0",), ("where(a < 0, 0, 1)",)):
        with rows.table_with(replace(OPS["rect_ada"], by_parameter=decree)):
            assert {op for op in OPS if rows.slope_fault(op)} == {"rect_ada"}
    with rows.table_with(replace(OPS["rect"], by_parameter=("1",))):
        assert {op for op in OPS if rows.slope_fault(op)} == {"rect"}


# ---- the table refuses holes


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_table_without_a_spelling_is_refused(backend: str):
    with pytest.raises(ValueError, match=f"'sin' has no spelling for {backend}"):
        check([replace(OPS["sin"], **{backend: ""})])


@pytest.mark.parametrize(
    "change",
    [
        {"derivative": ()},
        {"derivative": ("cos(a)", "0")},
        {"derivative": ("",)},
        {"by_parameter": ()},
        {"by_parameter": ("1", "1")},
        {"domain": ()},
        {"domain": ((1.0, 1.0),)},
        {"domain": ((2.0, -2.0),)},
    ],
)
def test_a_table_without_a_derivative_or_a_test_domain_is_refused(change: dict[str, object]):
    with pytest.raises(ValueError, match="operation 'sin'"):
        check([replace(OPS["sin"], **change)])


def test_a_table_with_a_name_twice_is_refused():
    with pytest.raises(ValueError, match="'sin' is in the table twice"):
        check([OPS["sin"], OPS["cos"], OPS["sin"]])


def test_the_table_itself_is_complete_and_cannot_be_changed():
    assert check(OPS.values()) == OPS
    with pytest.raises(TypeError):
        OPS["sin"] = OPS["cos"]  # pyright: ignore[reportIndexIssue]


def test_a_name_is_a_backends_own_and_anything_else_is_a_formula():
    assert is_native("sin")
    assert is_native("special.expit")
    assert not is_native("1/cosh(a)")
    assert not is_native("exp(-a)")
