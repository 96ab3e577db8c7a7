"""The paper's results on MNIST: the whole grid, and the table of the best learning rates."""

import csv
import functools
from dataclasses import dataclass
from importlib.resources import files

from ftnn.errors import DataError


@dataclass(frozen=True)
class PaperCell:
    """A network of the paper and its test accuracies in percent; None for a failed run (× in the paper)."""

    hidden_layers: int
    """1, 5 or 10, of 128 units each."""
    function: str
    """"F01" to "F20"."""
    activation: str
    """"logistic", "relu" or "tanh"."""
    gamma: int | None
    """The learning rate of layer-wise training is 2^gamma. None in `paper_best` if every rate failed."""
    lwt_accuracy: float | None
    """After layer-wise training."""
    ft_accuracy: float | None
    """After fine-tuning."""


@functools.cache  # safe, since the rows are immutable
def paper_grid() -> tuple[PaperCell, ...]:
    """All 1080 cells: hidden layers × functions × activations × learning rates."""
    return _read("mnist_grid.csv", "gamma")


@functools.cache
def paper_best() -> tuple[PaperCell, ...]:
    """The paper's learning rate for each of the 180 networks, chosen by test accuracy."""
    return _read("mnist_best.csv", "best_gamma")


def paper_best_of(function: str, activation: str, hidden_layers: int) -> PaperCell | None:
    """One of `paper_best`; None if the paper has no such network."""
    place = (function, activation, hidden_layers)
    cells = (cell for cell in paper_best() if (cell.function, cell.activation, cell.hidden_layers) == place)
    return next(cells, None)


def paper_cell(function: str, activation: str, hidden_layers: int, gamma: int) -> PaperCell:
    """One cell of `paper_grid`."""
    cell = _cells().get((function, activation, hidden_layers, gamma))
    if cell is not None:
        return cell
    raise DataError(
        f"the paper has no network with function={function!r}, activation={activation!r}, "
        f"hidden_layers={hidden_layers!r}, gamma={gamma!r}; it has functions 'F01' to 'F20', "
        "activations 'logistic', 'relu' and 'tanh', 1, 5 and 10 hidden layers, and gammas 0 to -5"
    )


def paper_accuracies(
    function: str, activation: str, hidden_layers: int, gamma: float
) -> tuple[float | None, float | None] | None:
    """The paper's accuracies after LWT and FT, each None if it failed; None if the paper has no such cell."""
    cell = _cells().get((function, activation, hidden_layers, gamma))
    return None if cell is None else (cell.lwt_accuracy, cell.ft_accuracy)


@functools.cache
def _cells() -> dict[tuple[str, str, int, float | None], PaperCell]:
    return {(cell.function, cell.activation, cell.hidden_layers, cell.gamma): cell for cell in paper_grid()}


def _read(name: str, gamma: str) -> tuple[PaperCell, ...]:
    """The rows of an embedded table; `gamma` is its column of learning rates."""
    text = (files("ftnn.data") / "_files" / "paper" / name).read_text("ascii")
    return tuple(
        PaperCell(
            hidden_layers=int(row["hidden_layers"]),
            function=row["function"],
            activation=row["activation"],
            gamma=int(row[gamma]) if row[gamma] else None,
            lwt_accuracy=float(row["lwt_accuracy"]) if row["lwt_accuracy"] else None,
            ft_accuracy=float(row["ft_accuracy"]) if row["ft_accuracy"] else None,
        )
        for row in csv.DictReader(text.splitlines())
    )
