"""The CSV tables: one line per cell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from ftnn.experiments.grid.registry import Epochs, Line, Table
from ftnn.experiments.grid.rows import Addition, Row, imported, rows_of
from ftnn.experiments.paper.mnist.cells import Cell, FineTuning
from ftnn.formula import catalogue

_RESULTS = (
    *("hidden_layers", "function", "activation", "gamma", "lwt_accuracy", "ft_accuracy"),
    *("seed", "seconds", "failed", "digest"),
)
_SETTINGS = ("lwt_epochs", "ft_epochs", "width", "batch_size")
_VALIDATION = ("lwt_validation_accuracy", "validation_accuracy")
COLUMNS = (*_RESULTS, *_VALIDATION, "data")
OTHER_COLUMNS = (*COLUMNS, *_SETTINGS)
"""Of the table `other`; in the other tables, these settings are the paper's."""
OLDER_DATA = "mnist"
"""What a file without the column `data` was trained on: all 60,000 images."""


def _lines(name: str, rows: Iterable[Row], epochs: Callable[[], Epochs]) -> Iterator[tuple[Row, list[Any]]]:
    chosen = [(cell, row) for cell, row in rows_of(FineTuning, rows) if _table_of(cell) == name]
    for cell, row in sorted(chosen, key=_place):
        lwt, ft = (None, None) if row.failed else (row.lwt_accuracy, row.ft_accuracy)
        validation = row.lwt_validation_accuracy, row.validation_accuracy
        values = [
            cell.hidden_layers,
            cell.function,
            cell.activation,
            f"{cell.gamma:g}",
            "" if lwt is None else f"{lwt:.2f}",
            "" if ft is None else f"{ft:.2f}",
            cell.seed,
            "" if row.cell_seconds is None else f"{row.cell_seconds:.1f}",
            row.failed or "",
            row.digest,
            *("" if row.failed or value is None else f"{value:.2f}" for value in validation),
            cell.data,
            *(_settings(cell) if name == "other" else ()),
        ]
        yield row, values


def _place(chosen: tuple[Cell, Row]) -> tuple[Any, ...]:
    cell, _ = chosen
    return (
        cell.hidden_layers,
        cell.function,
        cell.activation,
        -cell.gamma,
        cell.seed,
        cell.data,
        _settings(cell),
    )


def _settings(cell: Cell) -> tuple[int, ...]:
    return *cell.epochs, cell.width, cell.batch_size


def _table_of(cell: Cell) -> str:
    if cell.function in catalogue:
        return "mnist" if cell.matches_paper else "other"
    return "custom" if cell.is_comparable else "other"


def _read(lines: Iterable[Line]) -> Iterator[tuple[str, Addition]]:
    for line in lines:
        yield line.place, (_row(line), None, None)


def _row(line: Line) -> Row:
    values = line.values
    settings: dict[str, Any] = {"data": values.get("data", OLDER_DATA)}
    if "width" in values:
        settings |= {
            "epochs": (line.number("lwt_epochs", int), line.number("ft_epochs", int)),
            "width": line.number("width", int),
            "batch_size": line.number("batch_size", int),
        }
    task = Cell(
        values["function"],
        values["activation"],
        line.number("hidden_layers", int),
        line.number("gamma", float),
        line.number("seed", int),
        **settings,
    ).task()
    return imported(
        task,
        line,
        lwt_accuracy=line.number_or_none("lwt_accuracy"),
        ft_accuracy=line.number_or_none("ft_accuracy"),
        failed=values["failed"] or None,
        cell_seconds=line.number("seconds", float),
        digest=values["digest"],
        **{name: line.number_or_none(name) for name in _VALIDATION if name in values},
    )


TABLES = (
    Table("mnist", FineTuning.kind, COLUMNS, partial(_lines, "mnist"), _read, older={_RESULTS: _read}),
    Table("custom", FineTuning.kind, COLUMNS, partial(_lines, "custom"), _read),
    Table(
        "other",
        FineTuning.kind,
        OTHER_COLUMNS,
        partial(_lines, "other"),
        _read,
        older={(*_RESULTS, "data", *_SETTINGS): _read},
        paper_settings_only=False,
    ),
)
"""Catalogue functions with the paper's settings; custom functions with them, on 50,000 or 60,000 images; and
cells with other settings."""
