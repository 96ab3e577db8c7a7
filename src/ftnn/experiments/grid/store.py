"""The store of results: one SQLite file, a row for each stage."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

import safetensors.numpy

from ftnn.errors import DataError
from ftnn.experiments.grid.database import Database, StoreError
from ftnn.experiments.grid.jobs import Checkpoint, Outcome, Predecessor
from ftnn.experiments.grid.registry import KINDS, task_from_text, task_to_text
from ftnn.experiments.grid.rows import (
    Addition,
    Damaged,
    Row,
    check_shapes,
    from_json,
    now,
    read_arrays,
    read_epochs,
)
from ftnn.experiments.grid.task import AnyTask
from ftnn.training import Epoch, Pass

_FIELDS = tuple(field.name for field in fields(Row))
_COLUMNS = ", ".join(_FIELDS)
_DETAILS = "FROM details JOIN stages USING (key)"
_SEAL = "sha256"
"""The key of a checkpoint's own digest in its notes."""
_T = TypeVar("_T")


class Store:
    """A store of results. `Store(path)` creates the file if it is missing. A context manager."""

    def __init__(self, path: str | os.PathLike[str], *, must_exist: bool = False):
        self.path = Path(path)
        self._good: set[str] = set()
        if must_exist and not self.path.exists():
            raise StoreError(f"there is no store {self.path}")
        self._db = Database(self.path)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()

    # --- rows ---

    def rows(self, keys: Iterable[str] | None = None) -> list[Row]:
        """All valid rows, or those with some keys, ordered by the time they finished.

        Without `keys`, each stage has one row, with the newest version of its results (see `Task.results`).
        """
        if keys is None:
            return self.survey()[0]
        rows = self._db.all(
            f"SELECT {_COLUMNS} FROM stages WHERE key IN (SELECT value FROM json_each(?)) "
            "ORDER BY finished, key",
            json.dumps(list(keys)),
        )
        return [row for row in map(_row, rows) if isinstance(row, Row)]

    def survey(self) -> tuple[list[Row], list[Damaged]]:
        """All rows as from `rows`, and the damaged ones."""
        rows = [*map(_row, self._db.all(f"SELECT {_COLUMNS} FROM stages ORDER BY finished, key"))]
        good = [row for row in rows if isinstance(row, Row) and row.key == row.task.key]
        by_version = sorted(good, key=lambda row: row.task.version)
        newest = {row.task.at(row.task.results).key: row.key for row in by_version}
        keys = {*newest.values()}
        return [row for row in good if row.key in keys], [row for row in rows if isinstance(row, Damaged)]

    def count(self) -> int:
        """The number of stages, including those from older versions of the results."""
        return self._db.all("SELECT count(*) FROM stages")[0][0]

    def done(self, keys: Iterable[str]) -> dict[str, bool]:
        """The finished stages among these keys, and whether each succeeded. Damaged rows do not count."""
        recorded = self._recorded(keys)
        # Valid rows never change: remember them, because the scheduler asks often.
        unknown = [key for key, _ in recorded if key not in self._good]
        if unknown:
            self._good.update(row.key for row in self.rows(unknown))
        return {key: failed is None for key, failed in recorded if key in self._good}

    def _recorded(self, keys: Iterable[str]) -> list[tuple[str, str | None]]:
        """(key, why it failed) of the stages that have everything that later stages need."""
        # A stage that others follow is useless if it was imported without parameters.
        return self._db.all(
            "SELECT key, failed FROM stages WHERE key IN (SELECT value FROM json_each(?)) AND "
            "(kind NOT IN (SELECT value FROM json_each(?)) OR EXISTS "
            "(SELECT 1 FROM details WHERE details.key = stages.key AND arrays IS NOT NULL))",
            json.dumps(list(keys)),
            json.dumps([name for name, kind in KINDS.items() if not kind.ends_cell]),
        )

    # --- epochs and parameters ---

    def epochs(self, key: str) -> tuple[Epoch | Pass, ...]:
        """The epochs of a stage; empty if it was imported without them."""
        rows = self._db.all(f"SELECT kind, epochs {_DETAILS} WHERE key = ?", key)
        if not rows:
            return ()
        kind, text = rows[0]
        epochs = self._intact(key, lambda: read_epochs(text, kind))
        return tuple(KINDS[kind].epoch_type(**epoch) for epoch in epochs)

    def all_epochs(self) -> tuple[dict[str, list[dict[str, Any]]], list[Damaged]]:
        """The epochs of every stage as plain data, and the stages with damaged epochs."""
        good: dict[str, list[dict[str, Any]]] = {}
        damaged: list[Damaged] = []
        for key, kind, epochs in self._db.all(f"SELECT key, kind, epochs {_DETAILS}"):
            try:
                good[key] = read_epochs(epochs, kind)
            except DataError as error:
                damaged.append(Damaged(key, str(error)))
        return good, damaged

    def arrays(self, key: str) -> dict[str, Any] | None:
        """The parameters that a stage trained; None if it was imported without them."""
        content = self.arrays_as_bytes(key)
        return None if content is None else self._intact(key, lambda: read_arrays(content))

    def parameters(self, task: AnyTask) -> dict[str, Any] | None:
        """Like `arrays`, but raises `StoreError` if the shapes are not those of the task's network."""
        arrays = self.arrays(task.key)
        if arrays is not None:
            self._intact(task.key, lambda: check_shapes(task, arrays))
        return arrays

    def arrays_as_bytes(self, key: str) -> bytes | None:
        """Like `arrays`, as a safetensors file."""
        rows = self._db.all("SELECT arrays FROM details WHERE key = ?", key)
        return rows[0][0] if rows else None

    def _intact(self, key: str, read: Callable[[], _T]) -> _T:
        try:
            return read()
        except DataError as error:
            raise StoreError(f"store {self.path}: stage {key} is damaged: {error}") from error

    def kept(self, task: AnyTask) -> Predecessor | None:
        """A finished stage, for the ones after it; None if it or its parameters are missing."""
        rows, arrays = self.rows([task.key]), self.arrays(task.key)
        if not rows or arrays is None:
            return None
        epochs = tuple(epoch for epoch in self.epochs(task.key) if isinstance(epoch, Epoch))
        row = rows[0]
        return Predecessor(epochs, row.failed, row.advice, arrays, row.validation_accuracy)

    # --- adding results ---

    def record(self, task: AnyTask, outcome: Outcome, versions: dict[str, str]) -> bool:
        """Add a finished stage. Returns False and changes nothing if the store already has it."""
        cell_seconds = None
        if task.ends_cell:
            before = self.rows(stage.key for stage in task.chain)
            cell_seconds = outcome.seconds + sum(row.seconds for row in before)
        results = {name: value for name, value in vars(outcome).items() if name in _FIELDS}
        results |= {"key": task.key, "task": task, "cell_seconds": cell_seconds}
        row = Row(**results, versions=versions, finished=now())
        epochs = json.dumps([asdict(epoch) for epoch in outcome.epochs])
        return self.add(row, epochs, safetensors.numpy.save(outcome.arrays))

    def add(self, row: Row, epochs: str | None, arrays: bytes | None) -> bool:
        """Add a row, its epochs as JSON and its parameters as safetensors. Returns whether it was new.

        Adds parameters to a row imported without them, and replaces a damaged row.
        """
        return self.add_all([(row, epochs, arrays)]) == [True]

    def add_all(self, rows: Iterable[Addition]) -> list[bool]:
        """Add these rows or, after an error, none of them. Returns which were new."""
        with self._db.writing():
            return [self._insert(*addition) for addition in rows]

    def _insert(self, row: Row, epochs: str | None, arrays: bytes | None) -> bool:
        if row.key != row.task.key:
            raise DataError(f"key is {row.key!r}; expected {row.task.key!r}, the key of its task")
        if epochs is not None:
            read_epochs(epochs, row.task.kind)
        if arrays is not None:
            read_arrays(arrays)
        if not self.rows([row.key]):  # any row with this key is damaged
            for table in ("stages", "details"):
                self._db.execute(f"DELETE FROM {table} WHERE key = ?", (row.key,))
        values = {
            **vars(row),
            "task": task_to_text(row.task),
            "versions": json.dumps(row.versions, sort_keys=True),
            "kind": row.task.kind,
        }
        new = self._db.execute(
            f"INSERT INTO stages ({', '.join(values)}) VALUES ({', '.join(f':{name}' for name in values)}) "
            "ON CONFLICT (key) DO NOTHING",
            values,
        ).rowcount
        if epochs is not None:
            self._db.execute(
                "INSERT INTO details VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE "
                "SET epochs = excluded.epochs, arrays = excluded.arrays WHERE arrays IS NULL",
                (row.key, epochs, arrays),
            )
        if self._recorded([row.key]):  # layers without parameters must still be trained
            self._db.execute("DELETE FROM checkpoints WHERE key = ?", (row.key,))
            self._db.execute("DELETE FROM claims WHERE key = ?", (row.key,))
        return new == 1

    # --- unfinished stages ---

    def checkpoint(self, key: str) -> Checkpoint | None:
        """The checkpoint of an unfinished stage; None if there is none, or it is damaged."""
        for text, arrays in self._db.all("SELECT notes, arrays FROM checkpoints WHERE key = ?", key):
            try:
                notes = from_json(text, "notes")
                seal = notes.pop(_SEAL, None)  # missing in version 0.1
                if seal in (None, _sealed(notes, arrays)):
                    return Checkpoint(notes, read_arrays(arrays))
            except (DataError, TypeError, AttributeError):
                return None
        return None

    def keep(self, key: str, checkpoint: Checkpoint) -> None:
        """Save a checkpoint, replacing the previous one."""
        arrays = safetensors.numpy.save(checkpoint.arrays)
        notes = json.dumps({**checkpoint.notes, _SEAL: _sealed(checkpoint.notes, arrays)})
        with self._db.writing():
            self._db.execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?)", (key, notes, arrays))

    def claim(self, keys: Iterable[str], owner: str, seconds: float, count: int | None = None) -> list[str]:
        """Reserve stages for `owner` for this many seconds: the first `count` that are free.

        Stages that are finished, or claimed by another owner, are not free. Returns the claimed keys.
        """
        keys = list(keys)
        if not self._free(keys, owner):
            return []  # without blocking other writers
        with self._db.writing():
            free = self._free(keys, owner)[:count]
            until = time.time() + seconds
            for key in free:
                self._db.execute("INSERT OR REPLACE INTO claims VALUES (?, ?, ?)", (key, owner, until))
        return free

    def _free(self, keys: list[str], owner: str) -> list[str]:
        claimed = self._db.all(
            "SELECT key FROM claims "
            "WHERE key IN (SELECT value FROM json_each(?)) AND owner != ? AND until >= ?",
            json.dumps(keys),
            owner,
            time.time(),
        )
        not_free = {*self.done(keys), *(key for (key,) in claimed)}
        return [key for key in keys if key not in not_free]

    def owners(self) -> list[str]:
        """All owners of claims."""
        return [owner for (owner,) in self._db.all("SELECT DISTINCT owner FROM claims")]

    def release(self, owner: str) -> None:
        """Drop all claims of an owner."""
        with self._db.writing():
            self._db.execute("DELETE FROM claims WHERE owner = ?", (owner,))


def _sealed(notes: dict[str, Any], arrays: bytes) -> str:
    return hashlib.sha256(json.dumps(notes, sort_keys=True).encode() + arrays).hexdigest()


def _row(columns: tuple[Any, ...]) -> Row | Damaged:
    values = dict(zip(_FIELDS, columns, strict=True))
    try:
        values["task"] = task_from_text(values["task"]).with_key(values["key"])
        values["versions"] = from_json(values["versions"], "versions")
        return Row(**values)
    except DataError as error:
        return Damaged(str(values["key"]), str(error))
