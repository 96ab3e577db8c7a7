"""Training a memory layer pair by pair matches the paper's equations, written out in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ftnn.errors import FtnnError
from ftnn.formula import Function
from ftnn.formula._numpy import evaluate
from ftnn.kernels.program import program_of, signature
from ftnn.nn._activations import activation_formula
from ftnn.training._losses import loss_formula
from ftnn.training.compiled.buffers import LINEAR, Samples, Shape, Steps, Targets
from ftnn.training.compiled.sequence import CompiledMemoryNetwork

Array = np.ndarray[Any, np.dtype[Any]]
MEMORY = Function("tanh(p*x + q*C + r)")


class Oracle:
    """C_t = F(x_t; C_{t-1}), y = φ(Σ C_t + b), linear output; one-step δ, as C_{t-1} is held constant."""

    def __init__(
        self, function: Function, inputs: int, hidden: int, outputs: int, activation: str, loss: str
    ):
        random = np.random.default_rng(1)
        self.function, self.activation, self.loss = function, activation, loss
        self.matrices = {n: random.uniform(-0.5, 0.5, (inputs, hidden)) for n in function.parameters}
        self.bias = random.normal(0, 0.1, hidden)
        self.weight, self.output_bias = (
            random.normal(0, 0.3, (outputs, hidden)),
            random.normal(0, 0.1, outputs),
        )
        self.cell = np.zeros((inputs, hidden))

    def _activated(self, u: Array) -> tuple[Array, Array]:
        """φ and its slope."""
        if self.activation == "logistic":
            y = 1 / (1 + np.exp(-u))
            return y, y * (1 - y)
        if self.activation == "tanh":
            return np.tanh(u), 1 - np.tanh(u) ** 2
        return np.maximum(u, 0), (u > 0).astype(float)

    def step(self, x: Array, label: int, target: Array, rate: float, clip: float) -> tuple[float, bool]:
        at = {**self.matrices, "x": x[:, None], "C": self.cell}
        value = evaluate(self.function.expr, at)
        slopes = {n: evaluate(self.function.slope(n), at) for n in self.function.parameters}
        y, slope = self._activated(value.sum(0) + self.bias)
        out = self.weight @ y + self.output_bias
        if self.loss == "softmax":
            shares = np.exp(out - out.max()) / np.exp(out - out.max()).sum()
            loss, error = -np.log(shares[label]), shares - (np.arange(len(out)) == label)
        else:
            loss, error = 0.5 * ((out - target) ** 2).sum(), out - target
        below = self.weight.T @ error * slope

        def clipped(g: Array) -> Array:
            return rate * np.clip(g, -clip, clip)

        self.weight -= clipped(np.outer(error, y))
        self.output_bias -= clipped(error)
        self.bias -= clipped(below)
        for name, slope in slopes.items():
            self.matrices[name] -= clipped(below * slope)
        self.cell = value
        return float(loss), int(out.argmax()) == label

    def network(self, dtype: Any = "float64") -> CompiledMemoryNetwork:
        inputs, hidden = self.cell.shape
        activation = activation_formula(self.activation)
        shape = Shape(program_of(*signature(self.function)), inputs, hidden, activation)
        network = CompiledMemoryNetwork(
            shape, Shape(LINEAR, hidden, len(self.output_bias)), loss_formula(self.loss), dtype
        )
        network.layers[0].load([*self.matrices.values()], self.bias)
        network.layers[1].load([self.weight.T], self.output_bias)
        return network

    def assert_same(self, network: CompiledMemoryNetwork, rtol: float = 1e-10) -> None:
        (matrices, bias), ((weight,), output_bias) = (layer.read() for layer in network.layers)
        actual = [*matrices, bias, weight.T, output_bias]
        for one, other in zip(
            actual, [*self.matrices.values(), self.bias, self.weight, self.output_bias], strict=True
        ):
            np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol)


def train(
    network: CompiledMemoryNetwork,
    x: Array,
    labels: Array | None = None,
    targets: Array | None = None,
    **settings: Any,
) -> Steps:
    outputs = network.layers[1].shape.outputs
    is_softmax = network.loss.text == "softmax"
    make, answers = (Targets.labels, labels) if is_softmax else (Targets.numbers, targets)
    expected = make(answers, outputs, len(x), network.dtype, None)
    return network.train_sequence(Samples.dense(x, network.dtype), expected, **settings)


def sequence(time: int, inputs: int, outputs: int) -> tuple[Array, Array, Array]:
    random = np.random.default_rng(2)
    return (
        random.normal(size=(time, inputs)),
        random.integers(outputs, size=time),
        random.normal(size=(time, outputs)),
    )


@pytest.mark.parametrize("activation", ["logistic", "relu", "tanh"])
@pytest.mark.parametrize("loss", ["softmax", "squared"])
@pytest.mark.parametrize(
    ("inputs", "hidden", "outputs", "time"), [(10, 16, 10, 12), (3, 17, 2, 7), (1, 1, 1, 5)]
)
def test_training_pair_by_pair_matches_the_papers_equations(
    activation: str, loss: str, inputs: int, hidden: int, outputs: int, time: int
):
    oracle = Oracle(MEMORY, inputs, hidden, outputs, activation, loss)
    network = oracle.network()
    x, labels, targets = sequence(time, inputs, outputs)
    done = train(network, x, rate=0.1, labels=labels, targets=targets)
    steps = [oracle.step(*pair, 0.1, np.inf) for pair in zip(x, labels, targets, strict=True)]
    np.testing.assert_allclose(done.losses, [loss for loss, _ in steps], rtol=1e-10)
    assert done.finite
    if loss == "softmax":
        assert done.right == sum(right for _, right in steps)
    oracle.assert_same(network)


@pytest.mark.parametrize("clip", [0.01, 0.1])
def test_clipping_limits_every_gradient(clip: float):
    oracle = Oracle(MEMORY, 5, 19, 4, "logistic", "softmax")
    network = oracle.network()
    x, labels, targets = sequence(9, 5, 4)
    train(network, x, rate=0.2, clip=clip, labels=labels)
    for pair in zip(x, labels, targets, strict=True):
        oracle.step(*pair, 0.2, clip)
    oracle.assert_same(network)


@pytest.mark.parametrize("pieces", [(4, 4), (3, 5), (1, 1, 6), (5, 3)])
def test_a_pass_in_pieces_that_keeps_its_state_equals_a_whole_pass(pieces: tuple[int, ...]):
    oracle = Oracle(MEMORY, 5, 18, 4, "tanh", "squared")
    whole, parts = oracle.network(), oracle.network()
    x, _, targets = sequence(8, 5, 4)
    train(whole, x, rate=0.1, targets=targets)
    start = 0
    for n, length in enumerate(pieces):
        part = slice(start, start + length)
        train(parts, x[part], rate=0.1, targets=targets[part], keep_state=n > 0)
        start += length
    for pair in zip(x, np.zeros(8, int), targets, strict=True):
        oracle.step(*pair, 0.1, np.inf)
    oracle.assert_same(whole)
    oracle.assert_same(parts)


def test_each_pass_starts_with_an_empty_memory():
    oracle = Oracle(MEMORY, 5, 18, 4, "tanh", "squared")
    network = oracle.network()
    x, _, targets = sequence(7, 5, 4)
    for _ in range(2):
        train(network, x, rate=0.1, targets=targets)
        oracle.cell[:] = 0
        for pair in zip(x, np.zeros(7, int), targets, strict=True):
            oracle.step(*pair, 0.1, np.inf)
        oracle.cell = np.zeros((5, 18))
    oracle.assert_same(network)


@pytest.mark.parametrize("formula", ["p*sin(q*x + C) + r", "logistic(p*C)*q*x", "p*C + q*x"])
def test_other_memory_functions_match_the_equations(formula: str):
    oracle = Oracle(Function(formula), 4, 9, 3, "logistic", "softmax")
    network = oracle.network()
    x, labels, targets = sequence(6, 4, 3)
    train(network, x, rate=0.1, labels=labels)
    for pair in zip(x, labels, targets, strict=True):
        oracle.step(*pair, 0.1, np.inf)
    oracle.assert_same(network)


def test_float32_follows_float64():
    oracle = Oracle(MEMORY, 10, 37, 10, "logistic", "softmax")
    network = oracle.network("float32")
    x, labels, targets = sequence(20, 10, 10)
    done = train(network, x, rate=0.1, labels=labels)
    losses = [oracle.step(*pair, 0.1, np.inf)[0] for pair in zip(x, labels, targets, strict=True)]
    np.testing.assert_allclose(done.losses, losses, rtol=1e-4)
    oracle.assert_same(network, 1e-4)


def test_a_loss_that_is_not_finite_ends_the_pass_and_updates_nothing():
    oracle = Oracle(MEMORY, 3, 5, 2, "relu", "squared")
    network = oracle.network()
    x, _, targets = sequence(6, 3, 2)
    x[4, 1] = np.nan
    done = train(network, x, rate=0.1, targets=targets)
    for pair in zip(x[:4], np.zeros(4, int), targets[:4], strict=True):
        oracle.step(*pair, 0.1, np.inf)
    assert not done.finite
    assert np.isfinite(done.losses).tolist() == [True] * 4 + [False]
    oracle.assert_same(network)


def test_a_sequence_of_another_width_is_refused():
    network = Oracle(MEMORY, 3, 5, 2, "relu", "softmax").network()
    x, labels, _ = sequence(6, 3, 2)
    with pytest.raises(FtnnError, match="2 features; the first layer has 3 inputs"):
        train(network, x[:, :2], labels, rate=0.1)
