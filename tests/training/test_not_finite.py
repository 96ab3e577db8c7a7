# pyright: reportUnknownLambdaType=false
"""Outputs that are not finite never count as a class, a correct answer or a success."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import ftnn
from ftnn import FTNNClassifier, FTNNRegressor
from ftnn.cli import app
from ftnn.errors import DataError
from ftnn.nn import MemoryNetwork
from ftnn.training import fit_sequence, initialise, measure
from ftnn.training._engine_choice import make_engine
from ftnn.training._outcome import NO_CLASS, classes_of
from ftnn.training._problem import make_problem
from ftnn.training._settings import Settings
from tests.training.problems import blobs, fit, network

ROOT = ftnn.Function("p*sqrt(x)", init={"p": (0.1, 1)})  # NaN where x is negative
NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ([1.0, 3.0, 2.0], 1),
        ([2.0, 2.0, 1.0], 0),
        ([NAN, NAN, NAN], NO_CLASS),
        ([NAN, 1.0, 2.0], NO_CLASS),
        ([1.0, 2.0, NAN], NO_CLASS),
        ([0.0, INF, 0.0], NO_CLASS),
        ([0.0, 1.0, -INF], NO_CLASS),
    ],
)
def test_a_row_predicts_the_class_of_its_largest_output_if_all_are_finite(row: list[float], expected: int):
    assert classes_of(torch.tensor([row])).tolist() == [expected]
    for label in range(3):
        accuracy, loss = measure(np.array([row]), np.array([label]), "softmax")
        assert accuracy == 100 * (label == expected)
        assert math.isfinite(loss) == (expected != NO_CLASS)


@pytest.mark.parametrize("engine", ["compiled", "torch"])
def test_a_rate_too_large_for_float32_fails_the_run_without_a_warning(engine: Any):
    x, y = blobs(samples=40)
    net = network(dtype=torch.float32)
    assert fit(net, x, y, gamma=None, learning_rate=1e300, epochs=1, engine=engine).failed is not None


@pytest.mark.parametrize("engine", ["compiled", "torch"])
def test_both_engines_count_samples_without_a_class_as_wrong(engine: str):
    """If a wrong class is at -inf, the loss is finite, so the batch counts, but the sample is not correct."""
    x, y = np.ones((8, 5)), np.array([0, 1] * 4)
    problem = make_problem(x, y, inputs=5, outputs=2, dtype="float64", loss="softmax")
    right: dict[float, int] = {}
    for other in (-50.0, -INF):
        net = network(hidden=(3,), outputs=2)
        with torch.no_grad():
            net.output.weight.zero_()
            net.output.bias.copy_(torch.tensor([0.0, other]))
        trainer = make_engine(engine, net, problem, Settings(gamma=-2, batch_size=4), None)
        (steps,) = trainer.epoch(np.array([0, 2, 4, 6]), np.zeros(1))
        assert steps.finite
        right[other] = steps.right
    assert right == {-50.0: 4, -INF: 0}


@pytest.mark.parametrize("engine", ["compiled", "torch"])
def test_sequences_count_steps_without_a_class_as_wrong(engine: Any):
    accuracies: list[float | None] = []
    for other in (-1.0, -3e38):  # times 12 units: beyond float32
        net = MemoryNetwork(2, 12, 2)
        initialise(net, 0)
        with torch.no_grad():
            net.output.weight.copy_(torch.tensor([[1.0], [other]]).expand(2, 12))
        history = fit_sequence(net, np.ones((5, 2)), np.zeros(5, int), gamma=-20, epochs=1, engine=engine)
        accuracies.append(history.passes[0].accuracy)
    assert accuracies == [100.0, 0.0]


@pytest.mark.parametrize("engine", ["compiled", "torch"])
@pytest.mark.parametrize("share", [1.0, 0.1])
def test_a_run_fails_if_its_outputs_on_test_data_are_not_finite(engine: Any, share: float):
    x, y = blobs(samples=100)
    x = np.abs(x)
    y[:] = y > 0
    test_x, test_y = x.copy(), np.zeros(100, np.int64)  # argmax turns NaN into class 0
    bad_rows = int(100 * share)
    test_x[:bad_rows, 0] = -1.0
    net = network(ROOT, (4,), outputs=2)
    history = fit(net, x, y, gamma=-4, epochs=(2, 1), engine=engine, test=(test_x, test_y))
    assert all(math.isfinite(epoch.loss) for epoch in history.epochs)
    assert all((epoch.test_accuracy or 0) <= 100 - bad_rows for epoch in history.epochs)
    assert history.failed is not None
    assert "outputs are not finite on the test data" in history.failed
    assert history.advice is not None
    # Training does not depend on the test data.
    again = network(ROOT, (4,), outputs=2)
    fit(again, x, y, gamma=-4, epochs=(2, 1), engine=engine)
    assert ftnn.training.digest(again) == ftnn.training.digest(net)


def test_a_regression_fails_if_its_outputs_on_test_data_are_not_finite():
    x = np.abs(blobs(samples=60)[0])
    y = x[:, 0]
    history = fit(network(ROOT, (4,), outputs=1), x, y, gamma=-5, epochs=(2, 0), test=(-x, y))
    assert history.failed is not None
    assert "the final test loss is nan" in history.failed


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_estimators_refuse_to_predict_if_outputs_are_not_finite():
    x, y = blobs(samples=60)
    x = np.abs(x) + 0.1
    bad = x.copy()
    bad[[5, 7, 9], 2] = -1.0
    settings: dict[str, Any] = {"function": ROOT, "epochs": 2, "hidden_layer_sizes": 4, "random_state": 0}
    settings |= {"gamma": -4, "standardise": False}  # inputs stay positive
    for model in (FTNNClassifier(**settings).fit(x, y), FTNNRegressor(**settings).fit(x, y)):
        assert np.isfinite(model.predict(x)).all()
        methods: list[Any] = [model.predict, lambda x, model=model: model.score(x, y)]
        if isinstance(model, FTNNClassifier):
            methods += [model.predict_proba, model.predict_log_proba, model.decision_function]
        for method in methods:
            with pytest.raises(DataError, match=r"not finite for 3 of 60 rows \(the first is row 5"):
                method(bad)


def test_a_validation_loss_that_is_not_finite_is_the_worst_score():
    x = np.arange(20.0)[:, None] / 20
    model = FTNNRegressor(function="F03", epochs=1, hidden_layer_sizes=2, gamma=-6, random_state=0).fit(
        x, x[:, 0]
    )
    epoch = model.history_.epochs[-1]
    for loss, expected in ((NAN, -INF), (INF, -INF), (0.5, 0.0)):
        assert model._validation_score(replace(epoch, test_loss=loss)) == expected


@pytest.mark.parametrize("target", ["kind", "size"])
def test_the_predict_command_says_how_many_rows_have_no_prediction(tmp_path: Path, target: str):
    rng = np.random.default_rng(0)
    rows = [(n, "ab"[n % 2], f"{n % 2 + rng.normal() / 9:.4f}") for n in range(40)]
    table = tmp_path / "t.csv"
    columns = {"kind": 1, "size": 2}
    table.write_text("\n".join([f"x,{target}", *(f"{row[0]},{row[columns[target]]}" for row in rows)]))
    runner, out = CliRunner(), tmp_path / "out"
    trained = runner.invoke(
        app,
        ["train", "--data", str(table), "--target", target, "--function", "p*sqrt(x + 3)", "--width", "4",
         "--epochs", "2", "--gamma", "-6", "--out", str(out), "--json"],
    )  # fmt: skip
    assert trained.exit_code == 0, trained.output
    assert json.loads(trained.stdout)["digest"]
    queries = tmp_path / "queries.csv"
    queries.write_text("x\n3\n-1000\n5\n-2000\n")
    result = runner.invoke(app, ["predict", str(out), str(queries), "--json"])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "not finite for 2 of 4 rows (the first is row 1" in " ".join(result.stderr.split())
