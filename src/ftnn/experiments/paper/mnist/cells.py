"""A cell of the paper's tables, and its stages: layer-wise training of layer 1, 2, …, then fine-tuning.

Cells that differ only in depth share their layer-wise stages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ftnn.errors import DataError, FtnnError
from ftnn.experiments.grid.checks import FINITE, TEXT, WHOLE, check
from ftnn.experiments.grid.jobs import Array, Checkpoint, Outcome, Predecessor
from ftnn.experiments.grid.rows import Row
from ftnn.experiments.grid.task import OnProgress, Task
from ftnn.experiments.paper.mnist.functions import function_of, with_ranges
from ftnn.experiments.paper.values import first_layer
from ftnn.training import Settings
from ftnn.training._checks import check_sizes

if TYPE_CHECKING:
    from ftnn.nn import Activation

PIXELS = 784
ALL = 60_000
"""MNIST's training images."""
HELD_OUT = 50_000
"""The training images from this one on are held out for validation."""

ACTIVATIONS: tuple[Activation, ...] = ("logistic", "relu", "tanh")
"""The paper's."""


@dataclass(frozen=True)
class Cell:
    """A network of the paper's first experiment, and how to train it."""

    function: str
    """A catalogue name, or a formula, optionally with ranges: `"p*tan(q*x) where q in [-9, 9]"`. The other
    ranges are ±0.1 and become a part of the text, so that equal cells have equal texts."""
    activation: str
    """One of the paper's; `relu20`, the ReLU of its platform, which ends at 20; or a formula in x."""
    hidden_layers: int
    gamma: float
    seed: int = 0
    data: str = "mnist:50000"
    """`mnist:N`: the first N training images, tested on all test images. `mnist`: all
    60,000. If N is at most 50,000, the last training images are for validation: see `HELD_OUT`."""
    epochs: tuple[int, int] = (15, 15)
    width: int = 128
    batch_size: int = 16

    def __post_init__(self) -> None:
        epochs: Any = self.epochs
        if not isinstance(epochs, tuple) or len(epochs) != 2:
            raise FtnnError(f"epochs is {epochs!r}; expected two whole numbers")
        lwt_epochs, ft_epochs = epochs
        check({**vars(self), "lwt_epochs": lwt_epochs, "ft_epochs": ft_epochs}, _CHECKS)
        object.__setattr__(self, "function", with_ranges(self.function))
        self.settings()
        check_activation(self.activation)
        check_sizes(self.hidden_layers, self.width)
        object.__setattr__(self, "data", data_name(self.data))

    def settings(self) -> Settings:
        return Settings(self.gamma, self.epochs, self.batch_size, self.seed)

    def task(self) -> FineTuning:
        """The last stage, which ends the cell."""
        return FineTuning(self)

    @property
    def setting(self) -> str:
        """The differences from the paper's settings, in words; empty if there are none."""
        parts = [
            (self.activation not in ACTIVATIONS, f"activation {self.activation}"),
            (self.data != Cell.data, f"{images(self.data):,} images"),
            (self.epochs != Cell.epochs, f"{self.epochs[0]} + {self.epochs[1]} epochs"),
            (self.width != Cell.width, f"{self.width} units"),
            (self.batch_size != Cell.batch_size, f"batches of {self.batch_size}"),
        ]
        return ", ".join(text for differs, text in parts if differs)

    @property
    def matches_paper(self) -> bool:
        """Whether everything but function, depth, activation, γ and seed is as in the paper."""
        return not self.setting

    @property
    def is_comparable(self) -> bool:
        """Like `matches_paper`, but all 60,000 images will do: the paper does not say how many it used."""
        return replace(self, data=Cell.data).matches_paper and images(self.data) in (HELD_OUT, ALL)

    def __str__(self) -> str:
        seed = f" seed {self.seed}" if self.seed else ""
        return f"{self.function}-{self.activation} γ={self.gamma:g}{seed}"


