"""Compiled epochs match plain torch, step by step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import ftnn
from ftnn.errors import FtnnError
from ftnn.formula import Function
from ftnn.kernels import transfer
from ftnn.kernels.codegen.target import DType
from ftnn.kernels.program import program_of, signature
from ftnn.nn import Activation
from ftnn.nn._activations import activation_formula
from ftnn.training._losses import loss_formula
from ftnn.training._rules import RULES, CompiledRule
from ftnn.training.compiled import network as compiled_network
from ftnn.training.compiled import step
from ftnn.training.compiled.buffers import LINEAR, Samples, Shape, Targets
from ftnn.training.compiled.network import SGD, CompiledNetwork

Array = np.ndarray[Any, np.dtype[Any]]
FUNCTIONS = [name for name in ftnn.catalogue if name != "memory"]
ACTIVATIONS: tuple[Activation, ...] = ("logistic", "relu", "tanh")
LOSSES = ("softmax", "squared")
ACTIVATE: dict[str, Callable[[Tensor], Tensor]] = {
    "logistic": torch.sigmoid,
    "relu": torch.relu,
    "tanh": torch.tanh,
    "x*logistic(x)": torch.nn.functional.silu,
    "softplus(x) - 1": lambda x: torch.nn.functional.softplus(x) - 1,
    "max(x, 0.1*x)": lambda x: torch.nn.functional.leaky_relu(x, 0.1),
    "x": lambda x: x,
}
ELEMENTWISE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "squared": lambda y, t: 0.5 * (y - t) ** 2,
    "absolute": lambda y, t: (y - t).abs(),
    "huber": lambda y, t: torch.nn.functional.huber_loss(y, t, reduction="none"),
    "logistic": lambda y, t: torch.nn.functional.binary_cross_entropy_with_logits(y, t, reduction="none"),
    "log(cosh(y - t))": lambda y, t: torch.log(torch.cosh(y - t)),
}


class Oracle:
    """The same network in float64 torch: reference functions with torch's activations, loss and autograd."""

    def __init__(
        self,
        functions: Sequence[Function],
        sizes: Sequence[int],
        activation: str | Sequence[str],
        loss: str,
        seed: int = 0,
    ):
        self.random = np.random.default_rng(seed)
        hidden = len(sizes) - 2
        self.activations = [activation] * hidden if isinstance(activation, str) else list(activation)
        self.loss = loss
        pairs = list(pairwise(sizes))
        kinds = [*functions, LINEAR.function]
        formulas = [*map(activation_formula, self.activations), None]
        self.shapes = [
            Shape(LINEAR if f is LINEAR.function else program_of(*signature(f)), n, m, activation)
            for f, (n, m), activation in zip(kinds, pairs, formulas, strict=True)
        ]
        self.matrices = [
            [torch.from_numpy(self._drawn(f, name, n, m)) for name in (*f.parameters, *f.constants)]
            for f, (n, m) in zip(kinds, pairs, strict=True)
        ]
        self.biases = [torch.from_numpy(self.random.normal(0, 0.1, m)) for m in sizes[1:]]

    def _drawn(self, function: Function, name: str, n: int, m: int) -> Array:
        if name in function.constants:
            return self.random.choice(function.choices[name], (n, m))
        low, high = (-0.5, 0.5) if function is LINEAR.function else function.init.get(name, (-0.1, 0.1))
        return self.random.uniform(low, high, (n, m))

    @property
    def parameters(self) -> list[Tensor]:
        trained = [m[: len(s.program.parameters)] for s, m in zip(self.shapes, self.matrices, strict=True)]
        return [*(t for part in trained for t in part), *self.biases]

    def outputs(self, x: Array, upto: int | None = None) -> Tensor:
        h, last = torch.from_numpy(x), len(self.shapes) - 1
        for n, (shape, matrices, bias) in enumerate(
            zip(self.shapes, self.matrices, self.biases, strict=True)
        ):
            h = transfer(shape.program.function, h, matrices, "reference") + bias
            if n < last:
                h = ACTIVATE[self.activations[n]](h)
            if n + 1 == upto:
                break
        return h

    def gradients(self, data: Data, rows: Array) -> tuple[float, list[Tensor]]:
        """The sum of the samples' losses, and its gradients."""
        parameters = self.parameters
        for p in parameters:
            p.requires_grad_()
        out = self.outputs(data.x[rows])
        if self.loss == "softmax":
            losses = torch.nn.functional.cross_entropy(
                out, torch.from_numpy(data.labels[rows]), reduction="none"
            )
        else:
            losses = ELEMENTWISE[self.loss](out, torch.from_numpy(data.targets[rows])).sum(1)
        if data.weights is not None:
            losses = losses * torch.from_numpy(data.weights[rows])
        total = losses.sum()
        gradients = torch.autograd.grad(total, parameters)
        for p in parameters:
            p.requires_grad_(False)
        return float(total.detach()), list(gradients)

    def step(self, data: Data, rows: Array, rate: float, clip: float | None) -> float:
        total, gradients = self.gradients(data, rows)
        for p, g in zip(self.parameters, gradients, strict=True):
            p -= rate / len(rows) * (g if clip is None else g.clamp(-clip, clip))
        return total / len(rows)

    def network(
        self,
        batch_size: int,
        dtype: DType = "float64",
        rule: CompiledRule = SGD,
        clip_norm: float | None = None,
        threads: int = 1,
    ) -> CompiledNetwork:
        """The compiled network, with this one's parameters."""
        network = CompiledNetwork(
            self.shapes, loss_formula(self.loss), dtype, batch_size, rule, clip_norm, threads
        )
        for layer, matrices, bias in zip(network.layers, self.matrices, self.biases, strict=True):
            layer.load([m.numpy() for m in matrices], bias.numpy())
        return network

    def assert_same(self, network: CompiledNetwork, rtol: float = 1e-10) -> None:
        layers = [layer.read() for layer in network.layers]
        flat = [
            m for (ms, _), s in zip(layers, self.shapes, strict=True) for m in ms[: len(s.program.parameters)]
        ]
        for one, other in zip([*flat, *(bias for _, bias in layers)], self.parameters, strict=True):
            expected = other.detach().numpy()
            np.testing.assert_allclose(
                one, expected, rtol=rtol, atol=rtol * max(float(np.abs(expected).max()), 1e-3)
            )


