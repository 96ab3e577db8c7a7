"""After a failed fit, the advice names the real cause."""

import math
import re
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import nn

import ftnn
from ftnn.errors import DataError
from ftnn.experiments.paper.mnist.training import AT_CHANCE
from ftnn.nn import Network, Partial, Transfer
from ftnn.training import Epoch, History, fit
from ftnn.training._advice import as_options
from ftnn.training._diagnosis import cause_in, scale_of
from ftnn.training._problem import make_problem
from ftnn.training._verdict import DRAWN, most_frequent, nothing_learned

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(80, 3))
Y = X[:, 0] + 0.1 * X[:, 1] ** 2


def failed(function: Any, x: Any = X, y: Any = Y, **settings: Any) -> History:
    torch.manual_seed(0)
    settings = {"gamma": -2, "epochs": (3, 1), "seed": 0, **settings}
    return fit(Network(x.shape[1], [4], 1, function), x, y, **settings)


def test_a_function_that_leaves_its_domain_is_named_with_an_example():
    history = failed("p*sqrt(q*x) where p in [-1, 1] and q in [1, 2]")
    assert history.failed is not None
    assert history.advice is not None
    assert history.advice.startswith(
        "a formula that is defined for all inputs, or other initial ranges: p*sqrt(q*x)"
    )
    assert "is NaN for " in history.advice
    assert "% of connections and inputs, as at x = -" in history.advice


@pytest.mark.parametrize("first", [-1, 1])
def test_the_share_is_that_of_all_samples_however_they_are_sorted(first: int):
    x = first * np.linspace(-3, 3, 1000)[:, None]
    advice = failed("p*log(q*x) where p in [-1, 1] and q in [1, 2]", x, x[:, 0] ** 2).advice or ""
    found = re.search(r"p\*log\(q\*x\) is NaN for (\d+)% of connections and inputs, as at x = -", advice)
    assert found is not None, advice
    assert 40 <= int(found[1]) <= 60


def test_a_rare_sample_outside_the_domain_is_found():
    x = np.ones((3000, 1))
    x[2500] = -2.0
    advice = failed("p*sqrt(q*x) where p in [-1, 1] and q in [1, 2]", x, x[:, 0]).advice or ""
    assert "p*sqrt(q*x) is NaN for less than 1% of connections and inputs, as at x = -2, " in advice


def test_modules_stay_in_their_modes():
    layer, frozen = Transfer(3, 3, "p*sqrt(q*x) where q in [1, 2]"), nn.BatchNorm1d(3).eval()
    net = nn.Sequential(layer, frozen, nn.Dropout())
    for rows in (X, np.tile(np.abs(X), (9, 1))):  # with a cause, and without: then all samples are tried
        cause_in(net, rows)
        assert [module.training for module in net] == [True, False, True]


def test_a_function_that_overflows_is_named_with_an_example():
    history = failed("p*exp(q*x) where p in [1, 1] and q in [90, 100]")
    assert history.advice is not None
    assert "smaller inputs or initial ranges, or a formula that grows less: p*exp(q*x)" in history.advice
    assert ", p = 1, q = 9" in history.advice


@pytest.mark.parametrize(
    ("function", "dtype", "cause"),
    [
        ("p*exp(q*x) where p in [1e-20, 1e-20] and q in [20, 20]", "float32",
         r"p\*exp\(q\*x\) is inf in float32 at x = 4\.\d+, p = 1e-20, q = 20"),
        ("p*exp(q*x) where p in [1e-20, 1e-20] and q in [20, 20]", "float64", None),
        ("p/cosh(q*x) where q in [20, 20]", "float32",
         r"the slope of p/cosh\(q\*x\) by q is nan in float32 at x = 4\.\d+, p = -?0\.\d+, q = 20"),
        ("p*x where p in [3e37, 3e37]", "float32", r"the sum of 40 values of p\*x is beyond float32"),
        ("p*sqrt(abs(x)) where p in [1, 1]", "float32", None),
    ],
)  # fmt: skip
def test_overflows_are_judged_in_the_networks_own_dtype(function: str, dtype: Any, cause: str | None):
    """Parts of the formula overflow, its slope, or the sum, although every value would fit."""
    x = np.linspace(0, 5, 200)[:, None]
    width = 40 if "3e37" in function else 1
    torch.manual_seed(0)
    net = nn.Sequential(Transfer(width, 4, function, dtype=getattr(torch, dtype)))
    found = cause_in(net, np.tile(x, width))
    if cause is None:
        assert found is None
        return
    assert found is not None
    assert re.fullmatch(f"smaller inputs or initial ranges, or a formula that grows less: {cause}", found)
    history = fit(net, np.tile(x, width), np.tile(np.sin(x), 4), epochs=1, normalise=False, solver="direct")
    assert history.advice == found


