"""Run cases in worker processes: a crash or a hang fails one case and nothing else."""

from __future__ import annotations

import itertools
import multiprocessing
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

from tests.fuzz.cases import case
from tests.fuzz.check import Outcome, check, shrunk
from tests.fuzz.report import full

PATIENCE = 120.0
"""Seconds after which a case counts as hanging."""
A_WORKER = 250
"""Cases after which a process is replaced, because compiled kernels are never freed."""


@dataclass
class Totals:
    formulas: int = 0
    compared: int = 0
    skipped: int = 0
    groups: dict[tuple[str, ...], list[str]] = field(default_factory=dict[tuple[str, ...], list[str]])

    def add(self, outcome: dict[str, Any]) -> None:
        self.formulas += 1
        self.compared += outcome["compared"]
        self.skipped += outcome["skipped"]
        for group, text in outcome["failures"]:
            known = self.groups.setdefault(group, [])
            known.append(text)
            if len(known) == 1:
                print(f"\n{text}\n", flush=True)

    @property
    def failures(self) -> int:
        return sum(map(len, self.groups.values()))


def plain(outcome: Outcome, *, shrink: bool) -> dict[str, Any]:
    """An outcome in a form that can be sent between processes."""
    failures: list[tuple[tuple[str, ...], str]] = []
    for failure in outcome.failures:
        small = shrunk(failure) if shrink and failure.place else failure
        failures.append((failure.group, full(small)))
    return {"compared": outcome.compared, "skipped": outcome.skipped, "failures": failures}


def work(pipe: Connection, shrink: bool) -> None:
    while (seed := pipe.recv()) is not None:
        pipe.send(plain(check(case(seed)), shrink=shrink))


class Worker:
    """A process that runs cases."""

    def __init__(self, shrink: bool):
        self.done, self.seed, self.since = 0, -1, 0.0
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(theirs, shrink), daemon=True)
        self.process.start()
        theirs.close()

    def give(self, seed: int | None) -> None:
        self.seed, self.since = -1 if seed is None else seed, time.monotonic()
        self.pipe.send(seed)

    def result(self) -> dict[str, Any]:
        self.done += 1
        try:
            return self.pipe.recv()
        except (EOFError, ConnectionError):
            self.process.join()
            return self._lost(f"crashed with exit code {self.process.exitcode}")

    def late(self) -> dict[str, Any] | None:
        if time.monotonic() - self.since < PATIENCE:
            return None
        self.process.kill()
        self.process.join()
        return self._lost(f"did not finish within {PATIENCE:.0f} s")

    def _lost(self, what: str) -> dict[str, Any]:
        self.done = A_WORKER
        formula = " | ".join(map(str, case(self.seed).formula.kinds))
        text = f"{what}: {formula!r}, seed {self.seed}"
        return {"compared": 0, "skipped": 0, "failures": [((what.partition(" ")[0],), text)]}


def run(seeds: Iterator[int], jobs: int, shrink: bool, until: float) -> Totals:
    totals, began, printed = Totals(), time.monotonic(), 0.0
    workers = list[Worker]()
    for seed in itertools.islice(seeds, jobs):
        workers.append(Worker(shrink))
        workers[-1].give(seed)
    while workers:
        ready = wait([worker.pipe for worker in workers], timeout=1)
        for worker in list(workers):
            outcome = worker.result() if worker.pipe in ready else worker.late()
            if outcome is None:
                continue
            totals.add(outcome)
            seed = next(seeds, None) if time.monotonic() < until else None
            if seed is None or worker.done >= A_WORKER:
                workers.remove(worker)
                if worker.process.is_alive():
                    worker.give(None)
                if seed is not None:
                    worker = Worker(shrink)
                    workers.append(worker)
            if seed is not None:
                worker.give(seed)
        if time.monotonic() - printed > 15:
            printed = time.monotonic()
            print(
                f"{printed - began:5.0f} s  {totals.formulas} formulas, {totals.failures} failures",
                flush=True,
            )
    return totals