class Data:
    """Samples with a share of zeros, and their labels and targets."""

    def __init__(self, count: int, features: int, outputs: int, density: float, *, weighted: bool = False):
        random = np.random.default_rng(5)
        self.x = random.normal(size=(count, features))
        self.x[random.random((count, features)) >= density] = 0
        self.labels = random.integers(outputs, size=count)
        self.targets = random.normal(size=(count, outputs))
        self.weights = random.uniform(0, 2, count) if weighted else None
        self.order = random.permutation(count)

    def expected(self, loss: str, dtype: DType = "float64") -> Targets:
        """The targets for a network with this loss."""
        count, outputs = self.targets.shape
        if loss == "softmax":
            return Targets.labels(self.labels, outputs, count, dtype, self.weights)
        return Targets.numbers(self.targets, outputs, count, dtype, self.weights)


def compare(
    oracle: Oracle,
    data: Data,
    batch_size: int,
    *,
    rate: float = 0.05,
    clip: float | None = None,
    steps: int = 4,
) -> None:
    """Check that parameters and loss agree after each of some steps."""
    network, samples = oracle.network(batch_size), Samples.of(data.x, "float64")
    expected = data.expected(oracle.loss)
    for n in range(min(steps, -(-len(data.order) // batch_size))):
        rows = data.order[n * batch_size : (n + 1) * batch_size]
        done = network.train(samples, expected, rows, rate=rate, clip=clip)
        loss = oracle.step(data, rows, rate, clip)
        assert done.finite
        np.testing.assert_allclose(done.losses, [loss], rtol=1e-10)
        oracle.assert_same(network)


def functions(*names: str) -> list[Function]:
    return [ftnn.catalogue[name] if name in ftnn.catalogue else Function(name) for name in names]


# ---- against torch


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_trains_like_torch(name: str):
    n = FUNCTIONS.index(name)
    activation, loss = ACTIVATIONS[n % 3], LOSSES[n % 2]
    compare(Oracle(functions(name, name), (23, 17, 3, 4), activation, loss), Data(18, 23, 4, 0.3), 5)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("density", [0.2, 1.0])
def test_activations_losses_and_densities_match_torch(activation: Activation, loss: str, density: float):
    oracle = Oracle(functions("F12", "F09", "F16"), (20, 19, 18, 17, 3), activation, loss)
    compare(oracle, Data(40, 20, 3, density, weighted=True), 16)


@pytest.mark.parametrize("batch_size", [1, 5, 16, 33, 100])
def test_batch_sizes_and_a_short_last_batch_match_torch(batch_size: int):
    """The last mini-batch has one sample, or is the only one."""
    data = Data(max(2 * batch_size + 1, 67), 17, 3, 0.4)
    compare(Oracle(functions("F16"), (17, 33, 3), "relu", "softmax"), data, batch_size, steps=3)


def test_a_short_last_batch_can_be_trained_in_one_call():
    oracle, data = Oracle(functions("F16"), (17, 9, 3), "tanh", "softmax"), Data(21, 17, 3, 0.4)
    network = oracle.network(8)
    done = network.train(Samples.of(data.x, "float64"), data.expected(oracle.loss), data.order, rate=0.1)
    losses = [oracle.step(data, data.order[n : n + 8], 0.1, None) for n in (0, 8, 16)]
    np.testing.assert_allclose(done.losses, losses, rtol=1e-10)
    oracle.assert_same(network)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 1, 17, 2), (129, 3, 1), (1, 129, 3), (17, 129, 17)])
