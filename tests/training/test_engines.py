"""Both engines give the same result, and each can be selected."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import ftnn
from ftnn.errors import FtnnError
from ftnn.training._engine_choice import make_engine
from ftnn.training._problem import make_problem
from ftnn.training._settings import Settings
from tests.training.problems import blobs, fit, network

FUNCTIONS = [name for name in ftnn.catalogue if name != "memory"]
SMOOTH = ["F03", "F05", "F11", "F12", "F14", "F16", "F20"]


def engines(function: str, settings: Settings, loss: Any = None) -> tuple[Any, Any]:
    x, y = blobs(samples=64)
    targets = y if loss is None else np.random.default_rng(1).normal(size=(64, 3))
    problem = make_problem(x, targets, inputs=5, outputs=3, dtype="float64", loss=loss)
    pair: list[Any] = []
    for name in ("compiled", "torch"):
        net = network(function, (6, 5, 4), "tanh")
        pair.append(make_engine(name, net, problem, settings, None))
        pair[-1].module = net
    return pair[0], pair[1]


def parameters_of(engine: Any) -> list[np.ndarray[Any, Any]]:
    engine.write_back()
    return [p.detach().numpy().copy() for p in engine.module.parameters()]


@pytest.mark.slow
@pytest.mark.parametrize("function", FUNCTIONS)
def test_both_engines_make_the_same_update_in_each_of_200_steps(function: str) -> None:
    compiled, reference = engines(function, Settings(gamma=-3, batch_size=7))
    random = np.random.default_rng(2)
    for _ in range(200):
        before = parameters_of(compiled)
        reference.restore({f"p{n}": array for n, array in enumerate(before)})
        rows = random.permutation(64)[:7]
        losses = [
            next(iter(engine.epoch(rows, np.array([2.0**-3])))).losses for engine in (compiled, reference)
        ]
        np.testing.assert_allclose(losses[0], losses[1], rtol=1e-10)
        for old, actual, expected in zip(
            before, parameters_of(compiled), parameters_of(reference), strict=True
        ):
            size = np.abs(expected - old).max()
            # A difference of two parameters cannot be more accurate than their last digit.
            allowed = 1e-10 * size + 4e-16 * np.abs(old).max()
            assert np.abs(actual - expected).max() <= allowed


@pytest.mark.slow
@pytest.mark.parametrize("function", SMOOTH)
def test_both_engines_train_smooth_functions_to_the_same_parameters(function: str) -> None:
    x, y = blobs()
    ends: list[list[torch.Tensor]] = []
    for engine in ("compiled", "torch"):
        net = network(function, (6, 5, 4), "logistic")
        fit(net, x, y, gamma=-5, epochs=(2, 2), engine=engine)  # pyright: ignore[reportArgumentType]
        ends.append([p.detach().clone() for p in net.parameters()])
    for actual, expected in zip(*ends, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("activation", ["logistic", "relu", "tanh"])
def test_both_engines_agree_for_squared_errors_and_sample_weights(activation: Any) -> None:
    x, _ = blobs(samples=50)
    random = np.random.default_rng(3)
    targets, weights = random.normal(size=(50, 3)), random.random(50)
    ends: list[list[torch.Tensor]] = []
    for engine in ("compiled", "torch"):
        net = network("F12", (6, 4), activation)
        fit(net, x, targets, gamma=-4, epochs=(2, 1), engine=engine, sample_weight=weights, batch_size=8)  # pyright: ignore[reportArgumentType]
        ends.append([p.detach().clone() for p in net.parameters()])
    for actual, expected in zip(*ends, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-8, atol=1e-10)


def test_the_clip_bounds_each_parameters_summed_gradient_in_both_engines() -> None:
    x, y = blobs(samples=32)
    for engine in ("compiled", "torch"):
        net = network("F03", (4,))
        before = [p.detach().clone() for p in net.parameters()]
        fit(net, 100 * x, y, gamma=0, epochs=1, solver="joint", batch_size=32, clip=0.25, engine=engine)  # pyright: ignore[reportArgumentType]
        moved = max(
            float((p.detach() - old).abs().max()) for p, old in zip(net.parameters(), before, strict=True)
        )
        assert moved == pytest.approx(0.25 / 32, rel=1e-9)


def test_the_compiled_engine_is_the_default_and_says_why_it_cannot_be_used() -> None:
    x, y = blobs(samples=20)
    assert fit(network(), x, y, epochs=1).engine == "compiled"
    adam = functools.partial(torch.optim.Adam, lr=0.01)
    assert fit(network(), x, y, epochs=1, optimizer=adam).engine == "torch"
    with pytest.raises(FtnnError, match="does not support torch optimizers"):
        fit(network(), x, y, epochs=1, optimizer=adam, engine="compiled")
    frozen = network()
    frozen.output.bias.requires_grad_(False)
    assert fit(frozen, x, y, epochs=1).engine == "torch"
    with pytest.raises(FtnnError, match="engine='cuda' is unknown; expected one of auto, compiled, torch"):
        fit(network(), x, y, engine="cuda")  # pyright: ignore[reportArgumentType]


def test_momentum_and_weight_decay_match_torch() -> None:
    x, y = blobs(samples=48)
    net, oracle = network("F03", (4,)), network("F03", (4,))
    fit(
        net,
        x,
        y,
        gamma=-3,
        epochs=3,
        solver="joint",
        momentum=0.9,
        weight_decay=0.01,
        clip=None,
        batch_size=48,
    )
    sgd = torch.optim.SGD(oracle.parameters(), lr=2.0**-3, momentum=0.9, weight_decay=0.01)
    for _ in range(3):  # one mini-batch of all: the order does not matter
        sgd.zero_grad()
        nn.functional.cross_entropy(oracle(torch.tensor(x)), torch.tensor(y)).backward()
        sgd.step()
    for actual, expected in zip(net.parameters(), oracle.parameters(), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-12)


def test_any_torch_optimiser_can_be_used() -> None:
    x, y = blobs(samples=48)
    net, oracle = network("F12", (4,)), network("F12", (4,))

    def adam(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=0.01)

    fit(net, x, y, epochs=4, solver="joint", optimizer=adam, clip=None, batch_size=48)
    other = torch.optim.Adam(oracle.parameters(), lr=0.01)
    for _ in range(4):
        other.zero_grad()
        nn.functional.cross_entropy(oracle(torch.tensor(x)), torch.tensor(y)).backward()
        other.step()
    for actual, expected in zip(net.parameters(), oracle.parameters(), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-12)
