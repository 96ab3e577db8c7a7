# scikit-learn has no types, and what stubs there are refuse what it accepts.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportOperatorIssue=false
# pyright: reportUnknownLambdaType=false
"""Predictions, sample weights, labels, seeds and partial fits of the estimators."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.preprocessing import StandardScaler

import ftnn
from ftnn import FTNNClassifier, FTNNRegressor
from ftnn.estimators._samples import MOST_VISITS, Samples, checked_weights
from tests.estimators.quick import are_equal, classifier, diabetes, ignore_chance, iris, regressor

ACTIVATIONS = {
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
}


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
    model = classifier(function=function, hidden_layer_sizes=sizes, activation="tanh").fit(x, y)
    outputs = by_hand(model.network_, x)
    expected = np.exp(outputs) / np.exp(outputs).sum(1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(x), expected, rtol=1e-4)
    np.testing.assert_allclose(model.predict_log_proba(x), np.log(expected), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(model.decision_function(x), outputs, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(model.predict(x), expected.argmax(1))
    assert model.score(x, y) == np.mean(expected.argmax(1) == y)
    kinds = [function] if len(sizes) == 1 else function
    for layer, kind in zip(model.network_.layers, kinds, strict=True):
        expected = ftnn.nn.Transfer(1, 1, kind).kinds
        assert layer.kinds == expected


def test_predictions_are_scaled_back_to_the_targets():
    x, y = diabetes()
    model = regressor().fit(x, y)
    expected = by_hand(model.network_, x)[:, 0] * y.std() + y.mean()
    np.testing.assert_allclose(model.predict(x), expected, rtol=1e-5)
    assert model.predict(x).dtype == np.float64


@pytest.mark.slow
def test_the_scale_of_the_targets_does_not_matter():
    x, y = diabetes()
    expected = regressor(dtype="float64").fit(x, y).predict(x)
    for scale, shift in ((1e6, 0), (1e-6, 0), (1, 1e6), (1e-3, 5.0)):
        predicted = regressor(dtype="float64").fit(x, y * scale + shift).predict(x)
        np.testing.assert_allclose((predicted - shift) / scale, expected, rtol=1e-4)


def test_a_large_mean_of_the_targets_is_learned_in_float32():
    x, y = diabetes()
    predicted = regressor(epochs=30).fit(x, y + 1.7e9).predict(x) - 1.7e9
    assert np.corrcoef(predicted, y)[0, 1] > 0.7
    assert len(np.unique(predicted)) > 400


def test_constant_targets_and_one_sample_are_learned():
    x = np.random.default_rng(0).normal(size=(30, 3))
    model = regressor(epochs=200, gamma=-4).fit(x, np.full(30, 7.25))
    np.testing.assert_allclose(model.predict(x), 7.25, atol=0.05)
    np.testing.assert_allclose(
        regressor(epochs=200, gamma=-4).fit(x[:1], [3.0]).predict(x[:1]), 3.0, atol=0.05
    )


def test_several_targets_are_learned_together():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 5))
    y = x @ rng.normal(size=(5, 3)) * [1, 100, 0.01] + [0, 5, 1000]
    model = FTNNRegressor(epochs=60, random_state=0).fit(x, y)
    assert model.predict(x).shape == (200, 3)
    assert model.network_.out_features == 3
    assert model.score(x, y) > 0.97
    # one column is one column, and no column is none
    assert regressor().fit(x, y[:, :1]).predict(x).shape == (200, 1)
    assert regressor().fit(x, y[:, 0]).predict(x).shape == (200,)
    np.testing.assert_array_equal(
        regressor().fit(x, y[:, :1]).predict(x)[:, 0], regressor().fit(x, y[:, 0]).predict(x)
    )


def test_without_hidden_layers_estimators_are_linear_models():
    settings: Any = {
        "hidden_layer_sizes": (),
        "dtype": "float64",
        "random_state": 0,
        "n_iter_no_change": 10**6,
    }
    x, y = diabetes()
    x = x[:, :4]
    model = FTNNRegressor(gamma=-1, epochs=300, batch_size=len(x), **settings).fit(x, y)  # gradient descent
    np.testing.assert_allclose(model.predict(x), LinearRegression().fit(x, y).predict(x), rtol=1e-6)
    x, y = iris()
    x, y = x[y > 0, :2], y[y > 0]
    model = FTNNClassifier(gamma=0, epochs=3000, batch_size=len(x), **settings).fit(x, y)
    expected = LogisticRegression(C=np.inf, tol=1e-10).fit(x, y).predict_proba(x)
    np.testing.assert_allclose(model.predict_proba(x), expected, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["layerwise", "joint"])
def test_both_engines_give_the_same_predictions(solver: Any):
    x, y = iris()
    settings = {"solver": solver, "dtype": "float64", "activation": "tanh", "function": "F16"}
    one, other = (classifier(engine=engine, **settings).fit(x, y) for engine in ("compiled", "torch"))
    assert (one.history_.engine, other.history_.engine) == ("compiled", "torch")
    np.testing.assert_allclose(one.predict_proba(x), other.predict_proba(x), rtol=1e-9)


@pytest.mark.slow
def test_momentum_and_weight_decay_have_an_effect():
    x, y = iris()
    settings: Any = {"solver": "joint", "gamma": -4, "epochs": 20}
    plain = classifier(**settings).fit(x, y)
    fast = classifier(**settings, momentum=0.9).fit(x, y)
    small = classifier(**settings, weight_decay=0.1).fit(x, y)
    assert (plain.history_.engine, fast.history_.engine) == ("compiled", "compiled")
    assert fast.loss_ < plain.loss_
    assert torch.linalg.norm(small.network_.output.weight) < torch.linalg.norm(plain.network_.output.weight)


def test_predictions_do_not_depend_on_other_samples():
    x, y = load_digits(return_X_y=True)
    x = StandardScaler().fit_transform(x)
    model = classifier().fit(x[:300], y[:300])
    whole = model.predict_proba(np.tile(x, (4, 1)))  # more than one piece
    assert whole.shape == (4 * len(x), 10)
    np.testing.assert_allclose(whole[: len(x)], whole[-len(x) :], rtol=1e-12)
    one_by_one = np.concatenate([model.predict_proba(x[n : n + 1]) for n in range(20)])
    np.testing.assert_allclose(whole[:20], one_by_one, rtol=1e-12)


# --- samples and weights ---


@pytest.mark.parametrize(
    "settings", [{}, {"solver": "joint", "function": "F12"}, {"hidden_layer_sizes": (5, 5)}]
)
@pytest.mark.parametrize("make", [classifier, regressor])
def test_weights_equal_repetitions_and_order_does_not_matter(make: Any, settings: Any):
    rng = np.random.default_rng(0)
    x, y = iris()
    weights = rng.integers(0, 4, len(y))
    weighted = make(**settings).fit(x, y, sample_weight=weights)
    repeated = make(**settings).fit(x.repeat(weights, axis=0), y.repeat(weights))
    order = rng.permutation(len(y))
    shuffled = make(**settings).fit(x[order], y[order], sample_weight=weights[order])
    assert are_equal(weighted, repeated)
    assert are_equal(weighted, shuffled)
    np.testing.assert_array_equal(weighted.predict(x), repeated.predict(x))


def test_small_equal_weights_change_nothing():
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
    model = FTNNClassifier(epochs=60, gamma=-3, random_state=0).fit(x, y, sample_weight=np.array(weights)[y])
    np.testing.assert_allclose(model.predict_proba(x[:1])[0], [0.75, 0.25], atol=0.05)
    target = FTNNRegressor(epochs=60, gamma=-5, random_state=0)
    model = target.fit(x, y.astype(float), sample_weight=np.array(weights)[y])
    np.testing.assert_allclose(model.predict(x[:1]), [0.25], atol=0.05)


def test_samples_of_weight_zero_are_ignored():
    x, y = iris()
    weights = (y != 2).astype(float)
    model = classifier().fit(x, y, sample_weight=weights)
    np.testing.assert_array_equal(model.classes_, [0, 1])
    assert are_equal(model, classifier().fit(x[y != 2], y[y != 2]))


def test_weights_are_distributed_over_visits():
    samples = Samples(np.arange(4.0)[:, None], np.arange(4), np.array([1.0, 2.5, 0.5, 3.0])).expanded()
    np.testing.assert_array_equal(samples.y, [0, 1, 1, 1, 2, 3, 3, 3])
    np.testing.assert_allclose(samples.weights, [1, *[2.5 / 3] * 3, 0.5, 1, 1, 1])
    # a large weight makes an epoch longer, but not without end
    for original in ([1e6, 1e6, 1e3, 0], [100, 1, 1, 1]):
        weights = checked_weights(original, 4)
        np.testing.assert_allclose(weights / weights.sum(), np.array(original) / np.sum(original))
        visits = Samples(np.zeros((4, 1)), np.zeros(4), weights).take(np.flatnonzero(weights)).expanded()
        assert len(visits) <= (MOST_VISITS + 1) * 4


def test_sorting_samples_considers_every_column():
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
    ordered = np.column_stack([one.x, one.y, one.weights])
    assert sorted(map(tuple, columns.tolist())) == sorted(map(tuple, ordered.tolist()))


# --- labels ---

LABELS = {
    "texts": ["setosa", "versicolor", "virginica"],
    "numbers with gaps": [-7, 3, 1000],
    "whole floats": [-1.0, 0.0, 5.0],
    "bytes-like texts": np.array(["a", "bb", "ccc"], dtype=object),
    "booleans": [False, True, True],
}


@pytest.mark.parametrize("labels", LABELS.values(), ids=list(LABELS))
def test_labels_of_any_type_are_predicted(labels: Any):
    x, y = iris()
    targets = np.asarray(labels)[y]
    model = classifier(epochs=20).fit(x, targets)
    np.testing.assert_array_equal(model.classes_, np.unique(targets))
    assert model.predict(x).dtype == targets.dtype
    assert model.score(x, targets) > 0.85
    assert model.predict_proba(x).shape == (len(x), len(model.classes_))
    np.testing.assert_array_equal(model.classes_[model.predict_proba(x).argmax(1)], model.predict(x))
    assert model.fit(x.tolist(), targets.tolist()).score(x, targets) > 0.85


def test_two_classes_have_one_decision_value():
    x, y = iris()
    x, y = x[y > 0], y[y > 0]
    model = classifier(epochs=20).fit(x, y)
    decision, probability = model.decision_function(x), model.predict_proba(x)
    assert decision.shape == (len(x),)
    np.testing.assert_allclose(1 / (1 + np.exp(-decision)), probability[:, 1], rtol=1e-9)
    np.testing.assert_array_equal(model.predict(x), np.where(decision > 0, 2, 1))


@pytest.mark.parametrize("samples", [2, 3, 15, 17])
def test_few_samples_form_one_short_batch(samples: int):
    x = np.random.default_rng(0).normal(size=(samples, 4))
    x[:2, 0] = -1, 1
    y = np.where(x[:, 0] > 0, "right", "left")
    model = FTNNClassifier(random_state=0).fit(x, y)
    assert model.score(x, y) == 1
    assert FTNNRegressor(random_state=0).fit(x, x[:, 0]).score(x, x[:, 0]) > 0.9


# --- random numbers ---


def test_the_result_depends_only_on_the_seed():
    x, y = iris()
    one, same, other = (classifier(random_state=seed).fit(x, y) for seed in (1, 1, 2))
    assert are_equal(one, same)
    assert are_equal(one, one.__class__(**one.get_params()).fit(x, y))
    assert not are_equal(one, other)
    again = classifier(random_state=np.random.RandomState(1)).fit(x, y)
    assert are_equal(one, again)
    np.random.seed(1)  # noqa: NPY002 - what random_state=None draws from
    assert are_equal(one, classifier(random_state=None).fit(x, y))


def test_torchs_random_state_is_unchanged():
    x, y = iris()
    before = torch.get_rng_state()
    classifier().fit(x, y).partial_fit(x, y).predict(x)
    assert torch.equal(torch.get_rng_state(), before)


# --- partial_fit ---


@ignore_chance  # in so few steps
def test_partial_fit_equals_one_epoch_of_joint_training():
    # With the whole data in one mini-batch the order does not matter.
    x, y = iris()
    settings = {"solver": "joint", "batch_size": 150, "dtype": "float64", "n_iter_no_change": 100}
    step_by_step = classifier(**settings)
    for epochs in range(1, 5):
        step_by_step.partial_fit(x, y, classes=[0, 1, 2])
        at_once = classifier(epochs=epochs, **settings).fit(x, y)
        np.testing.assert_allclose(step_by_step.predict_proba(x), at_once.predict_proba(x), rtol=1e-9)
        np.testing.assert_allclose(step_by_step.loss_curve_, at_once.loss_curve_, rtol=1e-9)
        assert step_by_step.n_iter_ == epochs
        assert [epoch.epoch for epoch in step_by_step.history_.epochs] == list(range(1, epochs + 1))


def test_partial_fit_accepts_pieces_with_missing_classes():
    x, y = iris()
    model = FTNNClassifier(random_state=0, gamma=-2)
    rows = np.random.default_rng(0).permutation(len(y))
    for _ in range(20):
        for piece in np.array_split(rows, 6):
            model.partial_fit(x[piece], np.array(["a", "b", "c"])[y[piece]], classes=["c", "b", "a"])
    assert model.score(x, np.array(["a", "b", "c"])[y]) > 0.93
    assert model.n_iter_ == 120


def test_partial_fit_continues_after_fit_with_new_orders():
    x, y = diabetes()
    model = regressor(epochs=20).fit(x, y)
    loss, epochs = model.loss_, model.n_iter_
    for _ in range(20):
        model.partial_fit(x, y)
    assert model.n_iter_ == epochs + 20
    assert model.loss_ < loss
    losses = model.loss_curve_[-20:]
    assert len(set(losses)) == 20


def test_partial_fit_keeps_the_first_scale_of_targets():
    x, y = diabetes()
    model = regressor()
    for _ in range(30):
        model.partial_fit(x[:200], y[:200]).partial_fit(x[200:], y[200:])
    assert model.target_scaler_.mean_ == pytest.approx(y[:200].mean())
    assert model.score(x, y) > 0.4


def test_partial_fit_uses_sample_weights():
    x, y = iris()
    weights = np.random.default_rng(0).integers(0, 3, len(y))
    one = classifier().partial_fit(x, y, classes=[0, 1, 2], sample_weight=weights)
    other = classifier().partial_fit(x.repeat(weights, 0), y.repeat(weights), classes=[0, 1, 2])
    assert are_equal(one, other)


@pytest.mark.parametrize(("solver", "epochs"), [("direct", 40), ("lm", 800)])
@pytest.mark.parametrize("loss", ["absolute", "huber", "log(cosh(5*(y - t)))"])
def test_robust_losses_ignore_outliers(loss: str, solver: Any, epochs: int):
    x = np.random.default_rng(0).normal(size=(400, 1))
    y = np.where(np.arange(400) % 10 == 0, 30, x[:, 0])
    settings: Any = {"hidden_layer_sizes": 8, "solver": solver, "epochs": epochs, "random_state": 0}
    model = clone(FTNNRegressor(loss=loss, **settings)).fit(x, y)
    plain = FTNNRegressor(**settings).fit(x, y)
    errors = [np.abs(m.predict(x) - x[:, 0]).mean() for m in (model, plain)]
    assert errors[0] < 0.7 * errors[1]


def test_early_stopping_with_another_loss_measures_that_loss():
    x, y = diabetes()
    model = regressor(loss="absolute", early_stopping=True).fit(x, y)
    assert model.validation_scores_ == [
        -(epoch.test_loss or 0) for epoch in model.history_.epochs if not epoch.undone
    ]


def test_the_softmax_is_the_loss_of_a_classifier():
    x, y = iris()
    assert are_equal(classifier(loss="softmax").fit(x, y), classifier().fit(x, y))
