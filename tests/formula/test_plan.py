import os
import subprocess
import sys
from pathlib import Path

import pytest

from ftnn import Function, catalogue
from ftnn.formula import Plan
from ftnn.formula._expr import folded, names, number
from ftnn.formula._numpy import evaluate
from ftnn.formula._text import to_text
from tests.formula.separable import CATALOGUE, SEPARABLE, WRITTEN


def plan(formula: str) -> Plan:
    return (catalogue[formula] if formula in catalogue else Function(formula)).plan


# ---- matrix products


@pytest.mark.parametrize(("formula", "gemms"), SEPARABLE.items())
def test_a_sum_of_products_becomes_few_matrix_products(formula: str, gemms: int):
    result = plan(formula)
    assert result.kind == "gemm", result.reason
    assert result.gemms == gemms
    assert f"{gemms} matrix product" in result.reason


@pytest.mark.parametrize("formula", SEPARABLE)
def test_each_factor_has_only_parameters_or_only_the_input(formula: str):
    result = plan(formula)
    for g, h in result.terms:
        assert "x" not in names(g)
        assert set(names(h)) == {"x"}
    assert result.constant is None or "x" not in names(result.constant)
    assert result.common is None or set(names(result.common)) == {"x"}


@pytest.mark.parametrize("formula", SEPARABLE)
def test_the_terms_add_up_to_the_function(formula: str):
    function = catalogue[formula] if formula in catalogue else Function(formula)
    total = function.plan.constant or number(0)
    for g, h in function.plan.terms:
        total = folded("add", total, folded("mul", g, h))
    if function.plan.common is not None:
        total = folded("add", total, function.plan.common)
    values = dict(zip((*function.parameters, *function.constants), (0.7, -1.3, 0.4, 1.0), strict=False))
    for x in (-0.8, 0.35, 1.9):
        if formula == "p*x**2.5" and x < 0:
            continue
        expected = evaluate(function.expr, {"x": x, **values})
        assert evaluate(total, {"x": x, **values}) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_the_number_of_matrix_products_of_known_functions():
    assert {name: plan(name).gemms for name in ("F01", "F03", "F04")} == {"F01": 1, "F03": 2, "F04": 3}
    assert plan("p*x + q").reason == "it is a sum of g(p)·h(x): 1 matrix product and a constant"
    assert plan("p*sin(x + r)").gemms == 2
    assert plan("p*exp(x + q)").gemms == 1
    assert [name for name in catalogue if plan(name).kind == "gemm"] == list(CATALOGUE)


def test_there_are_at_least_60_separable_formulas():
    assert len(WRITTEN) >= 60


# ---- fused


@pytest.mark.parametrize(
    ("formula", "reason"),
    [
        ("F05", "exp(q*x) mixes x with parameters"),
        ("F08", "rect(p*x + q) mixes x with parameters"),
        ("F12", "sin(q*x + r) mixes x with parameters"),
        ("F15", "cosh(q*x + r) mixes x with parameters"),
        ("memory", "it uses C, its own previous value"),
        ("p*x + tanh(x - q)", "tanh(x - q) mixes x with parameters"),
        ("p/(x + q)", "p/(x + q) mixes x with parameters"),
        ("x**p", "x**p mixes x with parameters"),
        ("F19", "(x - q)**2 would lose digits if it were multiplied out"),
        ("F20", "(x - q)**2 would lose digits if it were multiplied out"),
        ("(x - q)**5", "(x - q)**5 would lose digits if it were multiplied out"),
        ("p*(x + q)**4", "(x + q)**4 would lose digits if it were multiplied out"),
        ("(p - x)*(q - x)", "(p - x)*(q - x) would lose digits if it were multiplied out"),
        ("p*(x - q)*(x - q)", "would lose digits if it were multiplied out"),
        ("p*(x - q) + q*(q - x)", "would lose digits if it were multiplied out"),
        ("p*x*(x - 2*q) + p*q**2", "would lose digits if it were multiplied out"),
        ("p*sin(x + q)**2", "sin(x + q)**2 would lose digits if it were multiplied out"),
        ("p*sin(x + q)*cos(x + r)", "would lose digits if it were multiplied out"),
        ("p*sin(x + p)", "sin(x + p) mixes x with parameters"),
        ("p*(exp(x + q) - exp(q))", "would lose digits if it were multiplied out"),
        ("abs(p*exp(x + q))", "abs(p*exp(x + q)) mixes x with parameters"),
        ("p*x*0", "has a factor 0"),
        ("p*x*1e200*1e200", "has a coefficient beyond float32"),
        ("(p + x)**0.5", "(p + x)**0.5 mixes x with parameters"),
        ("abs(x - q)", "abs(x - q) mixes x with parameters"),
        ("where(x > 0, p*x, q*x)", "where(x > 0, p*x, q*x) mixes x with parameters"),
        ("rect_ada(p*x)", "rect_ada(p*x) mixes x with parameters"),
        ("(p*x)**100", "(p*x)**100 mixes x with parameters"),
        ("p*x/x", "divides a factor by itself"),
        ("p*x/0", "p*x/0 divides by zero"),
        ("p*x/(q*x - x*q)", "q*x - x*q has terms that cancel"),
        ("p*x - p*x + q*x", "p*x - p*x has terms that cancel"),
        ("(p + x) - x", "p + x - x has terms that cancel"),
        ("(p + q + r + s + 1)**2*(x + 1 + p)**3*(x + q)**2", "would lose digits"),
    ],
)
def test_a_fused_plan_gives_its_reason(formula: str, reason: str):
    result = plan(formula)
    assert result.kind == "fused"
    assert reason in result.reason
    assert result.terms == ()
    assert result.gemms == 0


