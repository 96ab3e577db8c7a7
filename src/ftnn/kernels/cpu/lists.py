"""Lists of the samples whose x is not zero, for each input of a tile."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from ftnn.kernels.codegen.rewriting import may_have_poles
from ftnn.kernels.cpu.compiler import kernel
from ftnn.kernels.cpu.threads import Call
from ftnn.kernels.cpu.tiling import Sizes, Tile, shares, tiles, worth_threads
from ftnn.kernels.loops.copies import CollectArgs, collect
from ftnn.kernels.program import Program

LISTING_COST = 8
"""Listing a number takes about as long as this many evaluations."""
LEAST_ZEROS = 2
"""With fewer zeros than this at an input, evaluating them one by one is cheaper."""


class Lists(NamedTuple):
    """For each input of a tile a list of the samples whose x is not zero, then the others: their places."""

    tile: Tile
    sizes: Sizes
    values: int
    indices: int
    counts: int

    @property
    def end(self) -> int:
        return self.counts + 4 * self.sizes.inputs

    def at(self, row: int) -> dict[str, int]:
        """The lists of the inputs from one on, as arguments of kernels."""
        place = row * self.tile.stride
        return {
            "samples": self.tile.samples,
            "stride": self.tile.stride,
            "counts": self.counts + 4 * row,
            "indices": self.indices + 4 * place,
            "values": self.values + self.sizes.bytes(place),
        }


def lists_of(sizes: Sizes, place: int) -> list[Lists]:
    """The lists of all tiles, one behind the other."""
    lists: list[Lists] = []
    for tile in tiles(sizes):
        numbers = sizes.inputs * tile.stride
        indices = place + sizes.bytes(numbers)
        lists.append(Lists(tile, sizes, place, indices, indices + 4 * numbers))
        place = lists[-1].end
        place += -place % 8
    return lists


@lru_cache(maxsize=256)
def _size(sizes: Sizes) -> int:
    """The size of the lists in bytes."""
    return lists_of(sizes, 0)[-1].end


def empty_lists(sizes: Sizes) -> Tensor:
    """Memory for the lists."""
    return torch.empty(_size(sizes), dtype=torch.uint8)


def in_parallel(sizes: Sizes) -> bool:
    """Whether threads fill the lists."""
    return worth_threads(sizes.samples, sizes.inputs, LISTING_COST)


def collecting(program: Program, lists: Sequence[Lists], x: int, *, zeros: bool) -> list[list[Call]]:
    """Tasks that fill the lists. `zeros`: whether zeros are listed too."""
    sizes = lists[0].sizes
    code, parallel = kernel(collect, sizes.target), in_parallel(sizes)
    tasks: list[list[Call]] = []
    for each in lists:
        for row, end in shares(sizes.inputs, parallel=parallel):
            args = CollectArgs(
                **each.at(row),
                inputs=end - row,
                x=x + sizes.bytes(each.tile.first * sizes.by_sample + row * sizes.by_input),
                by_input=sizes.by_input,
                by_sample=sizes.by_sample,
                least=LEAST_ZEROS,
                zeros=int(zeros),
                signed=int(may_have_poles(program.expr)),
            )
            tasks.append([(code, args)])
    return tasks
