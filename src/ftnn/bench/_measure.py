"""Timing in short bursts: each round measures every system once, so that drift affects all equally."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch

Burst = Callable[[int, int], None]
"""`burst(first, steps)` runs the steps first, first + 1, … of a task."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure."""

    rounds: int = 25
    """Bursts per system, if there is time."""
    least_rounds: int = 7
    """The minimum number of bursts."""
    burst_seconds: float = 0.05
    """The approximate length of a burst; a burst has at least one step."""
    most_steps: int = 200
    task_seconds: float = 10.0
    """The time limit for all systems of a task."""


FULL = Effort()
QUICK = Effort(rounds=11, burst_seconds=0.03, task_seconds=4.0)


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds per step, one number per round."""

    ms: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.ms)

    @property
    def quartiles(self) -> tuple[float, float]:
        if len(self.ms) == 1:
            return self.ms[0], self.ms[0]
        low, _, high = statistics.quantiles(self.ms, n=4, method="inclusive")
        return low, high

    def scaled(self, factor: float) -> Timing:
        return Timing(tuple(factor * ms for ms in self.ms))


def measure(bursts: Mapping[str, Burst], effort: Effort) -> dict[str, Timing]:
    """Time every system, in turns.

    In each round, all systems start at the same step, so they see the same data. Their order rotates, because
    a later system may find the data in a cache.
    """
    steps = {name: _steps_of(burst, effort) for name, burst in bursts.items()}
    longest = max(steps.values())
    milliseconds: dict[str, list[float]] = {name: [] for name in bursts}
    names = list(bursts)
    with _no_garbage_collection():
        deadline = time.perf_counter() + effort.task_seconds
        for turn in range(effort.rounds):
            if turn >= effort.least_rounds and time.perf_counter() > deadline:
                break
            start = turn % len(names)
            for name in (*names[start:], *names[:start]):
                seconds = _seconds(bursts[name], turn * longest, steps[name])
                milliseconds[name].append(1e3 * seconds / steps[name])
    return {name: Timing(tuple(ms)) for name, ms in milliseconds.items()}


def _seconds(burst: Burst, first: int, steps: int) -> float:
    start = time.perf_counter()
    burst(first, steps)
    return time.perf_counter() - start


def _steps_of(burst: Burst, effort: Effort) -> int:
    """Warm a system up (compilation, caches), and choose the number of steps per burst."""
    burst(0, 2)
    once = _seconds(burst, 0, 1)
    if 5 * once < effort.burst_seconds:
        once = _seconds(burst, 0, 5) / 5
    return max(1, min(effort.most_steps, round(effort.burst_seconds / max(once, 1e-9))))


@contextmanager
def threads(count: int | None) -> Generator[None]:
    """Let torch and ftnn use `count` threads; None leaves their number unchanged."""
    before = torch.get_num_threads()
    torch.set_num_threads(before if count is None else count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _no_garbage_collection() -> Generator[None]:
    gc.collect()
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
