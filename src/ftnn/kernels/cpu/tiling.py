"""Dividing work: whole vectors of outputs, chunks and tiles of samples, shares for threads."""

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
"""Samples that are prepared for the kernels at once."""
BLOCK_VECTORS = 8
"""Vectors of outputs per forward task: their sums fit into the L1 cache."""
SMALL = 200_000
"""Evaluations below which threads cost more than they gain."""


def worth_threads(samples: int, inputs: int, outputs: int) -> bool:
    return samples * inputs * outputs > SMALL


def spans(count: int, step: int) -> list[tuple[int, int]]:
    """Consecutive (start, stop) ranges of `step` items, the last one shorter, that cover `count` items."""
    return [(start, min(start + step, count)) for start in range(0, count, step)]


def shares(inputs: int, *, parallel: bool) -> list[tuple[int, int]]:
    """The inputs, in four shares per thread in case one thread is slower."""
    return spans(inputs, -(-inputs // (torch.get_num_threads() * 4 if parallel else 1)))


@dataclass(frozen=True)
class Tile:
    """At most `TILE` samples, arranged for kernels."""

    first: int
    samples: int
    stride: int
    """The number of samples rounded up to whole vectors."""


def tiles(start: int, stop: int, target: Target) -> Iterator[tuple[int, int, int]]:
    """The `first`, `samples` and `stride` of each tile of samples start:stop."""
    for first in range(start, stop, TILE):
        samples = min(TILE, stop - first)
        yield first, samples, target.filled(samples)


def addresses(tensors: Sequence[Tensor], offset: int = 0) -> array[int]:
    """The address of each tensor's data, plus `offset` bytes."""
    return array("q", [t.data_ptr() + offset for t in tensors] or [0])


def address(numbers: array[int]) -> int:
    return numbers.buffer_info()[0]


@dataclass(frozen=True)
class Columns:
    """Whole vectors of outputs: those of the matrices themselves, or a padded copy of the last outputs."""

    vectors: int
    outputs: int
    """The number of real outputs."""
    matrices: tuple[Tensor, ...]
    row_length: int
    whole: bool
    """Whether these are the matrices themselves."""
    table: array[int] = field(repr=False)
    """The matrices' addresses."""

    @property
    def inputs(self) -> int:
        return self.matrices[0].shape[0]


def columns(matrices: Sequence[Tensor], target: Target) -> list[Columns]:
    out, width = matrices[0].shape[1], target.lanes
    whole = out // width
    parts: list[Columns] = []
    if whole:
        parts.append(Columns(whole, whole * width, tuple(matrices), out, True, addresses(matrices)))
    if rest := out - whole * width:
        # Padded with copies of a real column, so that no other values are computed.
        strips = tuple(
            torch.cat([m[:, out - rest :], m[:, -1:].expand(-1, width - rest)], 1).contiguous()
            for m in matrices
        )
        parts.append(Columns(1, rest, strips, width, False, addresses(strips)))
    return parts


_T = TypeVar("_T", bound=Tile)


@dataclass(frozen=True)
class Block:
    """Some vectors of outputs, and the addresses where a forward kernel writes their sums."""

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
    """Fill `out`, (batch, out), with one call per tile and block of vectors of outputs.

    The caller must keep alive whatever else the addresses in a call point to.
    """
    size, width, start = out.element_size(), target.lanes, tiles[0].first
    samples = sum(tile.samples for tile in tiles)
    parallel = worth_threads(samples, parts[0].inputs, out.shape[1])
    threads = torch.get_num_threads() if parallel else 1
    # One array for all blocks, and one for the last outputs of all samples: each costs as much as a call.
    scratch = out.new_empty(sum(part.vectors for part in parts) * sum(tile.stride for tile in tiles) * width)
    rows_of = [out if part.whole else out.new_empty(samples, width) for part in parts]
    scratch_at = scratch.data_ptr()
    tasks: list[list[Call]] = []
    for part, rows in zip(parts, rows_of, strict=True):
        # Enough blocks for all threads.
        at_once = min(BLOCK_VECTORS, max(1, -(-part.vectors * len(tiles) // threads)))
        rows_at, row_length = rows.data_ptr(), rows.shape[1]
        for tile in tiles:
            row = tile.first if part.whole else tile.first - start
            for first, stop in spans(part.vectors, at_once):
                out_at = rows_at + (row * row_length + first * width) * size
                block = Block(part, first, stop - first, scratch_at, out_at, row_length)
                scratch_at += (stop - first) * tile.stride * width * size
                tasks.append([call(tile, block)])
    run(tasks, parallel=parallel)
    for part, rows in zip(parts, rows_of, strict=True):
        if not part.whole:
            out[start : start + samples, -part.outputs :] = rows[:, : part.outputs]


@dataclass(frozen=True)
class Backward:
    """A backward pass over some columns: the errors it reads and the gradients it fills."""

    columns: Columns
    errors: Tensor
    """(batch, vectors · lanes or more)."""
    gradients: Sequence[Tensor]
    """One per parameter, shaped like the columns' matrices; none if only `down` is needed."""
    down: Tensor | None
    """The error sent down, (batch, in), if needed."""

    def parallel(self, tiles: Sequence[Tile]) -> bool:
        return worth_threads(sum(t.samples for t in tiles), self.columns.inputs, self.errors.shape[1])

    def packed_errors(self, tiles: Sequence[Tile], target: Target) -> list[Tensor]:
        """Each tile's errors, (vectors, stride, lanes)."""
        code, row_length, vectors = kernel(pack, target), self.errors.shape[1], self.columns.vectors
        packs = [self.errors.new_empty(vectors, tile.stride, target.lanes) for tile in tiles]
        args = [
            PackArgs(
                vectors=vectors,
                samples=tile.samples,
                stride=tile.stride,
                source=self.errors.data_ptr() + tile.first * row_length * target.size,
                row_length=row_length,
                g=g.data_ptr(),
            )
            for tile, g in zip(tiles, packs, strict=True)
        ]
        run([[(code, each)] for each in args], parallel=self.parallel(tiles))
        return packs

    def run(self, tiles: Sequence[Tile], calls: Callable[[int, int], list[Call]]) -> None:
        """Run `calls(start, stop)`, all tiles in order, for shares of the inputs."""
        parallel = self.parallel(tiles)
        run([calls(*share) for share in shares(self.columns.inputs, parallel=parallel)], parallel=parallel)
