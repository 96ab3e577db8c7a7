"""Where direct training starts: calibrated networks, shifts and signs of normalised sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import ftnn
from ftnn.nn import Network
from ftnn.training import fit
from ftnn.training._normalised import Normalise, training_form
from ftnn.training._outcome import digest
from ftnn.training._start import defaults_for
from tests.training.problems import blobs


def net(function: str, layers: int = 4, width: int = 12, activation: str = "tanh", seed: int = 0) -> Network:
    torch.manual_seed(seed)
    return Network(5, [width] * layers, 3, function=function, activation=activation, dtype=torch.float64)


def norms(network: nn.Module, seed: int = 0) -> list[Normalise]:
    x, _ = blobs(samples=200)
    form = training_form(network, x, seed)
    assert form is not None
    return [module for module in form.module if isinstance(module, Normalise)]


@pytest.mark.parametrize("function", ["F01", "F07", "F10", "F12", "F18", "p*gauss(q*x + r)"])
def test_the_trained_network_computes_what_was_tested_during_training(function: str):
    """Also with constants, which calibration draws again."""
    x, y = blobs(samples=300)
    network = net(function)
    history = fit(network, x, y, epochs=5, test=(x, y))
    with torch.no_grad():
        accuracy = 100 * (network(torch.from_numpy(x)).argmax(1).numpy() == y).mean()
    assert history.accuracy == pytest.approx(accuracy)
    assert accuracy > 60


def test_catalogue_functions_start_from_ranges_of_the_formula():
    x, y = blobs(samples=200)
    paper, formula = net("F12"), net("p*sin(q*x + r)")
    for network in (paper, formula):
        fit(network, x, y, epochs=1)
    assert paper.layers[0].ranges == formula.layers[0].ranges
    assert paper.layers[0].function == ftnn.catalogue["F12"]
    assert digest(paper) == digest(formula)  # drawn from the seed of `fit`


def test_only_networks_that_are_as_they_were_drawn_are_calibrated():
    x, y = blobs(samples=200)
    network = net("F12")
    with torch.no_grad():
        network.layers[1].theta["p"][0, 0] = 0.05
    before = network.layers[0].matrix("q").clone()
    fit(network, x, y, epochs=1, learning_rate=1e-9)
    assert (network.layers[0].matrix("q") - before).abs().max() < 1e-6
    trained = net("F12")
    fit(trained, x, y, epochs=20)
    history = fit(trained, x, y, epochs=1, learning_rate=1e-9)
    assert history.epochs[-1].loss < 0.5  # it continues


@pytest.mark.parametrize("settings", [{}, {"normalise": False}, {"calibrate": False}])
def test_a_network_whose_output_layer_is_trained_keeps_its_function(settings: dict[str, Any]):
    x, y = blobs(samples=200)
    network = net("F12")
    network.hidden.requires_grad_(requires_grad=False)
    fit(network, x, y, epochs=10, learning_rate=0.05)
    network.hidden.requires_grad_()
    before = network(torch.from_numpy(x))
    assert network.layers[0].is_untouched
    fit(network, x, y, epochs=1, learning_rate=1e-9, **settings)
    assert torch.allclose(network(torch.from_numpy(x)), before, atol=0.3)


@pytest.mark.parametrize("solver", ["lm", "lbfgs"])
def test_a_search_continues_from_a_trained_output_layer(solver: Any):
    x, y = blobs(samples=60)
    network = net("F12", layers=1, width=4)
    with torch.no_grad():
        network.output.weight[0, 0] += 1
    before = network.layers[0].matrix("q").clone()
    fit(network, x, y, solver=solver, epochs=0)
    assert torch.equal(network.layers[0].matrix("q"), before)
    ftnn.training.initialise(network, seed=1)
    assert network.has_untouched_output


def test_calibration_can_be_switched_off():
    x, y = blobs(samples=200)
    for normalise in (True, False):
        network = net("F12")
        before = network.layers[0].matrix("q").clone()
        fit(network, x, y, epochs=1, learning_rate=1e-9, calibrate=False, normalise=normalise)
        assert (network.layers[0].matrix("q") - before).abs().max() < 1e-6


def test_without_normalisation_the_network_itself_is_calibrated():
    x, y = blobs(samples=200)
    network = net("F12")
    fit(network, x, y, epochs=1, learning_rate=1e-9, normalise=False)
    assert network.layers[0].ranges["q"] != (-10, 10)
    sums = network.layers[0](torch.from_numpy(x)).detach()
    assert sums.var(0).mean() == pytest.approx(1, rel=0.1)


def test_squares_of_signed_inputs_start_shifted():
    assert all(bool((norm.bias == 0).all()) for norm in norms(net("F12")))
    *below, last = norms(net("F18"))
    assert all(bool((norm.bias == 1).all()) for norm in below)
    assert bool((last.bias == 0).all())  # the output layer is linear


def test_below_functions_of_one_sign_units_differ_in_sign():
    *below, last = norms(net("F01"))
    for norm in below:
        assert norm.weight.abs().unique().tolist() == [0.5]
        assert 0 < (norm.weight < 0).float().mean() < 1
    assert bool((last.weight > 0).all())
    assert all(bool((norm.weight > 0).all()) for norm in norms(net("F12")))


def test_the_start_depends_only_on_the_seed():
    first, again, other = (norms(net("F01"), seed)[0].weight for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


SIN, TAN, SINH = "p*sin(q*x + r)", "p*tan(q*x + r)", "p*sinh(q*x + r)"


@pytest.mark.parametrize(
    ("function", "layers", "activation", "rate", "decay"),
    [
        (SIN, 1, "relu", 0.02, 0.0),
        (SIN, 2, "relu", 0.01, 0.0),
        (SIN, 10, "relu", 0.01, 0.0),
        (SIN, 11, "tanh", 0.003, 0.0),
        (TAN, 2, "tanh", 0.003, 0.1),
        (TAN, 2, "relu", 0.003, 0.1),
        (SINH, 1, "relu", 0.02, 0.0),
        (SINH, 2, "relu", 0.003, 0.1),
        (SINH, 2, "x*logistic(x)", 0.003, 0.1),
        (SINH, 2, "tanh", 0.01, 0.0),
        (SINH, 2, "logistic", 0.01, 0.0),
    ],
)
def test_the_learning_rate_and_the_weight_decay_depend_on_the_network(
    function: str, layers: int, activation: str, rate: float, decay: float
):
    x, y = blobs(samples=100)
    network = net(function, layers, 100, activation)
    assert defaults_for(network) == {"learning_rate": rate, "weight_decay": decay}
    assert fit(network, x, y, epochs=1).epochs[0].rate == rate
    assert fit(network, x, y, epochs=1, learning_rate=0.2).epochs[0].rate == 0.2


@pytest.mark.parametrize(
    ("function", "sign"),
    [("p*log(q*x)", 1), ("p*sqrt(q*x)", 1), ("p*sqrt(q*x)", -1), ("p*sqrt(x - q)", 1), ("sqrt(p)*x", 1)],
)
def test_functions_that_could_leave_their_domain_train(function: str, sign: int):
    random = np.random.default_rng(0)
    x = random.uniform(0.5, 2, (600, 5))
    y = (np.log(x).sum(1) + x[:, 0] * x[:, 1] > 1).astype(int)
    for seed in range(3):
        torch.manual_seed(seed)
        network = Network(5, [16], 2, function=function, activation="tanh", dtype=torch.float64)
        history = fit(network, sign * x, y, epochs=10, seed=seed)
        assert history.failed is None
        assert (history.epochs[-1].train_accuracy or 0) > 88


def test_mini_batches_of_two_train_and_so_do_streams_of_them():
    x, y = blobs(samples=400)
    whole, streamed = net("p*sin(q*x + r)"), net("p*sin(q*x + r)")
    history = fit(whole, x, y, epochs=6, batch_size=2)
    assert (history.epochs[-1].train_accuracy or 0) > 90
    batches = [(x[n : n + 2], y[n : n + 2]) for n in range(0, len(x), 2)]
    history = fit(streamed, batches, epochs=6)
    assert (history.epochs[-1].train_accuracy or 0) > 90


@pytest.mark.parametrize(("normalise", "grounding"), [(True, False), (False, True)])
def test_grounding_is_advised_only_where_sums_are_not_normalised(normalise: bool, grounding: bool):
    random = np.random.default_rng(0)
    x, y = random.normal(size=(300, 5)), random.integers(3, size=300)
    history = fit(net("F03", 1), x, y, epochs=1, learning_rate=1e-6, normalise=normalise)
    assert history.advice is not None
    assert history.advice.startswith("a larger learning_rate: ")
    assert ("grounded()" in history.advice) is grounding
