"""Workload B: one dense 784→128 layer, forward and backward, all threads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ftnn.bench._measure import Burst, Effort, measure, threads
from ftnn.bench._rows import Row, timed
from ftnn.bench._systems import COMPILE, EAGER, FTNN, LINEAR, Systems, compiled
from ftnn.bench._torch import Broadcast, layer


@dataclass(frozen=True, slots=True)
class LayerSize:
    inputs: int = 784
    width: int = 128
    batch: int = 256


LAYER = LayerSize()


def _forward_backward(call: Any, module: nn.Module, x: Tensor, error: Tensor) -> Burst:
    """Forward, then the gradients of x and all parameters."""
    inputs = [x, *module.parameters()]

    def burst(first: int, steps: int) -> None:
        for _ in range(steps):
            torch.autograd.grad(call(x), inputs, error)

    return burst


def layer_systems(function: str, size: LayerSize, systems: Systems) -> dict[str, Burst]:
    """Every system, with its own copy of the same input."""
    random = torch.Generator().manual_seed(0)
    x = torch.empty(size.batch, size.inputs).uniform_(0.01, 1, generator=random)  # no zeros
    error = torch.randn(size.batch, size.width, generator=random)
    transfer = layer(function, size.inputs, size.width)
    plain = Broadcast(transfer)

    def burst(call: Any, module: nn.Module) -> Burst:
        return _forward_backward(call, module, x.clone().requires_grad_(), error)

    linear = nn.Linear(size.inputs, size.width)
    bursts = {FTNN: burst(transfer, transfer), LINEAR: burst(linear, linear), EAGER: burst(plain, plain)}
    if systems.compile:
        bursts[COMPILE] = burst(compiled(plain), plain)
    return bursts


def layer_rows(function: str, effort: Effort, systems: Systems, size: LayerSize = LAYER) -> Iterator[Row]:
    """Rows of workload B."""
    with threads(None):
        timings = measure(layer_systems(function, size, systems), effort)
        yield from timed("B", function, timings, LINEAR, batch=size.batch, width=size.width, density=1.0)
