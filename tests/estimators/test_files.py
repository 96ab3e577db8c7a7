# scikit-learn has no types, and what stubs there are refuse what it accepts.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportOperatorIssue=false
"""Estimators in model files, with everything that predicting needs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

import ftnn
from ftnn import FTNNClassifier, FTNNRegressor
from ftnn.cli import app
from ftnn.errors import ModelFileError
from tests.estimators.quick import ignore_chance

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3)) * [1, 1000, 1e-3] + [0, 5e4, 7]
Z = (X - X.mean(0)) / X.std(0)
Y = 1e6 * (np.sin(Z[:, 0]) + Z[:, 1] * Z[:, 2])
QUICK: dict[str, Any] = {"hidden_layer_sizes": (8,), "epochs": 5, "random_state": 0}
pytestmark = ignore_chance


def again(model: Any, tmp_path: Path) -> Any:
    ftnn.save(model, tmp_path / "m.ftnn")
    return ftnn.load(tmp_path / "m.ftnn")


@pytest.mark.parametrize(
    "labels",
    [
        np.where(Y > 0, "high", "low"),
        (Y > 0).astype(int),
        Y > 0,
        np.where(Y > 0, 2.0, 1.0),
        np.where(Y > 0, "high", "low").astype(object),
    ],
    ids=["text", "int", "bool", "float", "object"],
)
def test_a_loaded_classifier_predicts_the_same(labels: Any, tmp_path: Path):
    model = FTNNClassifier(**QUICK).fit(X, labels)
    same = again(model, tmp_path)
    assert type(same) is FTNNClassifier
    np.testing.assert_array_equal(same.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(same.predict(X), model.predict(X))
    assert same.predict(X).dtype == model.predict(X).dtype
    assert same.score(X, labels) == model.score(X, labels)


@pytest.mark.parametrize("targets", [Y, np.column_stack([Y, Z[:, 0]])], ids=["one", "several"])
@pytest.mark.parametrize("settings", [{}, {"standardise": False}, {"dtype": "float64"}], ids=str)
def test_a_loaded_regressor_predicts_the_same_in_the_targets_units(
    targets: Any, settings: Any, tmp_path: Path
):
    x = X if settings.get("standardise", True) else Z
    model = FTNNRegressor(**QUICK, **settings).fit(x, targets)
    same = again(model, tmp_path)
    np.testing.assert_array_equal(same.predict(x), model.predict(x))
    assert same.predict(x).shape == targets.shape


def test_parameters_history_and_further_training_are_the_same(tmp_path: Path):
    rule = ftnn.training.Rule("p - rate*m", state={"m": "0.9*m + g"})
    function = ftnn.Function("p*sin(q*x + r)", init={"q": (-2, 2)})
    model = FTNNRegressor(**QUICK, function=function, optimizer=rule, early_stopping=True).fit(X, Y)
    same = again(model, tmp_path)
    given, loaded = (each.get_params() for each in (model, same))
    assert {**loaded, "function": None, "hidden_layer_sizes": None} == {
        **given, "function": None, "hidden_layer_sizes": None
    }  # fmt: skip
    assert loaded["function"] == [function]
    assert same.history_ == model.history_
    assert same.loss_curve_ == model.loss_curve_
    assert same.validation_scores_ == model.validation_scores_
    more = [each.partial_fit(X, Y).predict(X) for each in (model, same)]
    np.testing.assert_array_equal(*more)


def test_the_loss_is_kept(tmp_path: Path):
    model = again(FTNNRegressor(loss="huber", **QUICK).fit(X, Y), tmp_path)
    assert model.loss == "huber"
    assert model.fit(X, Y).loss == "huber"


def test_feature_names_are_kept(tmp_path: Path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    model = FTNNRegressor(**QUICK).fit(frame, Y)
    same = again(model, tmp_path)
    assert same.feature_names_in_.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(same.predict(frame), model.predict(frame))


def test_the_command_line_predicts_with_a_saved_estimator(tmp_path: Path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    path = tmp_path / "t.csv"
    frame[["c", "a", "b"]].to_csv(path, index=False)
    model = FTNNRegressor(**QUICK).fit(frame, Y)
    labels = np.where(Y > 0, "high", "low")
    ftnn.save(model, tmp_path / "named.ftnn")
    ftnn.save(FTNNClassifier(**QUICK).fit(X[:, [2, 0, 1]], labels), tmp_path / "unnamed.ftnn")

    def predictions(name: str) -> Any:
        done = CliRunner().invoke(app, ["predict", str(tmp_path / name), str(path), "--json"])
        return json.loads(done.stdout)["predictions"]

    np.testing.assert_allclose(predictions("named.ftnn"), model.predict(frame), rtol=1e-4)
    assert (
        predictions("unnamed.ftnn") == ftnn.load(tmp_path / "unnamed.ftnn").predict(X[:, [2, 0, 1]]).tolist()
    )


def test_notes_can_be_added(tmp_path: Path):
    ftnn.save(FTNNRegressor(**QUICK).fit(X, Y), tmp_path / "m.ftnn", {"by": "me"})
    assert ftnn.nn.notes_of(tmp_path / "m.ftnn")["by"] == "me"


def test_what_cannot_be_saved_is_refused(tmp_path: Path):
    with pytest.raises(NotFittedError):
        ftnn.save(FTNNRegressor(), tmp_path / "m.ftnn")
    pipeline = make_pipeline(StandardScaler(), FTNNRegressor(**QUICK)).fit(X, Y)
    with pytest.raises(ModelFileError, match=r"a Pipeline cannot be saved.*; save its last step, and"):
        ftnn.save(pipeline, tmp_path / "m.ftnn")
    with pytest.raises(ModelFileError, match="a dict cannot be saved: expected a layer"):
        ftnn.save({}, tmp_path / "m.ftnn")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kind", "os.system"),
        ("kind", None),
        ("parameters", {"function": 5}),
        ("parameters", {"nothing": 5}),
        ("parameters", {"optimizer": {"rule": {"update": "import os"}}}),
        ("parameters", []),
        ("classes", {"type": "int64", "values": [1]}),
        ("classes", {"type": "int64", "values": [1, 1]}),
        ("classes", {"type": "nonsense", "values": [0, 1]}),
        ("classes", None),
        ("seed", "x"),
        ("history", "{"),
        ("validation_scores", 5),
    ],
)
def test_damaged_descriptions_are_refused(key: str, value: Any, tmp_path: Path):
    path = tmp_path / "m.ftnn"
    ftnn.save(FTNNClassifier(**QUICK).fit(X, Y > 0), path)
    notes = ftnn.nn.notes_of(path)
    notes["estimator"][key] = value
    ftnn.save(ftnn.nn.load(path), path, notes)
    with pytest.raises(ModelFileError, match="does not describe its estimator"):
        ftnn.load(path)
