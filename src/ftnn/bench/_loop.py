"""Workload E: `nn.Transfer` in an ordinary PyTorch loop with Adam, 784-128-10 on MNIST, all threads."""

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
    LINEAR,
    Systems,
    broadcast_network,
    compiled,
    ftnn_network,
    mlp,
)
from ftnn.bench._training import adam, torch_loop


@dataclass(frozen=True, slots=True)
class LoopSize:
    width: int = 128
    batches: tuple[int, ...] = (64, 256)


LOOP = LoopSize()


def loop_systems(function: str, data: Data, width: int, batch: int, systems: Systems) -> dict[str, Burst]:
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
    """Rows of workload E."""
    data = digits() if data is None else data
    with threads(None):
        for batch in size.batches:
            timings = measure(loop_systems(function, data, size.width, batch, systems), effort)
            yield from timed(
                "E", function, timings, LINEAR, batch=batch, width=size.width, density=data.density
            )
