"""The store of results: one SQLite file, a row for each stage, safe with several writers."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import safetensors.numpy

from ftnn.errors import DataError, FtnnError
from ftnn.experiments._jobs import Checkpoint, Kept, Outcome
from ftnn.experiments._rows import (
    Damaged,
    Row,
    check_first_layer,
    from_json,
    made,
    now,
    read_arrays,
    read_epochs,
)
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


_COLUMNS = (
    "key, task, lwt_accuracy, ft_accuracy, loss, failed, advice, seconds, cell_seconds, digest, "
    "versions, finished"
)
# Layer-wise training that was imported without its parameters is of no use to the stages after it.
_DONE = (
    "FROM stages WHERE key IN (SELECT value FROM json_each(?)) AND (kind != 'lwt' OR EXISTS "
    "(SELECT 1 FROM details WHERE details.key = stages.key AND arrays IS NOT NULL))"
)


_DETAILS = "FROM details JOIN stages USING (key)"
_SEAL = "sha256"
"""The name in a checkpoint's notes under which the digest of all that it keeps stands."""
_T = TypeVar("_T")
Addition = tuple[Row, str | None, bytes | None]
"""A row, its epochs as JSON, and its parameters as safetensors."""


class Store:
    """A store; a context manager. `Store(path)` makes the file where there is none."""

    def __init__(self, path: str | os.PathLike[str], *, must_exist: bool = False):
        self.path = Path(path)
        self._good: set[str] = set()
        if must_exist and not self.path.exists():
            raise StoreError(
                f"there is no store {self.path}: name one with --store, or run `ftnn reproduce` first"
            )
        if self.path.exists() and not self.path.is_file():  # a folder, or a device that SQLite would write to
            raise StoreError(f"{self.path} is not a file; name another with --store")
        try:
            self._db = sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None)
            # A text that is not UTF-8 is damage to its own row, and no reason not to read the others.
            self._db.text_factory = _decoded
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
        Rows that are damaged are never among them; `survey` says which they are.
        """
        if keys is None:
            return self.survey()[0]
        found = self._all(
            f"SELECT {_COLUMNS} FROM stages WHERE key IN (SELECT value FROM json_each(?)) "
            "ORDER BY finished, key",
            json.dumps(list(keys)),
        )
        return [row for row in map(_row, found) if isinstance(row, Row)]

    def survey(self) -> tuple[list[Row], list[Damaged]]:
        """All rows as `rows` gives them, and those that are damaged."""
        found = [_row(each) for each in self._all(f"SELECT {_COLUMNS} FROM stages ORDER BY finished, key")]
        good = [row for row in found if isinstance(row, Row) and row.key == row.task.key]
        return good, [row for row in found if isinstance(row, Damaged)]

    def count(self) -> int:
        """How many stages there are, those of earlier versions of the results among them."""
        return self._all("SELECT count(*) FROM stages")[0][0]

    def done(self, keys: Iterable[str]) -> dict[str, bool]:
        """Which of these stages are done, and whether each went well. One that is damaged is not done."""
        found = self._all(f"SELECT key, failed {_DONE}", json.dumps(list(keys)))
        # A good row stays as it is: the scheduler asks often, and each is looked at once.
        unknown = [key for key, _ in found if key not in self._good]
        if unknown:
            self._good.update(row.key for row in self.rows(unknown))
        return {key: failed is None for key, failed in found if key in self._good}

    def epochs(self, key: str) -> tuple[Epoch | Pass, ...]:
        """What a stage did, epoch by epoch; nothing where it was imported without."""
        found = self._all(f"SELECT kind, epochs {_DETAILS} WHERE key = ?", key)
        return tuple(made(self._intact(key, lambda: read_epochs(found[0][1], found[0][0])))) if found else ()

    def all_epochs(self) -> tuple[dict[str, list[dict[str, Any]]], list[Damaged]]:
        """The epochs of every stage as plain data, and the stages whose epochs are damaged."""
        good: dict[str, list[dict[str, Any]]] = {}
        damaged: list[Damaged] = []
        for key, kind, epochs in self._all(f"SELECT key, kind, epochs {_DETAILS}"):
            try:
                good[key] = read_epochs(epochs, kind)
            except DataError as error:
                damaged.append(Damaged(key, str(error)))
        return good, damaged

    def arrays(self, key: str) -> dict[str, Any] | None:
        """The parameters that a stage trained; None where it was imported without."""
        found = self.arrays_as_bytes(key)
        return None if found is None else self._intact(key, lambda: read_arrays(found))

    def parameters(self, task: Task) -> dict[str, Any] | None:
        """The same for a task that ends a cell; those of another network are refused."""
        found = self.arrays(task.key)
        if found is not None:
            self._intact(task.key, lambda: check_first_layer(task, found))
        return found

    def arrays_as_bytes(self, key: str) -> bytes | None:
        """The same as a file of safetensors."""
        found = self._all("SELECT arrays FROM details WHERE key = ?", key)
        return found[0][0] if found else None

    def _intact(self, key: str, read: Callable[[], _T]) -> _T:
        try:
            return read()
        except DataError as error:
            raise StoreError(f"the store {self.path}: stage {key} is damaged: {error}") from error

    def kept(self, task: Task) -> Kept | None:
        """A stage that is done, for those after it; None where it is not, or its parameters are not here."""
        rows, arrays = self.rows([task.key]), self.arrays(task.key)
        if not rows or arrays is None:
            return None
        epochs = tuple(epoch for epoch in self.epochs(task.key) if isinstance(epoch, Epoch))
        return Kept(epochs, rows[0].failed, rows[0].advice, arrays)

    def checkpoint(self, key: str) -> Checkpoint | None:
        """A stage in hand; None where there is none, or what was kept is damaged: then it starts again."""
        for notes, arrays in self._all("SELECT notes, arrays FROM checkpoints WHERE key = ?", key):
            try:
                given = from_json(notes, "notes")
                seal = given.pop(_SEAL, None)  # version 0.1 had none
                if seal in (None, _sealed(given, arrays)):
                    return Checkpoint(given, read_arrays(arrays))
            except (DataError, TypeError, AttributeError):
                return None
        return None

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

        What an import without parameters left is completed by one with them, and a damaged row replaced.
        """
        return self.add_all([(row, epochs, arrays)]) == [True]

    def add_all(self, rows: Iterable[Addition]) -> list[bool]:
        """Add all of these rows or, where something goes wrong, none. Returns which of them were new."""
        with self._writing():
            return [self._insert(*each) for each in rows]

    def _insert(self, row: Row, epochs: str | None, arrays: bytes | None) -> bool:
        if row.key != row.task.key:
            raise DataError(f"key is {row.key!r}; expected {row.task.key!r}, that of its task")
        if epochs is not None:
            read_epochs(epochs, row.task.kind)
        if arrays is not None:
            read_arrays(arrays)
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
        if row.key not in {each.key for each in self.rows([row.key])}:  # if it is there, it is damaged
            for table in ("stages", "details"):
                self._db.execute(f"DELETE FROM {table} WHERE key = ?", (row.key,))
        marks = ", ".join("?" * len(values))
        new = self._db.execute(
            f"INSERT INTO stages ({_COLUMNS}, kind) VALUES ({marks}) ON CONFLICT (key) DO NOTHING", values
        ).rowcount
        if epochs is not None:
            self._db.execute(
                "INSERT INTO details VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE "
                "SET epochs = excluded.epochs, arrays = excluded.arrays WHERE arrays IS NULL",
                (row.key, epochs, arrays),
            )
        if self._all(
            f"SELECT key {_DONE}", json.dumps([row.key])
        ):  # layers that came without their parameters are still to be trained
            self._db.execute("DELETE FROM checkpoints WHERE key = ?", (row.key,))
            self._db.execute("DELETE FROM claims WHERE key = ?", (row.key,))
        return new == 1

    def keep(self, key: str, checkpoint: Checkpoint) -> None:
        """Keep a stage in hand, in place of what was kept of it."""
        arrays = safetensors.numpy.save(checkpoint.arrays)
        notes = json.dumps({**checkpoint.notes, _SEAL: _sealed(checkpoint.notes, arrays)})
        with self._writing():
            self._db.execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?)", (key, notes, arrays))

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
        claimed = self._all(
            "SELECT key FROM claims "
            "WHERE key IN (SELECT value FROM json_each(?)) AND owner != ? AND until >= ?",
            json.dumps(keys),
            owner,
            time.time(),
        )
        not_free = {*self.done(keys), *(key for (key,) in claimed)}
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


def _decoded(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


def _sealed(notes: dict[str, Any], arrays: bytes) -> str:
    return hashlib.sha256(json.dumps(notes, sort_keys=True).encode() + arrays).hexdigest()


def _row(found: tuple[Any, ...]) -> Row | Damaged:
    given = dict(zip(_COLUMNS.split(", "), found, strict=True))
    try:
        given["task"], given["versions"] = task_of(given["task"]), from_json(given["versions"], "versions")
        return Row(**given)
    except DataError as error:
        return Damaged(str(given["key"]), str(error))


def ended(rows: Iterable[Row]) -> Iterator[tuple[Cell, Row]]:
    """The cells of MNIST grids that these rows end."""
    for row in rows:
        if row.task.kind == "ft" and isinstance(row.task.cell, Cell):
            yield row.task.cell, row