@pytest.mark.parametrize(("x", "y", "what"), [(1e4 * X, Y, "inputs"), (X, 1e5 + 1e4 * Y, "targets")])
def test_the_scale_of_the_data_is_named(x: Any, y: Any, what: str):
    history = failed("p*x**2 + q*x where p in [-1, 1] and q in [-1, 1]", x, y, gamma=2, clip=None)
    assert history.failed is not None
    assert history.advice is not None
    assert history.advice.startswith(f"standardised {what}: their root mean square is 1e+0")
    assert history.advice.endswith("; or a smaller gamma: 1")


def test_the_learning_rate_of_a_torch_optimizer_is_the_optimizers_own():
    history = failed("F03", gamma=None, epochs=1, optimizer=partial(torch.optim.SGD, lr=1e-9))
    assert history.failed is not None
    assert history.advice is not None
    assert history.advice.endswith("learning rate of the optimizer")


def test_otherwise_it_is_the_learning_rate():
    assert failed("F03", gamma=9, clip=None).advice == "a smaller gamma: 8"
    assert (
        failed("p*x where p in [0, 0]", gamma=-30).advice
        == "a larger gamma: -29, or the function's grounded()"
    )


def test_a_loss_that_starts_above_the_trivial_one_has_not_grown():
    """A network starts by guessing, which is far worse than predicting the shares of a rare class."""
    rare = (np.arange(len(X)) % 40 == 0).astype(np.int64)
    for seed in range(3):
        history = fit(Network(3, [200], 2, "F16"), X, rare, learning_rate=1e-12, epochs=2, seed=seed)
        assert history.epochs[0].loss == pytest.approx(math.log(2), rel=0.2)
        assert history.advice == "a larger learning_rate: 0.02"


def test_a_rate_far_from_the_networks_default_is_replaced_by_it():
    for rate, found in ((1e6, "a smaller learning_rate: 0.02"), (1e-6, "a larger learning_rate: 0.02")):
        torch.manual_seed(0)
        assert fit(Network(3, [20], 1, "F16"), X, Y, learning_rate=rate).advice == found


@pytest.mark.parametrize("solver", ["direct", "lbfgs", "lm"])
def test_more_epochs_are_advised_while_the_loss_still_falls(solver: Any):
    """Outputs start near 0, so for targets around 5, it takes a while to beat predicting their mean."""
    epochs = 1 if solver == "lm" else 3
    for count in (epochs, 16 * epochs):
        torch.manual_seed(0)
        history = fit(Network(3, [20], 1, "F12", "relu"), X[:60], 5 + Y[:60], solver=solver, epochs=count)
        advised = history.advice or ""
        assert advised == (f"more epochs: epochs={4 * epochs}" if count == epochs else "")
    assert as_options("more epochs: epochs=12") == "more epochs: --epochs 12"


def test_more_epochs_are_not_advised_after_a_callback_has_ended_training():
    def stop(*_: object) -> bool:
        return True

    for solver, found in (("direct", "a larger learning_rate: 0.06"), ("lbfgs", "more starts: starts=16")):
        torch.manual_seed(0)
        settings: Any = {"solver": solver, "epochs": 3, "callbacks": [stop]}
        history = fit(Network(3, [20], 1, "F12", "relu"), X, 5 + Y, **settings)
        assert (history.advice or "").startswith(found)


def test_a_single_sample_of_a_single_class_is_judged_in_good_english():
    zeros = np.zeros(len(X), np.int64)
    torch.manual_seed(2)  # with this one, the untrained network is wrong about the sample
    history = fit(Network(3, [4], 2, "F03"), X, zeros, test=(X[:1], [1]), gamma=-30, epochs=(3, 1), seed=0)
    assert history.failed is not None
    assert "the final accuracy, 0.00 % of 1 sample, is no better than 0.00 %" in history.failed
    assert "is no better than 0, that of predicting the share of each class" in history.failed


def test_a_list_of_connections_is_diagnosed_like_a_matrix():
    layer = Partial(3, 2, "p*log(q*x) where p in [1, 1] and q in [1, 1]", [(0, 1), (1, 2)])
    x = np.array([[-1.0, 2.0, 3.0]])
    assert cause_in(layer, x) is None  # input 0 has no connection
    found = cause_in(layer, -x * [1, -1, 1])
    assert found is not None
    assert "p*log(q*x) is NaN for 50% of connections and inputs, as at x = -3" in found


