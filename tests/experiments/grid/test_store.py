"""The store: atomic rows, several writers, and errors that explain what is wrong with a file."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ftnn.experiments import Store, StoreError
from ftnn.experiments.grid.jobs import Checkpoint, Outcome
from ftnn.training import Epoch
from tests.experiments.quick import cell

TASK = cell().task()
EPOCH = Epoch("ft", 0, 1, 0.5, 1.25, 50.0, 60.0, 1.5, 0.1)


def outcome(digest: str = "a" * 64, arrays: float = 1.0) -> Outcome:
    parameters = {"hidden.0.theta.p": np.full((3, 2), arrays, dtype=np.float32)}
    return Outcome(TASK.key, (EPOCH,), None, None, 1.25, parameters, 55.0, 60.0, digest, 2.5)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "a.sqlite")


class TestRows:
    def test_a_recorded_row_is_read_back_unchanged(self, store: Store) -> None:
        assert store.record(TASK, outcome(), {"ftnn": "1"})
        (row,) = store.rows()
        assert (row.key, row.task, row.lwt_accuracy, row.ft_accuracy) == (TASK.key, TASK, 55.0, 60.0)
        assert (row.loss, row.failed, row.seconds, row.digest) == (1.25, None, 2.5, "a" * 64)
        assert row.versions == {"ftnn": "1"}
        assert store.epochs(TASK.key) == (EPOCH,)
        arrays = store.arrays(TASK.key)
        assert arrays is not None
        np.testing.assert_array_equal(arrays["hidden.0.theta.p"], np.ones((3, 2), np.float32))

    def test_the_first_result_of_a_stage_is_kept(self, store: Store) -> None:
        store.record(TASK, outcome(), {})
        assert not store.record(TASK, outcome("b" * 64, 2.0), {})
        assert [row.digest for row in store.rows()] == ["a" * 64]
        arrays = store.arrays(TASK.key)
        assert arrays is not None
        assert (arrays["hidden.0.theta.p"] == 1).all()

    def test_the_seconds_of_a_cell_are_the_sum_over_its_stages(self, store: Store) -> None:
        assert TASK.before is not None
        store.record(TASK.before, outcome(), {})
        store.record(TASK, outcome(), {})
        assert {row.task.kind: row.cell_seconds for row in store.rows()} == {"lwt": None, "ft": 5.0}

    def test_a_row_is_written_completely_or_not_at_all(self, store: Store) -> None:
        """If the second half cannot be written, the first is rolled back."""
        with sqlite3.connect(store.path) as other:
            other.execute("DROP TABLE details")
        with pytest.raises(StoreError, match="details"):
            store.record(TASK, outcome(), {})
        assert store.rows() == []

    def test_recording_a_stage_deletes_its_checkpoint_and_claim(self, store: Store) -> None:
        store.claim([TASK.key], "me", 60)
        store.keep(TASK.key, Checkpoint({"n": 1}, {"a": np.zeros(2)}))
        store.record(TASK, outcome(), {})
        assert store.checkpoint(TASK.key) is None
        assert not store.claim([TASK.key], "me", 60)


def test_a_new_checkpoint_replaces_the_old_one(store: Store) -> None:
    assert store.checkpoint("k") is None
    for number in (1, 2):
        store.keep("k", Checkpoint({"n": number}, {"a": np.full(2, number)}))
    checkpoint = store.checkpoint("k")
    assert checkpoint is not None
    assert checkpoint.notes == {"n": 2}
    np.testing.assert_array_equal(checkpoint.arrays["a"], [2, 2])


class TestClaims:
    def test_a_stage_is_claimed_by_one_owner_at_a_time(self, store: Store) -> None:
        assert store.claim(["k"], "me", 60)
        assert not store.claim(["k"], "you", 60)
        assert store.claim(["k"], "me", 60)
        store.release("me")
        assert store.claim(["k"], "you", 60)

    def test_claims_are_granted_in_order_up_to_the_count(self, store: Store) -> None:
        store.claim(["b"], "you", 60)
        assert store.claim("abcd", "me", 60, 2) == ["a", "c"]
        assert store.claim("abcd", "me", 60) == ["a", "c", "d"]

    def test_claims_expire(self, store: Store) -> None:
        assert store.claim(["k"], "me", -1)
        assert store.claim(["k"], "you", 60)


class TestVersions:
    @pytest.mark.parametrize(
        ("version", "missing"),
        [(1, ["validation_accuracy", "lwt_validation_accuracy"]), (2, ["lwt_validation_accuracy"])],
    )
    def test_an_older_store_gets_the_new_columns(
        self, tmp_path: Path, version: int, missing: list[str]
    ) -> None:
        path = tmp_path / "a.sqlite"
        with Store(path) as store:
            store.record(TASK, outcome(), {"ftnn": "1"})
        with sqlite3.connect(path) as other:
            for name in missing:
                other.execute(f"ALTER TABLE stages DROP COLUMN {name}")
            other.execute(f"PRAGMA user_version = {version}")
        other.close()
        task = cell("F12").task()
        with Store(path) as store:
            new = replace(outcome(), key=task.key, validation_accuracy=70.0, lwt_validation_accuracy=60.0)
            store.record(task, new, {"ftnn": "1"})
            validation = {
                row.task: (row.lwt_validation_accuracy, row.validation_accuracy) for row in store.rows()
            }
            assert validation == {TASK: (None, None), task: (60.0, 70.0)}
        Store(path).close()  # not upgraded twice


class TestBadFiles:
    def test_a_missing_store_is_an_error_if_it_must_exist(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match="there is no store"):
            Store(tmp_path / "no.sqlite", must_exist=True)
        assert not (tmp_path / "no.sqlite").exists()

    def test_a_folder_or_pipe_is_refused_and_not_touched(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        for path in (tmp_path, tmp_path / "pipe"):
            with pytest.raises(StoreError, match="is not a file"):
                Store(path)
        assert [path.name for path in tmp_path.iterdir()] == ["pipe"]

    def test_a_missing_folder_is_explained(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match="does the folder exist"):
            Store(tmp_path / "no" / "a.sqlite")

    def test_a_store_of_a_newer_version_is_refused_and_not_touched(self, tmp_path: Path) -> None:
        path = tmp_path / "a.sqlite"
        Store(path).close()
        with sqlite3.connect(path) as other:
            other.execute("PRAGMA user_version = 99")
        before = path.read_bytes()
        with pytest.raises(StoreError, match="newer ftnn: its version is 99"):
            Store(path)
        assert path.read_bytes() == before

    def test_a_database_of_another_program_is_refused_and_not_touched(self, tmp_path: Path) -> None:
        path = tmp_path / "a.sqlite"
        with sqlite3.connect(path) as other:
            other.execute("CREATE TABLE notes (x)")
        other.close()
        before = path.read_bytes()
        with pytest.raises(StoreError, match="not an ftnn store"):
            Store(path)
        assert path.read_bytes() == before

    def test_a_text_file_is_refused_and_not_touched(self, tmp_path: Path) -> None:
        path = tmp_path / "a.sqlite"
        path.write_text("not a database, but longer than a header of one hundred bytes " * 3)
        before = path.read_bytes()
        with pytest.raises(StoreError, match="not an SQLite file"):
            Store(path)
        assert path.read_bytes() == before

    def test_a_damaged_file_is_explained(self, store: Store) -> None:
        store.record(TASK, outcome(), {})
        store.close()
        content = bytearray(store.path.read_bytes())
        content[4096:] = b"\x5a" * (len(content) - 4096)
        store.path.write_bytes(content)
        with pytest.raises(StoreError, match=r"damaged|malformed|disk image"):
            Store(store.path).rows()

    def test_a_read_only_store_can_be_read_but_not_written(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.close()
        real = sqlite3.connect

        def read_only(path: Path, **options: object) -> sqlite3.Connection:
            return real(f"file:{path}?mode=ro", uri=True, **options)  # pyright: ignore[reportArgumentType, reportCallIssue]

        monkeypatch.setattr(sqlite3, "connect", read_only)
        opened = Store(store.path)
        assert opened.rows() == []
        with pytest.raises(StoreError, match="not writable"):
            opened.record(TASK, outcome(), {})

    def test_a_store_locked_by_another_program_is_explained(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("ftnn.experiments.grid.database._PATIENCE", 0.1)
        waiting = Store(store.path)
        other = sqlite3.connect(store.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="another program has kept it locked"):
            waiting.record(TASK, outcome(), {})
        other.execute("ROLLBACK")
        assert waiting.record(TASK, outcome(), {})

    def test_a_full_disk_does_no_damage(self, store: Store) -> None:
        assert TASK.before is not None
        store.record(TASK.before, outcome(), {})
        pages = store._db.execute("PRAGMA page_count").fetchone()[0]
        store._db.execute(f"PRAGMA max_page_count = {pages}")
        big = outcome()
        big.arrays["more"] = np.zeros(100_000)
        with pytest.raises(StoreError, match="disk is full"):
            store.record(TASK, big, {})
        assert [row.task for row in store.rows()] == [TASK.before]
        assert Store(store.path)._db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_many_threads_can_create_a_store_at_once(tmp_path: Path) -> None:
    errors: list[Exception] = []

    def work() -> None:
        try:
            with Store(tmp_path / "a.sqlite") as store:
                store.rows()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


_WORK = """
import sys, json
from tests.experiments.quick import Inline, Quiet, cell, run
from tests.experiments.many import cells, FakeExecutor
from ftnn.experiments import Store
executor = FakeExecutor()
with Store(sys.argv[1]) as store:
    run([each.task() for each in cells()], store, executor, Quiet())
print(json.dumps(executor.ran))
"""


@pytest.mark.slow
def test_four_processes_share_a_thousand_cells(tmp_path: Path) -> None:
    """No stage is lost, and none is run twice."""
    from tests.experiments.many import cells

    path = tmp_path / "a.sqlite"
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *sys.path])}
    processes = [
        subprocess.Popen([sys.executable, "-c", _WORK, path], stdout=subprocess.PIPE, env=environment)
        for _ in range(4)
    ]
    ran: list[str] = []
    for process in processes:
        printed, _ = process.communicate(timeout=300)
        assert process.returncode == 0
        ran += json.loads(printed)
    assert len(ran) == len(set(ran)) == 2000
    with Store(path) as store:
        assert {row.key for row in store.rows()} == set(ran)
        assert sum(row.task.kind == "ft" for row in store.rows()) == 1000
        assert {row.task.cell for row in store.rows() if row.task.kind == "ft"} == set(cells())
