"""Grids of cells: the paper's, or others in their manner."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Literal

from ftnn.data import paper_best
from ftnn.errors import FtnnError
from ftnn.experiments.paper.mnist.cells import ACTIVATIONS, Cell
from ftnn.experiments.paper.mnist.functions import FUNCTIONS, without_ranges
from ftnn.experiments.paper.values import distinct

if TYPE_CHECKING:
    from ftnn.nn import Activation

LAYERS = (1, 5, 10)
GAMMAS = (0, -1, -2, -3, -4, -5)


def mnist_cells(
    layers: Sequence[int] = LAYERS,
    functions: Sequence[str] = FUNCTIONS,
    activations: Sequence[Activation] = ACTIVATIONS,
    gammas: Literal["best", "all"] | Sequence[float] = "best",
    seeds: Sequence[int] = (0,),
    *,
    data: str = "mnist",
    epochs: tuple[int, int] = (15, 15),
    width: int = 128,
    batch_size: int = 16,
) -> list[Cell]:
    """All cells of these lists: of the paper's 1,080, unless functions or settings say otherwise.

    **Arguments:**

    - `layers`: numbers of hidden layers.
    - `functions`: names of the catalogue, or formulas, possibly with ranges.
    - `gammas`: `"best"`, the paper's choice for each cell; `"all"`, 0 to -5; or numbers. Where the paper has
      no best γ, because all failed, `"best"` means all. A function with other ranges has the same best γ.
    - `data`, `epochs`, `width`, `batch_size`: see `Cell`.
    """
    if isinstance(gammas, str) and gammas not in ("best", "all"):
        raise FtnnError(f'gammas is {gammas!r}; expected "best", "all", or numbers such as [0, -1]')
    cells: list[Cell] = []
    last: list[Cell] = []  # where the paper failed, six cells stand for one
    for seed, function, activation, depth in product(
        distinct("seeds", seeds),
        distinct("functions", functions),
        distinct("activations", activations),
        distinct("layers", layers),
    ):
        if gammas == "best":
            rates = _best(function, activation, depth)
        else:
            rates = GAMMAS if isinstance(gammas, str) else distinct("gammas", gammas)
        group = last if gammas == "best" and len(rates) > 1 else cells
        for gamma in rates:
            settings = (data, epochs, width, batch_size)
            group.append(Cell(function, activation, depth, float(gamma), seed, *settings))
    return [*cells, *last]


def _best(function: str, activation: Activation, depth: int) -> Sequence[float]:
    """The paper's best γ; all, where it has none because all failed."""
    for cell in paper_best():
        place = cell.function, cell.activation, cell.hidden_layers
        if place == (without_ranges(function), activation, depth):
            return GAMMAS if cell.gamma is None else (cell.gamma,)
    Cell(function, activation, depth, 0.0)  # says what is wrong with these, if anything is
    raise FtnnError(
        f"the paper has no best γ for {function}-{activation} with {depth} hidden layers; set gammas to "
        "all, or to numbers such as 0,-1"
    )
