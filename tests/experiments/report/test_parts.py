"""The other parts of the page: curves, other functions, formulas, pictures, computing time."""

import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import sympy

from ftnn.experiments import Store
from ftnn.experiments.paper.mnist.cells import Layerwise
from ftnn.experiments.report import collect, page
from ftnn.experiments.report.others import reason_of
from ftnn.experiments.report.pi import binned, write_pi
from ftnn.experiments.report.svg import Frame, path, round_ticks
from ftnn.experiments.report.texts import seconds, signed
from ftnn.formula import catalogue
from ftnn.formula._numpy import evaluate
from tests.experiments import stored
from tests.experiments.report.typesetting import FILE, to_sympy, typeset


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "s.sqlite") as opened:
        yield opened


# --- π ---


def test_a_binned_curve_keeps_its_mean_and_its_jumps():
    values = np.full(5000, 50.0)
    values[1234] = 100.0
    middles, means, lows, highs = binned(values)
    assert len(middles) == 200
    assert means.mean() == pytest.approx(values.mean())
    assert highs.max() == 100.0
    assert lows.min() == 50.0
    assert middles[0] == 13.0  # of epochs 1 to 25
    assert middles[-1] == 4988.0


def test_a_short_curve_is_not_binned():
    middles, means, _, _ = binned(np.array([10.0, 20.0, 40.0]))
    assert middles.tolist() == [1, 2, 3]
    assert means.tolist() == [10, 20, 40]


def test_curves_are_grouped_in_panels_by_pairs(store: Store):
    stored.curve(store, 256, 400, [10.0, 99.5, 98.0])
    stored.curve(store, 128, 200, [10.0, 20.0])
    stored.curve(store, 128, 200, [10.0, 30.0], keep_state=True)
    stored.curve(store, 128, 200, [10.0, 25.0], seed=1)  # listed, but not drawn
    report = collect(store)
    assert [(c.name, c.reached, c.best_of_last) for c in report.curves] == [
        ("128H-200D, carried", None, 30.0),
        ("128H-200D, reset", None, 20.0),
        ("128H-200D, reset, seed 1", None, 25.0),
        ("256H-400D, reset", 2, 99.5),
    ]
    text = page(report)
    assert text.count("Accuracy against epoch of") == 3
    assert "<title>256H-400D, reset</title>" in text
    assert "<title>128H-200D, reset, seed 1</title>" not in text


