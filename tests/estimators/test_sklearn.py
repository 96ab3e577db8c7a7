# scikit-learn has no types, and what stubs there are refuse what it accepts.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportOperatorIssue=false
# pyright: reportUnknownLambdaType=false
"""The estimators together with scikit-learn."""

import copy
import io
import pickle
import re
import subprocess
import sys
import warnings
from contextlib import redirect_stderr
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine
from sklearn.ensemble import AdaBoostClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.estimator_checks import parametrize_with_checks

import ftnn
from ftnn import FTNNClassifier, FTNNRegressor
from tests.estimators.quick import are_equal, classifier, ignore_chance, iris, regressor

# --- scikit-learn's own checks ---


@ignore_chance
@parametrize_with_checks([FTNNClassifier(epochs=20), FTNNRegressor(epochs=20)])
def test_scikit_learn_checks_pass(estimator: Any, check: Any):
    check(estimator)


DEEP: dict[str, Any] = {"hidden_layer_sizes": (20, 20), "function": ["F03", "F07"], "dtype": "float64"}


@ignore_chance
@pytest.mark.slow
@parametrize_with_checks(
    [
        FTNNClassifier(),
        FTNNRegressor(),
        FTNNClassifier(function="F12", epochs=20),
        FTNNRegressor(function="F12", epochs=20),
        FTNNClassifier(**DEEP, activation="tanh", epochs=20),
        FTNNRegressor(**DEEP, activation="tanh", solver="joint", batch_size=7),
    ]
)
def test_scikit_learn_checks_pass_with_default_and_other_parameters(estimator: Any, check: Any):
    check(estimator)


# --- among the others of scikit-learn ---


def test_pipelines_searches_and_clones_work():
    x, y = load_wine(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), classifier(epochs=20))
    search = GridSearchCV(
        pipeline,
        {"ftnnclassifier__function": ["F03", "p*tanh(q*x)"], "ftnnclassifier__gamma": [-12, -2]},
        cv=3,
        error_score="raise",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # 2^-12 is too slow
        search.fit(x, y)
    assert search.best_params_["ftnnclassifier__gamma"] == -2
    assert search.best_score_ > 0.9
    assert search.score(x, y) > 0.95
    model = search.best_estimator_[-1]
    again = clone(model)
    assert again.get_params() == model.get_params()
    assert not hasattr(again, "network_")


@pytest.mark.slow
def test_searches_can_use_several_processes():
    x, y = iris()
    settings = {"function": ["F03", ftnn.Function("p*sin(q*x)"), ftnn.Mixed(["F03", "F07"])], "gamma": [-1]}
    alone = GridSearchCV(classifier(epochs=20), settings, cv=2, error_score="raise").fit(x, y)
    both = GridSearchCV(classifier(epochs=20), settings, cv=2, error_score="raise", n_jobs=2).fit(x, y)
    np.testing.assert_allclose(alone.cv_results_["mean_test_score"], both.cv_results_["mean_test_score"])
    assert are_equal(alone.best_estimator_, both.best_estimator_)


def test_meta_estimators_accept_ftnn_estimators():
    x, y = iris()
    boosted = AdaBoostClassifier(classifier(epochs=10), n_estimators=3, random_state=0).fit(x, y)
    assert boosted.score(x, y) > 0.85
    calibrated = CalibratedClassifierCV(classifier(epochs=10), cv=3).fit(x, y)
    assert calibrated.score(x, y) > 0.85
    weights = compute_sample_weight("balanced", y)
    assert classifier(epochs=10).fit(x, y, sample_weight=weights).score(x, y) > 0.8


@pytest.mark.parametrize("function", ["F12", ftnn.Mixed(["F03", "F16"])], ids=str)
def test_copies_predict_the_same_and_can_be_trained_further(function: Any):
    x, y = iris()
    model = classifier(function=function).fit(x, y)
    expected = model.predict_proba(x)
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), copy.copy(model)):
        np.testing.assert_array_equal(other.predict_proba(x), expected)
    other = pickle.loads(pickle.dumps(model)).partial_fit(x, y)
    assert are_equal(other, model.partial_fit(x, y))


