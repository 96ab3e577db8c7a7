"""Results out of a store and into one: CSV for people and for version control, Parquet with everything."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from ftnn import _atomic
from ftnn.errors import DataError, FtnnError
from ftnn.experiments.grid import parquet
from ftnn.experiments.grid.registry import TABLES, Line, Reader, reason_of
from ftnn.experiments.grid.rows import Addition, Damaged
from ftnn.experiments.grid.store import Store

_T = TypeVar("_T")

# --- out ---


def export(
    store: Store,
    path: Path,
    table: str = "",
    *,
    parameters: bool = True,
    tell: Callable[[Damaged], None] = lambda damaged: None,
) -> tuple[int, int]:
    """Write results into a file, by its ending.

    Returns how many rows it has, and how many stages were left out as their settings are not the paper's.
    Calls `tell` for each damaged row: it is not written, or without the part that is damaged.

    `.csv`: one of the `TABLES`. `.parquet`: all stages with their epochs and, if asked for, parameters.
    """
    if path.suffix not in (".csv", ".parquet"):
        raise FtnnError(f"{path} must end in .csv or .parquet, to say what to write")
    if path.suffix == ".csv" and table not in TABLES:
        raise FtnnError(f"cannot export {table!r}; expected {', '.join(TABLES)}")

    def told(survey: tuple[_T, list[Damaged]]) -> _T:
        good, damaged = survey
        for row in damaged:
            tell(row)
        return good

    rows = told(store.survey())
    left_out = 0
    if path.suffix == ".parquet":
        content, count = parquet.write(store, rows, told(store.all_epochs()), parameters, tell), len(rows)
    else:
        chosen = TABLES[table]
        lines = list(chosen.lines(rows, lambda: told(store.all_epochs())))
        content, count = _csv(chosen.columns, lines), len(lines)
        if chosen.papers_only:
            left_out = sum(not row.task.is_papers for row in rows)
    _atomic.write_or_explain(path, content, FtnnError)
    return count, left_out


def _csv(header: Iterable[str], lines: Iterable[Iterable[Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(lines)
    return text.getvalue().encode()


# --- in ---


def import_files(store: Store, paths: Iterable[Path]) -> dict[Path, tuple[int, int]]:
    """Add what files have and the store has not; all of it or, where something is wrong, nothing.

    Returns how many rows each file has, and how many of them were new.
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
        new = iter(store.add_all(additions()))
    except DataError as error:
        raise DataError(f"{place}: {error}; nothing was imported") from error
    return {path: (len(rows), sum(itertools.islice(new, len(rows)))) for path, rows in files.items()}


def _read(path: Path) -> list[tuple[str, Addition]]:
    """What a file has, each row with its place in the file."""
    if path.suffix not in (".csv", ".parquet"):
        raise DataError(f"{path} must end in .csv or .parquet, as `ftnn store export` writes them")
    read, lines = (parquet.read, parquet.lines(path)) if path.suffix == ".parquet" else _csv_lines(path)
    place = ""

    def taken() -> Iterator[Line]:
        nonlocal place
        for line in lines:
            place = line.place
            yield line

    try:
        return list(read(taken()))
    except FtnnError as error:
        raise DataError(f"{path}, {place}: {reason_of(error)}; nothing was imported") from error


def _csv_lines(path: Path) -> tuple[Reader, list[Line]]:
    """The lines of a CSV file, and what reads a table with its columns."""
    try:
        text = io.StringIO(path.read_bytes().decode("utf-8-sig"), newline="")
        header, *rows = list(csv.reader(text, strict=True)) or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    readers = {table.columns: table.read for table in TABLES.values()}
    columns = tuple(header)
    if columns not in readers:
        allowed = "; or ".join(", ".join(names) for names in readers)
        raise DataError(f"{path} has the columns {', '.join(header) or '(none)'}; expected {allowed}")
    lines: list[Line] = []
    for number, values in enumerate(rows, 2):
        if len(values) not in (0, len(columns)):
            raise DataError(
                f"{path}, line {number}: has {len(values)} fields, but there are {len(columns)} columns; "
                "nothing was imported"
            )
        if values:
            lines.append(Line(f"line {number}", dict(zip(columns, values, strict=True))))
    return readers[columns], lines
