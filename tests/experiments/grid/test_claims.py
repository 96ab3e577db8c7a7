"""A grid claims the stages that it runs, and releases them however it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from ftnn.experiments import Store, run
from ftnn.experiments.grid.jobs import Event, Job
from tests.experiments.quick import Quiet, cell


class Interrupted:
    """An executor that is interrupted while its first stage runs."""

    slots = 1

    def __init__(self, store: Store):
        self.store = store
        self.owners_meanwhile: list[str] = []

    def submit(self, job: Job) -> None: ...

    def events(self, seconds: float) -> list[Event]:
        self.owners_meanwhile = self.store.owners()
        raise KeyboardInterrupt

    def close(self) -> None: ...


def test_claims_are_released_when_a_grid_is_interrupted(tmp_path: Path):
    with Store(tmp_path / "a.sqlite") as store:
        executor = Interrupted(store)
        with pytest.raises(KeyboardInterrupt):
            run([cell().task()], store, executor, Quiet())
        assert len(executor.owners_meanwhile) == 1
        assert store.owners() == []
