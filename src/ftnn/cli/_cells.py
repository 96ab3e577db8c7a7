"""Cells of MNIST grids next to the paper's, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from ftnn.cli._screen import say, show, text
from ftnn.data import PaperCell
from ftnn.data._paper import paper_accuracies, paper_best_of
from ftnn.experiments import Cell, DirectCell
from ftnn.experiments.grid.rows import Row

_MANY = 100  # rows
_LEFT_ALIGNED = ("function", "activation", "")
_PLACE = ("function", "activation", "layers", "γ", "seed")
_NAMES = (*_PLACE, "LWT", "FT", "validation", "paper's LWT", "paper's FT", "seconds", "")
_DIRECT_NAMES = (
    *("function", "activation", "layers", "seed"),
    *("test", "validation", "paper's best", "seconds", ""),
)


@dataclass(frozen=True)
class Line:
    """A cell and the paper's results for it."""

    cell: Cell
    row: Row

    @property
    def place(self) -> tuple[str, str, int, float]:
        """The key that lists are sorted by."""
        cell = self.cell
        return cell.function, cell.activation, cell.hidden_layers, -cell.gamma

    @property
    def accuracies(self) -> tuple[float | None, float | None]:
        """After layer-wise training and after fine-tuning; None if it failed."""
        return (None, None) if self.row.failed else (self.row.lwt_accuracy, self.row.ft_accuracy)

    @property
    def paper(self) -> tuple[float | None, float | None] | None:
        """The paper's accuracies, each None if it failed; None if the paper does not have this cell."""
        cell = self.cell
        if not cell.is_comparable:
            return None
        return paper_accuracies(cell.function, cell.activation, cell.hidden_layers, cell.gamma)

    def as_json(self) -> dict[str, Any]:
        lwt, ft = self.accuracies
        paper_lwt, paper_ft = self.paper or (None, None)
        return {
            **asdict(self.cell),
            "lwt_accuracy": lwt,
            "ft_accuracy": ft,
            "lwt_validation_accuracy": self.row.lwt_validation_accuracy,
            "validation_accuracy": self.row.validation_accuracy,
            "paper_lwt_accuracy": paper_lwt,
            "paper_ft_accuracy": paper_ft,
            "seconds": self.row.cell_seconds,
            "failed": self.row.failed,
            "digest": self.row.digest,
            "results": self.row.task.version,
            "cpu": self.row.versions.get("cpu"),
        }

    def as_texts(self) -> tuple[str, ...]:
        cell = self.cell
        place = (cell.function, cell.activation, str(cell.hidden_layers), f"{cell.gamma:g}", str(cell.seed))
        paper = ("", "") if self.paper is None else tuple(map(percent, self.paper))
        validation = self.row.validation_accuracy
        ours = (*map(percent, self.accuracies), "" if validation is None else percent(validation))
        older = "" if self.row.task.older is None else "older version"
        notes = "; ".join(filter(None, (cell.setting, older, self.row.failed)))
        return (*place, *ours, *paper, seconds(self.row.cell_seconds), notes)


@dataclass(frozen=True)
class DirectLine:
    """A cell of direct training, and the paper's best result for it."""

    cell: DirectCell
    row: Row

    @property
    def place(self) -> tuple[Any, ...]:
        """The key that lists are sorted by."""
        cell = self.cell
        return cell.function, cell.activation, cell.hidden_layers, cell.seed

    @property
    def accuracies(self) -> tuple[float | None, float | None]:
        """On test and validation images; None if it failed."""
        return (None, None) if self.row.failed else (self.row.ft_accuracy, self.row.validation_accuracy)

    @property
    def paper(self) -> PaperCell | None:
        cell = self.cell
        return paper_best_of(cell.function, cell.activation, cell.hidden_layers)

    def as_json(self) -> dict[str, Any]:
        accuracy, validation = self.accuracies
        return {
            **asdict(self.cell),
            "accuracy": accuracy,
            "validation_accuracy": validation,
            "paper_best_accuracy": None if self.paper is None else self.paper.ft_accuracy,
            "seconds": self.row.cell_seconds,
            "failed": self.row.failed,
            "digest": self.row.digest,
            "results": self.row.task.version,
            "cpu": self.row.versions.get("cpu"),
        }

    def as_texts(self) -> tuple[str, ...]:
        cell = self.cell
        place = (cell.function, cell.activation, str(cell.hidden_layers), str(cell.seed))
        paper = "" if self.paper is None else percent(self.paper.ft_accuracy)
        accuracies = map(percent, self.accuracies)
        return (*place, *accuracies, paper, seconds(self.row.cell_seconds), self.row.failed or "")


def show_lines(lines: Sequence[Line]) -> None:
    _show(_NAMES, [line.as_texts() for line in lines])


def show_direct(lines: Sequence[DirectLine]) -> None:
    _show(_DIRECT_NAMES, [line.as_texts() for line in lines])


def _show(names: Sequence[str], rows: list[tuple[str, ...]]) -> None:
    if len(rows) > _MANY:
        _print_aligned(names, rows)
        return
    table = table_of(*names)
    for *cells, notes in rows:
        table.add_row(*map(text, cells), text(notes, "yellow"))
    show(table)


def _print_aligned(names: Sequence[str], rows: list[tuple[str, ...]]) -> None:
    """Print a long table: Rich would take a second for a thousand rows."""
    lines = [names, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for row in lines:
        parts = [
            cell.ljust(width) if name in _LEFT_ALIGNED else cell.rjust(width)
            for name, cell, width in zip(names, row, widths, strict=True)
        ]
        say("  ".join(parts).rstrip())


def table_of(*names: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(name, justify="left" if name in _LEFT_ALIGNED else "right", no_wrap=bool(name))
    return table


def percent(value: float | None) -> str:
    return "×" if value is None else f"{value:.2f}"


def seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
