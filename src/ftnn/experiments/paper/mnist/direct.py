"""The paper's networks, trained directly: all layers at once, with the defaults of `ftnn.training.fit`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from ftnn.errors import DataError
from ftnn.experiments.grid.checks import COUNT, POSITIVE, TEXT, check
from ftnn.experiments.grid.jobs import Checkpoint, Outcome, Predecessor
from ftnn.experiments.grid.registry import Epochs, Line, Table
from ftnn.experiments.grid.rows import Addition, Row, imported, rows_of
from ftnn.experiments.grid.task import OnProgress, Task
from ftnn.experiments.paper.mnist.cells import ACTIVATIONS, PIXELS, check_activation, images
from ftnn.experiments.paper.mnist.functions import FUNCTIONS, given
from ftnn.experiments.paper.mnist.grids import LAYERS
from ftnn.experiments.paper.values import distinct
from ftnn.training._checks import check_sizes


@dataclass(frozen=True)
class DirectCell:
    """A network that is trained directly on MNIST."""

    function: str
    """A catalogue name, or a formula, optionally with ranges; without, they are chosen from the formula."""
    activation: str
    hidden_layers: int
    seed: int = 0
    epochs: int = 10
    data: str = "mnist:50000"
    """`mnist:N`: the first N training images, tested on all test images. See also `cells.HELD_OUT`."""
    width: int = 128

    def __post_init__(self) -> None:
        check(vars(self), _CHECKS)
        given(self.function)
        check_activation(self.activation)
        check_sizes(self.hidden_layers, self.width)
        images(self.data)

    def task(self) -> Direct:
        return Direct(self)

    @property
    def matches_paper(self) -> bool:
        """Whether everything but function, depth, activation and seed has its default."""
        return self == DirectCell(self.function, self.activation, self.hidden_layers, self.seed)

    def __str__(self) -> str:
        seed = f" seed {self.seed}" if self.seed else ""
        return f"{self.function}-{self.activation}{seed}"


_CHECKS = {
    "function": TEXT,
    "activation": TEXT,
    "data": TEXT,
    "seed": COUNT,
    **dict.fromkeys(("hidden_layers", "epochs", "width"), POSITIVE),
}


def direct_cells(
    layers: Sequence[int] = LAYERS,
    functions: Sequence[str] = FUNCTIONS,
    activations: Sequence[str] = ACTIVATIONS,
    seeds: Sequence[int] = (0,),
    *,
    epochs: int = 10,
    data: str = "mnist:50000",
    width: int = 128,
) -> list[DirectCell]:
    """All combinations of these values; by default, the 180 networks of the paper's tables.

    **Arguments:**

    - `layers`: numbers of hidden layers.
    - `functions`: catalogue names, or formulas, optionally with ranges.
    - `epochs`, `data`, `width`: see `DirectCell`.
    """
    return [
        DirectCell(function, activation, depth, seed, epochs, data, width)
        for seed, depth, function, activation in product(
            distinct("seeds", seeds),
            distinct("layers", layers),
            distinct("functions", functions),
            distinct("activations", activations),
        )
    ]


class Direct(Task[DirectCell]):
    """Direct training of a cell, its only stage."""

    kind = "direct"
    results = 2
    cell_type = DirectCell

    @property
    def spec(self) -> dict[str, Any]:
        function = given(self.cell.function)
        parts = {"formula": function.formula, "init": function.init, "constants": function.choices}
        return {**super().spec, "function": parts}

    @property
    def title(self) -> str:
        return f"{self.cell.hidden_layers} layers" if self.cell.hidden_layers > 1 else "1 layer"

    @property
    def work(self) -> str:
        return "direct training"

    @property
    def epochs(self) -> int:
        return self.cell.epochs

    @property
    def effort(self) -> float:
        # The first layer has 784 inputs, 80 % of them zero, and no error to pass down.
        first, other, width = PIXELS * 0.2, 2.0 * self.cell.width, self.cell.width
        return self.epochs * width * (first + other * (self.cell.hidden_layers - 1))

    @property
    def family(self) -> str:
        return f"direct {self.cell.function}"

    def check_row(self, row: Row) -> None:
        super().check_row(row)
        if row.ft_accuracy is None and row.failed is None:
            raise DataError("accuracy is null; a cell without it must have a reason in failed")

    def run(
        self, before: tuple[Predecessor, ...], checkpoint: Checkpoint | None, on_progress: OnProgress
    ) -> Outcome:
        from ftnn.experiments.paper.mnist.training import train_directly  # here because it loads torch

        return train_directly(self, checkpoint, on_progress)


# --- the CSV table: one line per cell ---

COLUMNS = (
    *("hidden_layers", "function", "activation", "accuracy", "validation_accuracy"),
    *("seed", "seconds", "failed", "digest"),
)


def _lines(rows: Iterable[Row], epochs: Callable[[], Epochs]) -> Iterator[tuple[Row, list[Any]]]:
    chosen = [(cell, row) for cell, row in rows_of(Direct, rows) if cell.matches_paper]
    for cell, row in sorted(chosen, key=lambda pair: _place(pair[0])):
        accuracies = (None, None) if row.failed else (row.ft_accuracy, row.validation_accuracy)
        values = [
            cell.hidden_layers,
            cell.function,
            cell.activation,
            *("" if accuracy is None else f"{accuracy:.2f}" for accuracy in accuracies),
            cell.seed,
            "" if row.cell_seconds is None else f"{row.cell_seconds:.1f}",
            row.failed or "",
            row.digest,
        ]
        yield row, values


def _place(cell: DirectCell) -> tuple[Any, ...]:
    return cell.hidden_layers, cell.function, cell.activation, cell.seed


def _read(lines: Iterable[Line]) -> Iterator[tuple[str, Addition]]:
    for line in lines:
        function, activation = line.values["function"], line.values["activation"]
        cell = DirectCell(function, activation, line.number("hidden_layers", int), line.number("seed", int))
        row = imported(
            cell.task(),
            line,
            ft_accuracy=line.number_or_none("accuracy"),
            validation_accuracy=line.number_or_none("validation_accuracy"),
            failed=line.values["failed"] or None,
            cell_seconds=line.number("seconds", float),
            digest=line.values["digest"],
        )
        yield line.place, (row, None, None)


TABLE = Table("direct", Direct.kind, COLUMNS, _lines, _read)
