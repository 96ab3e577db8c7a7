# scikit-learn has no types, and what stubs there are refuse what it accepts.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportOperatorIssue=false
# pyright: reportUnknownLambdaType=false

import copy
import io
import pickle
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
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.estimator_checks import parametrize_with_checks

import ftnn
from ftnn import FTNNClassifier, FTNNRegressor
from ftnn.errors import FtnnError
from ftnn.estimators._samples import MOST_VISITS, Samples, checked_weights
from ftnn.estimators._stopping import Stopping
from ftnn.training import Epoch

QUICK: dict[str, Any] = {"hidden_layer_sizes": (12,), "epochs": 5, "fine_tuning_epochs": 2, "random_state": 0}
ACTIVATIONS = {
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
}


def classifier(**given: Any) -> FTNNClassifier:
    return FTNNClassifier(**{**QUICK, "gamma": -1, **given})


def regressor(**given: Any) -> FTNNRegressor:
    return FTNNRegressor(**{**QUICK, **given})


def iris() -> tuple[Any, Any]:
    x, y = load_iris(return_X_y=True)
    return StandardScaler().fit_transform(x), y


def diabetes() -> tuple[Any, Any]:
    x, y = load_diabetes(return_X_y=True)
    return StandardScaler().fit_transform(x), y


def parameters_of(estimator: Any) -> list[Any]:
    return [tensor.numpy().copy() for tensor in estimator.network_.state_dict().values()]


def are_equal(one: Any, other: Any) -> bool:
    return all(map(np.array_equal, parameters_of(one), parameters_of(other)))


# --- scikit-learn's own checks ---

# The checks' data are often noise, on which a right estimator is no better than chance and says so.
ignore_chance = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@ignore_chance
@parametrize_with_checks([FTNNClassifier(epochs=20), FTNNRegressor(epochs=20)])
def test_scikit_learns_checks_pass(estimator: Any, check: Any):
    check(estimator)


DEEP: dict[str, Any] = {"hidden_layer_sizes": (20, 20), "function": ["F03", "F07"], "dtype": "float64"}


@ignore_chance
@pytest.mark.slow
@parametrize_with_checks(
    [
        FTNNClassifier(),
        FTNNRegressor(),
        FTNNClassifier(function="F12"),
        FTNNRegressor(function="F12"),
        FTNNClassifier(**DEEP, activation="tanh"),
        FTNNRegressor(**DEEP, activation="tanh", solver="joint", batch_size=7),
    ]
)
def test_scikit_learns_checks_pass_with_the_defaults_and_with_other_parameters(estimator: Any, check: Any):
    check(estimator)


# --- what is computed ---


def by_hand(network: Any, x: Any) -> Any:
    """Layer by layer in NumPy's float64."""
    now = np.asarray(x, np.float64)
    for layer in network.layers:
        names = (*layer.function.parameters, *layer.function.constants)
        values = {name: layer.matrix(name).detach().double().numpy() for name in names}
        now = layer.function(now[:, None, :], **values).sum(-1) + layer.bias.detach().double().numpy()
        now = ACTIVATIONS[network.activation](now)
    weight, bias = (t.detach().double().numpy() for t in (network.output.weight, network.output.bias))
    return now @ weight.T + bias