def test_odd_widths_match_torch(sizes: tuple[int, ...]):
    oracle = Oracle(functions("F12", "F16")[: len(sizes) - 2], sizes, "tanh", "squared")
    compare(oracle, Data(20, sizes[0], sizes[-1], 0.4), 7)


@pytest.mark.parametrize("clip", [1e-3, 0.05, 1000.0])
def test_the_clip_limits_each_sum_over_the_mini_batch(clip: float):
    compare(
        Oracle(functions("F03", "F12"), (18, 17, 9, 3), "tanh", "squared"),
        Data(30, 18, 3, 0.4),
        10,
        clip=clip,
    )


@pytest.mark.parametrize("density", [0.2, 1.0])
def test_a_matrix_with_several_functions_matches_torch(density: float):
    mixed = ftnn.Mixed(["F12", "F03", "F08", "p*rect(q*x + r)"]).function
    compare(Oracle([mixed, mixed], (19, 17, 5, 3), "relu", "softmax"), Data(24, 19, 3, density), 8)


def test_functions_of_all_shapes_match_torch():
    for formula in (
        "where(x > 0, p*x, q*x)",
        "g*x",
        "p*(cosh(q*x) - 1) + (q*x - r)",
        "p*exp(-1/abs(x))",
        "p*x*abs(x)**0.5",
    ):
        compare(Oracle(functions(formula), (20, 9, 3), "logistic", "softmax"), Data(18, 20, 3, 0.3), 6)


def test_predictions_of_every_layer_match_torch():
    oracle, data = Oracle(functions("F12", "F09"), (20, 17, 9, 3), "relu", "softmax"), Data(37, 20, 3, 0.3)
    network, samples = oracle.network(8), Samples.of(data.x, "float64")
    for upto in (1, 2, 3, None):
        np.testing.assert_allclose(
            network.predict(samples, upto), oracle.outputs(data.x, upto), rtol=1e-10, atol=1e-12
        )


def test_correct_predictions_are_counted_before_their_own_update():
    oracle, data = Oracle(functions("F03"), (17, 9, 3), "tanh", "softmax"), Data(30, 17, 3, 1.0)
    expected = int((oracle.outputs(data.x).argmax(1).numpy() == data.labels).sum())
    done = oracle.network(30).train(
        Samples.of(data.x, "float64"), data.expected("softmax"), data.order, rate=5.0
    )
    assert done.right == expected


