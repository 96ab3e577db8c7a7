"""The paper's grids: which cells there are, chosen by what a person writes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, TypeVar

from ftnn.data import paper_best
from ftnn.errors import FtnnError
from ftnn.experiments._tasks import ACTIVATIONS, Cell, PiCell, function_of, named
from ftnn.formula import catalogue

LAYERS = (1, 5, 10)
GAMMAS = (0, -1, -2, -3, -4, -5)
HIDDEN = (128, 256, 512, 1024)
PAIRS = (200, 400, 800)
FUNCTIONS = tuple(name for name in catalogue if name != "memory")

_T = TypeVar("_T")


def mnist_cells(
    layers: str = "1,5,10",
    functions: Sequence[str] = (),
    activations: str = "logistic,relu,tanh",
    gammas: str = "best",
    seeds: str = "0",
    **settings: Any,
) -> list[Cell]:
    """The cells of these lists, written with commas; of the paper's 1,080 unless settings say otherwise.

    Without any text in `functions`, they are all 20; a text that names none is an error, as in all lists.
    `gammas` may be `best`, the paper's choice for each cell, or `all`. Where the paper has no best γ, because
    all failed, `best` means all. A function of its own with other ranges has the same best γ.
    """
    chosen_functions = [name for text in functions for name in names("--functions", text)]
    for name in chosen_functions:
        function_of(name)
    depths = _numbers("--layers", layers, int, low=1)
    chosen = names("--activations", activations)
    unknown = [name for name in chosen if name not in ACTIVATIONS]
    if unknown:
        raise FtnnError(f"--activations {unknown[0]!r} is unknown; expected {', '.join(ACTIVATIONS)}")
    numbered = seed_numbers(seeds)
    rates = None
    if gammas not in ("best", "all"):
        rates = _numbers("--gammas", gammas, float, also="best or all")
    found: list[Cell] = []
    # Where the paper failed, six cells stand for one: they come last.
    last: list[Cell] = []
    for seed, name, activation, depth in product(numbered, chosen_functions or FUNCTIONS, chosen, depths):
        values = rates or _gammas(gammas, name, activation, depth)
        cells = [Cell(name, activation, depth, float(gamma), seed, **settings) for gamma in values]  # pyright: ignore[reportArgumentType]
        (last if gammas == "best" and len(cells) > 1 else found).extend(cells)
    return list(dict.fromkeys([*found, *last]))


def _gammas(asked: str, function: str, activation: str, depth: int) -> Sequence[float]:
    if asked == "all":
        return GAMMAS
    for cell in paper_best():
        if (cell.function, cell.activation, cell.hidden_layers) == (named(function), activation, depth):
            return GAMMAS if cell.gamma is None else (cell.gamma,)
    raise FtnnError(
        f"the paper has no best γ for {function}-{activation} with {depth} hidden layers: say which to take "
        "with --gammas 0,-1 or --gammas all"
    )


def pi_cells(
    hidden: str = "128,256,512,1024", pairs: str = "200,400,800", seeds: str = "0", epochs: int = 5000
) -> list[PiCell]:
    """The cells of these lists: the paper's 12 curves, unless they say otherwise."""
    return [
        PiCell(units, count, seed, epochs=epochs)
        for seed in seed_numbers(seeds)
        for count in _numbers("--pairs", pairs, int, low=1)
        for units in _numbers("--hidden", hidden, int, low=1)
    ]


def seed_numbers(seeds: str) -> list[int]:
    return _numbers("--seeds", seeds, int, low=0)


def split(text: str) -> list[str]:
    """The parts of a list with commas; those in brackets do not part it."""
    return [part.strip() for part in re.split(r",(?![^\[\(]*[\]\)])", text) if part.strip()]


def names(option: str, text: str) -> list[str]:
    """The parts of what was given to an option. None at all is an error: it never stands for everything."""
    found = split(text)
    if not found:
        raise FtnnError(f"{option} {text!r} names nothing; leave the option out to take its default")
    return found


def _numbers(
    option: str, text: str, kind: Callable[[str], _T], low: float | None = None, also: str = ""
) -> list[_T]:
    found: list[_T] = []
    for part in names(option, text):
        try:
            number: Any = kind(part)
            if not abs(number) < 1e6 or (low is not None and number < low):
                raise ValueError
        except ValueError:
            what = "whole numbers" if kind is int else "numbers"
            least = "" if low is None else f" of {low:g} or more"
            raise FtnnError(
                f"{option} {text}: {part!r} is not allowed; allowed are {what}{least} with commas between"
                + (f", {also}" if also else "")
            ) from None
        found.append(number)
    return list(dict.fromkeys(found))
