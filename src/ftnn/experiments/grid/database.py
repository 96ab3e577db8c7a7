"""The SQLite file of a store: safe with several writers, and its errors are explained."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ftnn.errors import FtnnError

_ADDED = ("validation_accuracy", "lwt_validation_accuracy")
"""Columns that versions 2 and 3 added; older stores get them when they are opened."""
VERSION = 1 + len(_ADDED)
_APPLICATION_ID = 0x66746E6E  # "ftnn": SQLite keeps it in the file's header
_PATIENCE = 20.0  # seconds to wait for another writer
_SCHEMA = """
CREATE TABLE stages (
    key TEXT PRIMARY KEY,
    task TEXT NOT NULL,
    kind TEXT NOT NULL,
    lwt_accuracy REAL,
    ft_accuracy REAL,
    validation_accuracy REAL,
    lwt_validation_accuracy REAL,
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
_HINTS = {
    "locked": "another program has kept it locked for {patience:g} seconds; try again later",
    "readonly": "the file is not writable; use a copy or another file",
    "unable to open": "does the folder exist, and is it writable?",
    "malformed": "the file is damaged; import earlier exports into a new store",
    "not a database": "not an SQLite file; choose another",
    "full": "the disk is full; everything recorded earlier is safe",
}


class StoreError(FtnnError):
    """A store that cannot be opened, read or written."""


class Database:
    """An open SQLite file, created if missing."""

    def __init__(self, path: Path):
        self.path = path
        if path.exists() and not path.is_file():  # a folder, or a device that SQLite would write to
            raise StoreError(f"{path} is not a file")
        try:
            self._connection = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)
            # Invalid UTF-8 damages only its own row: the others must stay readable.
            self._connection.text_factory = _decode
            try:
                self._open()
            except BaseException:
                self.close()
                raise
        except sqlite3.Error as error:
            raise self._explained(error) from error

    def _open(self) -> None:
        # In one statement: another process may be creating the tables right now.
        application, version, tables = self.execute(
            "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master) "
            "FROM pragma_application_id, pragma_user_version"
        ).fetchone()
        if application != _APPLICATION_ID and tables:
            raise StoreError(f"{self.path} is an SQLite database, but not an ftnn store")
        if version > VERSION:
            raise StoreError(
                f"{self.path} was written by a newer ftnn: its version is {version}, and this ftnn reads "
                f"versions up to {VERSION}"
            )
        if not tables:
            self._create()
        elif version < VERSION:
            self._upgrade()
        # Commits survive a killed process; only a power failure can lose the last ones.
        self.execute("PRAGMA synchronous = NORMAL")

    def _create(self) -> None:
        deadline = time.monotonic() + _PATIENCE
        while True:  # unlike other statements, this one does not wait for other processes
            try:
                self.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
        with self.writing():
            if self.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                return  # another process was faster
            for statement in _SCHEMA.strip().split(";\n"):
                self.execute(statement)
            self.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            self.execute(f"PRAGMA user_version = {VERSION}")

    def _upgrade(self) -> None:
        with self.writing():
            version = self.execute("PRAGMA user_version").fetchone()[0]
            for name in _ADDED[version - 1 :]:  # none if another process was faster
                self.execute(f"ALTER TABLE stages ADD COLUMN {name} REAL")
            self.execute(f"PRAGMA user_version = {VERSION}")

    def close(self) -> None:
        self._connection.close()

    def execute(self, statement: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> sqlite3.Cursor:
        """Run a statement. Errors are explained only inside `writing`."""
        return self._connection.execute(statement, values)

    def all(self, statement: str, *values: Any) -> list[Any]:
        """All rows that a query returns."""
        try:
            return self.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise self._explained(error) from error

    @contextmanager
    def writing(self) -> Generator[None]:
        """A transaction: all of it is written, or nothing."""
        try:
            self.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.execute("COMMIT")
            finally:
                if self._connection.in_transaction:  # some errors, such as a full disk, have ended it
                    self.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise self._explained(error) from error

    def _explained(self, error: sqlite3.Error) -> StoreError:
        text = str(error)
        hint = next((f" ({hint})" for part, hint in _HINTS.items() if part in text), "")
        return StoreError(f"store {self.path}: {text}{hint.format(patience=_PATIENCE)}")


def _decode(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")