FUNCTIONS = [
    "F07",
    "p*tanh(q*x + r)",
    ftnn.Function("p*sin(q*x)", init={"q": (-2, 2)}),
    ftnn.Mixed(["F03", "F16"]),
    ["F12", ftnn.Mixed(["F03", "F09"])],
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=str)
def test_probabilities_are_the_softmax_of_the_network(function: Any):
    x, y = iris()
    sizes = (7, 6) if isinstance(function, list) else (7,)
    found = classifier(function=function, hidden_layer_sizes=sizes, activation="tanh").fit(x, y)
    outputs = by_hand(found.network_, x)
    wanted = np.exp(outputs) / np.exp(outputs).sum(1, keepdims=True)
    np.testing.assert_allclose(found.predict_proba(x), wanted, rtol=1e-4)
    np.testing.assert_allclose(found.predict_log_proba(x), np.log(wanted), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.decision_function(x), outputs, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(found.predict(x), wanted.argmax(1))
    assert found.score(x, y) == np.mean(wanted.argmax(1) == y)
    kinds = [function] if len(sizes) == 1 else function
    for layer, kind in zip(found.network_.layers, kinds, strict=True):
        expected = ftnn.nn.Transfer(1, 1, kind).kinds
        assert layer.kinds == expected


def test_predictions_are_the_networks_in_the_targets_own_scale():
    x, y = diabetes()
    found = regressor().fit(x, y)
    wanted = by_hand(found.network_, x)[:, 0] * y.std() + y.mean()
    np.testing.assert_allclose(found.predict(x), wanted, rtol=1e-5)
    assert found.predict(x).dtype == np.float64


def test_targets_of_any_size_are_learned_alike():
    x, y = diabetes()
    wanted = regressor(dtype="float64").fit(x, y).predict(x)
    for scale, shift in ((1e6, 0), (1e-6, 0), (1, 1e6), (1e-3, 5.0)):
        found = regressor(dtype="float64").fit(x, y * scale + shift).predict(x)
        np.testing.assert_allclose((found - shift) / scale, wanted, rtol=1e-4)


def test_a_large_mean_does_not_drown_the_targets_in_float32():
    x, y = diabetes()
    found = regressor(epochs=30).fit(x, y + 1.7e9).predict(x) - 1.7e9
    assert np.corrcoef(found, y)[0, 1] > 0.7
    assert len(np.unique(found)) > 400


def test_constant_targets_and_one_sample_are_learned():
    x = np.random.default_rng(0).normal(size=(30, 3))
    found = regressor(epochs=200, gamma=-4).fit(x, np.full(30, 7.25))
    np.testing.assert_allclose(found.predict(x), 7.25, atol=0.05)
    np.testing.assert_allclose(
        regressor(epochs=200, gamma=-4).fit(x[:1], [3.0]).predict(x[:1]), 3.0, atol=0.05
    )


def test_several_targets_are_learned_together():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 5))
    y = x @ rng.normal(size=(5, 3)) * [1, 100, 0.01] + [0, 5, 1000]
    found = FTNNRegressor(epochs=60, random_state=0).fit(x, y)
    assert found.predict(x).shape == (200, 3)
    assert found.network_.out_features == 3
    assert found.score(x, y) > 0.97
    # one column is one column, and no column is none
    assert regressor().fit(x, y[:, :1]).predict(x).shape == (200, 1)
    assert regressor().fit(x, y[:, 0]).predict(x).shape == (200,)
    np.testing.assert_array_equal(
        regressor().fit(x, y[:, :1]).predict(x)[:, 0], regressor().fit(x, y[:, 0]).predict(x)
    )


def test_without_hidden_layers_they_are_linear_models():
    given: Any = {"hidden_layer_sizes": (), "dtype": "float64", "random_state": 0, "n_iter_no_change": 10**6}
    x, y = diabetes()
    x = x[:, :4]
    found = FTNNRegressor(gamma=-1, epochs=300, batch_size=len(x), **given).fit(x, y)  # gradient descent
    np.testing.assert_allclose(found.predict(x), LinearRegression().fit(x, y).predict(x), rtol=1e-6)
    x, y = iris()
    x, y = x[y > 0, :2], y[y > 0]
    found = FTNNClassifier(gamma=0, epochs=3000, batch_size=len(x), **given).fit(x, y)
    wanted = LogisticRegression(C=np.inf, tol=1e-10).fit(x, y).predict_proba(x)
    np.testing.assert_allclose(found.predict_proba(x), wanted, atol=1e-6)


@pytest.mark.parametrize("solver", ["layerwise", "joint"])
def test_both_engines_give_the_same_predictions(solver: Any):
    x, y = iris()
    given = {"solver": solver, "dtype": "float64", "activation": "tanh", "function": "F16"}
    one, other = (classifier(engine=engine, **given).fit(x, y) for engine in ("compiled", "torch"))
    assert (one.history_.engine, other.history_.engine) == ("compiled", "torch")
    np.testing.assert_allclose(one.predict_proba(x), other.predict_proba(x), rtol=1e-9)


def test_momentum_and_weight_decay_do_something():
    x, y = iris()
    given: Any = {"solver": "joint", "gamma": -4, "epochs": 20}
    plain = classifier(**given).fit(x, y)
    fast = classifier(**given, momentum=0.9).fit(x, y)
    small = classifier(**given, weight_decay=0.1).fit(x, y)
    assert (plain.history_.engine, fast.history_.engine) == ("compiled", "torch")
    assert fast.loss_ < plain.loss_
    assert torch.linalg.norm(small.network_.output.weight) < torch.linalg.norm(plain.network_.output.weight)


def test_predictions_do_not_depend_on_the_samples_beside():
    x, y = load_digits(return_X_y=True)
    x = StandardScaler().fit_transform(x)
    found = classifier().fit(x[:300], y[:300])
    whole = found.predict_proba(np.tile(x, (4, 1)))  # more than are computed at once
    assert whole.shape == (4 * len(x), 10)
    np.testing.assert_allclose(whole[: len(x)], whole[-len(x) :], rtol=1e-12)
    one_by_one = np.concatenate([found.predict_proba(x[n : n + 1]) for n in range(20)])
    np.testing.assert_allclose(whole[:20], one_by_one, rtol=1e-12)


# --- samples and weights ---


@pytest.mark.parametrize(
    "given", [{}, {"solver": "joint", "function": "F12"}, {"hidden_layer_sizes": (5, 5)}]
)
@pytest.mark.parametrize("make", [classifier, regressor])
def test_a_weight_is_a_repetition_and_the_order_does_not_matter(make: Any, given: Any):
    rng = np.random.default_rng(0)
    x, y = iris()
    weights = rng.integers(0, 4, len(y))
    weighted = make(**given).fit(x, y, sample_weight=weights)
    repeated = make(**given).fit(x.repeat(weights, axis=0), y.repeat(weights))
    order = rng.permutation(len(y))
    shuffled = make(**given).fit(x[order], y[order], sample_weight=weights[order])
    assert are_equal(weighted, repeated)
    assert are_equal(weighted, shuffled)
    np.testing.assert_array_equal(weighted.predict(x), repeated.predict(x))


