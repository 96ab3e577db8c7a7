"""Runs stages on an executor, in the order of their chains, and records results in the store.

Only the scheduler's process writes to the store. Other schedulers may use the same store at the same time:
each claims the stages it runs, and renews its claims while it is alive.
"""

from __future__ import annotations

import os
import socket
import sys
import time
import uuid
from collections.abc import Iterable
from typing import Protocol

from ftnn.errors import FtnnError
from ftnn.experiments.grid.interrupts import uninterrupted
from ftnn.experiments.grid.jobs import Broken, Event, Job, Lost, Outcome, Predecessor, Progress
from ftnn.experiments.grid.rows import versions
from ftnn.experiments.grid.store import Store
from ftnn.experiments.grid.task import AnyTask, with_chains

LEASE = 60.0
"""Seconds until a claim expires; claims are renewed after a third of this."""
ATTEMPTS = 3
"""How often a stage is tried if its worker dies."""


class Executor(Protocol):
    """Runs stages."""

    @property
    def slots(self) -> int:
        """How many stages can run at once."""
        ...

    def submit(self, job: Job) -> None: ...

    def events(self, seconds: float) -> list[Event]:
        """New events; waits at most this long for the first."""
        ...

    def close(self) -> None:
        """Stop all running stages."""
        ...


class Watcher(Protocol):
    """Follows the progress of a grid."""

    def begin(self, waiting: list[AnyTask], done: int, slots: int) -> None: ...
    def started(self, task: AnyTask) -> None: ...
    def progress(self, task: AnyTask, progress: Progress) -> None: ...
    def finished(self, task: AnyTask, outcome: Outcome | None) -> None:
        """`outcome` is None if another process ran the stage, or an earlier stage of its chain failed."""
        ...

    def lost(self, task: AnyTask, reason: str) -> None: ...


def run(tasks: Iterable[AnyTask], store: Store, executor: Executor, watcher: Watcher) -> None:
    """Run these stages, and the stages before them, unless the store already has their results."""
    _Grid(list(tasks), store, watcher).run(executor)


class _Grid:
    def __init__(self, tasks: list[AnyTask], store: Store, watcher: Watcher):
        self._store, self._watcher = store, watcher
        self._owner = f"{socket.gethostname()} {os.getpid()} {uuid.uuid4().hex[:8]}"
        self._release_claims_of_dead_processes()
        self._versions = versions()
        # The earlier stages of a finished cell are not needed, and may be missing if it was imported.
        finished = store.done(task.key for task in tasks)
        stages = with_chains(task for task in tasks if task.key not in finished)
        self._succeeded = store.done(stages)
        self._waiting = {key: task for key, task in stages.items() if key not in self._succeeded}
        self._needs = {key: task.before.key for key, task in self._waiting.items() if task.before is not None}
        self._running: dict[str, AnyTask] = {}
        self._attempts: dict[str, int] = {}
        self._renewed = time.monotonic()
        self._synchronised = 0.0
        self._done = len(with_chains(tasks)) - len(self._waiting)

    def _release_claims_of_dead_processes(self) -> None:
        for owner in self._store.owners():
            host, pid, *_ = (*owner.split(" "), "")
            if host == socket.gethostname() and pid.isdecimal() and not _is_alive(int(pid)):
                self._store.release(owner)

    def run(self, executor: Executor) -> None:
        try:
            self._watcher.begin(list(self._waiting.values()), self._done, executor.slots)
            while self._waiting or self._running:
                self._submit(executor)
                for event in executor.events(0.2):
                    self._handle(event)
                self._renew_claims()
        finally:
            with uninterrupted():
                try:
                    executor.close()
                finally:
                    self._store.release(self._owner)

    # --- starting stages ---

    def _submit(self, executor: Executor) -> None:
        free = executor.slots - len(self._running)
        if free < 1:
            return
        for key in [key for key, task in self._waiting.items() if self._ready(key, task) is False]:
            self._succeeded[key] = False
            self._watcher.finished(self._waiting.pop(key), None)
        ready = [key for key, task in self._waiting.items() if self._ready(key, task)]
        for key in self._store.claim(ready, self._owner, LEASE, free):
            task = self._running[key] = self._waiting.pop(key)
            self._watcher.started(task)
            executor.submit(Job(task, self._predecessors(task), self._store.checkpoint(key)))
        if len(self._running) < executor.slots:
            self._synchronise()

    def _ready(self, key: str, task: AnyTask) -> bool | None:
        """Whether a stage can run. None: not yet. False: never, because an earlier stage failed."""
        if key not in self._needs:
            return True
        succeeded = self._succeeded.get(self._needs[key])
        # The last stage runs anyway: it has nothing to train, but its row says why the cell failed.
        return True if succeeded is False and task.ends_cell else succeeded

    def _predecessors(self, task: AnyTask) -> tuple[Predecessor, ...]:
        stages: list[Predecessor] = []
        for stage in task.chain:
            predecessor = self._store.kept(stage)
            if predecessor is None:
                raise FtnnError(f"the store has no parameters of {stage}")
            stages.append(predecessor)
            if predecessor.failed:
                break
        return tuple(stages)

    def _synchronise(self) -> None:
        """Take over results of other processes."""
        if time.monotonic() - self._synchronised < 0.5:
            return
        self._synchronised = time.monotonic()
        done = self._store.done(self._waiting)
        self._succeeded |= done
        for key in done:
            self._watcher.finished(self._waiting.pop(key), None)

    # --- events ---

    def _handle(self, event: Event) -> None:
        task = self._running.get(event.key)
        if task is None:
            return
        if isinstance(event, Progress):
            self._store.keep(event.key, event.checkpoint)
            self._watcher.progress(task, event)
            return
        if isinstance(event, Broken):
            raise FtnnError(f"could not run {task}: {event.error}")
        del self._running[event.key]
        if isinstance(event, Lost):
            self._attempts[event.key] = self._attempts.get(event.key, 0) + 1
            self._watcher.lost(task, event.reason)
            if self._attempts[event.key] >= ATTEMPTS:
                raise FtnnError(f"gave up on {task}: its worker died {ATTEMPTS} times: {event.reason}")
            self._waiting = {event.key: task, **self._waiting}
            return
        self._store.record(task, event, self._versions)
        self._succeeded[event.key] = event.failed is None
        self._watcher.finished(task, event)

    def _renew_claims(self) -> None:
        if time.monotonic() - self._renewed > LEASE / 3:
            self._renewed = time.monotonic()
            self._store.claim(self._running, self._owner, LEASE)


def _is_alive(pid: int) -> bool:
    if sys.platform == "win32":  # where this call would send Ctrl-C instead of asking
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it belongs to another user
    return True
