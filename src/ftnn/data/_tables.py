"""Tables from files: features and a target."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ftnn.data import _columns
from ftnn.data._columns import Array, exact, is_number, quoted
from ftnn.data._preparation import Task
from ftnn.data._table_files import Column, read_columns
from ftnn.errors import DataError


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
) -> Table:
    """Read a CSV file with a header line (`.csv`, `.tsv`, `.txt`) or a Parquet file.

    **Arguments:**

    - `path`: the file.
    - `target`: the column to learn; all others are features.
    - `features`: the columns to use as features, in this order; default: all but the target.
    - `task`: `"classification"` reads the target as labels, exactly as spelled, `"regression"` as numbers. By
      default, text and integers are labels, and other numbers are numbers.

    Raises `DataError`, with the column and row, for values that are missing, not finite, or beyond float32,
    and for a target that mixes numbers and labels.
    """
    path = Path(path)
    columns = read_columns(path)
    if target is not None and target not in columns:
        raise DataError(f"{path} has no column {target!r} to learn; it has {', '.join(columns)}")
    return _table(path, columns, target, features, task)


def read_to_predict(path: str | Path, target: str | None, features: tuple[str, ...]) -> Table:
    """Read inputs for a classifier, and the target, unless it is missing or entirely empty."""
    path = Path(path)
    columns = read_columns(path)
    has_target = target is not None and target in columns and any(columns[target].cells)
    return _table(path, columns, target if has_target else None, features, "classification")


def _table(
    path: Path,
    columns: dict[str, Column],
    target: str | None,
    features: tuple[str, ...] | None,
    task: Task | None,
) -> Table:
    names = tuple(name for name in columns if name != target) if features is None else features
    if missing := [name for name in names if name not in columns]:
        raise DataError(f"{path} has no column {', '.join(map(repr, missing))}; it has {', '.join(columns)}")
    if not names:
        raise DataError(f"{path} has no columns except {target!r}; at least one feature is needed")
    x = np.column_stack([_columns.feature(columns[name]) for name in names])
    return Table(names, x, None if target is None else _columns.target(columns[target], task))


def same_number(first: str, second: str) -> bool:
    """Whether two texts spell the same number, such as `1` and `1.0`."""
    return is_number(first) and is_number(second) and exact(first) == exact(second)


def listed(labels: Iterable[str], most: int = 20) -> str:
    """Quoted labels for a message, at most `most`."""
    names = [quoted(label) for label in labels]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
