"""Workload A: one training step of 784-128-10 on MNIST, one thread."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ftnn.bench._data import CLASSES, Data, digits
from ftnn.bench._measure import Burst, Effort, measure, threads
from ftnn.bench._rows import Row, timed
from ftnn.bench._systems import (
    COMPILE,
    EAGER,
    FTNN,
    MLP,
    PYKAN,
    Systems,
    broadcast_network,
    compiled,
    ftnn_network,
    kan,
    mlp,
)
from ftnn.bench._training import compiled_epoch, sgd, torch_loop


@dataclass(frozen=True, slots=True)
class StepSize:
    width: int = 128
    batch: int = 16


STEP = StepSize()


def step_systems(
    function: str, data: Data, size: StepSize, systems: Systems, eager: bool = True
) -> dict[str, Burst]:
    """Every system, ready to train on these data."""
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
    """Rows of workload A."""
    data = digits() if data is None else data
    with threads(1):
        timings = measure(step_systems(function, data, size, systems), effort)
        yield from timed(
            "A", function, timings, MLP, batch=size.batch, width=size.width, density=data.density
        )