def test_float32_follows_float64():
    oracle, data = Oracle(functions("F12", "F16"), (40, 33, 17, 5), "tanh", "softmax"), Data(96, 40, 5, 0.3)
    network, samples = oracle.network(16, "float32"), Samples.of(data.x, "float32")
    expected = data.expected("softmax", "float32")
    for n in range(0, 96, 16):
        done = network.train(samples, expected, data.order[n : n + 16], rate=0.1, clip=1000.0)
        np.testing.assert_allclose(
            done.losses, [oracle.step(data, data.order[n : n + 16], 0.1, 1000.0)], rtol=1e-4
        )
    oracle.assert_same(network, rtol=1e-4)


# ---- chunks


def trained(network: CompiledNetwork) -> list[Array]:
    return [a.copy() for layer in network.layers for a in (*layer.matrices, layer.bias)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("formula", ["F12", "F08", "p/(x + q)"])
def test_chunks_do_not_change_a_bit(dtype: DType, formula: str):
    oracle, data = Oracle(functions(formula), (20, 17, 3), "relu", "softmax"), Data(101, 20, 3, 0.3)
    samples = Samples.of(data.x, dtype)
    whole, pieces = oracle.network(4, dtype), oracle.network(4, dtype)
    expected = data.expected("softmax", dtype)
    first = whole.train(samples, expected, data.order, rate=0.01)
    chunks = list(pieces.train_in_chunks(samples, expected, data.order, rates=np.full(26, 0.01)))
    assert len(chunks) > 1
    assert np.array_equal(np.concatenate([c.losses for c in chunks]), first.losses)
    assert sum(c.right for c in chunks) == first.right
    assert all(np.array_equal(a, b) for a, b in zip(trained(whole), trained(pieces), strict=True))


def test_the_same_start_gives_the_same_bits():
    oracle, data = Oracle(functions("F12"), (20, 17, 3), "relu", "softmax"), Data(64, 20, 3, 0.3)
    results: list[list[Array]] = []
    for _ in range(2):
        network = oracle.network(16, "float32")
        network.train(
            Samples.of(data.x, "float32"), data.expected("softmax", "float32"), data.order, rate=0.1
        )
        results.append(trained(network))
    assert all(np.array_equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("seconds", [0.9, 0.25, 0.01, 1e-4])
def test_compiled_code_returns_to_python_within_a_second(seconds: float, monkeypatch: pytest.MonkeyPatch):
    """This holds for any mini-batch of less than a second, even if mini-batches become slower."""
    oracle = Oracle(functions("F12"), (20, 17, 3), "relu", "softmax")
    network, clock, seen = oracle.network(4), [0.0], list[Array]()

    def train(samples: Any, targets: Any, order: Array, **settings: Any) -> Any:
        batches = -(-len(order) // 4)
        slower = 3 if seconds < 0.3 and len(seen) > 5 else 1
        clock[0] += batches * seconds * slower
        seen.append(order)
        return SimpleNamespace(finite=True)

    monkeypatch.setattr(network, "train", train)
    monkeypatch.setattr(compiled_network, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    order, last = np.arange(40_001), 0.0
    for _ in network.train_in_chunks(None, None, order, rates=np.zeros(10_001)):  # pyright: ignore[reportArgumentType]
        assert clock[0] - last <= 1.0
        clock[0] += 100.0  # the time between chunks does not count
        last = clock[0]
    assert np.array_equal(np.concatenate(seen), order)
    if seconds < 0.01:
        assert len(seen) < 40


# ---- values that are not finite


def test_a_loss_that_is_not_finite_ends_training_without_an_update():
    kinds: list[tuple[Activation, str]] = [("relu", "softmax"), ("tanh", "squared")]
    for activation, loss in kinds:
        oracle, data = Oracle(functions("F03"), (20, 9, 3), activation, loss), Data(40, 20, 3, 0.3)
        bad = data.order[20]
        data.x[bad, 4] = math.nan
        network, samples = oracle.network(8), Samples.of(data.x, "float64")
        done = network.train(samples, data.expected(loss), data.order, rate=0.1)
        assert not done.finite
        assert len(done.losses) == 3
        assert np.isfinite(done.losses).tolist() == [True, True, False]
        for n in (0, 8):
            oracle.step(data, data.order[n : n + 8], 0.1, None)
        oracle.assert_same(network)
        assert (
            len(
                list(
                    network.train_in_chunks(
                        samples, data.expected(loss), data.order[16:], rates=np.full(3, 0.1)
                    )
                )
            )
            == 1
        )
        oracle.assert_same(network)


def compressed(x: Array) -> Samples:
    """Samples compressed by rows, however few zeros there are."""
    rows, columns = np.nonzero(x)
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(x)))])
    return Samples(len(x), x.shape[1], x[rows, columns], starts, columns.astype(np.int32))