def test_small_equal_weights_are_no_weights():
    x, y = iris()
    plain = classifier().fit(x, y)
    for weight in (1, 0.1, 1e-300, 1 / 3):
        assert are_equal(plain, classifier().fit(x, y, sample_weight=np.full(len(y), weight)))


@ignore_chance  # nothing but the weights can be learned
@pytest.mark.parametrize(
    "weights", [(3, 1), (0.75, 0.25), (3e-9, 1e-9), (6000, 2000), (1.5, 0.5), (0.3, 0.1), (30, 10)]
)
def test_probabilities_follow_the_weights(weights: Any):
    # The same inputs with both labels: the least loss is at the weights' share.
    x, y = np.ones((40, 1)), np.array([0] * 20 + [1] * 20)
    found = FTNNClassifier(epochs=60, gamma=-3, random_state=0).fit(x, y, sample_weight=np.array(weights)[y])
    np.testing.assert_allclose(found.predict_proba(x[:1])[0], [0.75, 0.25], atol=0.05)
    target = FTNNRegressor(epochs=60, gamma=-5, random_state=0)
    found = target.fit(x, y.astype(float), sample_weight=np.array(weights)[y])
    np.testing.assert_allclose(found.predict(x[:1]), [0.25], atol=0.05)


def test_samples_of_no_weight_are_not_there():
    x, y = iris()
    weights = (y != 2).astype(float)
    found = classifier().fit(x, y, sample_weight=weights)
    np.testing.assert_array_equal(found.classes_, [0, 1])
    assert are_equal(found, classifier().fit(x[y != 2], y[y != 2]))


def test_weights_are_shared_among_visits():
    samples = Samples(np.arange(4.0)[:, None], np.arange(4), np.array([1.0, 2.5, 0.5, 3.0])).expanded()
    np.testing.assert_array_equal(samples.y, [0, 1, 1, 1, 2, 3, 3, 3])
    np.testing.assert_allclose(samples.weights, [1, *[2.5 / 3] * 3, 0.5, 1, 1, 1])
    # a large weight makes an epoch longer, but not without end
    for given in ([1e6, 1e6, 1e3, 0], [100, 1, 1, 1]):
        weights = checked_weights(given, 4)
        np.testing.assert_allclose(weights / weights.sum(), np.array(given) / np.sum(given))
        visits = Samples(np.zeros((4, 1)), np.zeros(4), weights).take(np.flatnonzero(weights)).expanded()
        assert len(visits) <= (MOST_VISITS + 1) * 4


def test_order_tells_every_difference():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, (200, 3)).astype(np.float32)
    samples = Samples(x, rng.integers(0, 3, 200), rng.integers(1, 3, 200).astype(float))
    rows = rng.permutation(200)
    one, other = samples.in_order(), samples.take(rows).in_order()
    for a, b, c in (
        (one.x, other.x, samples.x),
        (one.y, other.y, samples.y),
        (one.weights, other.weights, None),
    ):
        np.testing.assert_array_equal(a, b)
        assert c is None or not np.array_equal(a, c)
    columns = np.column_stack([samples.x, samples.y, samples.weights])
    found = np.column_stack([one.x, one.y, one.weights])
    assert sorted(map(tuple, columns.tolist())) == sorted(map(tuple, found.tolist()))


# --- labels ---

LABELS = {
    "texts": ["setosa", "versicolor", "virginica"],
    "numbers with gaps": [-7, 3, 1000],
    "whole floats": [-1.0, 0.0, 5.0],
    "bytes-like texts": np.array(["a", "bb", "ccc"], dtype=object),
    "booleans": [False, True, True],
}


@pytest.mark.parametrize("labels", LABELS.values(), ids=list(LABELS))
def test_labels_of_any_kind_come_back(labels: Any):
    x, y = iris()
    given = np.asarray(labels)[y]
    found = classifier(epochs=20).fit(x, given)
    np.testing.assert_array_equal(found.classes_, np.unique(given))
    assert found.predict(x).dtype == given.dtype
    assert found.score(x, given) > 0.85
    assert found.predict_proba(x).shape == (len(x), len(found.classes_))
    np.testing.assert_array_equal(found.classes_[found.predict_proba(x).argmax(1)], found.predict(x))
    assert found.fit(x.tolist(), given.tolist()).score(x, given) > 0.85


def test_two_classes_have_one_decision():
    x, y = iris()
    x, y = x[y > 0], y[y > 0]
    found = classifier(epochs=20).fit(x, y)
    decision, probability = found.decision_function(x), found.predict_proba(x)
    assert decision.shape == (len(x),)
    np.testing.assert_allclose(1 / (1 + np.exp(-decision)), probability[:, 1], rtol=1e-9)
    np.testing.assert_array_equal(found.predict(x), np.where(decision > 0, 2, 1))


