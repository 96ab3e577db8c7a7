"""Tables from files: features as numbers that fit float32, and a target, as numbers or labels as spelled."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import numpy as np

from ftnn.data._preparation import Task
from ftnn.data._table_files import Column, CsvFormat, read_columns
from ftnn.errors import DataError

Array = np.ndarray[Any, np.dtype[Any]]
_MAX_LABEL = 1000  # characters; NumPy gives every label the width of the longest
_MAX_FLOAT32 = float(np.finfo(np.float32).max)

# Not float(), which also accepts 1_000, digits of other scripts, nan and inf.
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_NAN = re.compile(r"[+-]?nan", re.IGNORECASE)
_NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)
_MISSING = frozenset(("na", "n/a", "#n/a", "null", "none", "missing", "?", "-", "."))
"""Spellings of a missing value in a column of numbers, in lower case."""
_MOST_CLASSES = 20  # more different whole numbers could be classes or amounts
ENOUGH_ROWS = 20
"""Fewer could count up, or be all different, by chance."""
_FLAGS = {"True": "1", "False": "0"}  # Parquet's booleans


@dataclass(frozen=True)
class Table:
    """A table's features and, if requested, its target."""

    names: tuple[str, ...]
    """The names of the features."""
    x: Array
    """(rows, features) float64."""
    target: Array | None
    """(rows,): float64 for regression; for classification, int64, or text if that changes the spelling."""


def read_table(
    path: str | Path,
    target: str | None = None,
    features: tuple[str, ...] | None = None,
    *,
    task: Task | None = None,
    how: CsvFormat | None = None,
) -> Table:
    """Read a CSV file with a header line (`.csv`, `.tsv`, `.txt`) or a Parquet file, all numbers.

    **Arguments:**

    - `path`: the file.
    - `target`: the column to learn; all others are features.
    - `features`: the columns to use as features, in this order; default: all but the target.
    - `task`: `"classification"` reads the target as labels, exactly as spelled, `"regression"` as numbers. By
      default, text and integers are labels, and other numbers are numbers; more than 20 different integers
      could be either, so the task must be given.
    - `how`: the separator and the decimal sign of a CSV file; found out by default.

    Raises `DataError`, with the column and row, for values that are missing, not finite, or beyond float32,
    and for a target that mixes numbers and labels.
    """
    path = Path(path)
    columns = read_columns(path, how)
    names = tuple(name for name in columns if name != target) if features is None else features
    require_columns(path, columns, [*([] if target is None else [target]), *names])
    if not names:
        raise DataError(f"{path} has no columns except {target!r}; at least one feature is needed")
    hint = "encode or drop this column, or fill in missing values"
    x = np.column_stack([numbers_in(columns[name], hint) for name in names])
    return Table(names, x, None if target is None else target_in(columns[target], task))


def require_columns(path: Path, columns: Mapping[str, Column], names: Iterable[str]) -> None:
    """Refuse names that are no columns."""
    if missing := [name for name in names if name not in columns]:
        raise DataError(
            f"{path} has no column{'s'[: len(missing) != 1]} {', '.join(map(repr, missing))}; it has "
            f"{', '.join(columns)}"
        )


def target_in(column: Column, task: Task | None) -> Array:
    """(rows,): numbers for regression, else labels. Without a task, the content decides."""
    for row, cell in enumerate(column.cells):
        if is_empty(cell):
            problem = f"is {_quoted(cell)}" if cell else "is empty"
            raise DataError(f"{column.place(row)} {problem}: each row needs a target value")
        if len(cell) > _MAX_LABEL:
            raise DataError(
                f"{column.place(row)} has {len(cell)} characters; the limit for a label is {_MAX_LABEL}"
            )
    if (task or _inferred_task(column)) == "regression":
        return numbers_in(column, "use --task classification to treat this column as labels")
    return _labels(column)


def is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None


def _exact(number: str) -> Decimal | str:
    """A number with all its digits, for comparison."""
    try:
        return Decimal(number)
    except InvalidOperation:  # an exponent of about 20 digits
        return number


def _quoted(cell: str) -> str:
    return repr(cell if len(cell) <= 60 else cell[:60] + "…")


def is_empty(cell: str) -> bool:
    """Whether a cell of any column is a missing value; some programs write `nan` for it."""
    return not cell or _NAN.fullmatch(cell) is not None


def is_gap(cell: str) -> bool:
    """Whether a cell of a column of numbers is a missing value."""
    return is_empty(cell) or cell.casefold() in _MISSING