@pytest.mark.parametrize("formula", ["p/x", "p*log(abs(x))", "p*x**(-2)", "p/tanh(q*x)"])
def test_functions_that_are_not_finite_at_zero_train_until_an_input_is_zero(formula: str):
    """Training is correct as long as no input is zero, and ends at the first that is."""
    oracle, data = Oracle(functions(formula), (17, 9, 3), "relu", "softmax"), Data(32, 17, 3, 1.0)
    network, samples = oracle.network(8), compressed(data.x)
    done = network.train(samples, data.expected("softmax"), data.order, rate=0.001)
    for n in range(0, 32, 8):
        oracle.step(data, data.order[n : n + 8], 0.001, None)
    assert done.finite
    oracle.assert_same(network, 1e-8)

    data.x[data.order[9], [3, 5]] = 0
    samples = compressed(data.x)
    done = network.train(samples, data.expected("softmax"), data.order, rate=0.001)
    oracle.step(data, data.order[:8], 0.001, None)
    assert not done.finite
    assert len(done.losses) == 2
    oracle.assert_same(network, 1e-8)
    assert np.array_equal(np.isfinite(network.predict(samples)), oracle.outputs(data.x).isfinite().numpy())


def test_a_pole_affects_only_the_outputs_of_its_own_samples():
    oracle, data = Oracle(functions("p/x"), (17, 9, 3), "tanh", "squared"), Data(24, 17, 3, 0.97)
    network = oracle.network(8)
    np.testing.assert_allclose(
        network.predict(compressed(data.x), 1), oracle.outputs(data.x, 1), rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("width", [9, 18])
def test_an_infinite_slope_at_an_inactive_relu_gives_no_error(width: int):
    """√x has an infinite slope at 0, where a ReLU passes no error; zeros are skipped (18) or not (9)."""
    oracle = Oracle([*functions("F03"), Function("p*sqrt(x)")], (17, width, 5, 3), "relu", "squared")
    compare(oracle, Data(20, 17, 3, 0.5), 5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_subnormal_errors_become_zero(dtype: DType):
    """The first of two logistic units is so saturated that its slope is subnormal."""
    least = float(np.finfo(dtype).tiny)
    shapes = [Shape(LINEAR, 1, 2, activation_formula("logistic")), Shape(LINEAR, 2, 1)]
    network = CompiledNetwork(shapes, loss_formula("squared"), dtype, 1)
    network.layers[0].load([np.array([[math.log(least) - 2, math.log(least) + 2]])], None)
    network.layers[1].load([np.ones((2, 1))], None)
    samples = Samples.of(np.ones((1, 1)), dtype)
    far, near = network.predict(samples, 1)[0]
    assert 0 <= far < least < near
    expected = Targets.numbers(np.full((1, 1), -1.0), 1, 1, dtype, None)
    network.train(samples, expected, np.arange(1), rate=1.0)
    (_, (far, near)) = network.layers[0].read()
    assert far == 0
    assert near < 0


# ---- refused arguments


def test_indices_and_shapes_that_kernels_could_not_check_are_refused():
    oracle, data = Oracle(functions("F03"), (17, 9, 3), "relu", "softmax"), Data(20, 17, 3, 1.0)
    network, samples, expected = oracle.network(8), Samples.of(data.x, "float64"), data.expected("softmax")
    for order in ([0, 20], [-1]):
        with pytest.raises(FtnnError, match="order are"):
            network.train(samples, expected, np.array(order), rate=0.1)
    narrow = Samples.of(data.x[:, 1:], "float64")
    with pytest.raises(FtnnError, match="16 features; the first layer has 17 inputs"):
        network.train(narrow, expected, np.arange(3), rate=0.1)
    with pytest.raises(FtnnError, match="16 features; the first layer has 17 inputs"):
        network.predict(narrow)
    for labels in (data.labels + 1, data.labels[:5], None):
        with pytest.raises(FtnnError, match="label"):
            Targets.labels(labels, 3, 20, "float64", None)
    for targets in (None, data.targets[:, :2], data.targets[:9]):
        with pytest.raises(FtnnError, match="targets of shape"):
            Targets.numbers(targets, 3, 20, "float64", None)
    with pytest.raises(FtnnError, match="a weight for each"):
        Targets.labels(data.labels, 3, 20, "float64", np.ones(3))


def test_compressed_and_dense_samples_are_equal():
    data = Data(50, 13, 3, 0.2)
    data.x[7] = 0
    data.x[-1] = 0
    samples = Samples.of(data.x, "float64")
    assert samples.starts is not None
    assert samples.columns is not None
    again = np.zeros_like(data.x)
    for row in range(50):
        part = slice(samples.starts[row], samples.starts[row + 1])
        again[row, samples.columns[part]] = samples.values[part]
    assert np.array_equal(again, data.x)
    dense = Samples.of(np.ones((3, 2)), "float64")
    assert dense.starts is None
    assert np.array_equal(dense.values, np.ones((3, 2)))


# ---- rules, activations and losses


@pytest.mark.parametrize("activation", [name for name in ACTIVATE if name not in ACTIVATIONS])
def test_any_formula_can_be_an_activation(activation: str):
    oracle = Oracle(functions("F12", "F09"), (20, 19, 18, 3), activation, "softmax")
    compare(oracle, Data(40, 20, 3, 0.4), 16)


def test_each_layer_has_its_own_activation():
    oracle = Oracle(functions("F12", "F03"), (20, 19, 18, 3), ["relu", "x*logistic(x)"], "squared")
    compare(oracle, Data(40, 20, 3, 0.4), 16)


@pytest.mark.parametrize("loss", ELEMENTWISE)
def test_elementwise_losses_with_weights_match_torch(loss: str):
    data = Data(40, 20, 3, 0.4, weighted=True)
    data.targets = (data.targets > 0).astype(float) if loss == "logistic" else data.targets
    compare(Oracle(functions("F12"), (20, 19, 3), "tanh", loss), data, 16)


OPTIMIZERS: dict[str, Callable[[list[Tensor]], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, 0.02),
    "momentum": lambda p: torch.optim.SGD(p, 0.02, momentum=0.9),
    "nesterov": lambda p: torch.optim.SGD(p, 0.02, momentum=0.9, nesterov=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 0.02),
    "adam": lambda p: torch.optim.Adam(p, 0.02),
    "adamw": lambda p: torch.optim.AdamW(p, 0.02, weight_decay=0.0),
}


@pytest.mark.parametrize("batch_size", [16, 300])
@pytest.mark.parametrize("clip_norm", [None, 0.05])
@pytest.mark.parametrize("name", RULES)
def test_every_rule_trains_like_the_torch_optimizer(name: str, clip_norm: float | None, batch_size: int):
    oracle, data = Oracle(functions("F12", "F03"), (20, 9, 7, 3), "tanh", "softmax"), Data(650, 20, 3, 0.4)
    network = oracle.network(batch_size, rule=RULES[name].compiled(0.0), clip_norm=clip_norm)
    optimizer = OPTIMIZERS[name](oracle.parameters)
    samples, expected = Samples.of(data.x, "float64"), data.expected("softmax")
    for n in range(0, 3 * batch_size, batch_size):
        rows = data.order[n : n + batch_size]
        done = network.train(samples, expected, rows, rate=0.02)
        total, gradients = oracle.gradients(data, rows)
        for p, gradient in zip(oracle.parameters, gradients, strict=True):
            p.grad = gradient / len(rows)
        if clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(oracle.parameters, clip_norm)
        optimizer.step()
        np.testing.assert_allclose(done.losses, [total / len(rows)], rtol=1e-9)
        oracle.assert_same(network, 1e-8)


@pytest.mark.parametrize("name", ["sgd", "nesterov", "rmsprop", "adamw"])
def test_the_norm_is_that_of_gradients_within_their_own_limit(name: str):
    oracle, data = Oracle(functions("F12", "F03"), (20, 9, 7, 3), "tanh", "softmax"), Data(64, 20, 3, 0.4)
    network = oracle.network(16, rule=RULES[name].compiled(0.0), clip_norm=0.002)
    optimizer = OPTIMIZERS[name](oracle.parameters)
    samples, expected, clip = Samples.of(data.x, "float64"), data.expected("softmax"), 0.01
    for rows in data.order[:64].reshape(4, 16):
        network.train(samples, expected, rows, rate=0.02, clip=clip)
        _, gradients = oracle.gradients(data, rows)
        assert max(float(gradient.abs().max()) for gradient in gradients) > 10 * clip
        for p, gradient in zip(oracle.parameters, gradients, strict=True):
            p.grad = gradient.clamp(-clip, clip) / len(rows)
        assert torch.nn.utils.clip_grad_norm_(oracle.parameters, 0.002) > 0.004
        optimizer.step()
        oracle.assert_same(network, 1e-8)


def test_two_threaded_networks_train_at_the_same_time():
    """Each needs three threads at once; with a shared pool of two, each could wait for the other's."""
    data = Data(60, 20, 3, 0.3)
    samples, expected = Samples.of(data.x, "float64"), data.expected("softmax")
    networks = [
        Oracle(functions("F12"), (20, 40, 3), "tanh", "softmax").network(6, threads=3) for _ in range(4)
    ]

    def train(network: CompiledNetwork) -> None:
        for _ in range(20):
            network.train(samples, expected, data.order, rate=0.01)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(train, networks, timeout=120))
    first, *others = map(trained, networks)
    for other in others:
        assert all(np.array_equal(one, two) for one, two in zip(first, other, strict=True))


def test_samples_of_another_dtype_and_too_few_targets_are_refused():
    network, data = Oracle(functions("F03"), (17, 9, 3), "relu", "softmax").network(8), Data(20, 17, 3, 1.0)
    expected = data.expected("softmax")
    with pytest.raises(FtnnError, match="the data are float32; the network is float64"):
        network.train(Samples.of(data.x, "float32"), expected, np.arange(3), rate=0.1)
    few = Targets.labels(data.labels[:9], 3, 9, "float64", None)
    with pytest.raises(FtnnError, match="9 targets for 20 samples"):
        network.train(Samples.of(data.x, "float64"), few, np.arange(3), rate=0.1)


@pytest.mark.parametrize("batch_size", [16, 600])
@pytest.mark.parametrize("formula", ["F12", "F03", "F05", "F09"])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_threads_do_not_change_a_bit(formula: str, activation: str, batch_size: int):
    oracle, data = (
        Oracle(functions(formula, formula), (40, 70, 33, 3), activation, "softmax"),
        Data(700, 40, 3, 0.3),
    )
    results: list[list[Array]] = []
    for threads in (1, 2, 3):
        network = oracle.network(batch_size, "float32", RULES["adam"].compiled(0.0), threads=threads)
        samples, expected = Samples.of(data.x, "float32"), data.expected("softmax", "float32")
        done = network.train(samples, expected, data.order, rate=0.01)
        results.append([done.losses, network.predict(samples), *trained(network)])
    for others in results[1:]:
        assert all(np.array_equal(one, other) for one, other in zip(results[0], others, strict=True))


@pytest.mark.parametrize("batch_size", [16, 300])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_adding_up_sample_by_sample_does_not_change_a_bit(
    activation: str, batch_size: int, monkeypatch: pytest.MonkeyPatch
):
    """Large layers of cheap functions do, so that their sums stay in registers."""
    oracle = Oracle(functions("F03", "F07"), (70, 150, 33, 3), activation, "softmax")
    data = Data(700, 70, 3, 0.3)
    results: list[list[Array]] = []
    for cache in (0, 2**40):
        monkeypatch.setattr(step, "CACHE", cache)
        network = oracle.network(batch_size, "float32", threads=2)
        assert [work.lists is not None for work in network._work] == [cache == 0] * 3
        samples, expected = Samples.of(data.x, "float32"), data.expected("softmax", "float32")
        done = network.train(samples, expected, data.order, rate=0.01)
        results.append([done.losses, network.predict(samples), *trained(network)])
    assert all(np.array_equal(one, other) for one, other in zip(*results, strict=True))