@pytest.mark.parametrize("samples", [2, 3, 15, 17])
def test_few_samples_are_one_short_batch(samples: int):
    x = np.random.default_rng(0).normal(size=(samples, 4))
    x[:2, 0] = -1, 1
    y = np.where(x[:, 0] > 0, "right", "left")
    found = FTNNClassifier(random_state=0).fit(x, y)
    assert found.score(x, y) == 1
    assert FTNNRegressor(random_state=0).fit(x, x[:, 0]).score(x, x[:, 0]) > 0.9


# --- random numbers ---


def test_a_seed_gives_the_same_result_and_another_another():
    x, y = iris()
    one, same, other = (classifier(random_state=seed).fit(x, y) for seed in (1, 1, 2))
    assert are_equal(one, same)
    assert are_equal(one, one.__class__(**one.get_params()).fit(x, y))
    assert not are_equal(one, other)
    again = classifier(random_state=np.random.RandomState(1)).fit(x, y)
    assert are_equal(one, again)
    np.random.seed(1)  # noqa: NPY002 - what random_state=None draws from
    assert are_equal(one, classifier(random_state=None).fit(x, y))


def test_torchs_random_numbers_are_left_alone():
    x, y = iris()
    before = torch.get_rng_state()
    classifier().fit(x, y).partial_fit(x, y).predict(x)
    assert torch.equal(torch.get_rng_state(), before)


# --- partial_fit ---


@ignore_chance  # in so few steps
def test_partial_fit_is_an_epoch_of_joint_training():
    # With the whole data in one mini-batch the order does not matter.
    x, y = iris()
    given = {"solver": "joint", "batch_size": 150, "dtype": "float64", "n_iter_no_change": 100}
    step_by_step = classifier(**given)
    for epochs in range(1, 5):
        step_by_step.partial_fit(x, y, classes=[0, 1, 2])
        at_once = classifier(epochs=epochs, **given).fit(x, y)
        np.testing.assert_allclose(step_by_step.predict_proba(x), at_once.predict_proba(x), rtol=1e-9)
        np.testing.assert_allclose(step_by_step.loss_curve_, at_once.loss_curve_, rtol=1e-9)
        assert step_by_step.n_iter_ == epochs
        assert [epoch.epoch for epoch in step_by_step.history_.epochs] == list(range(1, epochs + 1))


def test_partial_fit_learns_from_pieces_with_some_classes_each():
    x, y = iris()
    found = FTNNClassifier(random_state=0, gamma=-2)
    rows = np.random.default_rng(0).permutation(len(y))
    for _ in range(20):
        for piece in np.array_split(rows, 6):
            found.partial_fit(x[piece], np.array(["a", "b", "c"])[y[piece]], classes=["c", "b", "a"])
    assert found.score(x, np.array(["a", "b", "c"])[y]) > 0.93
    assert found.n_iter_ == 120


def test_partial_fit_goes_on_from_fit_and_orders_differ():
    x, y = diabetes()
    found = regressor(epochs=20).fit(x, y)
    loss, epochs = found.loss_, found.n_iter_
    for _ in range(20):
        found.partial_fit(x, y)
    assert found.n_iter_ == epochs + 20
    assert found.loss_ < loss
    losses = found.loss_curve_[-20:]
    assert len(set(losses)) == 20


def test_partial_fit_keeps_the_first_scale_of_targets():
    x, y = diabetes()
    found = regressor()
    for _ in range(30):
        found.partial_fit(x[:200], y[:200]).partial_fit(x[200:], y[200:])
    assert found.target_scaler_.mean_ == pytest.approx(y[:200].mean())
    assert found.score(x, y) > 0.4


def test_partial_fit_weighs_samples():
    x, y = iris()
    weights = np.random.default_rng(0).integers(0, 3, len(y))
    one = classifier().partial_fit(x, y, classes=[0, 1, 2], sample_weight=weights)
    other = classifier().partial_fit(x.repeat(weights, 0), y.repeat(weights), classes=[0, 1, 2])
    assert are_equal(one, other)


# --- stopping ---


def epoch_of(loss: float, test_accuracy: float, **given: Any) -> Epoch:
    return Epoch(**{"stage": "lwt", "layer": 1, "epoch": 1, "rate": 1.0, "loss": loss, "train_accuracy": 50.0,
                    "test_accuracy": test_accuracy, "test_loss": 1.0, "seconds": 0.0, **given})  # fmt: skip


