"""Workloads B, "float64" and "small": one dense layer, forward and backward, all threads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ftnn.bench._measure import Burst, Effort, measure, threads
from ftnn.bench._rows import Row, timed
from ftnn.bench._systems import COMPILE, EAGER, FLOAT32, FTNN, LINEAR, Systems, compiled
from ftnn.bench._torch import Broadcast, layer


@dataclass(frozen=True, slots=True)
class LayerSize:
    inputs: int = 784
    width: int = 128
    batch: int = 256
    dtype: torch.dtype = torch.float32


LAYER = LayerSize()


@dataclass(frozen=True)
class _Task:
    """The same inputs and errors for every system."""

    size: LayerSize
    backward: bool = True

    def tensors(self) -> tuple[Tensor, Tensor]:
        random, size = torch.Generator().manual_seed(0), self.size
        x = torch.empty(size.batch, size.inputs).uniform_(0.01, 1, generator=random)  # no zeros
        error = torch.randn(size.batch, size.width, generator=random)
        return x.to(size.dtype), error.to(size.dtype)

    def layer(self, function: str) -> nn.Module:
        return layer(function, self.size.inputs, self.size.width).to(self.size.dtype)

    def plain(self, function: str) -> nn.Module:
        """The formula written by hand."""
        return Broadcast(layer(function, self.size.inputs, self.size.width)).to(self.size.dtype)

    def burst(self, module: nn.Module, call: Any = None) -> Burst:
        """Forward, and the gradients of x and all parameters."""
        (x, error), call = self.tensors(), module if call is None else call
        if not self.backward:
            return _forward(call, x)
        inputs = [x.requires_grad_(), *module.parameters()]

        def burst(first: int, steps: int) -> None:
            for _ in range(steps):
                torch.autograd.grad(call(x), inputs, error)

        return burst


def _forward(call: Any, x: Tensor) -> Burst:
    def burst(first: int, steps: int) -> None:
        with torch.no_grad():
            for _ in range(steps):
                call(x)

    return burst


def layer_rows(function: str, effort: Effort, systems: Systems, size: LayerSize = LAYER) -> Iterator[Row]:
    """Rows of workload B."""
    task = _Task(size)
    with threads(None):
        plain = task.plain(function)
        bursts = {
            FTNN: task.burst(task.layer(function)),
            LINEAR: task.burst(nn.Linear(size.inputs, size.width)),
            EAGER: task.burst(plain),
        }
        if systems.compile:
            bursts[COMPILE] = task.burst(plain, compiled(plain))
        timings = measure(bursts, effort)
        yield from timed("B", function, timings, LINEAR, batch=size.batch, width=size.width, density=1.0)


def float64_rows(function: str, effort: Effort, systems: Systems, size: LayerSize = LAYER) -> Iterator[Row]:
    """Rows of workload "float64": B's layer in float64, beside float32."""
    task, single = _Task(replace(size, dtype=torch.float64)), _Task(size)
    with threads(None):
        bursts = {
            FTNN: task.burst(task.layer(function)),
            FLOAT32: single.burst(single.layer(function)),
            EAGER: task.burst(task.plain(function)),
        }
        timings = measure(bursts, effort)
        yield from timed(
            "float64", function, timings, FLOAT32, batch=size.batch, width=size.width, density=1.0
        )


@dataclass(frozen=True, slots=True)
class SmallSizes:
    layers: tuple[tuple[int, int, int], ...] = ((8, 8, 16), (1, 32, 1000), (8, 8, 1000), (32, 32, 1000))
    """Inputs, outputs and batch of each."""
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.float64)


SMALL = SmallSizes()


def small_rows(function: str, effort: Effort, systems: Systems, size: SmallSizes = SMALL) -> Iterator[Row]:
    """Rows of workload "small", forward alone, and forward and backward."""
    with threads(None):
        for inputs, width, batch in size.layers:
            for dtype in size.dtypes:
                for backward in (False, True):
                    task = _Task(LayerSize(inputs, width, batch, dtype), backward)
                    bursts = {
                        FTNN: task.burst(task.layer(function)),
                        EAGER: task.burst(task.plain(function)),
                    }
                    yield from timed(
                        "small",
                        function,
                        measure(bursts, effort),
                        EAGER,
                        inputs=inputs,
                        batch=batch,
                        width=width,
                        density=1.0,
                        dtype=str(dtype).removeprefix("torch."),
                        passes="both" if backward else "forward",
                    )