def test_the_trained_network_can_be_saved_and_loaded(tmp_path: Any):
    x, y = iris()
    model = classifier().fit(x, y)
    ftnn.save(model.network_, tmp_path / "model.safetensors")
    loaded: Any = ftnn.load(tmp_path / "model.safetensors")
    outputs = loaded(torch.tensor(x, dtype=torch.float32)).detach().numpy()
    np.testing.assert_allclose(outputs, model.decision_function(x), rtol=1e-4, atol=1e-5)


def test_data_frames_are_accepted():
    x, y = iris()
    frame = pd.DataFrame(x, columns=pd.Index(["a", "b", "c", "d"]))
    labels = pd.Series(np.array(["x", "y", "z"])[y], name="kind")
    model = classifier().fit(frame, labels)
    assert list(model.feature_names_in_) == ["a", "b", "c", "d"]
    np.testing.assert_array_equal(model.predict(frame), classifier().fit(x, labels.to_numpy()).predict(x))
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[["b", "a", "c", "d"]])
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.predict(x)
    for series in (labels.astype("category"), labels.astype("string")):
        np.testing.assert_array_equal(classifier().fit(frame, series).predict(frame), model.predict(frame))
    numbers = pd.Series(y, dtype="Int64")
    model, expected = classifier().fit(frame, numbers), LogisticRegression().fit(frame, numbers)
    assert model.predict(frame).dtype == expected.predict(frame).dtype
    both = pd.DataFrame({"one": x[:, 0], "two": x[:, 1] * 3})
    assert regressor().fit(frame, both).predict(frame).shape == (150, 2)


def test_read_only_arrays_are_accepted():
    x, y = iris()
    x = np.ascontiguousarray(x, np.float32)
    for array in (x, y):
        array.flags.writeable = False
    classifier().fit(x, y).partial_fit(x, y).predict_proba(x)
    classifier(engine="torch").fit(x, y).partial_fit(x, y).predict_proba(x)


def test_verbose_training_prints_progress():
    x, y = iris()
    for verbose in (True, False):
        stream = io.StringIO()
        with redirect_stderr(stream):
            classifier(verbose=verbose, epochs=3, fine_tuning_epochs=0).fit(x, y)
        # Lines in between appear only if epochs take long.
        epochs = re.findall(r"^layer-wise 1, epoch (\d)", stream.getvalue(), re.MULTILINE)
        assert epochs[:1] + epochs[-1:] == (["1", "3"] if verbose else [])


# --- how well ---


@pytest.mark.slow
@pytest.mark.parametrize(
    ("load", "least"), [(load_iris, 0.94), (load_wine, 0.96), (load_breast_cancer, 0.96), (load_digits, 0.96)]
)
def test_the_default_classifier_is_accurate(load: Any, least: float):
    x, y = load(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), FTNNClassifier(random_state=0))
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    assert cross_val_score(pipeline, x, y, cv=folds, error_score="raise").mean() > least


def test_the_default_regressor_is_accurate():
    x, y = load_diabetes(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), FTNNRegressor(random_state=0))
    assert cross_val_score(pipeline, x, y, cv=3, error_score="raise").mean() > 0.35
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (400, 2))
    y = np.sin(3 * x[:, 0]) + x[:, 1] ** 2
    assert cross_val_score(FTNNRegressor(random_state=0), x, y, cv=3, error_score="raise").mean() > 0.9


# --- the names ---


@pytest.mark.slow
def test_scikit_learn_is_loaded_only_when_needed():
    program = (
        "import sys, ftnn\n"
        "assert {'FTNNClassifier', 'FTNNRegressor', 'estimators', 'nn'} <= set(dir(ftnn))\n"
        "assert 'sklearn' not in sys.modules\n"
        "assert ftnn.FTNNClassifier.__module__.startswith('ftnn.estimators')\n"
        "from ftnn import FTNNRegressor\n"
        "assert FTNNRegressor is ftnn.estimators.FTNNRegressor\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    with pytest.raises(AttributeError, match="module 'ftnn' has no attribute 'FTNNTransformer'"):
        ftnn.FTNNTransformer  # noqa: B018  # pyright: ignore