def test_a_stage_ends_when_nothing_improves_but_not_on_its_first_plateau():
    net = ftnn.nn.Network(2, [3], 2)
    stopping = Stopping(lambda epoch: -epoch.loss, tol=0.1, patience=2, keep_best=False)
    assert not any(stopping(epoch_of(loss, 50), net) for loss in (3.0, 2.99, 3.0, 2.98, 3.0))  # has not begun
    answers = [stopping(epoch_of(loss, 50), net) for loss in (2.0, 1.5, 1.45, 1.3, 1.35, 1.25)]
    assert answers == [False, False, False, False, False, True]
    # the next stage counts anew, and what was undone does not count
    assert not stopping(epoch_of(1.2, 50, stage="ft", layer=0), net)
    assert not stopping(epoch_of(9.9, 50, stage="ft", layer=0, undone=True), net)
    assert stopping.scores == [-3.0, -2.99, -3.0, -2.98, -3.0, -2.0, -1.5, -1.45, -1.3, -1.35, -1.25, -1.2]


def test_the_best_network_is_remembered_of_the_whole_ones():
    net = ftnn.nn.Network(2, [3, 3], 2)
    stopping = Stopping(lambda epoch: epoch.test_accuracy or 0, tol=0, patience=9, keep_best=True)
    states: list[Any] = []
    for accuracy, stage, layer in ((99, "lwt", 1), (50, "lwt", 2), (70, "lwt", 2), (60, "ft", 0)):
        net.reset_parameters()
        states.append(copy.deepcopy(net.state_dict()))
        stopping(epoch_of(1.0, accuracy, stage=stage, layer=layer), net)
    stopping.restore_best(net)
    assert all(torch.equal(net.state_dict()[name], tensor) for name, tensor in states[2].items())


@pytest.mark.parametrize("solver", ["layerwise", "joint"])
@pytest.mark.parametrize("sizes", [(20,), (10, 10)])
def test_early_stopping_takes_the_parameters_that_validated_best(solver: Any, sizes: Any):
    x, y = iris()
    y = np.where(np.random.default_rng(0).random(len(y)) < 0.2, 0, y)  # noise, to be overfitted
    given = {
        "hidden_layer_sizes": sizes,
        "solver": solver,
        "gamma": -1,
        "n_iter_no_change": 4,
        "activation": "tanh",
    }
    found = FTNNClassifier(
        early_stopping=True, validation_fraction=0.3, epochs=60, random_state=0, **given
    ).fit(x, y)
    samples = Samples(x.astype(np.float32), y, np.ones(len(y))).in_order()
    _, validation = samples.split(0.3, found._seed, by_class=True)
    whole = [epoch for epoch in found.history_.epochs if epoch.layer in (0, len(sizes)) and not epoch.undone]
    best = max(epoch.test_accuracy or 0 for epoch in whole) / 100
    assert found.score(validation.x, validation.y) == pytest.approx(best)
    assert found.validation_scores_ is not None
    assert found.validation_scores_ == [
        pytest.approx((epoch.test_accuracy or 0) / 100) for epoch in found.history_.epochs if not epoch.undone
    ]
    assert found.best_validation_score_ == pytest.approx(best)
    first = [epoch for epoch in found.history_.epochs if epoch.layer == found.history_.epochs[0].layer]
    assert len(first) < 60
    assert len(validation) == 45
    assert np.bincount(validation.y).min() >= 9


def test_early_stopping_of_a_regressor():
    x, y = diabetes()
    found = FTNNRegressor(early_stopping=True, epochs=80, random_state=0, activation="tanh").fit(x, y)
    samples = Samples(x.astype(np.float32), y[:, None], np.ones(len(y))).in_order()
    scaled = Samples(samples.x, found.target_scaler_.transform(samples.y), samples.weights)
    # Scaling before ordering, as it is done
    _, validation = scaled.in_order().split(0.1, found._seed, by_class=False)
    wanted = found.target_scaler_.transform(found.predict(validation.x)[:, None])
    assert found.best_validation_score_ == pytest.approx(1 - np.mean((wanted - validation.y) ** 2), rel=1e-4)
    assert found.score(x, y) > 0.4


def test_without_early_stopping_all_samples_are_learned_from():
    x, y = iris()
    found = classifier().fit(x, y)
    assert found.validation_scores_ is None
    assert found.best_validation_score_ is None
    assert all(epoch.test_accuracy is None for epoch in found.history_.epochs)
    assert found.n_iter_ == len(found.history_.epochs) <= 7
    assert found.loss_curve_ == [epoch.loss for epoch in found.history_.epochs if not epoch.undone]
    assert found.loss_ == found.loss_curve_[-1] == found.history_.loss


def test_training_ends_when_the_loss_no_longer_falls():
    x, y = iris()
    found = FTNNClassifier(epochs=1000, tol=0.01, n_iter_no_change=3, random_state=0).fit(x, y)
    assert found.n_iter_ < 300