@pytest.mark.parametrize("estimator", [ftnn.FTNNRegressor, ftnn.FTNNClassifier])
def test_predictions_raise_an_error_that_names_the_cause_instead_of_nan(estimator: Any):
    y = Y if estimator is ftnn.FTNNRegressor else Y > 0
    function = "p*sqrt(x + q) where p in [-1, 1] and q in [6, 7]"
    model: Any = estimator(function=function, random_state=0, calibrate=False)
    model.set_params(standardise=False, epochs=40, hidden_layer_sizes=9).fit(X, y)
    assert np.isfinite(model.predict(X[:5]) if y is Y else model.predict_proba(X[:5])).all()
    with pytest.raises(DataError, match=r"not finite for 1 of 2 rows .*Try a formula .* as at x = -100"):
        model.predict([[1, 1, 1], [1, -100, 1]])


def test_a_failed_fit_warns_with_the_cause_and_leaves_finite_parameters():
    model = ftnn.FTNNRegressor(
        function="p*log(q*x) where p in [-1, 1] and q in [1, 2]", epochs=2, random_state=0, calibrate=False
    )
    with pytest.warns(ConvergenceWarning, match=r"Try a formula that is defined .* p\*log\(q\*x\) is NaN"):
        model.fit(X, Y)
    assert all(bool(torch.isfinite(parameter).all()) for parameter in model.network_.parameters())
    with pytest.raises(DataError, match="no predictions"):
        model.predict(X)


class TestNothingLearned:
    @pytest.mark.parametrize("gamma", [-6, -5, -4])  # it may end a little above or below the mean's loss
    def test_a_loss_within_a_margin_of_the_means_has_learned_nothing(self, gamma: int):
        noise = np.random.default_rng(1).normal(size=400)
        x = 1e-9 * RANDOM.normal(size=(400, 3))
        history = failed("p*x", x, (noise - noise.mean()) / noise.std(), gamma=gamma)
        assert history.failed is not None
        assert history.loss is not None
        word = "hardly" if history.loss < 0.5 else "no"
        assert f"is {word} better than 0.5, the loss of always predicting the targets' mean" in history.failed

    @pytest.mark.parametrize("slope", [0.0, 0.042])
    def test_a_small_effect_in_many_samples_is_learned(self, slope: float):
        """Of the variance, 0.2 % is explained, but by six standard errors."""
        x = np.linspace(-1.7, 1.7, 20_000)[:, None]
        noise = np.random.default_rng(0).normal(size=len(x))
        noise -= x[:, 0] * (x[:, 0] @ noise) / (x[:, 0] @ x[:, 0])
        net = nn.Sequential(Transfer(1, 1, "p*x", bias=True, dtype=torch.float64))
        history = fit(net, x, slope * x[:, 0] + noise, solver="lm")
        assert (history.failed is None) == (slope > 0)

    def test_a_small_effect_on_balanced_classes_is_learned(self):
        random = np.random.default_rng(0)
        x = random.normal(size=(20_000, 1))
        y = (random.random(len(x)) < 1 / (1 + np.exp(-0.25 * x[:, 0]))).astype(int)
        torch.manual_seed(0)
        history = fit(Network(1, [4], 2, "p*x"), x, y, epochs=2, seed=0)
        assert 53 < (history.epochs[-1].train_accuracy or 0) < 55.6
        assert history.failed is None

    def test_accuracies_are_compared_with_the_most_frequent_class_of_the_same_samples(self):
        random = np.random.default_rng(0)
        x, y = 1e-9 * random.normal(size=(400, 3)), (np.arange(400) % 5 == 0).astype(int)
        torch.manual_seed(0)
        test = (x[:40], (np.arange(40) < 10).astype(int))
        history = fit(Network(3, [4], 2, "p*x"), x, y, gamma=-2, epochs=(20, 1), test=test)
        assert history.failed is not None
        assert "the final accuracy, 75.00 % of 40 samples, is no better than 75.00 %" in history.failed

    def test_a_normalised_run_is_judged_by_the_network_it_ends_in(self):
        rng = np.random.default_rng(0)
        x = 1e6 * rng.random((200, 3))
        model = ftnn.FTNNRegressor(standardise=False, epochs=5, random_state=0)
        with pytest.warns(ConvergenceWarning, match="always predicting the targets' mean"):
            model.fit(x, x[:, 0])
        assert (model.history_.loss or 1) < 0.499  # of mini-batches, which are normalised by their own means
        assert model.score(x, x[:, 0]) < -0.1  # with running statistics that have not settled

    def test_always_predicting_the_most_frequent_class_is_learning_nothing(self):
        y = (np.arange(400) % 20 == 0).astype(int)  # 5 %
        x = 1e-9 * RANDOM.normal(size=(400, 3))
        torch.manual_seed(0)
        history = fit(Network(3, [4], 2, "p*x"), x, y, gamma=-2, epochs=(20, 1), seed=0)
        assert history.failed is not None
        assert "95.00 % of 400 samples, is no better than 95.00 %, that of always predicting the most " in (
            history.failed
        )
        assert "better than 0.1985, that of predicting the share of each class" in history.failed

    def test_a_rare_class_may_be_learned_at_the_same_accuracy(self):
        x = RANDOM.normal(size=(2000, 1))
        y = (RANDOM.random(2000) < 0.3 / (1 + np.exp(-2 * x[:, 0]))).astype(int)
        torch.manual_seed(0)
        history = fit(Network(1, [8], 2, "F16"), x, y, epochs=5, seed=0)
        assert history.failed is None  # no sample is probably of the rare class, but the loss is lower

    @pytest.mark.parametrize("loss", ["squared", "absolute", "logistic"])
    def test_constant_targets_are_learned_if_they_are_met(self, loss: str):
        x, y = RANDOM.normal(size=(200, 2)), np.ones(200)
        torch.manual_seed(0)
        history = fit(Network(2, [4], 1, "F12"), x, y, epochs=1, loss=loss, learning_rate=1e-5)
        assert history.failed is not None
        assert "the loss of always predicting the targets' mean" in history.failed
        assert history.advice == "other targets: all of these are 1, so there is nothing to learn"
        torch.manual_seed(0)
        assert fit(Network(2, [4], 1, "F12"), x, y, epochs=200, loss=loss).failed is None

    def test_labels_that_are_all_equal_are_learned_if_they_are_met(self):
        torch.manual_seed(0)
        assert fit(Network(3, [4], 2, "F12"), X, np.zeros(80, int), epochs=20).failed is None

    def test_mini_batches_are_compared_with_guessing(self):
        random = np.random.default_rng(0)
        batches = [(1e-9 * random.normal(size=(50, 3)), random.integers(2, size=50)) for _ in range(4)]
        torch.manual_seed(0)
        history = fit(Network(3, [4], 2, "p*x"), batches, gamma=-8, solver="joint", epochs=1)
        assert history.failed is not None
        assert "% of 200 samples, is " in history.failed
        assert "better than 50.00 %, that of guessing" in history.failed

    @pytest.mark.parametrize("accuracy", [19.99, 20.0, 20.01])
    def test_the_papers_experiments_fail_up_to_an_accuracy_whatever_the_loss(self, accuracy: float):
        arguments: Any = {"inputs": 1, "outputs": 10, "dtype": "float64", "loss": "softmax"}
        problem = make_problem(np.ones((500, 1)), np.arange(500) % 10, **arguments)
        epoch = Epoch("ft", 0, 1, 0.1, 2.0, accuracy, None, None, 0.0)
        assert nothing_learned(problem, epoch) is None
        reason = f"the final accuracy, {accuracy:.2f} %, is no better than chance"
        expected = None if accuracy > 20 else (reason, pytest.approx(DRAWN * np.log(10)))
        assert nothing_learned(problem, epoch, AT_CHANCE) == expected

    def test_accuracies_count_samples_and_losses_follow_the_weights(self):
        arguments: Any = {"inputs": 1, "outputs": 3, "dtype": "float64", "loss": "softmax"}
        problem = make_problem(np.ones((4, 1)), np.array([0, 1, 1, 2]), weights=[3, 0.5, 0.5, 0], **arguments)
        share, loss = most_frequent(problem)
        assert share == 0.5
        assert loss == pytest.approx(-(0.75 * np.log(0.75) + 0.25 * np.log(0.25)))  # the mean weight is 1


