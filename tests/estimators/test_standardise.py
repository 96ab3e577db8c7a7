# scikit-learn has no types, and what stubs there are refuse what it accepts.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportOperatorIssue=false
"""Standardised inputs and targets, and the defaults that depend on the data."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.preprocessing import StandardScaler

from ftnn import FTNNClassifier, FTNNRegressor
from ftnn.estimators._parameters import even_batch, settings_of
from ftnn.nn import Network
from tests.estimators.quick import are_equal, ignore_chance, iris

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3)) * [1, 1000, 1e-3] + [0, 5e4, 7]
Z = (X - X.mean(0)) / X.std(0)
Y = np.sin(Z[:, 0]) + Z[:, 1] * Z[:, 2]
LABELS = (Y > 0).astype(int)
QUICK: dict[str, Any] = {"hidden_layer_sizes": (8,), "epochs": 20, "random_state": 0, "dtype": "float64"}
SOLVERS = [{}, {"gamma": -4}, {"solver": "joint"}]


def classifier(**settings: Any) -> FTNNClassifier:
    return FTNNClassifier(**QUICK | settings)


def regressor(**settings: Any) -> FTNNRegressor:
    return FTNNRegressor(**QUICK | settings)


# --- standardising ---


@ignore_chance
@pytest.mark.parametrize("settings", SOLVERS, ids=str)
def test_units_of_inputs_and_targets_do_not_matter(settings: Any):
    # Powers of 2 and no shift: rounding is the same, and so is the order of samples.
    scale = 2.0 ** np.array([10, -3, 20])
    one, other = regressor(**settings).fit(X, Y), regressor(**settings).fit(X * scale, Y * 1024)
    np.testing.assert_allclose(other.predict(X * scale), one.predict(X) * 1024, rtol=1e-9)
    one, other = classifier(**settings).fit(X, LABELS), classifier(**settings).fit(X * scale, LABELS)
    np.testing.assert_allclose(other.predict_proba(X * scale), one.predict_proba(X), rtol=1e-9)


def test_shifted_units_give_the_same_predictions_up_to_rounding():
    def fahrenheit(celsius: Any) -> Any:
        return celsius * 1.8 + 32

    one = regressor().fit(X, Y)
    other = regressor().fit(fahrenheit(X), fahrenheit(Y))
    np.testing.assert_allclose(other.predict(fahrenheit(X)), fahrenheit(one.predict(X)), rtol=1e-5)
    assert other.loss_ == pytest.approx(one.loss_, rel=1e-5)  # of standardised targets


@ignore_chance
def test_standardising_equals_a_scaler_in_front():
    scaled = StandardScaler().fit_transform(X)
    for make, y in ((classifier, LABELS), (regressor, Y)):
        inside, before = make().fit(X, y), make(standardise=False).fit(scaled, y)
        np.testing.assert_allclose(inside.predict(X), before.predict(scaled), rtol=1e-6)
        assert before.scaler_ is None
        np.testing.assert_allclose(inside.scaler_.mean_, X.mean(0))
        assert not np.allclose(make(standardise=False).fit(X / 100, y).predict(X / 100), inside.predict(X))


def test_float32_keeps_small_differences_of_large_inputs():
    model = regressor(dtype="float32", epochs=60).fit(X + 1.7e9, Y)
    assert model.score(X + 1.7e9, Y) > 0.5


def test_outliers_count_as_five_standard_deviations():
    model = regressor().fit(X, Y)
    limit = X.mean(0) + 5 * X.std(0)
    np.testing.assert_allclose(
        model.predict(np.vstack([limit * 2, limit * 1e300])), model.predict([limit] * 2)
    )
    assert not np.allclose(model.predict([limit]), model.predict([X.mean(0) + 4 * X.std(0)]))


def test_constant_features_are_harmless():
    constant = np.column_stack([X, np.full(60, 3.0), np.full(60, 1e9 + 0.1)])
    model = regressor().fit(constant, Y)
    assert np.isfinite(model.predict(constant)).all()
    np.testing.assert_array_equal(model.scaler_.scale_[3:], 1)
    np.testing.assert_allclose(model.scaler_.transform(constant)[:, 3:], 0, atol=1e-5)


def test_numbers_without_a_finite_variance_are_refused():
    with pytest.raises(ValueError, match=r"numbers as large as 1e\+200 cannot be standardised"):
        regressor().fit(np.where(np.arange(60)[:, None] == 4, 1e200, X), Y)
    with pytest.raises(ValueError, match=r"numbers as large as 1e\+200 cannot be standardised"):
        regressor().fit(X, np.where(np.arange(60) == 4, 1e200, Y))


def test_several_targets_keep_their_units():
    targets = np.column_stack([Y, 1e6 * Z[:, 0] + 1e7])
    model = regressor(epochs=100).fit(X, targets)
    np.testing.assert_allclose(model.target_scaler_.mean_, targets.mean(0))
    residuals = (model.predict(X) - targets) / targets.std(0)
    assert (residuals.std(0) < 0.5).all()


def test_weights_count_in_the_scaling():
    weights = RNG.integers(0, 4, 60)
    for make, y in ((classifier, LABELS), (regressor, Y)):
        weighted = make().fit(X, y, sample_weight=weights)
        repeated = make().fit(X.repeat(weights, 0), y.repeat(weights))
        np.testing.assert_allclose(weighted.scaler_.mean_, np.average(X, 0, weights))
        np.testing.assert_array_equal(weighted.scaler_.scale_, repeated.scaler_.scale_)
        assert are_equal(weighted, repeated)
        fractions = np.linspace(0.2, 2.5, 60)
        scaler = make().fit(X, y, sample_weight=fractions).scaler_
        np.testing.assert_allclose(scaler.mean_, np.average(X, 0, fractions))


@ignore_chance
@pytest.mark.parametrize("first", ["fit", "partial_fit"])
def test_partial_fit_keeps_the_scaling_of_the_first_call(first: str):
    for model, y in ((classifier(), LABELS), (regressor(), Y)):
        more = {"classes": [0, 1]} if first == "partial_fit" and model.__class__ is FTNNClassifier else {}
        getattr(model, first)(X[:40], y[:40], **more)
        np.testing.assert_allclose(model.scaler_.mean_, X[:40].mean(0))
        model.set_params(standardise=False).partial_fit(X[40:], y[40:])
        np.testing.assert_allclose(model.scaler_.mean_, X[:40].mean(0))


@ignore_chance
def test_partial_fit_standardises_every_call():
    pieces = slice(40), slice(40, 60)
    one, other = classifier(), classifier(standardise=False)
    for rows in pieces:
        one.partial_fit(X[rows], LABELS[rows], classes=[0, 1])
        other.partial_fit(one.scaler_.transform(X[rows]), LABELS[rows], classes=[0, 1])
    assert are_equal(one, other)


def test_the_network_sees_standardised_inputs_and_gives_standardised_targets():
    model = regressor().fit(X, Y)
    outputs = model.network_(torch.tensor(model.scaler_.transform(X))).detach().numpy()
    np.testing.assert_allclose(model.target_scaler_.inverse_transform(outputs)[:, 0], model.predict(X))


def test_pickled_estimators_keep_the_scaling():
    for model in (classifier().fit(X, LABELS), regressor().fit(X, Y)):
        again = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
        np.testing.assert_allclose(again.scaler_.mean_, X.mean(0))


# --- defaults ---


def test_estimators_train_directly_unless_gamma_is_given():
    stages = {
        None: regressor().fit(X, Y).history_.epochs[0].stage,
        -4: regressor(gamma=-4).fit(X, Y).history_.epochs[0].stage,
    }
    assert stages == {None: "direct", -4: "lwt"}


def parameters(**given: Any) -> dict[str, Any]:
    return FTNNRegressor(**given).get_params()


@pytest.mark.parametrize("samples", [1, 20, 133, 1000, 100_000])
def test_small_data_get_enough_steps(samples: int):
    settings = settings_of(parameters(), samples)
    steps = -(-samples // settings["batch_size"]) * settings["epochs"]
    assert steps >= 1000
    assert settings["epochs"] == 10 or steps < 1000 + samples
    assert settings_of(parameters(epochs=3), samples)["epochs"] == 3
    assert settings_of(parameters(gamma=-4), samples)["epochs"] == 100


@pytest.mark.parametrize("samples", [1, 2, 33, 65, 133, 1347, 10**6])
def test_no_mini_batch_is_much_smaller_than_the_others(samples: int):
    size = even_batch(samples)
    batches = -(-samples // size)
    last = samples - (batches - 1) * size
    assert size <= 64
    assert last >= 0.5 * size
    assert settings_of(parameters(batch_size=7), samples)["batch_size"] == 7


def test_weight_decay_is_a_default_only_of_adamw():
    def decay(**given: Any) -> Any:
        settings = settings_of(parameters(**given), 100)
        return settings["optimizer"], settings["weight_decay"]

    assert decay() == decay(optimizer="adamw") == ("adamw", 0.3)
    assert decay(weight_decay=0.0) == ("adamw", 0.0)
    assert decay(optimizer="sgd") == ("sgd", 0.0)
    assert decay(momentum=0.9) == decay(gamma=-4) == decay(solver="joint") == (None, 0.0)


@ignore_chance
def test_schedules_are_followed_to_their_end():
    settings: Any = {"epochs": 30, "tol": 1e9, "n_iter_no_change": 1}
    assert classifier(**settings).fit(X, LABELS).n_iter_ == 30
    assert classifier(**settings, early_stopping=True).fit(X, LABELS).n_iter_ == 30
    assert classifier(**settings, schedule="constant").fit(X, LABELS).n_iter_ < 30
    assert classifier(**settings, schedule="cosine", solver="joint").fit(X, LABELS).n_iter_ == 30
    assert classifier(**settings, solver="joint", gamma=0).fit(X, LABELS).n_iter_ < 30


def test_the_default_function_is_more_than_a_weight():
    x, y = iris()
    network: Network = FTNNClassifier(epochs=1, random_state=0).fit(x, y).network_
    assert "x" in {str(symbol) for symbol in network.layers[0].function.derivative("x").free_symbols}
