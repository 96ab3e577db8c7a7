"""Runs stages in worker processes on this machine: one per core, with one thread each."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import traceback
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from ftnn.errors import FtnnError
from ftnn.experiments.grid.interrupts import uninterrupted
from ftnn.experiments.grid.jobs import Broken, Event, Job, Lost, Progress

# A forked child would inherit locked locks, and torch's thread pool without its threads.
_SPAWN = multiprocessing.get_context("spawn")


@dataclass
class _Worker:
    process: SpawnProcess
    pipe: Any  # a Connection, or Windows' PipeConnection
    key: str | None = None


def _cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class LocalExecutor:
    """Runs stages in `jobs` worker processes; by default, one per core."""

    def __init__(self, jobs: int | None = None):
        if jobs is not None and jobs < 1:
            raise FtnnError(f"jobs must be 1 or more, got {jobs}")
        self._slots = jobs or _cores()
        self._workers: list[_Worker] = []

    @property
    def slots(self) -> int:
        return self._slots

    def submit(self, job: Job) -> None:
        worker = next((worker for worker in self._workers if worker.key is None), None) or self._start()
        worker.key = job.task.key
        with contextlib.suppress(OSError):  # the worker has just died: `events` will report it
            worker.pipe.send(job)

    def _start(self) -> _Worker:
        resource_tracker.ensure_running()  # starting it inside the block would unblock Ctrl-C for the worker
        with uninterrupted():
            ours, theirs = _SPAWN.Pipe()
            process = _SPAWN.Process(target=_serve, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            worker = _Worker(process, ours)
            self._workers.append(worker)
        return worker

    def events(self, seconds: float) -> list[Event]:
        by_pipe = {worker.pipe: worker for worker in self._workers}
        events: list[Event] = []
        ready: list[Any] = wait(list(by_pipe), seconds)
        for pipe in ready:
            worker = by_pipe[pipe]
            try:
                event: Event = pipe.recv()
            except (EOFError, OSError):
                events += self._remove(worker)
                continue
            events.append(event)
            if not isinstance(event, Progress):
                worker.key = None
        return events

    def _remove(self, worker: _Worker) -> list[Event]:
        self._workers.remove(worker)
        worker.process.join()
        code = worker.process.exitcode or 0
        reason = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return [Lost(worker.key, f"the worker process ended with {reason}")] if worker.key else []

    def close(self) -> None:
        for worker in self._workers:
            worker.process.kill()  # loses nothing: the store has every checkpoint that was sent
        for worker in self._workers:
            worker.process.join()
            worker.pipe.close()
        self._workers.clear()


def _serve(pipe: Connection[Any, Any]) -> None:
    """Run jobs until the parent process is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # only the parent process reacts to Ctrl-C
    import torch  # here because it takes a second

    torch.set_num_threads(1)

    def send(event: Event) -> None:
        try:
            pipe.send(event)
        except OSError:
            sys.exit()  # not an error of the stage: the parent is gone

    while True:
        try:
            job: Job = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            result: Event = job.run(send)
        except Exception:
            result = Broken(job.task.key, traceback.format_exc())
        send(result)
