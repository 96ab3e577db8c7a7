"""Workload "growth": how the cost of a training step grows with the mini-batch, the width and the density."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ftnn.bench._data import Data, digits, sparse
from ftnn.bench._measure import Effort, measure, threads
from ftnn.bench._rows import Row
from ftnn.bench._step import StepSize, step_systems
from ftnn.bench._systems import MLP, Systems
from ftnn.bench._timed import timed


@dataclass(frozen=True, slots=True)
class GrowthSize:
    """What one of the three is varied over, the others as in workload A."""

    batches: tuple[int, ...] = (1, 4, 16, 64)
    widths: tuple[int, ...] = (32, 64, 128, 256, 512)
    densities: tuple[float, ...] = (0.05, 0.1, 0.2, 0.5, 1.0)
    base: StepSize = StepSize()


def _tasks(size: GrowthSize, data: Data | None) -> Iterator[tuple[str, StepSize, Data]]:
    images = digits() if data is None else data
    for batch in size.batches:
        yield "growth: batch", replace(size.base, batch=batch), images
    for width in size.widths:
        yield "growth: width", replace(size.base, width=width), images
    for density in size.densities:  # spread evenly over made-up images, as MNIST has only one density
        yield "growth: density", size.base, sparse(density)


def growth_rows(
    functions: Sequence[str],
    effort: Effort,
    systems: Systems,
    size: GrowthSize = GrowthSize(),  # noqa: B008 (frozen)
    data: Data | None = None,
) -> Iterator[Row]:
    """Rows of the sweep: ftnn beside a torch MLP of the same batch and width."""
    with threads(1):
        for function in functions:
            for workload, step, inputs in _tasks(size, data):
                bursts = step_systems(function, inputs, step, Systems(False, False), eager=False)
                timings = measure(bursts, effort)
                yield from timed(
                    workload, function, timings, MLP, batch=step.batch, width=step.width, density=inputs.density
                )
