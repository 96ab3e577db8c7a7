"""The state of a network during training, and after training fails."""

import copy
from typing import Any

import numpy as np
import pytest
import torch

from ftnn.nn import Network
from ftnn.training import Epoch, fit, initialise, measure

RNG = np.random.default_rng(0)
X = RNG.normal(size=(64, 4)).astype(np.float32)
Y = (X[:, 0] * X[:, 1] > 0).astype(np.int64)


def network(hidden: list[int], seed: int = 0) -> Network:
    net = Network(4, hidden, 2, "F16", "tanh")
    initialise(net, seed)
    return net


@pytest.mark.parametrize("engine", ["compiled", "torch"])
def test_callbacks_see_the_whole_network_as_soon_as_its_last_layer_is_trained(engine: Any):
    seen: list[tuple[Epoch, float]] = []

    def record(epoch: Epoch, net: Network) -> None:
        with torch.no_grad():
            seen.append((epoch, measure(net(torch.from_numpy(X)).numpy(), Y, "softmax")[1]))

    fit(network([6, 5]), X, Y, epochs=(4, 2), gamma=-2, engine=engine, test=(X, Y), callbacks=(record,))
    last_layer = [(epoch, loss) for epoch, loss in seen if epoch.layer != 1]
    assert len(last_layer) >= 5
    for epoch, loss in last_layer:
        if not epoch.undone:
            assert epoch.test_loss == pytest.approx(loss, rel=1e-4)


@pytest.mark.parametrize("engine", ["compiled", "torch"])
def test_a_failed_run_keeps_the_output_layer_of_its_last_good_epoch(engine: Any):
    states: list[Any] = []

    def keep(epoch: Epoch, net: Network) -> None:
        states.append(copy.deepcopy(net.state_dict()))

    net = Network(4, [6], 2, "F04", "relu")
    initialise(net, 0)
    history = fit(net, 3 * X, Y, epochs=20, gamma=0, clip=None, engine=engine, callbacks=(keep,))
    assert history.failed is not None
    assert "not finite" in history.failed
    assert len(states) == len(history.epochs) > 0  # some epochs succeeded before
    assert all(torch.equal(tensor, states[-1][name]) for name, tensor in net.state_dict().items())


def test_a_regression_that_ends_worse_than_the_mean_has_failed():
    y = X @ np.array([1.0, 2.0, -1.0, 0.5], dtype=np.float32)
    net = Network(4, [50], 1, "F16", "tanh")
    for gamma, advice in ((-5, None), (3, "a smaller gamma: 2"), (-40, "a larger gamma: -39")):
        initialise(net, 0)
        history = fit(net, X, y[:, None], epochs=(10, 3), gamma=gamma)
        if advice is None:
            assert history.failed is None
        else:
            assert history.failed is not None
            assert f"{0.5 * y.var():.4g}" in history.failed
            assert history.advice is not None
            assert history.advice.startswith(advice)
    weights = np.where(np.arange(64) < 32, 0.0, 2.0)
    initialise(net, 0)
    history = fit(net, X, y[:, None], epochs=(3, 0), gamma=-40, sample_weight=weights)
    assert history.failed is not None
    assert f"{0.5 * y[32:].var():.4g}" in history.failed
    # always predicting the mean is perfect for constant targets
    initialise(net, 0)
    assert fit(net, X, np.zeros((64, 1)), epochs=(2, 0), gamma=-40).failed is None


def test_a_network_without_hidden_layers_can_be_initialised_and_trained():
    net = Network(4, [], 2)
    initialise(net, 0)
    y = (X[:, 0] > 0).astype(np.int64)
    history = fit(net, X, y, epochs=20, gamma=0)
    assert [epoch.stage for epoch in history.epochs] == ["joint"] * 20
    assert (history.epochs[-1].train_accuracy or 0) > 90
