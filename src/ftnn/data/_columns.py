"""Columns of text as features and targets: numbers that fit float32, or labels exactly as spelled."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np

from ftnn.data._preparation import Task
from ftnn.data._table_files import Column
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
_FLAGS = {"True": "1", "False": "0"}  # Parquet's booleans


def feature(column: Column) -> Array:
    """(rows,) float64."""
    return _numbers(column, "encode or drop this column, or fill in missing values")


def target(column: Column, task: Task | None) -> Array:
    """(rows,): numbers for regression, else labels. Without a task, the content decides."""
    for row, cell in enumerate(column.cells):
        # Some programs write `nan` for a missing value, so it is never a class.
        if not cell or _NAN.fullmatch(cell):
            problem = f"is {quoted(cell)}" if cell else "is empty"
            raise DataError(f"{column.place(row)} {problem}: each row needs a target value")
        if len(cell) > _MAX_LABEL:
            raise DataError(
                f"{column.place(row)} has {len(cell)} characters; the limit for a label is {_MAX_LABEL}"
            )
    if (task or _inferred_task(column)) == "regression":
        return _numbers(column, "use --task classification to treat this column as labels")
    return _labels(column)


def is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None


def exact(number: str) -> Decimal | str:
    """A number with all its digits, for comparison."""
    try:
        return Decimal(number)
    except InvalidOperation:  # an exponent of about 20 digits
        return number


def quoted(cell: str) -> str:
    return repr(cell if len(cell) <= 60 else cell[:60] + "…")


def _numbers(column: Column, hint: str) -> Array:
    """A column as numbers that fit float32; errors end with `hint`."""
    cells = column.cells
    if column.declared == "label" and {*cells} <= {*_FLAGS}:
        cells = [_FLAGS[cell] for cell in cells]
    for row, cell in enumerate(cells):
        if not is_number(cell):
            raise DataError(f"{column.place(row)} {_not_a_number(cell)}; {hint}")
    numbers = np.array([float(cell) for cell in cells], np.float64)
    too_large = np.abs(numbers) > _MAX_FLOAT32
    if too_large.any():
        row = int(np.argmax(too_large))
        raise DataError(
            f"{column.place(row)} is {cells[row]}, beyond the range of float32 "
            f"(±{_MAX_FLOAT32:.2g}); rescale this column"
        )
    if (numbers == numbers[0]).all():
        first = exact(cells[0])
        different = next((cell for cell in dict.fromkeys(cells) if exact(cell) != first), None)
        if different is not None:
            raise DataError(
                f"{column.path}: column {column.name!r} has numbers that are equal in float64, "
                f"such as {cells[0]} and {different}; subtract a common offset"
            )
    return numbers


def _not_a_number(cell: str) -> str:
    if not cell:
        return "is empty, but must be a number"
    if _NOT_FINITE.fullmatch(cell):
        return f"is {cell}, but must be a finite number"
    return f"has {quoted(cell)}, which is not a number"


def _inferred_task(column: Column) -> Task:
    """The task for a target, from its content."""
    if column.declared is not None:
        return "classification" if column.declared == "label" else "regression"
    numbers = [cell for cell in column.cells if is_number(cell)]
    all_whole = all(_WHOLE.fullmatch(cell) for cell in numbers)
    if numbers and len(numbers) < len(column.cells):
        for row, cell in enumerate(column.cells):
            is_missing = cell.casefold() in _MISSING or _NOT_FINITE.fullmatch(cell)
            if (is_missing or not all_whole) and not is_number(cell):
                raise DataError(
                    f"{column.place(row)} {_not_a_number(cell)}, unlike {quoted(numbers[0])}: "
                    "correct it, or use --task classification to treat this column as labels"
                )
    return "regression" if numbers and not all_whole else "classification"


def _labels(column: Column) -> Array:
    """Labels as spelled: (rows,) int64 if that keeps their spelling, else text."""
    by_value: dict[Decimal | str, str] = {}
    for cell in dict.fromkeys(column.cells):
        if is_number(cell):
            first = by_value.setdefault(exact(cell), cell)
            # Labels of only digits are codes: 007 is not 7.
            if first != cell and not (first.isdigit() and cell.isdigit()):
                raise DataError(
                    f"{column.path}: column {column.name!r} has the labels {first!r} and {cell!r}, which are "
                    "the same number; use one spelling per label"
                )
    if all(len(cell) < 19 and _WHOLE.fullmatch(cell) and str(int(cell)) == cell for cell in column.cells):
        return np.array([int(cell) for cell in column.cells], np.int64)
    return np.array(column.cells)
