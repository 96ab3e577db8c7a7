"""A thousand cells with fake training, for tests of speed and of several processes."""

from __future__ import annotations

import hashlib

import numpy as np

from ftnn.experiments import Cell
from ftnn.experiments.grid.jobs import Event, Job, Outcome
from tests.experiments.quick import cell


def cells() -> list[Cell]:
    return [cell(f"F{number:02d}", seed=seed) for seed in range(50) for number in range(1, 21)]


class FakeExecutor:
    """An executor that invents results, always the same for a stage."""

    slots = 3

    def __init__(self) -> None:
        self.ran: list[str] = []
        self._jobs: list[Job] = []

    def submit(self, job: Job) -> None:
        self._jobs.append(job)

    def events(self, seconds: float) -> list[Event]:
        jobs, self._jobs = self._jobs, []
        self.ran += [job.task.key for job in jobs]
        return [_fake_outcome(job) for job in jobs]

    def close(self) -> None: ...


def _fake_outcome(job: Job) -> Outcome:
    digest = hashlib.sha256(job.task.key.encode()).hexdigest()
    accuracy = 90 + int(digest[:2], 16) / 32
    arrays = {"output.bias": np.zeros(10, np.float32)}
    return Outcome(job.task.key, (), None, None, 0.5, arrays, accuracy, accuracy, digest, 1.0)
