"""The store of results: one SQLite file, a row for each stage, safe with several writers."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import safetensors.numpy

from ftnn.errors import FtnnError
from ftnn.experiments._jobs import Checkpoint, Kept, Outcome
from ftnn.experiments._tasks import Cell, Task, as_text, task_of
from ftnn.training import Epoch, Pass

VERSION = 1
_MARK = 0x66746E6E  # "ftnn": SQLite keeps it in the file's header
_PATIENCE = 20.0  # seconds to wait for another writer
_SCHEMA = """
CREATE TABLE stages (
    key TEXT PRIMARY KEY,
    task TEXT NOT NULL,
    kind TEXT NOT NULL,
    lwt_accuracy REAL,
    ft_accuracy REAL,
    loss REAL,
    failed TEXT,
    advice TEXT,
    seconds REAL NOT NULL,
    cell_seconds REAL,
    digest TEXT NOT NULL,
    versions TEXT NOT NULL,
    finished TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE details (key TEXT PRIMARY KEY, epochs TEXT NOT NULL, arrays BLOB);
CREATE TABLE checkpoints (key TEXT PRIMARY KEY, notes TEXT NOT NULL, arrays BLOB NOT NULL);
CREATE TABLE claims (key TEXT PRIMARY KEY, owner TEXT NOT NULL, until REAL NOT NULL) WITHOUT ROWID;
"""


class StoreError(FtnnError):
    """A store that cannot be opened, read or written."""


@dataclass(frozen=True)
class Row:
    """What is known of a stage that is done, without its epochs and parameters."""

    key: str
    task: Task
    lwt_accuracy: float | None
    ft_accuracy: float | None
    loss: float | None
    failed: str | None
    advice: str | None
    seconds: float
    """Processor time of this stage."""
    cell_seconds: float | None
    """Of the whole cell, where this stage is its last: what it takes alone, with nothing shared."""
    digest: str
    versions: dict[str, str]
    finished: str
    """When, in UTC."""


_COLUMNS = (
    "key, task, lwt_accuracy, ft_accuracy, loss, failed, advice, seconds, cell_seconds, digest, "
    "versions, finished"
)
# Layer-wise training that was imported without its parameters is of no use to the stages after it.
_DONE = (
    "FROM stages WHERE key IN (SELECT value FROM json_each(?)) AND (kind != 'lwt' OR EXISTS "
    "(SELECT 1 FROM details WHERE details.key = stages.key AND arrays IS NOT NULL))"
)


class Store:
    """A store; a context manager. `Store(path)` makes the file where there is none."""

    def __init__(self, path: str | os.PathLike[str], *, must_exist: bool = False):
        self.path = Path(path)
        if must_exist and not self.path.exists():
            raise StoreError(
                f"there is no store {self.path}: name one with --store, or run `ftnn reproduce` first"
            )
        try:
            self._db = sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None)
            try:
                self._open()
            except BaseException:
                self._db.close()
                raise
        except sqlite3.Error as error:
            raise self._explained(error) from error

    def _open(self) -> None:
        # In one statement: another process may be making it at this moment.
        mark, version, tables = self._db.execute(
            "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master) "
            "FROM pragma_application_id, pragma_user_version"
        ).fetchone()
        if mark != _MARK and tables:
            raise StoreError(f"{self.path} is a database, but no store of ftnn; name another file")
        if version > VERSION:
            raise StoreError(
                f"{self.path} was written by a newer ftnn: it has version {version}, and this one reads "
                f"versions up to {VERSION}"
            )
        if not tables:
            self._create()
        # What is in the file survives the death of any process; only a power cut may cost the last moment.
        self._db.execute("PRAGMA synchronous = NORMAL")

    def _create(self) -> None:
        _patiently(lambda: self._db.execute("PRAGMA journal_mode = WAL"))
        with self._writing():
            # Another process may have been quicker.
            if self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                return
            for statement in _SCHEMA.strip().split(";\n"):
                self._db.execute(statement)
            self._db.execute(f"PRAGMA application_id = {_MARK}")
            self._db.execute(f"PRAGMA user_version = {VERSION}")

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()

    # --- reading ---

    def rows(self, keys: Iterable[str] | None = None) -> list[Row]:
        """All rows, or those of some keys, in the order in which they were finished.

        Those of an earlier version of the results (see `RESULTS`) are not among all: they are run again.
        """
        if keys is None:
            found = self._all(f"SELECT {_COLUMNS} FROM stages ORDER BY finished, key")
            return [row for row in map(_row, found) if row.key == row.task.key]
        wanted = json.dumps(list(keys))
        found = self._all(
            f"SELECT {_COLUMNS} FROM stages WHERE key IN (SELECT value FROM json_each(?)) "
            "ORDER BY finished, key",
            wanted,
        )
        return [_row(each) for each in found]

    def count(self) -> int:
        """How many stages there are, those of earlier versions of the results among them."""
        return self._all("SELECT count(*) FROM stages")[0][0]

    def done(self, keys: Iterable[str]) -> dict[str, bool]:
        """Which of these stages are done, and whether each went well."""
        found = self._all(f"SELECT key, failed {_DONE}", json.dumps(list(keys)))
        return {key: failed is None for key, failed in found}

    def epochs(self, key: str) -> tuple[Epoch | Pass, ...]:
        """What a stage did, epoch by epoch; nothing where it was imported without."""
        found = self._all("SELECT epochs FROM details WHERE key = ?", key)
        return read_epochs(found[0][0]) if found else ()

    def all_epochs(self) -> dict[str, str]:
        """The epochs of every stage as JSON; `read_epochs` reads them."""
        return dict(self._all("SELECT key, epochs FROM details"))

    def arrays(self, key: str) -> dict[str, Any] | None:
        """The parameters that a stage trained; None where it was imported without."""
        found = self.arrays_as_bytes(key)
        return None if found is None else safetensors.numpy.load(found)

    def arrays_as_bytes(self, key: str) -> bytes | None:
        """The same as a file of safetensors."""
        found = self._all("SELECT arrays FROM details WHERE key = ?", key)
        return found[0][0] if found else None

    def kept(self, task: Task) -> Kept | None:
        """A stage that is done, for those after it; None where it is not, or its parameters are not here."""
        rows, arrays = self.rows([task.key]), self.arrays(task.key)
        if not rows or arrays is None:
            return None
        epochs = tuple(epoch for epoch in self.epochs(task.key) if isinstance(epoch, Epoch))
        return Kept(epochs, rows[0].failed, rows[0].advice, arrays)

    def checkpoint(self, key: str) -> Checkpoint | None:
        """A stage in hand."""
        found = self._all("SELECT notes, arrays FROM checkpoints WHERE key = ?", key)
        return Checkpoint(json.loads(found[0][0]), safetensors.numpy.load(found[0][1])) if found else None

    # --- writing ---

    def record(self, task: Task, outcome: Outcome, versions: dict[str, str]) -> bool:
        """Add a stage that is done, whole. False where it was there already: the first one stays."""
        seconds = outcome.seconds
        total = None
        if task.kind != "lwt":
            before = self.rows(each.key for each in task.chain)
            total = seconds + sum(row.seconds for row in before)
        row = Row(
            task.key,
            task,
            outcome.lwt_accuracy,
            outcome.ft_accuracy,
            outcome.loss,
            outcome.failed,
            outcome.advice,
            seconds,
            total,
            outcome.digest,
            versions,
            now(),
        )
        epochs = json.dumps([asdict(epoch) for epoch in outcome.epochs])
        return self.add(row, epochs, safetensors.numpy.save(outcome.arrays))

    def add(self, row: Row, epochs: str | None, arrays: bytes | None) -> bool:
        """Add a row, its epochs as JSON and its parameters as safetensors. False where it was there already.

        What an import without parameters left is completed by one with them.
        """
        return self.add_all([(row, epochs, arrays)]) == 1

    def add_all(self, rows: Iterable[tuple[Row, str | None, bytes | None]]) -> int:
        """Add all of these rows or, where something goes wrong, none. Returns how many were new."""
        with self._writing():
            return sum([self._insert(*each) for each in rows])

    def _insert(self, row: Row, epochs: str | None, arrays: bytes | None) -> int:
        values = (
            row.key,
            as_text(row.task),
            row.lwt_accuracy,
            row.ft_accuracy,
            row.loss,
            row.failed,
            row.advice,
            row.seconds,
            row.cell_seconds,
            row.digest,
            json.dumps(row.versions, sort_keys=True),
            row.finished,
            row.task.kind,
        )
        marks = ", ".join("?" * len(values))
        new = self._db.execute(
            f"INSERT OR IGNORE INTO stages ({_COLUMNS}, kind) VALUES ({marks})", values
        ).rowcount
        if epochs is not None:
            self._db.execute(
                "INSERT INTO details VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE "
                "SET epochs = excluded.epochs, arrays = excluded.arrays WHERE arrays IS NULL",
                (row.key, epochs, arrays),
            )
        self._db.execute("DELETE FROM checkpoints WHERE key = ?", (row.key,))
        self._db.execute("DELETE FROM claims WHERE key = ?", (row.key,))
        return new

    def keep(self, key: str, checkpoint: Checkpoint) -> None:
        """Keep a stage in hand, in place of what was kept of it."""
        values = (key, json.dumps(checkpoint.notes), safetensors.numpy.save(checkpoint.arrays))
        with self._writing():
            self._db.execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?)", values)

    # --- who runs what ---

    def claim(self, keys: Iterable[str], owner: str, seconds: float, count: int | None = None) -> list[str]:
        """Say that `owner` runs these stages for so long: at most `count` of them, the first that are free.

        Not free are those that are done, and those of which another has said so. Returns what was claimed.
        """
        asked = list(keys)
        if not self._free(asked, owner):
            return []  # without having kept anybody from writing
        with self._writing():
            found = self._free(asked, owner)[:count]
            until = time.time() + seconds
            self._db.executemany(
                "INSERT OR REPLACE INTO claims VALUES (?, ?, ?)", [(key, owner, until) for key in found]
            )
        return found

    def _free(self, keys: list[str], owner: str) -> list[str]:
        taken = self._all(
            f"SELECT key {_DONE} UNION ALL SELECT key FROM claims "
            "WHERE key IN (SELECT value FROM json_each(?)) AND owner != ? AND until >= ?",
            json.dumps(keys),
            json.dumps(keys),
            owner,
            time.time(),
        )
        not_free = {key for (key,) in taken}
        return [key for key in keys if key not in not_free]

    def owners(self) -> list[str]:
        """All who have claimed something."""
        return [owner for (owner,) in self._all("SELECT DISTINCT owner FROM claims")]

    def release(self, owner: str) -> None:
        """Take back all that `owner` said."""
        with self._writing():
            self._db.execute("DELETE FROM claims WHERE owner = ?", (owner,))

    # --- SQLite ---

    def _all(self, statement: str, *values: Any) -> list[Any]:
        try:
            return self._db.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise self._explained(error) from error

    @contextmanager
    def _writing(self) -> Generator[None]:
        """A transaction that is kept whole or not at all."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            finally:
                if self._db.in_transaction:  # some errors, a full disk's for one, have ended it already
                    self._db.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise self._explained(error) from error

    def _explained(self, error: sqlite3.Error) -> StoreError:
        text = str(error)
        hints = {
            "locked": f"another program has held it for {_PATIENCE:g} seconds; try again when that is done",
            "readonly": "it cannot be written; copy it, or name another file with --store",
            "unable to open": "does the folder exist, and can it be written?",
            "malformed": "it is damaged; what was exported from it can be imported into a new one",
            "not a database": "it is no SQLite file; name another file with --store",
            "full": "the disk is full; all that was recorded before is in it",
        }
        hint = next((hint for part, hint in hints.items() if part in text), "")
        return StoreError(f"the store {self.path}: {text}{f' ({hint})' if hint else ''}")


def _patiently(action: Callable[[], object]) -> None:
    """Turning on the log does not wait for other processes by itself."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            action()
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(0.02)


def read_epochs(text: str) -> tuple[Epoch | Pass, ...]:
    given: list[dict[str, Any]] = json.loads(text)
    return tuple(Epoch(**each) if "stage" in each else Pass(**each) for each in given)


def _row(found: tuple[Any, ...]) -> Row:
    key, task, lwt, ft, loss, failed, advice, seconds, cell_seconds, digest, versions, finished = found
    made = task_of(task)
    return Row(
        key,
        made,
        lwt,
        ft,
        loss,
        failed,
        advice,
        seconds,
        cell_seconds,
        digest,
        json.loads(versions),
        finished,
    )


def ended(rows: Iterable[Row]) -> Iterator[tuple[Cell, Row]]:
    """The cells of MNIST grids that these rows end."""
    for row in rows:
        if row.task.kind == "ft" and isinstance(row.task.cell, Cell):
            yield row.task.cell, row


def now() -> str:
    """In UTC, as a row has it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
