# scikit-learn has no types, and what stubs there are refuse what it accepts.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportOperatorIssue=false
# pyright: reportUnknownLambdaType=false
"""Early stopping, and failed training."""

import copy
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

import ftnn
from ftnn import FTNNClassifier, FTNNRegressor
from ftnn.estimators._samples import Samples
from ftnn.estimators._stopping import Stopping
from ftnn.training import Epoch
from tests.estimators.quick import classifier, diabetes, iris, parameters_of, regressor

# --- stopping ---


def epoch_of(loss: float, test_accuracy: float, **more: Any) -> Epoch:
    return Epoch(**{"stage": "lwt", "layer": 1, "epoch": 1, "rate": 1.0, "loss": loss, "train_accuracy": 50.0,
                    "test_accuracy": test_accuracy, "test_loss": 1.0, "seconds": 0.0, **more})  # fmt: skip


def test_a_stage_ends_without_improvement_but_not_on_its_first_plateau():
    net = ftnn.nn.Network(2, [3], 2)
    stopping = Stopping(lambda epoch: -epoch.loss, tol=0.1, patience=2, keep_best=False)
    assert not any(stopping(epoch_of(loss, 50), net) for loss in (3.0, 2.99, 3.0, 2.98, 3.0))  # has not begun
    answers = [stopping(epoch_of(loss, 50), net) for loss in (2.0, 1.5, 1.45, 1.3, 1.35, 1.25)]
    assert answers == [False, False, False, False, False, True]
    # a new stage starts counting from zero, and undone epochs do not count
    assert not stopping(epoch_of(1.2, 50, stage="ft", layer=0), net)
    assert not stopping(epoch_of(9.9, 50, stage="ft", layer=0, undone=True), net)
    assert stopping.scores == [-3.0, -2.99, -3.0, -2.98, -3.0, -2.0, -1.5, -1.45, -1.3, -1.35, -1.25, -1.2]


def test_only_complete_networks_are_remembered_as_the_best():
    net = ftnn.nn.Network(2, [3, 3], 2)
    stopping = Stopping(lambda epoch: epoch.test_accuracy or 0, tol=0, patience=9, keep_best=True)
    states: list[Any] = []
    for accuracy, stage, layer in ((99, "lwt", 1), (50, "lwt", 2), (70, "lwt", 2), (60, "ft", 0)):
        net.reset_parameters()
        states.append(copy.deepcopy(net.state_dict()))
        stopping(epoch_of(1.0, accuracy, stage=stage, layer=layer), net)
    stopping.restore_best(net)
    assert all(torch.equal(net.state_dict()[name], tensor) for name, tensor in states[2].items())


@pytest.mark.parametrize("has_scale", [False, True])
def test_the_best_network_is_restored_with_or_without_scales(has_scale: bool):
    net = ftnn.nn.Network(2, [3], 2, "F10")
    stopping = Stopping(lambda epoch: epoch.test_accuracy or 0, tol=0, patience=9, keep_best=True)
    for accuracy, scaled in ((90, has_scale), (50, not has_scale)):
        net.layers[0].scale = torch.nn.Parameter(torch.full((3,), accuracy / 10)) if scaled else None
        stopping(epoch_of(1.0, accuracy, stage="direct", layer=0), net)
    stopping.restore_best(net)
    scale = net.layers[0].scale
    assert (scale is not None and scale.tolist() == [9.0] * 3) if has_scale else scale is None


@pytest.mark.parametrize("solver", ["layerwise", "joint"])
@pytest.mark.parametrize("sizes", [(20,), (10, 10)])
def test_early_stopping_restores_the_best_validated_parameters(solver: Any, sizes: Any):
    x, y = iris()
    y = np.where(np.random.default_rng(0).random(len(y)) < 0.2, 0, y)  # noise, to be overfitted
    settings = {
        "function": "F07",
        "hidden_layer_sizes": sizes,
        "solver": solver,
        "gamma": -1,
        "n_iter_no_change": 4,
        "activation": "tanh",
    }
    model = FTNNClassifier(
        early_stopping=True, validation_fraction=0.3, epochs=60, random_state=0, **settings
    ).fit(x, y)
    samples = Samples(x.astype(np.float32), y, np.ones(len(y))).in_order()
    _, validation = samples.split(0.3, model._seed, by_class=True)
    whole = [epoch for epoch in model.history_.epochs if epoch.layer in (0, len(sizes)) and not epoch.undone]
    best = max(epoch.test_accuracy or 0 for epoch in whole) / 100
    assert model.score(validation.x, validation.y) == pytest.approx(best)
    assert model.validation_scores_ is not None
    assert model.validation_scores_ == [
        pytest.approx((epoch.test_accuracy or 0) / 100) for epoch in model.history_.epochs if not epoch.undone
    ]
    assert model.best_validation_score_ == pytest.approx(best)
    first = [epoch for epoch in model.history_.epochs if epoch.layer == model.history_.epochs[0].layer]
    assert len(first) < 60
    assert len(validation) == 45
    assert np.bincount(validation.y).min() >= 9


