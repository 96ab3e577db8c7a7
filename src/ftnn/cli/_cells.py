"""Cells of MNIST grids beside the paper's: as a table, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from ftnn.cli._screen import say, show, text
from ftnn.data._paper import paper_accuracies
from ftnn.experiments import Cell
from ftnn.experiments.grid.rows import Row

_MANY = 100  # rows
_LEFT = ("function", "activation", "")  # columns
_PLACE = ("function", "activation", "layers", "γ", "seed")
_NAMES = (*_PLACE, "LWT", "FT", "paper's LWT", "paper's FT", "seconds", "")


@dataclass(frozen=True)
class Line:
    """A cell beside the paper's."""

    cell: Cell
    row: Row

    @property
    def place(self) -> tuple[str, str, int, float]:
        """By which a list is sorted."""
        cell = self.cell
        return cell.function, cell.activation, cell.hidden_layers, -cell.gamma

    @property
    def accuracies(self) -> tuple[float | None, float | None]:
        """Layer-wise and fine-tuned; None where it failed."""
        return (None, None) if self.row.failed else (self.row.lwt_accuracy, self.row.ft_accuracy)

    @property
    def paper(self) -> tuple[float | None, float | None] | None:
        """The paper's accuracies, None where it failed; None as a whole where the paper has no such cell."""
        cell = self.cell
        if not cell.matches_paper:
            return None
        return paper_accuracies(cell.function, cell.activation, cell.hidden_layers, cell.gamma)

    def as_json(self) -> dict[str, Any]:
        lwt, ft = self.accuracies
        paper_lwt, paper_ft = self.paper or (None, None)
        return {
            **asdict(self.cell),
            "lwt_accuracy": lwt,
            "ft_accuracy": ft,
            "paper_lwt_accuracy": paper_lwt,
            "paper_ft_accuracy": paper_ft,
            "seconds": self.row.cell_seconds,
            "failed": self.row.failed,
            "digest": self.row.digest,
        }

    def as_texts(self) -> tuple[str, ...]:
        cell = self.cell
        place = (cell.function, cell.activation, str(cell.hidden_layers), f"{cell.gamma:g}", str(cell.seed))
        paper = ("", "") if self.paper is None else tuple(map(percent, self.paper))
        ours = tuple(map(percent, self.accuracies))
        return (*place, *ours, *paper, seconds(self.row.cell_seconds), self.row.failed or "")


def show_lines(lines: Sequence[Line]) -> None:
    rows = [line.as_texts() for line in lines]
    if len(rows) > _MANY:
        _print_aligned(rows)
        return
    table = table_of(*_NAMES)
    for *cells, failed in rows:
        table.add_row(*map(text, cells), text(failed, "yellow"))
    show(table)


def _print_aligned(rows: list[tuple[str, ...]]) -> None:
    """A long table at once: Rich takes a second for a thousand rows."""
    whole = [_NAMES, *rows]
    widths = [max(map(len, column)) for column in zip(*whole, strict=True)]
    for row in whole:
        parts = [
            cell.ljust(width) if name in _LEFT else cell.rjust(width)
            for name, cell, width in zip(_NAMES, row, widths, strict=True)
        ]
        say("  ".join(parts).rstrip())


def table_of(*names: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(name, justify="left" if name in _LEFT else "right", no_wrap=bool(name))
    return table


def percent(value: float | None) -> str:
    return "×" if value is None else f"{value:.2f}"


def seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
