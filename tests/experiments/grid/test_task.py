"""Tasks as data, and a new experiment that the grid does not know."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from ftnn.errors import DataError
from ftnn.experiments import Cell, ConicCell, PiCell, Store, run
from ftnn.experiments.grid.exchange import export
from ftnn.experiments.grid.jobs import Checkpoint, Outcome, Predecessor
from ftnn.experiments.grid.registry import KINDS, register, task_from_text, task_to_text
from ftnn.experiments.grid.task import AnyTask, OnProgress, Task
from ftnn.experiments.paper.mnist.cells import Layerwise
from tests.experiments.quick import Inline, Quiet, import_file


@dataclass(frozen=True)
class Coins:
    """A number of coin tosses."""

    tosses: int
    seed: int = 0


class Toss(Task[Coins]):
    kind = "coins"
    results = 1
    cell_type = Coins

    @property
    def title(self) -> str:
        return "tossed"

    @property
    def work(self) -> str:
        return "coins"

    @property
    def epochs(self) -> int:
        return 1

    @property
    def effort(self) -> float:
        return self.cell.tosses

    def run(
        self, before: tuple[Predecessor, ...], checkpoint: Checkpoint | None, on_progress: OnProgress
    ) -> Outcome:
        heads = np.random.default_rng(self.cell.seed).integers(0, 2, self.cell.tosses)
        share = 100 * float(heads.mean())
        return Outcome(self.key, (), None, None, None, {"heads": heads}, None, share, "c" * 64, 0.0)


@pytest.fixture
def coins() -> Iterator[Toss]:
    register(Toss)
    yield Toss(Coins(10))
    del KINDS["coins"]


def test_a_new_experiment_is_run_stored_exported_and_imported(coins: Toss, tmp_path: Path) -> None:
    with Store(tmp_path / "a.sqlite") as store, Store(tmp_path / "b.sqlite") as other:
        run([coins], store, Inline(), Quiet())
        (row,) = store.rows()
        assert (row.task, row.cell_seconds) == (coins, 0.0)
        arrays = store.arrays(coins.key)
        assert arrays is not None
        assert row.ft_accuracy == 100 * arrays["heads"].mean()
        export(store, tmp_path / "a.parquet")
        assert import_file(other, tmp_path / "a.parquet") == (1, 1)
        assert other.rows() == [row]


def test_a_task_of_an_unregistered_experiment_is_refused(coins: Toss) -> None:
    text = task_to_text(coins)
    assert task_from_text(text) == coins
    with pytest.raises(DataError, match="expected an object whose kind is one of"):
        task_from_text(text.replace("coins", "dice"))


def test_a_task_is_found_at_the_version_that_has_its_key() -> None:
    task = Cell("F12", "tanh", 5, -3).task()
    older = task.at(2)
    assert (older.version, task.version) == (2, task.results)
    assert older.key != task.key
    assert task.with_key(older.key) == older
    assert older.with_key(task.key) == task
    assert task.with_key("unknown") == task
    assert older.at(task.results) == task


@pytest.mark.parametrize("version", [0, 99, -1, True, 1.0, "1", None])
def test_an_unknown_version_of_results_is_refused(version: object) -> None:
    with pytest.raises(DataError, match="expected a version from 1 to"):
        Cell("F12", "tanh", 5, -3).task().at(version)


@pytest.mark.parametrize(
    "task",
    [
        Cell("F12", "tanh", 5, -3).task(),
        Layerwise(Cell("F12", "tanh", 5, -3)),
        PiCell(16, 20, 3, epochs=7).task(),
        ConicCell("learn-ellipse", 2).task(),
    ],
)
def test_a_task_survives_a_round_trip_through_text(task: AnyTask) -> None:
    assert task_from_text(task_to_text(task)) == task
    assert task_from_text(task_to_text(task)).key == task.key
