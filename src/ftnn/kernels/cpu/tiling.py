"""How work is cut: whole vectors of outputs, chunks and tiles of samples, shares for threads."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from ftnn.kernels.codegen.target import Target
from ftnn.kernels.cpu.compiler import kernel
from ftnn.kernels.cpu.threads import Call, run
from ftnn.kernels.loops.copies import PackArgs, pack
from ftnn.kernels.loops.kernel import TILE

CHUNK = 1024
"""Samples that are arranged for the kernels at once."""
BLOCK_VECTORS = 8
"""Vectors of outputs of one forward task: its sums fit the first-level cache."""
SMALL = 200_000
"""Evaluations below which threads cost more than they bring."""


def worth_threads(samples: int, inputs: int, outputs: int) -> bool:
    return samples * inputs * outputs > SMALL


def chunks(batch: int) -> Iterator[tuple[int, int]]:
    """Where each chunk of the samples starts and stops."""
    return ((start, min(start + CHUNK, batch)) for start in range(0, batch, CHUNK))


def tiles(start: int, stop: int, target: Target) -> Iterator[tuple[int, int, int]]:
    """The first sample of each tile, how many it has, and how many fill whole vectors."""
    for first in range(start, stop, TILE):
        samples = min(TILE, stop - first)
        yield first, samples, target.filled(samples)


@dataclass(frozen=True)
class Tile:
    """At most `TILE` samples, arranged for kernels."""

    first: int
    samples: int
    stride: int
    """How many fill whole vectors."""


@dataclass(frozen=True)
class Columns:
    """Whole vectors of outputs: those of the matrices themselves, or the last ones, filled up in a copy."""

    vectors: int
    outputs: int
    """How many of the outputs are real."""
    matrices: tuple[Tensor, ...]
    row_length: int
    whole: bool
    """Whether they are the matrices themselves."""
    table: array[int] = field(repr=False)
    """The matrices' addresses."""

    @property
    def inputs(self) -> int:
        return self.matrices[0].shape[0]

    def blocks(self, tiles: int, threads: int) -> Iterator[tuple[int, int]]:
        """The first vector of each block, and how many it has: enough blocks for all threads."""
        at_once = min(BLOCK_VECTORS, max(1, -(-self.vectors * tiles // threads)))
        for first in range(0, self.vectors, at_once):
            yield first, min(at_once, self.vectors - first)


def addresses(tensors: Sequence[Tensor], offset: int = 0) -> array[int]:
    """Where each tensor's data is, plus as many bytes."""
    return array("q", [t.data_ptr() + offset for t in tensors] or [0])


def address(numbers: array[int]) -> int:
    return numbers.buffer_info()[0]


def columns(matrices: Sequence[Tensor], target: Target) -> list[Columns]:
    out, width = matrices[0].shape[1], target.lanes
    whole = out // width
    parts: list[Columns] = []
    if whole:
        parts.append(Columns(whole, whole * width, tuple(matrices), out, True, addresses(matrices)))
    if rest := out - whole * width:
        # Filled up with copies of a real column, so that nothing is computed that would not be anyway.
        strips = tuple(
            torch.cat([m[:, out - rest :], m[:, -1:].expand(-1, width - rest)], 1).contiguous()
            for m in matrices
        )
        parts.append(Columns(1, rest, strips, width, False, addresses(strips)))
    return parts


def pieces(inputs: int, *, parallel: bool) -> Iterator[tuple[int, int]]:
    """Where each thread's share of the inputs starts and stops: four for each, should one be slower."""
    step = -(-inputs // (torch.get_num_threads() * 4 if parallel else 1))
    return ((start, min(start + step, inputs)) for start in range(0, inputs, step))


_T = TypeVar("_T", bound=Tile)


@dataclass(frozen=True)
class Block:
    """Some vectors of outputs, and where a forward kernel puts their sums: addresses."""

    columns: Columns
    first: int
    """The first vector."""
    vectors: int
    scratch: int
    out: int
    out_row_length: int


def run_forward(
    tiles: Sequence[_T],
    parts: Sequence[Columns],
    out: Tensor,
    target: Target,
    call: Callable[[_T, Block], Call],
) -> None:
    """Fill `out`, (batch, out): a call for each tile and block of vectors of outputs.

    What other addresses in a call point to must be held by whoever made it.
    """
    size, width = out.element_size(), target.lanes
    alive: list[Tensor] = []  # what the addresses point to
    tasks: list[list[Call]] = []
    strips: list[tuple[_T, Columns, Tensor]] = []
    parallel = worth_threads(sum(tile.samples for tile in tiles), parts[0].inputs, out.shape[1])
    threads = torch.get_num_threads() if parallel else 1
    for tile in tiles:
        for part in parts:
            rows = out if part.whole else out.new_empty(tile.samples, width)
            if not part.whole:
                strips.append((tile, part, rows))
            for first, vectors in part.blocks(len(tiles), threads):
                scratch = out.new_empty(vectors * tile.stride * width)
                alive += (scratch, rows)
                place = (tile.first * out.shape[1] if part.whole else 0) + first * width
                out_address = rows.data_ptr() + place * size
                block = Block(part, first, vectors, scratch.data_ptr(), out_address, rows.shape[1])
                tasks.append([call(tile, block)])
    run(tasks, parallel=parallel)
    for tile, part, rows in strips:
        out[tile.first : tile.first + tile.samples, -part.outputs :] = rows[:, : part.outputs]


def packed(
    errors: Tensor, tiles: Sequence[Tile], vectors: int, target: Target, *, parallel: bool
) -> list[Tensor]:
    """Each tile's errors, (vectors, stride, lanes)."""
    code, row_length = kernel(pack, target), errors.shape[1]
    packs: list[Tensor] = []
    tasks: list[list[Call]] = []
    for tile in tiles:
        g = errors.new_empty(vectors, tile.stride, target.lanes)
        packs.append(g)
        args = PackArgs(
            vectors=vectors,
            samples=tile.samples,
            stride=tile.stride,
            source=errors.data_ptr() + tile.first * row_length * errors.element_size(),
            row_length=row_length,
            g=g.data_ptr(),
        )
        tasks.append([(code, args)])
    run(tasks, parallel=parallel)
    return packs