def test_equal_samples_are_named_instead_of_the_settings():
    net = nn.Sequential(Transfer(1, 1, "p*x", bias=True))
    history = fit(net, np.ones((50, 1)), RANDOM.normal(size=50), solver="lm")
    assert history.advice == (
        "other inputs: these are the same for all samples, so targets cannot depend on them"
    )


def test_advice_can_be_spelled_as_options():
    net = nn.Sequential(Transfer(1, 1, "p*x", bias=True, dtype=torch.float64))
    x = np.linspace(-1, 1, 50)[:, None]
    advice = fit(net, x, x[:, 0] ** 2, solver="lm").advice or ""
    assert (advice, as_options(advice)) == ("more starts: starts=16", "more starts: --starts 16")
    advice = failed("p*x where p in [0, 0]", gamma=-30).advice or ""
    assert as_options(advice) == "a larger --gamma -29"
    assert as_options("a larger learning_rate: 3e-09, or standardised inputs") == (
        "a larger --learning-rate 3e-09, or standardised inputs"
    )


def test_data_of_unit_size_need_no_scaling():
    arguments: Any = {"inputs": 3, "outputs": 1, "dtype": "float64"}
    assert scale_of(make_problem(X, Y, loss="squared", **arguments)) is None
    assert scale_of(make_problem(X, 0 * Y, loss="squared", **arguments)) is None
    assert "targets" in (scale_of(make_problem(X, 1e-6 * Y, loss="huber", **arguments)) or "")
