"""Tables from files: numbers to learn from, and a column to learn."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ftnn.data._preparation import Task
from ftnn.errors import DataError

Array = np.ndarray[Any, np.dtype[Any]]
_SEPARATORS = ",;\t|"
_MAX_FIELD = 1 << 20
_MAX_LABEL = 1000  # characters; NumPy gives every label the width of the longest
LARGEST = float(np.finfo(np.float32).max)
"""What networks can take: they compute in float32."""

# Not float(): it also takes 1_000, digits of other scripts, nan and inf.
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)
_MISSING = frozenset(("na", "n/a", "#n/a", "null", "none", "missing", "?", "-", "."))
"""What is taken for a gap, and not for a class, where it stands among numbers; in lower case."""


@dataclass(frozen=True)
class Table:
    """A table's features and, where it was asked for, its target."""

    names: tuple[str, ...]
    """Of the features."""
    x: Array
    """(rows, features) float64."""
    target: Array | None
    """(rows,): float64 for regression. For classification int64 or, where that would change their spelling,
    texts."""


@dataclass(frozen=True)
class _Column:
    name: str
    cells: list[str]
    """As they are spelled, without spaces around them."""
    declared: Literal["label", "number"] | None
    """What the file says that a target is; None where it has to be inferred."""


def read_table(
    path: str | Path,
    target: str | None = None,
    features: tuple[str, ...] | None = None,
    *,
    task: Task | None = None,
) -> Table:
    """Read a CSV file with a header line (`.csv`, `.tsv`, `.txt`) or a Parquet file.

    **Arguments:**

    - `path`: the file.
    - `target`: the column to learn; all others are features.
    - `features`: the columns to take as features, in this order; default: all but the target.
    - `task`: `"classification"` takes the target as labels, exactly as they are spelled, `"regression"` as
      numbers. Unless given, it follows from the column: labels for text and whole numbers, otherwise numbers.

    Raises `DataError`, which names the column and the row: for what is missing or not finite, for numbers
    that float32 cannot hold, and where numbers and labels cannot be told apart.
    """
    path = Path(path)
    columns = _read(path)
    if target is not None and target not in columns:
        raise DataError(f"{path} has no column {target!r} to learn; it has {', '.join(columns)}")
    return _table(path, columns, target, features, task)


def read_to_predict(path: str | Path, target: str | None, features: tuple[str, ...]) -> Table:
    """Read what a classifier is to answer. Its target is read too, unless it is missing or all empty."""
    path = Path(path)
    columns = _read(path)
    has_answers = target is not None and target in columns and any(columns[target].cells)
    return _table(path, columns, target if has_answers else None, features, "classification")


def same_number(one: str, other: str) -> bool:
    """Whether two texts are spellings of one number, such as `1` and `1.0`."""
    is_number = _NUMBER.fullmatch(one) is not None and _NUMBER.fullmatch(other) is not None
    return is_number and _exact(one) == _exact(other)


def _read(path: Path) -> dict[str, _Column]:
    columns = _read_parquet(path) if path.suffix in (".parquet", ".pq") else _read_csv(path)
    counts = Counter(column.name for column in columns)
    if max(counts.values()) > 1 or "" in counts:
        names = ", ".join(repr(column.name) for column in columns)
        raise DataError(f"{path} must name each column once; it has {names}")
    return {column.name: column for column in columns}


def _table(
    path: Path,
    columns: dict[str, _Column],
    target: str | None,
    features: tuple[str, ...] | None,
    task: Task | None,
) -> Table:
    chosen = tuple(name for name in columns if name != target) if features is None else features
    if missing := [name for name in chosen if name not in columns]:
        raise DataError(f"{path} has no column {', '.join(map(repr, missing))}; it has {', '.join(columns)}")
    if not chosen:
        raise DataError(f"{path} has no column to learn from besides {target!r}")
    x = np.column_stack([_numbers(path, columns[name], _ENCODE) for name in chosen])
    return Table(chosen, x, None if target is None else _target(path, columns[target], task))


# --- files ---


def _read_csv(path: Path) -> list[_Column]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            sample = re.sub(r'"[^"]*("|$)', "", file.readline())  # what is quoted separates nothing
            file.seek(0)
            separator = max(_SEPARATORS, key=sample.count)
            csv.field_size_limit(_MAX_FIELD)
            # Strictly: otherwise a quote that is never closed swallows the rest of the file.
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
        _Column(name, [cell.strip() for cell in cells], None)
        for name, cells in zip(header, zip(*rows[1:], strict=True), strict=True)
    ]


def _read_parquet(path: Path) -> list[_Column]:
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
            _typed(path, name, column) for name, column in zip(table.column_names, table.columns, strict=True)
        ]
    except FileNotFoundError:
        raise DataError(f"there is no file {path}") from None
    except (OSError, pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path} as a Parquet file: {error}") from error


