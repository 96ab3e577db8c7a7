"""Workloads that train on MNIST: SGD and Adam steps, a PyTorch loop, a large model, a cold start."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from ftnn.bench._data import CLASSES, Data, digits, samples, sparse
from ftnn.bench._measure import Burst, Effort, measure, threads
from ftnn.bench._rows import Row, timed
from ftnn.bench._systems import (
    COMPILE,
    EAGER,
    FTNN,
    LINEAR,
    MLP,
    ONE_THREAD,
    PYKAN,
    WARM,
    Systems,
    broadcast_network,
    compiled,
    ftnn_network,
    kan,
    mlp,
)
from ftnn.errors import FtnnError
from ftnn.nn import Transfer
from ftnn.training._losses import loss_formula
from ftnn.training._lowering import lower
from ftnn.training._optimizers import MakeOptimizer
from ftnn.training._rules import RULES
from ftnn.training.compiled.buffers import Targets
from ftnn.training.compiled.network import CompiledNetwork

RATE = 0.01
"""Small, so that no function leaves its initial range while it is measured."""
CLIP = 1000.0
"""The default of `ftnn.training`; the torch loops do not clip."""

# --- training loops ---


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=RATE, foreach=True)


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=1e-3)


def torch_loop(
    model: Any, data: Data, batch: int, make_optimizer: MakeOptimizer, parameters: Any = None
) -> Burst:
    """Mini-batch training in torch: fetch, forward, backward, update.

    **Arguments:**

    - `model`: the network, compiled or not.
    - `parameters`: the network's parameters, if `model` cannot list them.
    """
    x, labels, order = data.tensors()
    optimizer = make_optimizer(model.parameters() if parameters is None else parameters)

    def burst(first: int, steps: int) -> None:
        at = data.start(first, steps, batch)
        for start in range(at, at + steps * batch, batch):
            rows = order[start : start + batch]
            loss = cross_entropy(model(x[rows]), labels[rows])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()

    return burst


def fused_adam(parameters: Any) -> torch.optim.Optimizer:
    """The fastest Adam in torch."""
    return torch.optim.Adam(parameters, lr=1e-3, fused=True)


def compiled_epoch(
    model: nn.Sequential, data: Data, batch: int, rule: str = "sgd", rate: float = RATE
) -> Burst:
    """The same training of `ftnn layer - sigmoid - linear` by SGD in ftnn's compiled epoch."""
    layers, inputs = lower(model), samples(data)
    network = CompiledNetwork(
        [layer.shape for layer in layers],
        loss_formula("softmax"),
        batch_size=batch,
        rule=RULES[rule].compiled(0.0),
    )
    for target, layer in zip(network.layers, layers, strict=True):
        layer.load(target)
    targets = Targets.labels(data.labels, layers[-1].shape.outputs, inputs.count, "float32", None)

    def burst(first: int, steps: int) -> None:
        at = data.start(first, steps, batch)
        steps_done = network.train(inputs, targets, data.order[at : at + steps * batch], rate=rate, clip=CLIP)
        if not steps_done.finite:  # an epoch that stopped early would look fast
            raise FtnnError("the loss was not finite during the measurement")

    return burst


# --- workload A ---


@dataclass(frozen=True, slots=True)
class StepSize:
    width: int = 128
    batch: int = 16


STEP = StepSize()


def step_systems(
    function: str, data: Data, size: StepSize, systems: Systems, eager: bool = True
) -> dict[str, Burst]:
    """Every system, ready to train."""
    shape = data.x.shape[1], size.width, CLASSES
    bursts = {
        FTNN: compiled_epoch(ftnn_network(function, *shape), data, size.batch),
        MLP: torch_loop(mlp(*shape), data, size.batch, sgd),
    }
    if eager:
        bursts[EAGER] = torch_loop(broadcast_network(function, *shape), data, size.batch, sgd)
    if systems.compile:
        plain = broadcast_network(function, *shape)
        bursts[COMPILE] = torch_loop(compiled(plain), data, size.batch, sgd, plain.parameters())
    if systems.pykan:
        bursts[PYKAN] = torch_loop(kan(*shape), data, size.batch, sgd)
    return bursts


def step_rows(
    function: str, effort: Effort, systems: Systems, size: StepSize = STEP, data: Data | None = None
) -> Iterator[Row]:
    """Rows of workload A, on one thread."""
    data = digits() if data is None else data
    with threads(1):
        timings = measure(step_systems(function, data, size, systems), effort)
        yield from timed(
            "A", function, timings, MLP, batch=size.batch, width=size.width, density=data.density
        )


# --- workload F: Adam ---

ADAM_RATE = 1e-4


@dataclass(frozen=True, slots=True)
class AdamSize:
    width: int = 128
    batches: tuple[int, ...] = (16, 64)


ADAM = AdamSize()


def adam_rows(
    function: str, effort: Effort, systems: Systems, size: AdamSize = ADAM, data: Data | None = None
) -> Iterator[Row]:
    """Rows of workload F, on one thread."""
    data = digits() if data is None else data
    shape = data.x.shape[1], size.width, CLASSES
    with threads(1):
        for batch in size.batches:
            bursts = {
                FTNN: compiled_epoch(ftnn_network(function, *shape), data, batch, "adam", ADAM_RATE),
                MLP: torch_loop(mlp(*shape), data, batch, fused_adam),
            }
            timings = measure(bursts, effort)
            yield from timed("F", function, timings, MLP, batch=batch, width=size.width, density=data.density)