def test_all_curves_of_a_state_are_drawn_in_one_plot(store: Store, tmp_path: Path):
    for hidden in (128, 256):
        for pairs in (200, 400):
            stored.curve(store, hidden, pairs, [10.0, 50.0, 90.0])
    stored.curve(store, 128, 200, [20.0, 30.0], keep_state=True)
    carried, reset = write_pi(collect(store).curves, tmp_path / "new")
    assert (carried.name, reset.name) == ("pi-carried.svg", "pi-reset.svg")
    root = ElementTree.fromstring(reset.read_text())
    titles = [each.text for each in root.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == [f"{h}H-{p}D, reset" for p in (200, 400) for h in (128, 256)]
    assert {each.text for each in root.iter("{http://www.w3.org/2000/svg}text")} >= {"128H-200D", "256H-400D"}


# --- other functions ---


def test_custom_functions_and_other_depths_are_listed_separately(store: Store):
    text = "where(x < p, q, r)*x"
    stored.cell(store, text, "relu", 1, 0, ft=None, failed="a parameter was not finite in epoch 1 of layer 1")
    stored.cell(
        store, text, "relu", 1, -1, ft=9.8, failed="the final accuracy, 9.80 %, is no better than chance"
    )
    stored.cell(store, text, "relu", 1, -2, ft=91.0)
    stored.cell(store, "F12", "relu", 3, -2, ft=95.0)  # a depth that is not in the paper
    report = collect(store)
    (own,), (other,) = report.own, report.others
    assert (own.verdict, own.failed, own.best) == ("trains at some γ", 2, (91.0, -2))
    assert sorted(own.reasons) == [("a parameter was not finite", 1), ("no better than chance", 1)]
    assert (other.function, other.layers) == ("F12", 3)
    assert report.summary.done == 0
    shown = page(report)
    assert "where(x &lt; p, q, r)*x" in shown
    assert "where(x < p" not in shown


def test_reasons_of_failures_are_grouped_without_numbers():
    assert reason_of("the loss was not finite in epoch 3 of layer 2") == "the loss was not finite"


# --- formulas and pictures ---


@pytest.mark.parametrize("name", list(catalogue))
def test_typeset_formulas_have_the_values_of_the_derivatives(name: str):
    function = catalogue[name]
    rng = np.random.default_rng(7)
    names = ("x", "C", *function.parameters, *function.constants)
    symbolic: Any = sympy
    meanings: dict[str, Callable[[Any], Any]] = {
        "logistic": lambda a: 1 / (1 + symbolic.exp(-a)),
        "rect": lambda a: symbolic.Max(0, a),
        "rect_ada": lambda a: symbolic.Max(0, a),
        "rect_slope": lambda a: symbolic.Piecewise((1, a >= 0), (0, True)),
    }
    for expr in (function.expr, *(function.slope(each) for each in ("x", *function.parameters))):
        formula = to_sympy(expr)
        for called, meaning in meanings.items():
            formula = formula.replace(sympy.Function(called), meaning)
        for _ in range(5):
            values = {each: float(rng.uniform(-2, 2)) for each in names}
            value = formula.subs({sympy.Symbol(each): number for each, number in values.items()})
            assert float(value) == pytest.approx(float(evaluate(expr, values)), rel=1e-9, abs=1e-12)


def test_the_stored_formulas_are_up_to_date():
    expected = {name: [list(line) for line in typeset(function)] for name, function in catalogue.items()}
    message = "run `python -m tests.experiments.report.typesetting`"
    assert json.loads(FILE.read_text("utf-8")) == expected, message


def test_formulas_are_mathml_for_browsers():
    lines = dict(zip("FxPQR", typeset(catalogue["F12"]), strict=True))
    assert "<msup>" not in lines["F"][1]
    assert re.sub(r"<[^>]*>|&\w+;", "", lines["F"][1]) == "psin(qx+r)"
    assert re.sub(r"<[^>]*>|&\w+;", "", lines["x"][0]) == "∂F∂x"
    assert "<mi>e</mi>" in typeset(catalogue["F05"])[0][1]


def test_the_strongest_trained_connections_are_drawn(store: Store):
    rng = np.random.default_rng(0)
    p = rng.uniform(-0.1, 0.1, (784, 128)).astype(np.float32)
    p[298, 5] = 2.0  # p²x changes by 4 between 0 and 1
    p[0, 7] = 3.0  # stronger, but in a corner that is always dark
    arrays = {"hidden.0.theta.p": p, "hidden.0.bias": np.zeros(128, np.float32)}
    stored.cell(store, "F01", "relu", 1, -2, ft=96.0, lwt=96.0, arrays=arrays)
    stored.cell(store, "F01", "tanh", 1, -1, ft=97.0, lwt=96.0)  # better, but without parameters
    stored.cell(store, "F02", "tanh", 1, -1, ft=97.0, lwt=96.0)
    (trained,) = collect(store).trained
    assert trained.function == "F01"
    assert trained.formula == "p**2*x, p = 2"
    assert trained.picture.count('<path class="line') == 5


def test_lines_are_interrupted_where_a_function_is_not_finite():
    frame = Frame(100, 100, (0, 1), (0, 1), 0, 0, 0, 0)
    nan = math.nan
    assert path(frame, np.array([0, 0.5, 0.75, 1]), np.array([0, nan, 1, 0.5])) == "M0 100M75 0L100 50"


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-0.013, 0.027), (1e-9, 2e-9), (-1e6, 3e7), (0.99, 1.01)])
def test_ticks_are_within_the_range(low: float, high: float):
    ticks = round_ticks(low, high, 4)
    assert 2 <= len(ticks) <= 10
    assert all(low - 1e-6 * (high - low) <= tick <= high + 1e-6 * (high - low) for tick in ticks)


def test_numbers_are_formatted_for_people():
    assert [signed(v) for v in (0.0, -0.001, 0.5, -1.25, None)] == ["0.00", "0.00", "+0.50", "−1.25", ""]
    assert [seconds(v) for v in (1.25, 180, 9000, None)] == ["1.2 s", "3.0 min", "2.5 h", ""]


# --- time ---


def test_the_time_of_shared_stages_is_counted_once(store: Store):
    for layers, alone in ((1, 30.0), (2, 60.0)):
        stored.cell(store, "F03", "relu", layers, -2, ft=97.0, lwt=97.0, seconds=10.0, alone=alone)
    ft = next(row.task for row in store.rows() if row.task.cell.hidden_layers == 2)  # pyright: ignore
    for task in ft.chain:
        assert isinstance(task, Layerwise)
        store.add(stored.row(task, None, lwt=97.0, seconds=20.0, alone=None), None, None)
    # An imported cell: its total time is known, but not its stages.
    stored.cell(store, "F04", "relu", 1, -3, ft=97.0, lwt=97.0, seconds=0.0, alone=7.0, versions={})
    times = collect(store).times
    assert times.seconds == 10 + 10 + 20 + 20
    assert (times.imported, times.imported_seconds) == (1, 7.0)
    assert times.saved == 30 + 60 - 60
    assert times.per_cell == 30.0
    assert [(part.name, part.stages, part.seconds) for part in times.parts] == [
        ("layer-wise, layer 1", 1, 20.0),
        ("layer-wise, layer 2", 1, 20.0),
        ("fine-tuning of 1", 1, 10.0),
        ("fine-tuning of 2", 1, 10.0),
    ]
    assert [(f.function, f.by_depth) for f in times.functions] == [
        ("F03", (30.0, 60.0)),
        ("F04", (7.0, None)),
    ]