def test_large_powers_are_planned_without_large_coefficients():
    assert plan("p*(3*x)**999999999").kind == "gemm"  # x alone stays as written
    assert plan("(3*p*x)**999999999").kind == "fused"
    assert plan("(p + 3*x)**999999999").kind == "fused"


@pytest.mark.parametrize(
    "formula",
    [
        "p*" + "sin(" * 190 + "x + q" + ")" * 190,
        "p*" + "exp(" * 190 + "x + q" + ")" * 190,
        "p*x" + "".join(f" + sin({n}*x + q)" for n in range(2, 50)),
        "*".join(f"(p{n} + x)" for n in range(60)),
        "(" * 100 + "p*x" + ")**2" * 100,
    ],
)
def test_large_formulas_are_planned_quickly(formula: str):
    assert plan(formula).kind in ("gemm", "fused")


# ---- the order of products


@pytest.mark.parametrize(
    "formula", ["F01", "F02", "F03", "F04", "F06", "F07", "F17", "p*sin(x)", "p*x + q", "2*p*x", "p*x + 3"]
)
def test_plans_that_keep_the_products_as_written_are_exact(formula: str):
    assert plan(formula).exact
    assert plan(formula).products == plan(formula).exponentials == ()


@pytest.mark.parametrize(
    "formula",
    [
        "F18",
        "(p*x)**2",
        "p*x*q",
        "p/x",
        "p*x/q",
        "p*exp(x + q)",
        "where(p > 0, x, q)",
        "p*x + p*x**2",
        "p*sin(x + r)",
    ],
)
def test_plans_that_reorder_products_list_their_factors(formula: str):
    assert not plan(formula).exact
    factors = {factor for product in plan(formula).products for factor, _ in product}
    assert factors - {*plan(formula).exponentials}


def test_plans_list_the_factors_of_split_exponentials():
    def exponentials(formula: str) -> list[str]:
        return sorted(to_text(e) for e in plan(formula).exponentials)

    assert exponentials("p*exp(x + q)") == ["exp(q)", "exp(x)"]
    assert exponentials("p*exp(x + q)*exp(2*x)*exp(q)") == ["exp(q)", "exp(x)"]
    assert exponentials("p*exp(x)") == []
    assert [sum(n for _, n in product) for product in plan("p*exp(x + q)**3").products] == [7]


# ---- determinism

_SHOW = """
from ftnn import Function, catalogue
from ftnn.formula._text import to_text
from tests.formula.separable import SEPARABLE
for formula in SEPARABLE:
    plan = (catalogue[formula] if formula in catalogue else Function(formula)).plan
    factors = [factor for product in plan.products for factor, _ in product]
    rest = [plan.constant, plan.common, *factors, *plan.exponentials]
    rest = [to_text(e) for e in rest if e is not None]
    print(formula, [(to_text(g), to_text(h)) for g, h in plan.terms], rest, plan.reason)
"""


def test_plans_do_not_depend_on_the_hash_seed():
    texts: set[str] = set()
    for seed in "1", "12345":
        process = subprocess.run(
            [sys.executable, "-c", _SHOW],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=True,
        )
        texts.add(process.stdout)
    assert len(texts) == 1
    assert texts.pop().count("\n") == len(SEPARABLE)