# --- workload G: one large model ---


@dataclass(frozen=True, slots=True)
class LargeSize:
    width: int = 1024
    batch: int = 256


LARGE = LargeSize()


def large_rows(
    function: str, effort: Effort, systems: Systems, size: LargeSize = LARGE, data: Data | None = None
) -> Iterator[Row]:
    """Rows of workload G: ftnn and an MLP on all threads, and ftnn on one."""
    data = digits() if data is None else data
    widths = (data.x.shape[1], size.width, size.width)

    def model(layer: Callable[[int, int], nn.Module]) -> nn.Sequential:
        first, second = (layer(n, m) for n, m in pairwise(widths))
        return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Linear(size.width, CLASSES))

    def ftnn_burst() -> Burst:
        return compiled_epoch(
            model(lambda n, m: Transfer(n, m, function)), data, size.batch, "adam", ADAM_RATE
        )

    with threads(1):
        on_one_thread = ftnn_burst()
    with threads(None):
        bursts = {
            FTNN: ftnn_burst(),
            ONE_THREAD: on_one_thread,
            MLP: torch_loop(model(nn.Linear), data, size.batch, fused_adam),
        }
        timings = measure(bursts, effort)
        yield from timed(
            "G", function, timings, MLP, batch=size.batch, width=size.width, density=data.density
        )


# --- workload "start": the first training on a machine ---

_START = """
import sys, time
import torch, ftnn
torch.set_num_threads(1)
net = ftnn.nn.Network(784, [128], 10, sys.argv[1], "logistic")
x, y = torch.zeros(64, 784), torch.zeros(64, dtype=torch.int64)
start = time.perf_counter()
ftnn.training.fit(net, x, y, epochs=1)
print(time.perf_counter() - start)
"""


def start_rows(
    function: str, effort: Effort, systems: Systems, size: None = None, data: Data | None = None
) -> Iterator[Row]:
    """Rows of workload "start", with an empty and a warm kernel cache."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "FTNN_CACHE": folder}
        for system in (FTNN, WARM):
            process = subprocess.run(
                [sys.executable, "-c", _START, function],
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            )
            ms = 1000 * float(process.stdout)
            yield Row("start", function, system, ms, None, ms, ms, repetitions=1)


# --- workload "growth" ---


@dataclass(frozen=True, slots=True)
class GrowthSize:
    """The values of each setting; the others are those of workload A."""

    batches: tuple[int, ...] = (1, 4, 16, 64)
    widths: tuple[int, ...] = (32, 64, 128, 256, 512)
    densities: tuple[float, ...] = (0.05, 0.1, 0.2, 0.5, 1.0)
    base: StepSize = STEP


GROWTH = GrowthSize()


def growth_rows(
    function: str, effort: Effort, systems: Systems, size: GrowthSize = GROWTH, data: Data | None = None
) -> Iterator[Row]:
    """Rows of the sweep: ftnn and a torch MLP of the same batch and width, on one thread."""
    images = digits() if data is None else data
    steps = [replace(size.base, batch=batch) for batch in size.batches]
    steps += [replace(size.base, width=width) for width in size.widths]
    tasks = [(step, images) for step in dict.fromkeys(steps)]  # without duplicates
    # MNIST has only one density: the others need synthetic data.
    tasks += [(size.base, sparse(density, images.x.shape[1])) for density in size.densities]
    with threads(1):
        for step, inputs in tasks:
            bursts = step_systems(function, inputs, step, Systems(False, False), eager=False)
            timings = measure(bursts, effort)
            yield from timed(
                "growth", function, timings, MLP, batch=step.batch, width=step.width, density=inputs.density
            )


# --- workload E ---


@dataclass(frozen=True, slots=True)
class LoopSize:
    width: int = 128
    batches: tuple[int, ...] = (64, 256)


LOOP = LoopSize()


def _loop_systems(function: str, data: Data, width: int, batch: int, systems: Systems) -> dict[str, Burst]:
    shape = data.x.shape[1], width, CLASSES
    bursts = {
        FTNN: torch_loop(ftnn_network(function, *shape), data, batch, adam),
        LINEAR: torch_loop(mlp(*shape), data, batch, adam),
        EAGER: torch_loop(broadcast_network(function, *shape), data, batch, adam),
    }
    if systems.compile:
        plain = broadcast_network(function, *shape)
        bursts[COMPILE] = torch_loop(compiled(plain), data, batch, adam, plain.parameters())
    return bursts


def loop_rows(
    function: str, effort: Effort, systems: Systems, size: LoopSize = LOOP, data: Data | None = None
) -> Iterator[Row]:
    """Rows of workload E, `nn.Transfer` in an ordinary PyTorch loop with Adam, on all threads."""
    data = digits() if data is None else data
    with threads(None):
        for batch in size.batches:
            timings = measure(_loop_systems(function, data, size.width, batch, systems), effort)
            yield from timed(
                "E", function, timings, LINEAR, batch=batch, width=size.width, density=data.density
            )
