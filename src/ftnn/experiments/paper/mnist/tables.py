"""The CSV tables: one line per cell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from ftnn.experiments.grid.registry import Epochs, Line, Table
from ftnn.experiments.grid.rows import Addition, Row, imported, rows_of
from ftnn.experiments.paper.mnist.cells import Cell, FineTuning
from ftnn.formula import catalogue

COLUMNS = (
    "hidden_layers",
    "function",
    "activation",
    "gamma",
    "lwt_accuracy",
    "ft_accuracy",
    "seed",
    "seconds",
    "failed",
    "digest",
)
SETTING_COLUMNS = ("data", "lwt_epochs", "ft_epochs", "width", "batch_size")
"""Further columns of the table `other`; in the other tables, these settings are the paper's."""


def _lines(name: str, rows: Iterable[Row], epochs: Callable[[], Epochs]) -> Iterator[tuple[Row, list[Any]]]:
    chosen = [(cell, row) for cell, row in rows_of(FineTuning, rows) if _table_of(cell) == name]
    for cell, row in sorted(chosen, key=_place):
        lwt, ft = (None, None) if row.failed else (row.lwt_accuracy, row.ft_accuracy)
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
            *(_settings(cell) if name == "other" else ()),
        ]
        yield row, values


def _place(chosen: tuple[Cell, Row]) -> tuple[Any, ...]:
    cell, _ = chosen
    return cell.hidden_layers, cell.function, cell.activation, -cell.gamma, cell.seed, _settings(cell)


def _settings(cell: Cell) -> tuple[str | int, ...]:
    """The values of SETTING_COLUMNS."""
    return cell.data, *cell.epochs, cell.width, cell.batch_size


def _table_of(cell: Cell) -> str:
    if not cell.matches_paper:
        return "other"
    return "mnist" if cell.function in catalogue else "custom"


def _read(lines: Iterable[Line]) -> Iterator[tuple[str, Addition]]:
    for line in lines:
        yield line.place, (_row(line), None, None)


def _row(line: Line) -> Row:
    values = line.values
    settings: dict[str, Any] = {}
    if "data" in values:
        settings = {
            "data": values["data"],
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
    )


TABLES = (
    Table("mnist", COLUMNS, partial(_lines, "mnist"), _read),
    Table("custom", COLUMNS, partial(_lines, "custom"), _read),
    Table("other", (*COLUMNS, *SETTING_COLUMNS), partial(_lines, "other"), _read, paper_settings_only=False),
)
"""Cells with the paper's settings, of catalogue and of custom functions; and cells with other settings."""
