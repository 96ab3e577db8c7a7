"""Workloads E and "bases": layers in an ordinary PyTorch loop with Adam."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import nn

from ftnn.bench._bases import BASES
from ftnn.bench._bursts import adam, torch_loop
from ftnn.bench._data import CLASSES, Data, digits
from ftnn.bench._measure import Burst, Effort, measure, threads
from ftnn.bench._rows import Row, timed
from ftnn.bench._systems import (
    COMPILE,
    EAGER,
    FTNN,
    LINEAR,
    MLP,
    Systems,
    broadcast_network,
    compiled,
    ftnn_network,
    kans,
    mlp,
)
from ftnn.nn import Transfer

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
    return bursts | _kan_bursts(systems, shape, data, batch)


def _kan_bursts(systems: Systems, shape: tuple[int, int, int], data: Data, batch: int) -> dict[str, Burst]:
    return {name: torch_loop(kan, data, batch, adam) for name, kan in kans(systems, *shape).items()}


def loop_rows(
    function: str, effort: Effort, systems: Systems, size: LoopSize = LOOP, data: Data | None = None
) -> Iterator[Row]:
    """Rows of workload E, on all threads."""
    data = digits() if data is None else data
    with threads(None):
        for batch in size.batches:
            timings = measure(_loop_systems(function, data, size.width, batch, systems), effort)
            yield from timed(
                "E", function, timings, LINEAR, batch=batch, width=size.width, density=data.density
            )


# --- workload "bases" ---


@dataclass(frozen=True, slots=True)
class BasisSize:
    width: int = 64
    batch: int = 64


BASIS = BasisSize()


def basis_rows(
    basis: str, effort: Effort, systems: Systems, size: BasisSize = BASIS, data: Data | None = None
) -> Iterator[Row]:
    """Rows of workload "bases", on one thread. Both layers are a basis, as in a KAN."""
    data = digits() if data is None else data
    shape = data.x.shape[1], size.width, CLASSES
    with torch.random.fork_rng(), threads(1):
        torch.manual_seed(0)
        first, second = (Transfer(n, m, BASES[basis]) for n, m in pairwise(shape))
        bursts = {
            FTNN: torch_loop(nn.Sequential(first, second), data, size.batch, adam),
            MLP: torch_loop(mlp(*shape), data, size.batch, adam),
        }
        timings = measure(bursts | _kan_bursts(systems, shape, data, size.batch), effort)
        yield from timed(
            "bases", basis, timings, MLP, batch=size.batch, width=size.width, density=data.density
        )