def numbers_in(column: Column, hint: str, *, gaps: bool = False) -> Array:
    """A column as numbers that fit float32; errors end with `hint`. With `gaps`, NaN for missing values."""
    cells = column.cells
    if (row := column.point) is not None:
        raise DataError(
            f"{column.place(row)} has {_quoted(cells[row])}, but the decimal sign is a comma (--decimal); "
            f"{hint}"
        )
    if column.declared == "label" and {*cells} <= {*_FLAGS}:
        cells = [_FLAGS[cell] for cell in cells]
    if gaps:
        cells = ["" if is_gap(cell) else cell for cell in cells]
    for row, cell in enumerate(cells):
        if not is_number(cell) and not (gaps and not cell):
            raise DataError(f"{column.place(row)} {_not_a_number(cell)}; {hint}")
    numbers = np.array([float(cell) if cell else np.nan for cell in cells], np.float64)
    too_large = np.abs(numbers) > _MAX_FLOAT32
    if too_large.any():
        row = int(np.argmax(too_large))
        raise DataError(
            f"{column.place(row)} is {cells[row]}, beyond the range of float32 "
            f"(±{_MAX_FLOAT32:.2g}); rescale this column"
        )
    if (numbers == numbers[0]).all():
        first = _exact(cells[0])
        different = next((cell for cell in dict.fromkeys(cells) if _exact(cell) != first), None)
        if different is not None:
            raise DataError(
                f"{column.path}: column {column.name!r} has numbers that are equal in float64, "
                f"such as {cells[0]} and {different}; subtract a common offset"
            )
    return numbers


def are_categories(column: Column, hint: str) -> bool:
    """Whether a feature holds texts rather than numbers; errors end with `hint`.

    A few texts among numbers are more likely mistakes than categories.
    """
    if column.declared == "label" and {*column.cells} <= {*_FLAGS}:
        return False
    texts = [row for row, cell in enumerate(column.cells) if not (is_gap(cell) or is_number(cell))]
    numbers = [cell for cell in column.cells if is_number(cell)]
    if texts and len(numbers) >= len(texts):
        raise DataError(
            f"{column.place(texts[0])} {_not_a_number(column.cells[texts[0]])}, unlike {_quoted(numbers[0])}"
            f"{f' and {len(numbers) - 1} more' if len(numbers) > 1 else ''}; {hint}"
        )
    return bool(texts)


def counts_rows(column: Column) -> bool:
    """Whether a column of numbers is just the number of each row."""
    cells = column.cells
    if len(cells) < ENOUGH_ROWS or not all(len(cell) < 19 and _WHOLE.fullmatch(cell) for cell in cells):
        return False
    return all(int(cell) == int(cells[0]) + row for row, cell in enumerate(cells))


def _not_a_number(cell: str) -> str:
    if not cell:
        return "is empty, but must be a number"
    if _NOT_FINITE.fullmatch(cell):
        return f"is {cell}, but must be a finite number"
    return f"has {_quoted(cell)}, which is not a number"


def _inferred_task(column: Column) -> Task:
    """The task for a target, from its content."""
    if column.declared == "number":
        return "regression"
    different = {*column.cells}
    if len(different) > _MOST_CLASSES and all(
        _WHOLE.fullmatch(cell) and _is_plain(cell) for cell in different
    ):
        raise DataError(
            f"{column.path}: column {column.name!r} has {len(different)} different whole numbers, such as "
            f"{listed(sorted(different, key=int), 3)}: use --task regression to predict a number, or "
            "--task classification to predict one of these"
        )
    if column.declared == "label":
        return "classification"
    numbers = [cell for cell in column.cells if is_number(cell)]
    all_whole = all(_WHOLE.fullmatch(cell) for cell in numbers)
    if numbers and len(numbers) < len(column.cells):
        for row, cell in enumerate(column.cells):
            is_missing = cell.casefold() in _MISSING or _NOT_FINITE.fullmatch(cell)
            if (is_missing or not all_whole) and not is_number(cell):
                raise DataError(
                    f"{column.place(row)} {_not_a_number(cell)}, unlike {_quoted(numbers[0])}: "
                    "correct it, or use --task classification to treat this column as labels"
                )
    return "regression" if numbers and not all_whole else "classification"


def _is_plain(whole: str) -> bool:
    """Whether a whole number is spelled as usual: unlike 007, which is a code."""
    return whole == "0" or whole.removeprefix("-")[0] in "123456789"


def _labels(column: Column) -> Array:
    """Labels as spelled: (rows,) int64 if that keeps their spelling, else text."""
    by_value: dict[Decimal | str, str] = {}
    for cell in dict.fromkeys(column.cells):
        if is_number(cell):
            first = by_value.setdefault(_exact(cell), cell)
            # Labels of only digits are codes: 007 is not 7.
            if first != cell and not (first.isdigit() and cell.isdigit()):
                raise DataError(
                    f"{column.path}: column {column.name!r} has the labels {first!r} and {cell!r}, which are "
                    "the same number; use one spelling per label"
                )
    if all(len(cell) < 19 and _WHOLE.fullmatch(cell) and _is_plain(cell) for cell in column.cells):
        return np.array([int(cell) for cell in column.cells], np.int64)
    return np.array(column.cells)


def same_number(first: str, second: str) -> bool:
    """Whether two texts spell the same number, such as `1` and `1.0`."""
    return is_number(first) and is_number(second) and _exact(first) == _exact(second)


def listed(labels: Iterable[str], most: int = 20) -> str:
    """Quoted labels for a message, at most `most`."""
    names = [_quoted(label) for label in labels]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