def test_early_stopping_of_a_regressor_uses_r2():
    x, y = diabetes()
    model = FTNNRegressor(early_stopping=True, epochs=80, random_state=0, activation="tanh").fit(x, y)
    samples = Samples(x.astype(np.float32), y[:, None], np.ones(len(y))).in_order()
    scaled = Samples(samples.x, model.target_scaler_.transform(samples.y), samples.weights)
    # Scaling before ordering, as it is done
    _, validation = scaled.in_order().split(0.1, model._seed, by_class=False)
    expected = model.target_scaler_.transform(model.predict(validation.x)[:, None])
    assert model.best_validation_score_ == pytest.approx(
        1 - np.mean((expected - validation.y) ** 2), rel=1e-4
    )
    assert model.score(x, y) > 0.4


def test_parameters_from_before_the_minimum_have_no_standard_errors():
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 1))
    y = np.sin(x[:, 0]) + 0.5 * random.normal(size=60)
    settings: Any = {"function": "F16", "hidden_layer_sizes": 4, "solver": "lm", "dtype": "float64"}
    model = FTNNRegressor(**settings, random_state=0, activation="tanh", starts=1)
    with pytest.warns(ConvergenceWarning, match="did not converge in 200 iterations"):
        assert model.fit(x, y).history_.covariance is not None
    model.set_params(early_stopping=True, validation_fraction=0.3).fit(x, y)
    assert model.validation_scores_ is not None
    assert model.validation_scores_[-1] < max(model.validation_scores_)
    assert model.history_.covariance is None
    assert "early_stopping=True kept earlier parameters" in model.history_.notes[0]
    line = FTNNRegressor(**{**settings, "function": "p*x", "hidden_layer_sizes": 1}, activation="x",
                         early_stopping=True, epochs=1, random_state=0, starts=1)  # fmt: skip
    assert line.fit(x, y).history_.covariance is not None  # the only iteration is the best


def test_without_early_stopping_no_samples_are_held_out():
    x, y = iris()
    model = classifier().fit(x, y)
    assert model.validation_scores_ is None
    assert model.best_validation_score_ is None
    assert all(epoch.test_accuracy is None for epoch in model.history_.epochs)
    assert model.n_iter_ == len(model.history_.epochs) <= 7
    assert model.loss_curve_ == [epoch.loss for epoch in model.history_.epochs if not epoch.undone]
    assert model.loss_ == model.loss_curve_[-1] == model.history_.loss


def test_training_ends_when_the_loss_no_longer_falls():
    x, y = iris()
    model = FTNNClassifier(gamma=-4, epochs=1000, tol=0.01, n_iter_no_change=3, random_state=0).fit(x, y)
    assert model.n_iter_ < 300


def test_early_stopping_with_rare_classes_and_few_samples():
    x, y = np.random.default_rng(0).normal(size=(12, 3)), np.array([0] * 6 + [1] * 5 + [2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = classifier(early_stopping=True).fit(x, y)
    assert len(model.classes_) == 3
    with pytest.raises(ValueError, match="early_stopping=True needs at least 2 samples"):
        regressor(early_stopping=True).fit(x[:1], [1.0])


# --- failure ---


def test_a_run_that_diverges_warns_and_leaves_finite_parameters():
    x, y = load_digits(return_X_y=True)  # from 0 to 16
    with pytest.warns(
        ConvergenceWarning, match=r"not finite in layer-wise.*Try a smaller gamma: 5; or standardise=True\."
    ):
        model = classifier(function="F14", gamma=6, clip=None, standardise=False).fit(x, y)
    assert model.history_.failed is not None
    assert all(np.isfinite(array).all() for array in parameters_of(model))
    assert np.isfinite(model.predict_proba(x)).all()
    assert set(model.predict(x)) <= set(range(10))


def test_a_diverging_partial_fit_warns_and_restores_parameters():
    x, y = diabetes()
    model = regressor(clip=None).partial_fit(x, y)
    before = parameters_of(model)
    model.set_params(gamma=40)
    with pytest.warns(ConvergenceWarning, match="not finite in joint training"):
        model.partial_fit(x, y)
    assert all(map(np.array_equal, before, parameters_of(model)))
    model.set_params(gamma=-6).partial_fit(x, y)
    assert model.history_.failed is None
    assert model.n_iter_ == 2


@pytest.mark.parametrize("solver", ["lm", "lbfgs"])
def test_a_search_that_has_not_converged_warns(solver: Any, tmp_path: Path):
    x, y = diabetes()
    model = FTNNRegressor(function="F03", hidden_layer_sizes=2, solver=solver, epochs=2, random_state=0)
    with pytest.warns(ConvergenceWarning, match=f"'{solver}' did not converge in 2 iterations.* such as 8"):
        model.fit(x, y)
    ftnn.save(model, tmp_path / "m")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ftnn.load(tmp_path / "m")


@pytest.mark.filterwarnings("error")
def test_notes_that_only_explain_are_no_warnings():
    """Two parameters that scale each other are undetermined, which predictions do not depend on."""
    x, y = diabetes()
    model = FTNNRegressor(function="p*x", hidden_layer_sizes=1, activation="x", solver="lm", random_state=0)
    model.fit(x[:60, :1], 3 * x[:60, 0] + 1 + 0.1 * y[:60] / y.max())
    assert model.history_.converged
    assert any("do not determine" in note for note in model.history_.notes)


def test_a_run_that_learns_nothing_warns():
    x, y = iris()
    with pytest.warns(ConvergenceWarning, match=r"share of each class\. Try a larger gamma: -29"):
        classifier(gamma=-30).fit(x, y)
    x, y = diabetes()
    with pytest.warns(ConvergenceWarning, match=r"the targets' mean\. Try a smaller gamma: 3"):
        regressor(gamma=4).fit(x, y)
