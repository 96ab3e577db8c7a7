"""Import and export of results: CSV for people and version control, Parquet with everything."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from ftnn import _atomic
from ftnn.errors import DataError, FtnnError
from ftnn.experiments.grid import parquet
from ftnn.experiments.grid.registry import TABLES, Epochs, Line, Reader, reason_of
from ftnn.experiments.grid.rows import ORIGIN, Addition, Damaged, origin
from ftnn.experiments.grid.store import Store

_T = TypeVar("_T")


def export(
    store: Store,
    path: Path,
    table: str = "",
    *,
    parameters: bool = True,
    on_damage: Callable[[Damaged], None] = lambda damaged: None,
) -> tuple[int, int]:
    """Write results to a `.csv` or `.parquet` file.

    **Arguments:**

    - `table`: which of the `TABLES` a CSV file contains. Parquet files contain all stages and their epochs.
    - `parameters`: whether a Parquet file contains the trained parameters too.
    - `on_damage`: called for each damaged row. It is left out, or written without its damaged part.

    Returns the number of rows, and the number of stages left out because their settings are not the paper's:
    those of the same kind as the table's that no table of such settings has.
    """
    if path.suffix not in (".csv", ".parquet"):
        raise FtnnError(f"{path} must end in .csv or .parquet")
    if path.suffix == ".csv" and table not in TABLES:
        raise FtnnError(f"unknown table {table!r}; expected one of {', '.join(TABLES)}")

    def intact(survey: tuple[_T, list[Damaged]]) -> _T:
        good, damaged = survey
        for row in damaged:
            on_damage(row)
        return good

    @cache
    def epochs() -> Epochs:
        return intact(store.all_epochs())

    rows = intact(store.survey())
    left_out = 0
    if path.suffix == ".parquet":
        content = parquet.write(store, rows, intact(store.all_epochs()), parameters, on_damage)
        count = len(rows)
    else:
        chosen = TABLES[table]
        found = list(chosen.lines(rows, epochs))
        lines = [(*values, *origin(row)) for row, values in found]
        content, count = _csv((*chosen.columns, *ORIGIN), lines), len(lines)
        if chosen.paper_settings_only:
            alike = [
                each for each in TABLES.values() if each.kind == chosen.kind and each.paper_settings_only
            ]
            written = {row.key for each in alike for row, _ in each.lines(rows, epochs)}
            others = (row for row in rows if row.task.kind == chosen.kind and row.key not in written)
            left_out = sum(not row.task.matches_paper for row in others)
    _atomic.write_or_explain(path, content, FtnnError)
    return count, left_out


def _csv(header: Iterable[str], lines: Iterable[Iterable[Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(lines)
    return text.getvalue().encode()


def import_files(store: Store, paths: Iterable[Path]) -> dict[Path, tuple[int, int]]:
    """Add results that the store does not have yet. If any file has an error, nothing is added.

    Returns the number of rows in each file, and how many of them were new.
    """
    files = {path: _read(path) for path in paths}
    place = ""

    def additions() -> Iterator[Addition]:
        nonlocal place
        for path, rows in files.items():
            for number, row in rows:
                place = f"{path}, {number}"
                yield row

    try:
        is_new = iter(store.add_all(additions()))
    except DataError as error:
        raise DataError(f"{place}: {error}; nothing was imported") from error
    return {path: (len(rows), sum(itertools.islice(is_new, len(rows)))) for path, rows in files.items()}


def _read(path: Path) -> list[tuple[str, Addition]]:
    """The contents of a file: (place, row)."""
    if path.suffix not in (".csv", ".parquet"):
        raise DataError(f"{path} must end in .csv or .parquet")
    read, lines = (parquet.read, parquet.lines(path)) if path.suffix == ".parquet" else _csv_lines(path)
    place = ""

    def tracked() -> Iterator[Line]:
        nonlocal place
        for line in lines:
            place = line.place
            yield line

    try:
        return list(read(tracked()))
    except FtnnError as error:
        raise DataError(f"{path}, {place}: {reason_of(error)}; nothing was imported") from error


def _csv_lines(path: Path) -> tuple[Reader, list[Line]]:
    """The reader for the columns of a CSV file, and its lines."""
    try:
        text = io.StringIO(path.read_bytes().decode("utf-8-sig"), newline="")
        header, *rows = list(csv.reader(text, strict=True)) or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"cannot read {path}: {reason}") from error
    tables = TABLES.values()
    older = {columns: read for table in tables for columns, read in table.older.items()}
    current = {table.columns: table.read for table in tables}
    readers = older | current
    columns = tuple(header)
    table_columns = columns[: -len(ORIGIN)] if columns[-len(ORIGIN) :] == ORIGIN else columns  # or of 0.1
    if table_columns not in readers:
        expected = "; or ".join(", ".join((*names, *ORIGIN)) for names in current)
        raise DataError(f"{path} has the columns {', '.join(header) or '(none)'}; expected {expected}")
    lines: list[Line] = []
    for number, values in enumerate(rows, 2):
        if len(values) not in (0, len(columns)):
            raise DataError(
                f"{path}, line {number}: {len(values)} fields in {len(columns)} columns; nothing was imported"
            )
        if values:
            lines.append(Line(f"line {number}", dict(zip(columns, values, strict=True))))
    return readers[table_columns], lines
