"""The columns of CSV and Parquet files, as text."""

from __future__ import annotations

import csv
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ftnn.errors import DataError

_SEPARATORS = ",;\t|"
_MAX_FIELD = 1 << 20


@dataclass(frozen=True)
class Column:
    """A column of a file."""

    path: Path
    name: str
    cells: list[str]
    """As spelled, without surrounding spaces."""
    declared: Literal["label", "number"] | None
    """The type of target that the file declares; None if it must be inferred."""

    def place(self, row: int) -> str:
        """A cell's place for errors; `row` counts from 0."""
        return f"{self.path}: column {self.name!r}, row {row + 1}"


def read_columns(path: Path) -> dict[str, Column]:
    """The columns of a table by name."""
    columns = _read_parquet(path) if path.suffix in (".parquet", ".pq") else _read_csv(path)
    counts = Counter(column.name for column in columns)
    if max(counts.values()) > 1 or "" in counts:
        names = ", ".join(repr(column.name) for column in columns)
        raise DataError(f"{path} must have a unique name for each column; it has {names}")
    return {column.name: column for column in columns}


def _read_csv(path: Path) -> list[Column]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            unquoted = re.sub(r'"[^"]*("|$)', "", file.readline())  # separators in quotes do not count
            file.seek(0)
            separator = max(_SEPARATORS, key=unquoted.count)
            csv.field_size_limit(_MAX_FIELD)
            # Strict: otherwise an unclosed quote swallows the rest of the file.
            rows = [row for row in csv.reader(file, delimiter=separator, strict=True) if row]
    except FileNotFoundError:
        raise DataError(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"cannot read {path} as a CSV file: {error}") from error
    if len(rows) < 2:
        raise DataError(
            f"{path} needs a line of column names and at least one row; it has {len(rows)} "
            f"line{'s'[: len(rows) != 1]}"
        )
    header = [name.strip() for name in rows[0]]
    for number, row in enumerate(rows[1:], 1):
        if len(row) != len(header):
            raise DataError(
                f"{path}: row {number} has {len(row)} fields, but there are {len(header)} columns"
            )
    return [
        Column(path, name, [cell.strip() for cell in cells], None)
        for name, cells in zip(header, zip(*rows[1:], strict=True), strict=True)
    ]


def _read_parquet(path: Path) -> list[Column]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise DataError("reading Parquet files needs pyarrow: pip install 'ftnn[tables]'") from None
    try:
        with parquet.ParquetFile(path) as file:
            table: Any = file.read()
        if not table.num_rows or not table.num_columns:
            raise DataError(f"{path} has no rows")
        return [
            _parquet_column(path, name, cells)
            for name, cells in zip(table.column_names, table.columns, strict=True)
        ]
    except FileNotFoundError:
        raise DataError(f"there is no file {path}") from None
    except (OSError, pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path} as a Parquet file: {error}") from error


def _parquet_column(path: Path, name: str, cells: Any) -> Column:
    from pyarrow import types

    kind: Any = cells.type.value_type if types.is_dictionary(cells.type) else cells.type
    is_text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    if types.is_floating(kind) or types.is_decimal(kind):
        declared: Literal["label", "number"] = "number"
    elif types.is_integer(kind) or types.is_boolean(kind) or is_text or types.is_null(kind):
        declared = "label"
    else:
        raise DataError(f"{path}: column {name!r} has the type {kind}; expected numbers, texts or booleans")
    texts = ["" if cell is None else str(cell).strip() for cell in cells.to_pylist()]
    return Column(path, name.strip(), texts, declared)