def test_early_stopping_with_rare_classes_and_few_samples():
    x, y = np.random.default_rng(0).normal(size=(12, 3)), np.array([0] * 6 + [1] * 5 + [2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = classifier(early_stopping=True).fit(x, y)
    assert len(found.classes_) == 3
    with pytest.raises(ValueError, match="early_stopping=True needs at least 2 samples"):
        regressor(early_stopping=True).fit(x[:1], [1.0])


# --- among the others of scikit-learn ---


def test_pipelines_searches_and_clones():
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
    found = search.best_estimator_[-1]
    again = clone(found)
    assert again.get_params() == found.get_params()
    assert not hasattr(again, "network_")


@pytest.mark.slow
def test_searches_run_in_other_processes():
    x, y = iris()
    given = {"function": ["F03", ftnn.Function("p*sin(q*x)"), ftnn.Mixed(["F03", "F07"])], "gamma": [-1]}
    alone = GridSearchCV(classifier(epochs=20), given, cv=2, error_score="raise").fit(x, y)
    both = GridSearchCV(classifier(epochs=20), given, cv=2, error_score="raise", n_jobs=2).fit(x, y)
    np.testing.assert_allclose(alone.cv_results_["mean_test_score"], both.cv_results_["mean_test_score"])
    assert are_equal(alone.best_estimator_, both.best_estimator_)


def test_estimators_that_hold_others_take_it():
    x, y = iris()
    boosted = AdaBoostClassifier(classifier(epochs=10), n_estimators=3, random_state=0).fit(x, y)
    assert boosted.score(x, y) > 0.85
    calibrated = CalibratedClassifierCV(classifier(epochs=10), cv=3).fit(x, y)
    assert calibrated.score(x, y) > 0.85
    weights = compute_sample_weight("balanced", y)
    assert classifier(epochs=10).fit(x, y, sample_weight=weights).score(x, y) > 0.8


@pytest.mark.parametrize("function", ["F12", ftnn.Mixed(["F03", "F16"])], ids=str)
def test_copies_predict_the_same_and_can_learn_on(function: Any):
    x, y = iris()
    found = classifier(function=function).fit(x, y)
    wanted = found.predict_proba(x)
    for other in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found), copy.copy(found)):
        np.testing.assert_array_equal(other.predict_proba(x), wanted)
    other = pickle.loads(pickle.dumps(found)).partial_fit(x, y)
    assert are_equal(other, found.partial_fit(x, y))


def test_the_network_is_an_ordinary_one(tmp_path: Any):
    x, y = iris()
    found = classifier().fit(x, y)
    ftnn.save(found.network_, tmp_path / "model.safetensors")
    loaded: Any = ftnn.load(tmp_path / "model.safetensors")
    outputs = loaded(torch.tensor(x, dtype=torch.float32)).detach().numpy()
    np.testing.assert_allclose(outputs, found.decision_function(x), rtol=1e-4, atol=1e-5)


def test_data_frames():
    x, y = iris()
    frame = pd.DataFrame(x, columns=pd.Index(["a", "b", "c", "d"]))
    labels = pd.Series(np.array(["x", "y", "z"])[y], name="kind")
    found = classifier().fit(frame, labels)
    assert list(found.feature_names_in_) == ["a", "b", "c", "d"]
    np.testing.assert_array_equal(found.predict(frame), classifier().fit(x, labels.to_numpy()).predict(x))
    with pytest.raises(ValueError, match="feature names should match"):
        found.predict(frame[["b", "a", "c", "d"]])
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        found.predict(x)
    for series in (labels.astype("category"), labels.astype("string")):
        np.testing.assert_array_equal(classifier().fit(frame, series).predict(frame), found.predict(frame))
    numbers = pd.Series(y, dtype="Int64")
    found, wanted = classifier().fit(frame, numbers), LogisticRegression().fit(frame, numbers)
    assert found.predict(frame).dtype == wanted.predict(frame).dtype
    both = pd.DataFrame({"one": x[:, 0], "two": x[:, 1] * 3})
    assert regressor().fit(frame, both).predict(frame).shape == (150, 2)


def test_arrays_that_cannot_be_written_are_taken():
    x, y = iris()
    x = np.ascontiguousarray(x, np.float32)
    for array in (x, y):
        array.flags.writeable = False
    classifier().fit(x, y).partial_fit(x, y).predict_proba(x)
    classifier(engine="torch").fit(x, y).partial_fit(x, y).predict_proba(x)


def test_it_tells_how_it_goes_if_asked():
    x, y = iris()
    for verbose in (True, False):
        stream = io.StringIO()
        with redirect_stderr(stream):
            classifier(verbose=verbose, epochs=3, fine_tuning_epochs=0).fit(x, y)
        told = [line for line in stream.getvalue().splitlines() if line.startswith("layer-wise 1, epoch")]
        assert len(told) == (3 if verbose else 0)


# --- failure ---


def test_a_run_that_diverges_warns_and_leaves_finite_parameters():
    x, y = load_digits(return_X_y=True)  # from 0 to 16
    with pytest.warns(
        ConvergenceWarning, match=r"not finite in layer-wise.*Try a smaller gamma: 5;.*StandardScaler"
    ):
        found = classifier(function="F14", gamma=6, clip=None).fit(x, y)
    assert found.history_.failed is not None
    assert all(np.isfinite(array).all() for array in parameters_of(found))
    assert np.isfinite(found.predict_proba(x)).all()
    assert set(found.predict(x)) <= set(range(10))