_CHECKS = {
    "function": TEXT,
    "activation": TEXT,
    "data": TEXT,
    "gamma": FINITE,
    **dict.fromkeys(("hidden_layers", "seed", "width", "batch_size", "lwt_epochs", "ft_epochs"), WHOLE),
}


def images(data: str) -> int:
    """The number of training images in `mnist:N`, or in `mnist`: all of them."""
    name, colon, number = data.partition(":")
    is_count = number.isascii() and number.isdecimal() and len(number) < 20 and 5 <= int(number) <= ALL
    if name != "mnist" or (colon and not is_count):
        raise FtnnError(f"unknown data {data!r}; expected mnist, or mnist:N with N from 5 to 60000")
    return int(number) if colon else ALL


def data_name(data: str) -> str:
    """As stores call it: `mnist` for all images."""
    return "mnist" if images(data) == ALL else data


def check_activation(activation: str) -> None:
    """Raise an error unless it is one of the paper's, or a formula in x."""
    if activation in ACTIVATIONS:
        return  # without torch
    from ftnn.nn._activations import activation_formula  # here because it loads torch

    activation_formula(activation)


# --- stages ---


class Stage(Task[Cell]):
    """A stage of a cell."""

    cell_type = Cell

    @property
    def spec(self) -> dict[str, Any]:
        function = function_of(self.cell.function)
        return {
            **super().spec,
            "function": {"formula": function.formula, "init": function.init, "constants": function.choices},
            "gamma": float(self.cell.gamma),
        }

    @property
    def title(self) -> str:
        return f"{'FT of' if self.ends_cell else 'LWT'} {self.cell.hidden_layers}"

    @property
    def work(self) -> str:
        return f"{'fine-tuning of' if self.ends_cell else 'layer-wise, layer'} {self.cell.hidden_layers}"

    @property
    def epochs(self) -> int:
        return self.cell.epochs[self.ends_cell]

    @property
    def effort(self) -> float:
        # The first layer has 784 inputs, 80 % of them zero, and no error to pass down.
        first, other, depth = PIXELS * 0.2, 2.0 * self.cell.width, self.cell.hidden_layers
        alone = first if depth == 1 else other
        return self.epochs * self.cell.width * (first + other * (depth - 1) if self.ends_cell else alone)

    @property
    def family(self) -> str:
        return self.cell.function

    def shapes(self, arrays: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
        names = first_layer(function_of(self.cell.function)).values()
        # The number of units is the number of columns of the first matrix.
        first = next((arrays[name] for name in sorted(arrays) if name.startswith("hidden.0.theta.")), None)
        units = (() if first is None else first.shape[1:]) or (1,)
        return dict.fromkeys(names, (PIXELS, *units))

    def run(
        self, before: tuple[Predecessor, ...], checkpoint: Checkpoint | None, on_progress: OnProgress
    ) -> Outcome:
        from ftnn.experiments.paper.mnist.training import train  # here because it loads torch

        return train(self, before, checkpoint, on_progress)


class Layerwise(Stage):
    """Layer-wise training of the last hidden layer of its cell."""

    kind = "lwt"
    results = 3
    ends_cell = False

    @property
    def spec(self) -> dict[str, Any]:
        return {**super().spec, "epochs": [self.epochs]}  # independent of later stages

    @property
    def before(self) -> Layerwise | None:
        depth = self.cell.hidden_layers
        return Layerwise(replace(self.cell, hidden_layers=depth - 1)) if depth > 1 else None


class FineTuning(Stage):
    """Fine-tuning of all layers, the last stage of a cell."""

    kind = "ft"
    results = 4
    results_in_0_1 = 2

    @property
    def before(self) -> Layerwise:
        return Layerwise(self.cell)

    def check_row(self, row: Row) -> None:
        super().check_row(row)
        if any(self.cell.epochs) and row.ft_accuracy is None and row.failed is None:
            raise DataError("ft_accuracy is null; a cell without accuracies must have a reason in failed")
