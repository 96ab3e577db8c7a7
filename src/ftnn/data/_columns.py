"""How columns of a table become numbers, by scikit-learn's transformers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

from ftnn.data._preparation import Array, CategoryColumn, ColumnEncoding, NumberColumn
from ftnn.data._table_files import Column
from ftnn.data._tables import ENOUGH_ROWS, are_categories, counts_rows, listed, numbers_in
from ftnn.errors import DataError

MOST_CATEGORIES = 100
"""The most common ones become inputs."""


def learned(column: Column, rows: Array, categorical: bool | None) -> tuple[ColumnEncoding, list[str]]:
    """The encoding of a column, and notes about it for people.

    **Arguments:**

    - `rows`: the numbers of the training rows, which alone count.
    - `categorical`: True if all of its cells are categories, even numbers; None: the content decides.
    """
    name, there = column.name, f"{column.path}: column {column.name!r}"
    ways = f"or leave the column out with --drop {name}, or treat it as texts with --categorical {name}"
    if not any(column.cells[row] for row in rows):
        raise DataError(f"{there} is empty in all training rows; leave it out with --drop {name}")
    if not (categorical or are_categories(column, f"correct it, {ways}")):
        numbers = numbers_in(column, ways, gaps=True)[rows][:, None]
        if np.isnan(numbers).all():
            raise DataError(f"{there} is empty in all training rows; leave it out with --drop {name}")
        imputer: Any = _imputer().fit(numbers)
        notes = (
            [f"{there} merely counts the rows; --id {name} would leave it out"] if counts_rows(column) else []
        )
        return NumberColumn(
            name, float(imputer.statistics_[0]), bool(len(imputer.indicator_.features_))
        ), notes
    counts = Counter(column.cells[row] for row in rows)
    if categorical is None and len(counts) > max(ENOUGH_ROWS, len(rows) / 2):
        raise DataError(
            f"{there} has {len(counts)} different texts in {len(rows)} training rows, such as "
            f"{listed(counts, 3)}: leave it out with --drop {name}, or with --id {name} to see it next to "
            f"predictions; --categorical {name} encodes the most common ones"
        )
    common = [category for category, _ in counts.most_common(MOST_CATEGORIES)]
    notes = []
    if len(counts) > len(common):
        notes = [f"{there} has {len(counts)} categories; only the {len(common)} most common ones are inputs"]
    return CategoryColumn(name, tuple(sorted(common))), notes


def encoded(encoding: ColumnEncoding, column: Column) -> Array:
    """The inputs that a column becomes, (rows, inputs) float64."""
    if isinstance(encoding, CategoryColumn):
        texts = np.array(column.cells, dtype=object)[:, None]
        categories: Any = [np.array(encoding.categories, dtype=object)]
        encoder: Any = OneHotEncoder(categories=categories, handle_unknown="ignore", sparse_output=False)
        return encoder.fit(texts[:1]).transform(texts)
    hint = "the training data had only numbers here"
    if encoding.median is None:
        return numbers_in(column, hint)[:, None]
    seen = [[encoding.median], [np.nan]] if encoding.flag else [[encoding.median]]
    return _imputer().fit(np.array(seen)).transform(numbers_in(column, hint, gaps=True)[:, None])


def unknown(encoding: ColumnEncoding, column: Column) -> str | None:
    """A note about categories that training did not know."""
    if not isinstance(encoding, CategoryColumn):
        return None
    others = Counter(cell for cell in column.cells if cell not in encoding.categories)
    if not others:
        return None
    rows = sum(others.values())
    return (
        f"{column.path}: column {column.name!r} has categories that the model does not know, in "
        f"{rows} row{'s'[: rows != 1]}: {listed(others, 5)}; they are treated as none of the known categories"
    )


def _imputer() -> Any:
    return SimpleImputer(strategy="median", add_indicator=True)


def matrix(encodings: tuple[ColumnEncoding, ...], columns: Mapping[str, Column]) -> Array:
    """All inputs of a table, (rows, inputs) float64."""
    in_order = list(columns.values())
    return np.hstack(
        [
            encoded(encoding, in_order[number] if encoding.name is None else columns[encoding.name])
            for number, encoding in enumerate(encodings)
        ]
    )
