"""Workload "growth": how the cost of a training step grows with the mini-batch, the width and the density."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ftnn.bench._data import Data, digits, sparse
from ftnn.bench._measure import Effort, measure, threads
from ftnn.bench._rows import Row, timed
from ftnn.bench._step import STEP, StepSize, step_systems
from ftnn.bench._systems import MLP, Systems


@dataclass(frozen=True, slots=True)
class GrowthSize:
    """What one of the three is varied over, the others as in workload A."""

    batches: tuple[int, ...] = (1, 4, 16, 64)
    widths: tuple[int, ...] = (32, 64, 128, 256, 512)
    densities: tuple[float, ...] = (0.05, 0.1, 0.2, 0.5, 1.0)
    base: StepSize = STEP


GROWTH = GrowthSize()


def _tasks(size: GrowthSize, data: Data | None) -> list[tuple[StepSize, Data]]:
    images = digits() if data is None else data
    steps = [replace(size.base, batch=batch) for batch in size.batches]
    steps += [replace(size.base, width=width) for width in size.widths]
    # Each once, though the sweeps cross. MNIST has only one density: the others are made up.
    return [(step, images) for step in dict.fromkeys(steps)] + [
        (size.base, sparse(density, images.x.shape[1])) for density in size.densities
    ]


def growth_rows(
    function: str, effort: Effort, systems: Systems, size: GrowthSize = GROWTH, data: Data | None = None
) -> Iterator[Row]:
    """Rows of the sweep: ftnn beside a torch MLP of the same batch and width."""
    tasks = _tasks(size, data)
    with threads(1):
        for step, inputs in tasks:
            bursts = step_systems(function, inputs, step, Systems(False, False), eager=False)
            timings = measure(bursts, effort)
            yield from timed(
                "growth", function, timings, MLP, batch=step.batch, width=step.width, density=inputs.density
            )
