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
    interrupted run leaves few unfinished chains, whose layer-wise stages CSV files do not keep. Chains with
    a cell at the paper's best γ come first, then those with a cell that the paper could not train.

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
                cells.append(Cell(function, activation, depth, float(gamma), seed, *settings))
    ranks: dict[tuple[object, ...], int] = {}
    for cell in cells:
        rank = _rank(cell)
        ranks[_chain(cell)] = min(rank, ranks.get(_chain(cell), rank))
    return sorted(cells, key=lambda cell: ranks[_chain(cell)])


def _chain(cell: Cell) -> tuple[object, ...]:
    """The same for all depths."""
    return cell.function, cell.activation, cell.gamma, cell.seed


def _rank(cell: Cell) -> int:
    """0 at the paper's best γ, 1 if it has none, 2 otherwise."""
    best = paper_best_of(without_ranges(cell.function), cell.activation, cell.hidden_layers)
    return 1 if best is None or best.gamma is None else 0 if best.gamma == cell.gamma else 2


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
