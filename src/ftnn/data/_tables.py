"""Tables from files: numbers to learn from, and a column to learn."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ftnn.errors import DataError

Array = np.ndarray[Any, np.dtype[Any]]
_SEPARATORS = ",;\t|"
_MAX_FIELD = 1 << 20


@dataclass(frozen=True)
class Table:
    """A table's features and, where it was asked for, its target."""

    names: tuple[str, ...]
    """Of the features."""
    x: Array
    """(rows, features) float64."""
    target: Array | None
    """(rows,): int64, float64, or texts."""


def read_table(path: str | Path, target: str | None = None, features: tuple[str, ...] | None = None) -> Table:
    """Read a CSV file with a header line (`.csv`, `.tsv`, `.txt`) or a Parquet file.

    **Arguments:**

    - `path`: the file.
    - `target`: the column to learn; all others are features.
    - `features`: the columns to take as features, in this order; default: all but the target.

    Raises `DataError`, which names the column and the row.
    """
    path = Path(path)
    columns = _read_parquet(path) if path.suffix in (".parquet", ".pq") else _read_csv(path)
    known = ", ".join(columns)
    if target is not None and target not in columns:
        raise DataError(f"{path} has no column {target!r} to learn; it has {known}")
    chosen = tuple(name for name in columns if name != target) if features is None else features
    if missing := [name for name in chosen if name not in columns]:
        raise DataError(f"{path} has no column {', '.join(map(repr, missing))}; it has {known}")
    if not chosen:
        raise DataError(f"{path} has no column to learn from besides {target!r}")
    x = np.column_stack([_numbers(path, name, columns[name]) for name in chosen])
    return Table(chosen, x, None if target is None else _target(path, target, columns[target]))


def _read_csv(path: Path) -> dict[str, list[str]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            sample = file.readline()
            file.seek(0)
            separator = max(_SEPARATORS, key=sample.count)
            csv.field_size_limit(_MAX_FIELD)
            rows = [row for row in csv.reader(file, delimiter=separator) if row]
    except FileNotFoundError:
        raise DataError(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"cannot read {path} as a CSV file: {error}") from error
    if len(rows) < 2:
        raise DataError(f"{path} needs a line of column names and one row or more; it has {len(rows)} lines")
    header = [name.strip() for name in rows[0]]
    if len(set(header)) < len(header) or not all(header):
        raise DataError(
            f"{path} must name each column once in its first line; found {', '.join(map(repr, header))}"
        )
    for number, row in enumerate(rows[1:], 1):
        if len(row) != len(header):
            raise DataError(
                f"{path}: row {number} has {len(row)} fields, but there are {len(header)} columns"
            )
    return {
        name: [field.strip() for field in column]
        for name, column in zip(header, zip(*rows[1:], strict=True), strict=True)
    }


def _read_parquet(path: Path) -> dict[str, Any]:
    try:
        import pyarrow.parquet
    except ImportError:
        raise DataError("reading Parquet files needs pyarrow: pip install 'ftnn[tables]'") from None
    try:
        table: Any = pyarrow.parquet.read_table(path)
    except FileNotFoundError:
        raise DataError(f"there is no file {path}") from None
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"cannot read {path} as a Parquet file: {error}") from error
    if not table.num_rows:
        raise DataError(f"{path} has no rows")
    return {name: table.column(name).to_pylist() for name in table.column_names}


def _numbers(path: Path, name: str, values: list[Any]) -> Array:
    """A feature column as numbers."""
    found = np.empty(len(values), np.float64)
    for number, value in enumerate(values):
        try:
            found[number] = float(value)
        except (TypeError, ValueError):
            what = "is empty" if value in ("", None) else f"has {value!r}, which is no number"
            raise DataError(
                f"{path}: column {name!r}, row {number + 1} {what}; features must be numbers: "
                "encode or drop this column, or fill in what is missing"
            ) from None
    if not np.isfinite(found).all():
        row = int(np.flatnonzero(~np.isfinite(found))[0])
        raise DataError(
            f"{path}: column {name!r}, row {row + 1} is {found[row]}; features must be finite numbers"
        )
    return found


def _target(path: Path, name: str, values: list[Any]) -> Array:
    """The target: whole numbers, numbers, or texts, whichever all of its values are."""
    if empty := [n for n, value in enumerate(values, 1) if value in ("", None)]:
        raise DataError(f"{path}: the target {name!r} is empty in row {empty[0]}")
    for kind in (np.int64, np.float64):
        try:
            numbers = [kind(value) for value in values if not isinstance(value, bool)]
            if len(numbers) == len(values) and all(
                float(n) == float(v) for n, v in zip(numbers, values, strict=True)
            ):
                return np.array(numbers, kind)
        except (TypeError, ValueError, OverflowError):
            continue
    return np.array([str(value) for value in values])