def _typed(path: Path, name: str, column: Any) -> _Column:
    from pyarrow import types

    kind: Any = column.type.value_type if types.is_dictionary(column.type) else column.type
    if types.is_floating(kind) or types.is_decimal(kind):
        declared: Literal["label", "number"] = "number"
    elif types.is_integer(kind) or types.is_boolean(kind) or _is_text(kind) or types.is_null(kind):
        declared = "label"
    else:
        raise DataError(f"{path}: column {name!r} has the type {kind}; expected numbers, texts or booleans")
    return _Column(
        name.strip(), ["" if cell is None else str(cell).strip() for cell in column.to_pylist()], declared
    )


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


# --- columns ---

_ENCODE = "encode or drop this column, or fill in what is missing"
_FLAGS = {"True": "1", "False": "0"}  # as Parquet's booleans are spelled


def _numbers(path: Path, column: _Column, hint: str) -> Array:
    """A column as numbers that float32 can hold."""
    cells = column.cells
    if column.declared == "label" and {*cells} <= {*_FLAGS}:
        cells = [_FLAGS[cell] for cell in cells]
    for row, cell in enumerate(cells, 1):
        if _NUMBER.fullmatch(cell) is None:
            raise DataError(f"{_place(path, column, row)} {_not_a_number(cell)}; {hint}")
    found = np.array([float(cell) for cell in cells], np.float64)
    if (np.abs(found) > LARGEST).any():
        row = int(np.argmax(np.abs(found) > LARGEST))
        raise DataError(
            f"{_place(path, column, row + 1)} is {cells[row]}, which float32 cannot hold "
            f"(its largest number is {LARGEST:.2g}); rescale this column"
        )
    if (found == found[0]).all() and len({_exact(cell) for cell in {*cells}}) > 1:
        raise DataError(
            f"{path}: column {column.name!r} has numbers that differ by less than float64 can tell, such as "
            f"{cells[0]} and {next(each for each in cells if _exact(each) != _exact(cells[0]))}; subtract "
            "what they have in common"
        )
    return found


def _not_a_number(cell: str) -> str:
    if not cell:
        return "is empty, but must be a number"
    if _NOT_FINITE.fullmatch(cell):
        return f"is {cell}, but must be a finite number"
    return f"has {_quoted(cell)}, which is not a number"


def _target(path: Path, column: _Column, task: Task | None) -> Array:
    for row, cell in enumerate(column.cells, 1):
        # A label `nan` is what some programs write for a gap: it is never taken for a class.
        if not cell or re.fullmatch(r"[+-]?nan", cell, re.IGNORECASE):
            what = f"is {_quoted(cell)}" if cell else "is empty"
            raise DataError(f"{_place(path, column, row)} {what}: each row needs a value to learn")
        if len(cell) > _MAX_LABEL:
            raise DataError(
                f"{_place(path, column, row)} has {len(cell)} characters; a label has at most {_MAX_LABEL}"
            )
    chosen = task or _inferred(path, column)
    if chosen == "regression":
        return _numbers(path, column, "--task classification would take this column as labels")
    return _labels(path, column)


def _inferred(path: Path, column: _Column) -> Task:
    """The task that a target is for, where nobody said."""
    if column.declared is not None:
        return "classification" if column.declared == "label" else "regression"
    numbers = [cell for cell in column.cells if _NUMBER.fullmatch(cell)]
    whole = all(_WHOLE.fullmatch(cell) for cell in numbers)
    if numbers and len(numbers) < len(column.cells):
        for row, cell in enumerate(column.cells, 1):
            is_gap = cell.casefold() in _MISSING or _NOT_FINITE.fullmatch(cell)
            if (is_gap or not whole) and not _NUMBER.fullmatch(cell):
                raise DataError(
                    f"{_place(path, column, row)} {_not_a_number(cell)}, unlike {_quoted(numbers[0])}: "
                    "correct it, or say --task classification to take this column as labels"
                )
    return "regression" if numbers and not whole else "classification"


def _labels(path: Path, column: _Column) -> Array:
    """Labels as they are spelled."""
    by_value: dict[Decimal | str, str] = {}
    for cell in dict.fromkeys(column.cells):
        if _NUMBER.fullmatch(cell):
            other = by_value.setdefault(_exact(cell), cell)
            # Digits only are a code, as 007 is: another one than 7.
            if other != cell and not (other.isdigit() and cell.isdigit()):
                raise DataError(
                    f"{path}: column {column.name!r} has the labels {other!r} and {cell!r}, which are one "
                    "number; spell a label in one way"
                )
    if all(len(cell) < 19 and _WHOLE.fullmatch(cell) and str(int(cell)) == cell for cell in column.cells):
        return np.array([int(cell) for cell in column.cells], np.int64)
    return np.array(column.cells)


def _exact(cell: str) -> Decimal | str:
    """A number with all of its digits, to compare."""
    try:
        return Decimal(cell)
    except InvalidOperation:  # an exponent of 20 digits or so
        return cell


def _place(path: Path, column: _Column, row: int) -> str:
    return f"{path}: column {column.name!r}, row {row}"


def _quoted(cell: str) -> str:
    return repr(cell if len(cell) <= 60 else cell[:60] + "…")


def listed(labels: Iterable[str], most: int = 20) -> str:
    """Some labels in quotes, to be read."""
    names = [_quoted(label) for label in labels]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
