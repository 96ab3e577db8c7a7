"""Stages in worker processes on this machine: one a core, with one thread each."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import traceback
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from ftnn.errors import FtnnError
from ftnn.experiments.grid.interrupts import uninterrupted
from ftnn.experiments.grid.jobs import Broken, Event, Job, Lost, Progress

# A forked child would inherit locks that some thread holds, and torch's thread pool without its threads.
_SPAWN = multiprocessing.get_context("spawn")


@dataclass
class _Worker:
    process: SpawnProcess
    pipe: Connection[Any, Any]
    key: str | None = None


class LocalExecutor:
    """`jobs` worker processes; None: one a core."""

    def __init__(self, jobs: int | None = None):
        if jobs is not None and jobs < 1:
            raise FtnnError(f"--jobs {jobs} must be 1 or more")
        self._slots = jobs or len(os.sched_getaffinity(0))
        self._workers: list[_Worker] = []

    @property
    def slots(self) -> int:
        return self._slots

    def submit(self, job: Job) -> None:
        worker = next((worker for worker in self._workers if worker.key is None), None) or self._start()
        worker.key = job.task.key
        with contextlib.suppress(OSError):  # a worker that died just now is reported by `events`
            worker.pipe.send(job)

    def _start(self) -> _Worker:
        # Before the block: it would let Ctrl-C through to the worker that starts next.
        resource_tracker.ensure_running()
        with uninterrupted():
            ours, theirs = _SPAWN.Pipe()
            process = _SPAWN.Process(target=_serve, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            assert isinstance(ours, Connection)
            worker = _Worker(process, ours)
            self._workers.append(worker)
        return worker

    def events(self, seconds: float) -> list[Event]:
        by_pipe = {worker.pipe: worker for worker in self._workers}
        events: list[Event] = []
        for pipe in wait(list(by_pipe), seconds):
            assert isinstance(pipe, Connection)
            worker = by_pipe[pipe]
            try:
                event: Event = pipe.recv()
            except (EOFError, OSError):
                events += self._bury(worker)
                continue
            events.append(event)
            if not isinstance(event, Progress):
                worker.key = None
        return events

    def _bury(self, worker: _Worker) -> list[Event]:
        self._workers.remove(worker)
        worker.process.join()
        code = worker.process.exitcode or 0
        reason = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return [Lost(worker.key, f"the worker process ended with {reason}")] if worker.key else []

    def close(self) -> None:
        for worker in self._workers:
            worker.process.kill()  # nothing is lost by it: what they had to say is in the store
        for worker in self._workers:
            worker.process.join()
            worker.pipe.close()
        self._workers.clear()


def _serve(pipe: Connection[Any, Any]) -> None:
    """Run jobs until the other end is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that a person talks to
    import torch  # only here: it takes a second

    torch.set_num_threads(1)
    with contextlib.suppress(EOFError, OSError):
        while True:
            job: Job = pipe.recv()
            try:
                result: Event = job.run(pipe.send)
            except OSError:
                raise  # nobody listens any more
            except Exception:
                result = Broken(job.task.key, traceback.format_exc())
            pipe.send(result)