def test_a_diverging_partial_fit_warns_and_goes_back():
    x, y = diabetes()
    found = regressor(clip=None).partial_fit(x, y)
    before = parameters_of(found)
    found.set_params(gamma=40)
    with pytest.warns(ConvergenceWarning, match="not finite in joint training"):
        found.partial_fit(x, y)
    assert all(map(np.array_equal, before, parameters_of(found)))
    found.set_params(gamma=-6).partial_fit(x, y)
    assert found.history_.failed is None
    assert found.n_iter_ == 2


def test_a_run_that_learns_nothing_warns():
    x, y = iris()
    with pytest.warns(ConvergenceWarning, match=r"no better than chance\. Try a larger gamma: -29"):
        classifier(gamma=-30).fit(x, y)
    x, y = diabetes()
    with pytest.warns(ConvergenceWarning, match=r"that of the targets' mean\. Try a smaller gamma: 3"):
        regressor(gamma=4).fit(x, y)


# --- bad input ---

X = np.random.default_rng(0).normal(size=(20, 3))
Y = (X[:, 0] > 0).astype(int)
NAN = np.where(np.arange(3) == 1, np.nan, X)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"function": "F99"}, "'F99' is not in the catalogue"),
        ({"function": "p*foo(x)"}, "foo"),
        ({"function": 3}, "function=3 is not allowed"),
        ({"function": ["F01", None]}, r"function=\['F01', None\] is not allowed"),
        ({"function": ["F01", "F02"]}, "2 functions were given for 1 hidden layers"),
        ({"function": "memory"}, "Memory"),
        ({"hidden_layer_sizes": 0}, "hidden_layer_sizes=0 is not allowed"),
        ({"hidden_layer_sizes": (10, -1)}, r"hidden_layer_sizes=\(10, -1\)"),
        ({"hidden_layer_sizes": "10"}, "hidden_layer_sizes='10'"),
        ({"hidden_layer_sizes": 2.5}, "hidden_layer_sizes=2.5"),
        ({"hidden_layer_sizes": True}, "hidden_layer_sizes=True"),
        ({"activation": "gelu"}, "activation='gelu' is not known; allowed are logistic, relu, tanh"),
        ({"activation": None}, "activation=None"),
        ({"solver": "adam"}, "solver='adam' is not known; allowed are layerwise, joint"),
        ({"engine": "gpu"}, "engine='gpu'"),
        ({"engine": "compiled", "momentum": 0.5}, 'engine="compiled" cannot be used'),
        ({"dtype": "float16"}, "dtype='float16'"),
        ({"gamma": float("nan")}, "gamma=nan"),
        ({"gamma": 1e9}, "gamma == 1000000000.0, must be <= 100"),
        ({"gamma": "auto"}, "gamma must be an instance of"),
        ({"epochs": 0}, "epochs == 0, must be >= 1"),
        ({"epochs": 2.5}, "epochs must be an instance of"),
        ({"epochs": True}, "epochs=True"),
        ({"fine_tuning_epochs": -1}, "fine_tuning_epochs == -1, must be >= 0"),
        ({"batch_size": 0}, "batch_size == 0, must be >= 1"),
        ({"clip": 0}, "clip == 0, must be > 0"),
        ({"momentum": 1}, "momentum == 1, must be < 1"),
        ({"weight_decay": -1}, "weight_decay == -1, must be >= 0"),
        ({"validation_fraction": 1.0}, "validation_fraction == 1.0, must be < 1"),
        ({"n_iter_no_change": 0}, "n_iter_no_change == 0"),
        ({"tol": -1}, "tol == -1"),
        ({"random_state": "x"}, "'x' cannot be used to seed"),
    ],
)
def test_wrong_parameters_are_refused_by_name_when_fitting(given: Any, message: str):
    for made in (FTNNClassifier(**given), FTNNRegressor(**given)):
        assert made.get_params()[next(iter(given))] is next(iter(given.values()))  # and not before
        for learn in (
            made.fit,
            lambda x, y, made=made: made.partial_fit(x, y, **CLASSES.get(type(made), {})),
        ):
            with pytest.raises((ValueError, TypeError), match=message):
                learn(X, Y)


CLASSES: dict[Any, Any] = {FTNNClassifier: {"classes": [0, 1]}}


def test_errors_of_ours_are_of_both_families():
    with pytest.raises(FtnnError) as error:
        FTNNClassifier(solver="adam").fit(X, Y)
    assert isinstance(error.value, ValueError)


@ignore_chance  # in so few steps
def test_numbers_may_be_numpys():
    given = {
        "hidden_layer_sizes": np.array([4, 3]),
        "epochs": np.int64(2),
        "gamma": np.float32(-2),
        "clip": None,
    }
    found = FTNNClassifier(**given, batch_size=np.int32(7), random_state=np.int64(3)).fit(X, Y)
    assert [layer.out_features for layer in found.network_.layers] == [4, 3]
    assert classifier(hidden_layer_sizes=5).fit(X, Y).network_.layers[0].out_features == 5


