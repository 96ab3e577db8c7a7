"""Workloads that train 784-128-10 on MNIST: A, a step of SGD; growth, A at other sizes; E, a PyTorch loop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
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
    PYKAN,
    Systems,
    broadcast_network,
    compiled,
    ftnn_network,
    kan,
    mlp,
)
from ftnn.errors import FtnnError
from ftnn.training._losses import loss_formula
from ftnn.training._lowering import lower
from ftnn.training._optimizers import MakeOptimizer
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


def compiled_epoch(model: nn.Sequential, data: Data, batch: int) -> Burst:
    """The same training of `ftnn layer - sigmoid - linear` by SGD in ftnn's compiled epoch."""
    layers, inputs = lower(model), samples(data)
    network = CompiledNetwork([layer.shape for layer in layers], loss_formula("softmax"), batch_size=batch)
    for target, layer in zip(network.layers, layers, strict=True):
        layer.load(target)
    targets = Targets.labels(data.labels, layers[-1].shape.outputs, inputs.count, "float32", None)

    def burst(first: int, steps: int) -> None:
        at = data.start(first, steps, batch)
        steps_done = network.train(inputs, targets, data.order[at : at + steps * batch], rate=RATE, clip=CLIP)
        if not steps_done.finite:  # an epoch that stopped early would look fast
            raise FtnnError("the loss was not finite while it was measured")

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
