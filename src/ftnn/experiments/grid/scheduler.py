"""Runs stages over an executor, in an order that their chains allow, and puts what they give into the store.

The process that runs this is the only one of its grid that writes to the store. Others with grids of their
own may use the same store at the same time: what each runs is claimed there, for as long as it is heard of.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Iterable
from typing import Protocol

from ftnn.errors import FtnnError
from ftnn.experiments.grid.interrupts import uninterrupted
from ftnn.experiments.grid.jobs import Broken, Event, Job, Kept, Lost, Outcome, Progress
from ftnn.experiments.grid.rows import versions
from ftnn.experiments.grid.store import Store
from ftnn.experiments.grid.task import AnyTask, with_chains

LEASE = 60.0
"""Seconds for which a claim holds; it is renewed when a third of it is over."""
ATTEMPTS = 3
"""How often a stage is tried whose worker was lost."""


class Executor(Protocol):
    """Where stages run."""

    @property
    def slots(self) -> int:
        """How many at a time."""
        ...

    def submit(self, job: Job) -> None: ...

    def events(self, seconds: float) -> list[Event]:
        """What has happened; waits up to so long for something."""
        ...

    def close(self) -> None:
        """Stop all that runs."""
        ...


class Watcher(Protocol):
    """Who is told how it goes."""

    def begin(self, waiting: list[AnyTask], done: int, slots: int) -> None:
        """These stages are to be run, so many at a time; so many others are done."""
        ...

    def started(self, task: AnyTask) -> None: ...
    def progress(self, task: AnyTask, progress: Progress) -> None: ...
    def finished(self, task: AnyTask, outcome: Outcome | None) -> None:
        """None: another process has run it, or it cannot be run since one before it failed."""
        ...

    def lost(self, task: AnyTask, reason: str) -> None: ...


def run(tasks: Iterable[AnyTask], store: Store, executor: Executor, watcher: Watcher) -> None:
    """Run all these stages that the store does not have, with those that lead to them."""
    _Grid(list(tasks), store, watcher).run(executor)


class _Grid:
    def __init__(self, wanted: list[AnyTask], store: Store, watcher: Watcher):
        self._store, self._watcher = store, watcher
        self._owner = f"{socket.gethostname()} {os.getpid()} {uuid.uuid4().hex[:8]}"
        self._forget_the_dead()
        self._versions = versions()
        # A cell that is done needs none of its stages: they may not be here, if it was imported.
        recorded = store.done(task.key for task in wanted)
        self._tasks = with_chains(task for task in wanted if task.key not in recorded)
        self._went_well = store.done(self._tasks)
        self._waiting = {key: task for key, task in self._tasks.items() if key not in self._went_well}
        self._needs = {key: task.before.key for key, task in self._waiting.items() if task.before is not None}
        self._running: dict[str, AnyTask] = {}
        self._attempts: dict[str, int] = {}
        self._renewed = time.monotonic()
        self._looked = 0.0
        self._done = len(with_chains(wanted)) - len(self._waiting)

    def _forget_the_dead(self) -> None:
        """What processes of this machine had claimed when they were killed need not wait for its end."""
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
                    self._take(event)
                self._renew()
        finally:
            with uninterrupted():
                try:
                    executor.close()
                finally:
                    self._store.release(self._owner)

    # --- starting ---

    def _submit(self, executor: Executor) -> None:
        free = executor.slots - len(self._running)
        if free < 1:
            return
        for key in [key for key, task in self._waiting.items() if self._ready(key, task) is False]:
            self._went_well[key] = False
            self._watcher.finished(self._waiting.pop(key), None)
        ready = [key for key, task in self._waiting.items() if self._ready(key, task)]
        for key in self._store.claim(ready, self._owner, LEASE, free):
            task = self._running[key] = self._waiting.pop(key)
            self._watcher.started(task)
            executor.submit(Job(task, self._before(task), self._store.checkpoint(key)))
        if len(self._running) < executor.slots:
            self._look_at_others()

    def _ready(self, key: str, task: AnyTask) -> bool | None:
        """Whether a stage can be run: None: not yet; False: never, since one before it failed."""
        if key not in self._needs:
            return True
        well = self._went_well.get(self._needs[key])
        # The last stage has nothing to do then, but its row ends the cell, and says why it failed.
        return True if well is False and task.ends_cell else well

    def _before(self, task: AnyTask) -> tuple[Kept, ...]:
        stages: list[Kept] = []
        for stage in task.chain:
            kept = self._store.kept(stage)
            if kept is None:
                raise FtnnError(f"the store has no parameters of {stage}")
            stages.append(kept)
            if kept.failed:
                break
        return tuple(stages)

    def _look_at_others(self) -> None:
        """See what other processes have done of what is still to do here."""
        if time.monotonic() - self._looked < 0.5:
            return
        self._looked = time.monotonic()
        done = self._store.done(self._waiting)
        self._went_well |= done
        for key in done:
            self._watcher.finished(self._waiting.pop(key), None)

    # --- what comes back ---

    def _take(self, event: Event) -> None:
        task = self._running.get(event.key)
        if task is None:
            return
        if isinstance(event, Progress):
            self._store.keep(event.key, event.checkpoint)
            self._watcher.progress(task, event)
            return
        if isinstance(event, Broken):
            raise FtnnError(f"{task}, could not be run: {event.error}")
        del self._running[event.key]
        if isinstance(event, Lost):
            self._attempts[event.key] = self._attempts.get(event.key, 0) + 1
            self._watcher.lost(task, event.reason)
            if self._attempts[event.key] >= ATTEMPTS:
                raise FtnnError(f"{task}, was given up: its worker was lost {ATTEMPTS} times: {event.reason}")
            self._waiting = {event.key: task, **self._waiting}
            return
        self._store.record(task, event, self._versions)
        self._went_well[event.key] = event.failed is None
        self._watcher.finished(task, event)

    def _renew(self) -> None:
        if time.monotonic() - self._renewed > LEASE / 3:
            self._renewed = time.monotonic()
            self._store.claim(self._running, self._owner, LEASE)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's
    return True
