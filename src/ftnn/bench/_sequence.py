"""Workload "time": a memory layer over a sequence, forward and backward through time, all threads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

from ftnn.bench._measure import Burst, Effort, measure, threads
from ftnn.bench._rows import Row, timed
from ftnn.bench._systems import FTNN, RNN, STEPS, Systems
from ftnn.nn import Memory


@dataclass(frozen=True, slots=True)
class SequenceSize:
    features: int = 64
    """The number of inputs, and of outputs."""
    batch: int = 32
    steps: int = 100


SEQUENCE = SequenceSize()


def _burst(module: nn.Module, size: SequenceSize) -> Burst:
    """Forward, and the gradients of x and all parameters."""
    random = torch.Generator().manual_seed(0)
    x = torch.randn(size.steps, size.batch, size.features, generator=random).requires_grad_()
    inputs = [x, *module.parameters()]

    def burst(first: int, steps: int) -> None:
        for _ in range(steps):
            out, _ = module(x)
            torch.autograd.grad(out, inputs, torch.ones_like(out))

    return burst


def sequence_rows(
    function: str, effort: Effort, systems: Systems, size: SequenceSize = SEQUENCE
) -> Iterator[Row]:
    """Rows of workload "time". The RNN has as many numbers in its state as the layer: in·out."""
    features = size.features
    with torch.random.fork_rng(), threads(None):
        torch.manual_seed(0)
        memory = Memory(features, features, function, through_time=True)
        steps = Memory(features, features, function, through_time=True, backend="reference")
        steps.load_state_dict(memory.state_dict())
        modules = {FTNN: memory, RNN: nn.RNN(features, features**2), STEPS: steps}
        timings = measure({name: _burst(module, size) for name, module in modules.items()}, effort)
        yield from timed("time", function, timings, RNN, batch=size.batch, width=features)
