"""The oracle is correct, accepts correct layers, and catches broken ones."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.fuzz import broken, check, expected
from tests.fuzz.bounded import FORMATS, Array
from tests.fuzz.cases import Case, Run, case
from tests.fuzz.expression import Node, X, call, name, names, parts
from tests.fuzz.formulas import Formula, formula
from tests.fuzz.oracle import evaluate

P, Q = name("p"), name("q")
WIDE = FORMATS["float64"]


def drawn(seed: int) -> tuple[Node, dict[str, Array]]:
    random = np.random.default_rng(seed)
    tree = formula(random, memory=seed % 5 == 0).tree
    values = {n: random.uniform(0.3, 2, 40) * random.choice([-1, 1], 40) for n in (*"xCpqr", "kind")}
    return tree, {**values, "u": np.ones(40)}


def floats(*numbers: float) -> Array:
    return np.array(numbers, np.float32)


def simple_case(tree: Node, x: object, form: str = "float32", **matrices: object) -> Case:
    """A layer with one output for x, (rows, in), with matrices of a single repeated number."""
    narrow = FORMATS[form].narrow
    rows = np.asarray(x, narrow)
    filled = {n: np.full((rows.shape[1], 1), value, narrow) for n, value in matrices.items()}
    run = Run("auto", np.arange(len(rows)), np.ones((len(rows), 1), narrow))
    return Case(0, "Transfer", FORMATS[form], Formula("simple", (tree,)), rows, filled, runs=[run])


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_values_match_python_evaluating_the_text(first: int):
    for seed in range(first, first + 50):
        tree, values = drawn(seed)
        value = evaluate(WIDE, tree, values).value
        read = np.broadcast_to(broken.read_by_python(tree, values), 40)
        sure = np.broadcast_to((value.flags == 0) & np.isfinite(value.value), 40)
        with np.errstate(all="ignore"):
            off = abs(read - value.value) / (value.allowed + 1e-290)
        assert np.all(off[sure] <= 1), str(tree)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 200, 50))
def test_slopes_match_numerical_differentiation(first: int):
    compared = 0
    for seed in range(first, first + 50):
        tree, values = drawn(seed)
        if any(part.op == "rect_ada" for part in parts(tree)):
            continue  # has a surrogate slope
        dual = evaluate(WIDE, tree, values)
        for by in (each for each in names(tree) if each != "pi"):
            steps = [evaluate(WIDE, tree, {**values, by: values[by] + h}).value for h in (-1e-6, 1e-6)]
            below, above = (np.broadcast_to(step.value, 40) for step in steps)
            slope = dual.slopes.get(by)
            value = np.zeros(40) if slope is None else np.broadcast_to(slope.value, 40)
            flags = np.zeros(40) if slope is None else np.broadcast_to(slope.flags, 40)
            with np.errstate(all="ignore"):
                curved = abs(above + below - 2 * np.broadcast_to(dual.value.value, 40)) / 1e-6
                off = abs((above - below) / 2e-6 - value)
            usable = (flags == 0) & np.isfinite(curved + value) & (curved < 1e-3)
            usable &= (abs(below) < 1e3) & (abs(value) < 1e3)
            assert np.all(off[usable] <= 1e-2 * (1 + abs(value[usable]))), (str(tree), by)
            compared += int(usable.sum())
    assert compared > 2000


def test_the_surrogate_slope_applies_to_parameters_only():
    slopes = evaluate(WIDE, call("rect_ada", P * X), {"x": np.array([2.0]), "p": np.array([-3.0])}).slopes
    assert slopes["p"].value == [2]
    assert slopes["x"].value == [0]


def test_slopes_at_ties_are_the_documented_ones():
    values = {"x": np.array([0.0]), "p": np.array([0.0])}

    def slope(tree: Node, by: str) -> float:
        slopes = evaluate(WIDE, tree, values).slopes
        return float(slopes[by].value[0])

    assert slope(call("rect", X), "x") == 1
    assert slope(call("relu", X), "x") == 0
    assert slope(call("abs", X), "x") == 0
    assert slope(call("max", X, P), "x") == 1
    assert slope(call("max", X, P), "p") == 0
    assert slope(call("min", P, X), "p") == 1


def test_an_inherent_loss_of_digits_is_allowed_but_no_more():
    tree = (X + 1e6) - 1e6
    value = evaluate(FORMATS["float32"], tree, {"x": floats(0.01)}).value
    assert value.allowed > abs(np.float32(0.01) + np.float32(1e6) - np.float32(1e6) - 0.01)
    assert value.allowed < 100
    exact = evaluate(FORMATS["float32"], X * 2, {"x": floats(0.01)}).value
    assert exact.allowed < 1e-6


def test_entries_that_rounding_decides_are_skipped():
    form = FORMATS["float32"]
    values = {"x": floats(0.1, 0.7), "p": floats(0.7, 0.7)}
    sharp = evaluate(form, call("step", X * P - 0.49), values).value
    assert list(sharp.flags) == [0, 1]
    assert list(evaluate(form, 1 / (X * P - 0.49), values).value.flags) == [0, 1]
    assert list(evaluate(form, call("step", X - P), values).value.flags) == [0, 0]  # an exact tie


def test_intermediate_overflow_is_skipped_unless_the_result_overflows_too():
    lost = simple_case(P * P / P, [[1.0], [1.0]], p=1e30)
    kept = simple_case(P * X * X, [[1e30], [1.0]], p=2.0)
    assert expected.Truth(lost)(lost.runs[0])[0].rule.ravel().tolist() == [expected.SKIPPED] * 2
    rules = expected.Truth(kept)(kept.runs[0])[0].rule.ravel().tolist()
    assert rules == [expected.NOT_FINITE, expected.FINITE]


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 120, 30))
def test_a_layer_that_evaluates_the_formula_as_written_passes(first: int):
    for seed in range(first, first + 30):
        example = case(seed)
        if example.layer == "Transfer":
            failures = check.check(example, broken.as_written).failures
            assert not failures, failures[0]


SILENT = np.zeros((5, 16))
SILENT[2] = 1


@pytest.mark.parametrize(
    ("layer", "example"),
    [
        (broken.skipping_zeros, simple_case(1 / (X**2 + P**2), SILENT, p=1e-4)),
        (broken.multiplied_out, simple_case(P * (X - Q) ** 4, [[100.0]], p=1.0, q=100.5)),
        (broken.without_nan, simple_case(P + 0 * X, [[np.nan], [1.0]], p=1.0)),
        (broken.without_nan, simple_case(P * (X - X), [[np.inf], [1.0]], p=1.0)),
        (broken.without_signs_of_zero, simple_case(Q * call("tanh", P / X), [[-0.0]], p=1.0, q=2.0)),
        (broken.with_a_small_error, simple_case(P * call("sin", Q * X), [[0.3], [2.0]], p=1.0, q=2.0)),
        (broken.one_batch_for_all, simple_case(P * X, [[1.0], [2.0], [3.0]], p=1.0)),
    ],
)
def test_a_broken_layer_is_caught(layer: check.Results, example: Case):
    for form in FORMATS.values():
        if layer is broken.multiplied_out and form.name == "float64":
            continue  # has enough digits for this one
        narrow = replace(
            example,
            form=form,
            x=example.x.astype(form.narrow),
            matrices={n: m.astype(form.narrow) for n, m in example.matrices.items()},
            runs=[replace(run, errors=run.errors.astype(form.narrow)) for run in example.runs],
        )
        assert not check.check(narrow, broken.as_written).failures
        assert check.check(narrow, layer).failures


def test_a_failure_is_shrunk_and_printed_as_a_script():
    from tests.fuzz import report

    rows = np.random.default_rng(0).normal(size=(20, 9))
    rows[7, 3] = np.nan
    big = simple_case(call("tanh", P * X) + Q * call("sin", X), rows, p=1.0, q=2.0)
    failure = check.check(big, broken.without_nan).failures[0]
    small = check.shrunk(failure, broken.without_nan)
    assert (len(small.run.rows), small.case.inputs) == (1, 1)
    assert len(str(small.case.formula.tree)) < len(str(big.formula.tree))
    text = report.script(small)
    ast.parse(text)
    assert "nan" in text
    assert "must be NaN" in report.line(small)


def test_cases_are_reproducible_and_differ_between_seeds():
    one, again, other = case(3), case(3), case(4)
    assert one.formula == again.formula != other.formula
    assert one.x.tobytes() == again.x.tobytes()


def test_cases_cover_special_values_layouts_and_operations():
    cases = [case(seed) for seed in range(400)]
    numbers = {form: np.concatenate([c.x.ravel() for c in cases if c.form.name == form]) for form in FORMATS}
    for form, x in numbers.items():
        assert np.isnan(x).any(), form
        assert np.isinf(x).any(), form
        assert ((x == 0) & np.signbit(x)).any(), form
        assert ((x != 0) & (abs(x) < np.finfo(form).tiny)).any(), form
        assert (abs(x) == np.dtype(form).type(1e30)).any(), form
    assert {c.layer for c in cases} == {"Transfer", "Partial", "Memory"}
    assert {run.threads for c in cases for run in c.runs} == {1, 2}
    assert {run.backend for c in cases for run in c.runs} == {"auto", "cpu", "reference"}
    assert {0.0, 1.0} <= {c.zeros for c in cases}
    ops = {part.op for c in cases for part in parts(c.formula.tree)}
    assert (
        len(ops) == 2 + 6 + 6 + 1 + 26 + 2
    )  # leaves, infix and neg, comparisons, where, functions, min and max


def test_the_oracle_does_not_import_ftnn():
    for file in ("expression", "bounded", "oracle", "expected", "cases", "formulas"):
        text = (Path(__file__).parent / f"{file}.py").read_text("utf-8")
        for node in ast.walk(ast.parse(text)):
            imported = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            imported += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not {module.partition(".")[0] for module in imported} & {"ftnn", "torch"}, file
