"""The columns of CSV and Parquet files, as text."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ftnn.errors import DataError

_SEPARATORS = ",;\t|"
_MAX_FIELD = 1 << 20
_LOOKED_AT = 50  # rows, to find the separator

_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?", re.ASCII)
_POINT = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?", re.ASCII)
_IN_NUMBERS = re.compile(r"([+-]?\d*,?\d+([eE][+-]?\d+)?)?", re.ASCII)
"""A number that may have a comma, or nothing."""
_WITH_POINTS = re.compile(r"([+-]?\d*\.?\d+([eE][+-]?\d+)?)?", re.ASCII)
"""A number that may have a point, or nothing."""
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}", re.ASCII)
_ENOUGH = 20  # fewer decimals could all have three digits by chance


@dataclass(frozen=True)
class CsvFormat:
    """How to read a CSV file; None: found out from its content. Parquet files need nothing of it."""

    separator: str | None = None
    """A character."""
    decimal: Literal[".", ","] | None = None
    """The decimal sign."""

    def __post_init__(self) -> None:
        if self.separator is not None and (len(self.separator) != 1 or self.separator in '"\r\n'):
            raise DataError(f"--separator {self.separator!r}: expected one character, or tab")
        if self.decimal not in (None, ".", ","):
            raise DataError(f"--decimal {self.decimal!r}: expected . or ,")


@dataclass(frozen=True)
class Column:
    """A column of a file."""

    path: Path
    name: str
    cells: list[str]
    """As spelled, without surrounding spaces."""
    declared: Literal["label", "number"] | None
    """The type of target that the file declares; None if it must be inferred."""
    point: int | None = None
    """The first row with a point in a number, if the decimal sign is a comma."""

    def place(self, row: int) -> str:
        """A cell's place for errors; `row` counts from 0."""
        return f"{self.path}: column {self.name!r}, row {row + 1}"


def read_columns(path: Path, how: CsvFormat | None = None) -> dict[str, Column]:
    """The columns of a table by name."""
    if path.suffix in (".parquet", ".pq"):
        columns = _read_parquet(path)
    else:
        columns = _read_csv(path, how or CsvFormat())
    counts = Counter(column.name for column in columns)
    if "" in counts:
        number = 1 + next(n for n, column in enumerate(columns) if not column.name)
        raise DataError(
            f"{path}: column {number} of {len(columns)} has no name: if it is the index that pandas writes, "
            "save the table with to_csv(index=False); otherwise name the column, and --drop can leave it out"
        )
    if max(counts.values()) > 1:
        names = ", ".join(repr(column.name) for column in columns)
        raise DataError(f"{path} must have a unique name for each column; it has {names}")
    return {column.name: column for column in columns}


def _read_csv(path: Path, how: CsvFormat) -> list[Column]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            csv.field_size_limit(_MAX_FIELD)
            separator = how.separator or _separator(file)
            # Strict: otherwise an unclosed quote swallows the rest of the file.
            rows = [row for row in csv.reader(file, delimiter=separator, strict=True) if row]
    except FileNotFoundError:
        raise DataError(f"there is no file {path}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"cannot read {path}: it is not UTF-8 ({error}); save it as CSV in UTF-8") from error
    except (OSError, csv.Error) as error:
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
                f"{path}: row {number} has {len(row)} field{'s'[: len(row) != 1]}, but the header has "
                f"{len(header)} column{'s'[: len(header) != 1]}, with {separator!r} as the separator "
                "(--separator)"
            )
    columns = [
        Column(path, name, [cell.strip() for cell in cells], None)
        for name, cells in zip(header, zip(*rows[1:], strict=True), strict=True)
    ]
    decimal = how.decimal or _decimal(path, columns, separator)
    return [_with_points(column) for column in columns] if decimal == "," else columns


def _separator(file: Any) -> str:
    """The separator that divides the header and the first rows into equally many fields, the most of all."""
    lines = [line for line, _ in zip(file, range(_LOOKED_AT), strict=False)]
    file.seek(0)

    def fields(separator: str) -> tuple[bool, int]:
        # Separators in quotes do not count.
        counts = [re.sub(r'"[^"]*("|$)', "", line).count(separator) for line in lines if line.strip()]
        return len({*counts}) == 1 and counts[0] > 0, counts[0] if counts else 0

    return max(_SEPARATORS, key=fields)


def _decimal(path: Path, columns: Iterable[Column], separator: str) -> Literal[".", ","]:
    """The decimal sign: a comma if numbers with a comma occur, and none with a point.

    Raises `DataError` if it could be either.
    """
    of_numbers = {column.name for column in columns if all(map(_IN_NUMBERS.fullmatch, column.cells))}
    commas = [
        (column, row)
        for column in columns
        # If commas separate fields, one inside quotes may also be part of a text.
        if separator != "," or column.name in of_numbers
        for row, cell in enumerate(column.cells)
        if _COMMA.fullmatch(cell) is not None
    ]
    points = [(column, row) for column in columns if (row := _first(_POINT, column)) is not None]
    if points:
        in_numbers = [(column, row) for column, row in commas if column.name in of_numbers]
        if separator == ";" and not in_numbers:
            _refuse_thousands(columns)
        if separator == "," or not in_numbers:
            return "."
        (column, row), (other, its) = in_numbers[0], points[0]
        raise DataError(
            f"{column.place(row)} has {column.cells[row]!r}, but column {other.name!r}, row {its + 1} has "
            f"{other.cells[its]!r}: use --decimal , or --decimal . to say which is the decimal sign"
        )
    if not commas:
        return "."
    if all(_THOUSANDS.fullmatch(column.cells[row]) for column, row in commas):
        column, row = commas[0]
        cell = column.cells[row]
        raise DataError(
            f"{column.place(row)} has {cell!r}, which could be {cell.replace(',', '.')} or "
            f"{cell.replace(',', '')}: use --decimal , for the first, or write it without the comma"
        )
    return ","


def _refuse_thousands(columns: Iterable[Column]) -> None:
    """Raise `DataError` if every number with a point could be a group of thousands.

    Programs that write decimal commas separate columns by semicolons, and thousands by points.
    """
    points = [
        (column, row)
        for column in columns
        if all(map(_WITH_POINTS.fullmatch, column.cells))
        for row, cell in enumerate(column.cells)
        if _POINT.fullmatch(cell) is not None
    ]
    if len(points) >= _ENOUGH and all(_THOUSANDS.fullmatch(column.cells[row]) for column, row in points):
        column, row = points[0]
        cell = column.cells[row]
        raise DataError(
            f"{column.place(row)} has {cell!r}, which could be {float(cell):g} or {cell.replace('.', '')}: "
            "use --decimal . for the first, or write it without the point"
        )


def _with_points(column: Column) -> Column:
    """A column whose decimal commas are points."""
    cells = [cell.replace(",", ".") if _COMMA.fullmatch(cell) else cell for cell in column.cells]
    return replace(column, cells=cells, point=_first(_POINT, column))


def _first(pattern: re.Pattern[str], column: Column) -> int | None:
    """The first row with such a cell."""
    return next((row for row, cell in enumerate(column.cells) if pattern.fullmatch(cell)), None)


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
