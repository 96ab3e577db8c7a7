"""Compiled training on MNIST: SGD and Adam steps, a large model, and the effect of sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from torch import nn

from ftnn.bench._bursts import adam, compiled_epoch, sgd, torch_loop
from ftnn.bench._data import CLASSES, Data, digits, sparse
from ftnn.bench._measure import Burst, Effort, measure, threads
from ftnn.bench._rows import Row, timed
from ftnn.bench._systems import (
    COMPILE,
    EAGER,
    FTNN,
    MLP,
    ONE_THREAD,
    Systems,
    broadcast_network,
    compiled,
    ftnn_network,
    kans,
    mlp,
)
from ftnn.nn import Transfer

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
    bursts |= {name: torch_loop(kan, data, size.batch, sgd) for name, kan in kans(systems, *shape).items()}
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
                MLP: torch_loop(mlp(*shape), data, batch, adam),
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
            MLP: torch_loop(model(nn.Linear), data, size.batch, adam),
        }
        timings = measure(bursts, effort)
        yield from timed(
            "G", function, timings, MLP, batch=size.batch, width=size.width, density=data.density
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
            bursts = step_systems(function, inputs, step, Systems(compile=False, kans=()), eager=False)
            timings = measure(bursts, effort)
            yield from timed(
                "growth", function, timings, MLP, batch=step.batch, width=step.width, density=inputs.density
            )
