"""The SQLite file of a store: opened, made, read and written, safe with several writers; errors explained."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ftnn.errors import FtnnError

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
_HINTS = {
    "locked": "another program has held it for {patience:g} seconds; try again when that is done",
    "readonly": "it cannot be written; copy it, or name another file with --store",
    "unable to open": "does the folder exist, and can it be written?",
    "malformed": "it is damaged; what was exported from it can be imported into a new one",
    "not a database": "it is not an SQLite file; name another file with --store",
    "full": "the disk is full; all that was recorded before is in it",
}


class StoreError(FtnnError):
    """A store that cannot be opened, read or written."""


class Database:
    """An open file, made where there is none."""

    def __init__(self, path: Path):
        self.path = path
        if path.exists() and not path.is_file():  # a folder, or a device that SQLite would write to
            raise StoreError(f"{path} is not a file; name another with --store")
        try:
            self._connection = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)
            # A text that is not UTF-8 is damage to its own row, and no reason not to read the others.
            self._connection.text_factory = _decoded
            try:
                self._open()
            except BaseException:
                self.close()
                raise
        except sqlite3.Error as error:
            raise self._explained(error) from error

    def _open(self) -> None:
        # In one statement: another process may be making it at this moment.
        mark, version, tables = self.execute(
            "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master) "
            "FROM pragma_application_id, pragma_user_version"
        ).fetchone()
        if mark != _MARK and tables:
            raise StoreError(f"{self.path} is a database, but not a store of ftnn; name another file")
        if version > VERSION:
            raise StoreError(
                f"{self.path} was written by a newer ftnn: it has version {version}, and this one reads "
                f"versions up to {VERSION}"
            )
        if not tables:
            self._create()
        # What is in the file survives the death of any process; only a power cut may cost the last moment.
        self.execute("PRAGMA synchronous = NORMAL")

    def _create(self) -> None:
        _patiently(lambda: self.execute("PRAGMA journal_mode = WAL"))
        with self.writing():
            # Another process may have been quicker.
            if self.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                return
            for statement in _SCHEMA.strip().split(";\n"):
                self.execute(statement)
            self.execute(f"PRAGMA application_id = {_MARK}")
            self.execute(f"PRAGMA user_version = {VERSION}")

    def close(self) -> None:
        self._connection.close()

    def execute(self, statement: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> sqlite3.Cursor:
        """Run a statement as it is; its errors are explained within `writing`."""
        return self._connection.execute(statement, values)

    def all(self, statement: str, *values: Any) -> list[Any]:
        """All that a statement finds."""
        try:
            return self.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise self._explained(error) from error

    @contextmanager
    def writing(self) -> Generator[None]:
        """A transaction that is kept whole or not at all."""
        try:
            self.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.execute("COMMIT")
            finally:
                if (
                    self._connection.in_transaction
                ):  # some errors, a full disk's for one, have ended it already
                    self.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise self._explained(error) from error

    def _explained(self, error: sqlite3.Error) -> StoreError:
        text = str(error)
        hint = next((f" ({hint})" for part, hint in _HINTS.items() if part in text), "")
        return StoreError(f"the store {self.path}: {text}{hint.format(patience=_PATIENCE)}")


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