@pytest.mark.parametrize(
    ("x", "y", "weights", "message"),
    [
        (NAN, Y, None, "Input X contains NaN"),
        (X * np.inf, Y, None, "Input X contains"),
        (X * 1e39, Y, None, "too large for dtype"),
        (X, np.where(Y, np.nan, 0), None, "Input y contains NaN"),
        (X, Y[:-1], None, "inconsistent numbers of samples"),
        (X[:0], Y[:0], None, r"0 sample\(s\)"),
        (X[:, :0], Y, None, r"0 feature\(s\)"),
        (X[:, 0], Y, None, "Expected 2D array"),
        ([["a", "b"]] * 20, Y, None, "could not convert string to float"),
        (X, Y, np.ones(19), "sample_weight has 19 numbers for 20 samples"),
        (X, Y, np.ones((20, 2)), r"sample_weight must be one number for each sample, not of shape \(20, 2\)"),
        (X, Y, -np.ones(20), "sample_weight must be 0 or more; it has -1"),
        (X, Y, np.zeros(20), "sample_weight is zero for all samples"),
        (X, Y, np.full(20, np.nan), "Input sample_weight contains NaN"),
    ],
)
@pytest.mark.parametrize("make", [classifier, regressor])
def test_wrong_data_are_refused_by_name(make: Any, x: Any, y: Any, weights: Any, message: str):
    with pytest.raises(ValueError, match=message):
        make().fit(x, y, sample_weight=weights)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.zeros(20), r"one class only, .*0\.0.*needs at least 2 classes"),
        (["a"] * 20, "one class only, .*'a'"),
        (np.linspace(0, 1, 20), "Unknown label type: continuous"),
        (np.eye(2)[Y], "y should be a 1d array"),
        ([1, "a"] * 10, "label"),
    ],
)
def test_wrong_labels_are_refused(y: Any, message: str):
    with pytest.raises(ValueError, match=message):
        classifier().fit(X, np.array(y, dtype=object) if isinstance(y, list) else y)


def test_wrong_targets_are_refused():
    with pytest.raises(ValueError, match="could not convert string to float"):
        regressor().fit(X, ["a"] * 20)
    found = regressor().partial_fit(X, np.ones((20, 2)))
    with pytest.raises(ValueError, match="y has 1 targets for each sample, but it had 2 before"):
        found.partial_fit(X, Y)


def test_wrong_calls_of_partial_fit_are_refused():
    with pytest.raises(ValueError, match="first call of partial_fit needs classes"):
        classifier().partial_fit(X, Y)
    with pytest.raises(ValueError, match="one class only"):
        classifier().partial_fit(X, Y * 0, classes=[0])
    found = classifier().partial_fit(X, Y, classes=[0, 1])
    before = parameters_of(found)
    with pytest.raises(ValueError, match=r"classes=\[0, 1, 2\] differ from the present ones, \[0 1\]"):
        found.partial_fit(X, Y, classes=[0, 1, 2])
    with pytest.raises(ValueError, match=r"unseen labels: \[.*2"):
        found.partial_fit(X, Y * 2)
    with pytest.raises(ValueError, match="X has 2 features, but FTNNClassifier is expecting 3"):
        found.partial_fit(X[:, :2], Y)
    assert all(map(np.array_equal, before, parameters_of(found)))


def test_predicting_asks_for_what_was_fitted():
    for made in (classifier(), regressor()):
        with pytest.raises(NotFittedError):
            made.predict(X)
        made.fit(X, Y)
        with pytest.raises(ValueError, match=r"X has 2 features, but .* is expecting 3 features as input"):
            made.predict(X[:, :2])
        with pytest.raises(ValueError, match="Input X contains NaN"):
            made.predict(NAN)
        with pytest.raises(ValueError, match="Found array with 0 sample"):
            made.predict(X[:0])
    made = classifier()
    with pytest.raises(ValueError, match="one class only"):
        made.fit(X, Y * 0)
    with pytest.raises(NotFittedError):  # though the number of features is known
        made.predict(X)


# --- how well ---


@pytest.mark.parametrize(
    ("load", "least"), [(load_iris, 0.94), (load_wine, 0.96), (load_breast_cancer, 0.96), (load_digits, 0.96)]
)
def test_classifying_well_by_default(load: Any, least: float):
    x, y = load(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), FTNNClassifier(random_state=0))
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    assert cross_val_score(pipeline, x, y, cv=folds, error_score="raise").mean() > least


def test_regressing_well_by_default():
    x, y = load_diabetes(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), FTNNRegressor(random_state=0))
    assert cross_val_score(pipeline, x, y, cv=3, error_score="raise").mean() > 0.35
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (400, 2))
    y = np.sin(3 * x[:, 0]) + x[:, 1] ** 2
    assert cross_val_score(FTNNRegressor(random_state=0), x, y, cv=3, error_score="raise").mean() > 0.9


# --- the names ---


def test_scikit_learn_is_loaded_only_when_it_is_needed():
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
