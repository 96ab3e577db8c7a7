from dataclasses import replace

import numpy as np
import pytest
import torch

from ftnn.formula._expr import call, symbol
from ftnn.formula._numpy import evaluate as by_numpy
from ftnn.formula._ops import FUNCTIONS, OPS, TARGETS, check, is_native
from ftnn.kernels.eager.evaluation import evaluate as by_torch
from tests.formula import oracle, rows

REQUIRED = """exp log sqrt abs sign sin cos tan cot sec csc sinh cosh tanh coth sech csch logistic rect
rect_ada softplus relu gauss erf min max where"""


# ---- every row is correct


def test_the_table_has_every_operation_of_the_language():
    assert set(REQUIRED.split()) <= set(FUNCTIONS)
    assert {op.symbol for op in OPS.values()} >= {"+", "-", "*", "/", "**", "<", "<=", ">", ">=", "==", "!="}


def test_every_operation_has_an_oracle():
    assert set(oracle.MEANING) == set(OPS)
    assert set(rows.TARGETS) == set(TARGETS)


@pytest.mark.parametrize("target", rows.TARGETS)
@pytest.mark.parametrize("op", OPS)
def test_every_target_computes_the_operation(op: str, target: str):
    assert rows.value_fault(op, target) == ""


@pytest.mark.parametrize("op", OPS)
def test_every_derivative_matches_the_oracle(op: str):
    assert rows.slope_fault(op) == ""


@pytest.mark.parametrize("op", [op for op, row in OPS.items() if not row.is_comparison and op != "where"])
def test_nan_propagates(op: str):
    names = rows.arguments(op)
    for hit in names:
        at = {name: np.array([np.nan if name == hit else 0.7]) for name in names}
        expr = call(op, *map(symbol, names))
        assert np.isnan(by_numpy(expr, at)).all()
        assert by_torch((expr,), {n: torch.from_numpy(v) for n, v in at.items()})[0].isnan().all()
        assert np.isnan(rows.by_triton(expr, at)).all()


@pytest.mark.parametrize("target", ["numpy", "torch", "triton"])
def test_no_function_overflows_where_its_value_is_moderate(target: str):
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
        value = rows.TARGETS[target](call(op, symbol("a")), {"a": np.array([800.0])})
        assert np.allclose(np.asarray(value, float), limit), op


# ---- these checks can fail


@pytest.mark.parametrize("target", rows.TARGETS)
@pytest.mark.parametrize("op", OPS)
def test_a_broken_spelling_is_detected(op: str, target: str):
    with rows.table_with(rows.broken(op, target)):
        assert rows.value_fault(op, target) != ""
    assert rows.value_fault(op, target) == ""  # nothing of the broken row was cached


@pytest.mark.parametrize("target", ["numpy", "torch"])
@pytest.mark.parametrize("op", OPS)
def test_a_broken_spelling_affects_only_rows_that_use_it(op: str, target: str):
    users = {other for other in OPS if rows.uses(other, op, target)}
    with rows.table_with(rows.broken(op, target)):
        faulty = {other for other in OPS if rows.value_fault(other, target)}
    assert op in faulty
    assert faulty <= users


@pytest.mark.parametrize(("op", "argument"), [(op, n) for op, row in OPS.items() for n in range(row.arity)])
def test_a_broken_derivative_is_detected_in_its_own_row_only(op: str, argument: int):
    with rows.table_with(rows.with_broken_slope(op, argument)):
        assert {other for other in OPS if rows.slope_fault(other)} == {op}


def test_a_broken_surrogate_gradient_is_detected():
    for surrogate in (None, ("0",), ("where(a < 0, 0, 1)",)):
        with rows.table_with(replace(OPS["rect_ada"], by_parameter=surrogate)):
            assert {op for op in OPS if rows.slope_fault(op)} == {"rect_ada"}
    with rows.table_with(replace(OPS["rect"], by_parameter=("1",))):
        assert {op for op in OPS if rows.slope_fault(op)} == {"rect"}


# ---- the table must be complete


@pytest.mark.parametrize("target", TARGETS)
def test_a_table_without_a_spelling_is_refused(target: str):
    with pytest.raises(ValueError, match=f"'sin' has no spelling for {target}"):
        check([replace(OPS["sin"], **{target: ""})])


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


def test_a_table_with_a_duplicate_name_is_refused():
    with pytest.raises(ValueError, match="'sin' is in the table twice"):
        check([OPS["sin"], OPS["cos"], OPS["sin"]])


def test_the_table_is_complete_and_immutable():
    assert check(OPS.values()) == OPS
    with pytest.raises(TypeError):
        OPS["sin"] = OPS["cos"]  # pyright: ignore[reportIndexIssue]


def test_a_native_spelling_is_a_name_not_a_formula():
    assert is_native("sin")
    assert is_native("special.expit")
    assert not is_native("1/cosh(a)")
    assert not is_native("exp(-a)")
