"""Grids of cells: the paper's, or similar ones."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, product
from typing import Literal

from ftnn.data._paper import paper_best_of
from ftnn.errors import FtnnError
from ftnn.experiments.paper.mnist.cells import ACTIVATIONS, Cell
from ftnn.experiments.paper.mnist.functions import FUNCTIONS, without_ranges
from ftnn.experiments.paper.values import distinct

LAYERS = (1, 5, 10)
GAMMAS = (0, -1, -2, -3, -4, -5)


def mnist_cells(
    layers: Sequence[int] = LAYERS,
    functions: Sequence[str] = FUNCTIONS,
    activations: Sequence[str] = ACTIVATIONS,
    gammas: Literal["best", "all"] | Sequence[float] = "best",
    seeds: Sequence[int] = (0,),
    *,
    data: str = "mnist:50000",
    epochs: tuple[int, int] = (15, 15),
    width: int = 128,
    batch_size: int = 16,
) -> list[Cell]:
    """All combinations of these values; by default, the paper's cells, each at its best γ.

    They are in the order of chains: all depths of a function, an activation and a γ follow each other. So an
    interrupted run leaves few unfinished chains, whose layer-wise stages CSV files do not keep.

    **Arguments:**

    - `layers`: numbers of hidden layers.
    - `functions`: catalogue names, or formulas, optionally with ranges.
    - `gammas`: `"best"`, the paper's choice for each cell; `"all"`, 0 to -5; or numbers. If the paper has no
      best γ, because every γ failed, `"best"` means all. Ranges do not change the best γ.
    - `data`, `epochs`, `width`, `batch_size`: see `Cell`.
    """
    if isinstance(gammas, str) and gammas not in ("best", "all"):
        raise FtnnError(f'gammas is {gammas!r}; expected "best", "all", or numbers such as [0, -1]')
    cells: list[Cell] = []
    last: list[Cell] = []  # cells that the paper failed to train, at all γ
    depths = distinct("layers", layers)
    settings = (data, epochs, width, batch_size)
    for seed, function, activation in product(
        distinct("seeds", seeds), distinct("functions", functions), distinct("activations", activations)
    ):
        if gammas == "best":
            rates = {depth: _best(function, activation, depth) for depth in depths}
        else:
            chosen = GAMMAS if isinstance(gammas, str) else distinct("gammas", gammas)
            rates = dict.fromkeys(depths, chosen)
        for gamma, depth in product(dict.fromkeys(chain(*rates.values())), depths):
            if gamma in rates[depth]:
                group = last if gammas == "best" and len(rates[depth]) > 1 else cells
                group.append(Cell(function, activation, depth, float(gamma), seed, *settings))
    return [*cells, *last]


def _best(function: str, activation: str, depth: int) -> Sequence[float]:
    """The paper's best γ; all of them if every γ failed."""
    cell = paper_best_of(without_ranges(function), activation, depth)
    if cell is not None:
        return GAMMAS if cell.gamma is None else (cell.gamma,)
    Cell(function, activation, depth, 0.0)  # raises an error for invalid values
    raise FtnnError(
        f"the paper has no best γ for {function}-{activation} with {depth} hidden layers; set gammas to "
        "all, or to numbers such as 0,-1"
    )
