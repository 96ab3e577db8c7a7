"""Dividing work: whole vectors of outputs, chunks and tiles of samples, shares for threads."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ftnn.kernels.codegen.target import Target
from ftnn.kernels.cpu.compiler import kernel
from ftnn.kernels.cpu.launch import Preparation
from ftnn.kernels.cpu.threads import Call
from ftnn.kernels.loops.copies import CheckArgs, PackArgs, TransposeArgs, check, pack, transpose
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


def shares(count: int, *, parallel: bool) -> list[tuple[int, int]]:
    """`count` inputs, in four shares per thread in case one thread is slower."""
    return spans(count, -(-count // (torch.get_num_threads() * 4 if parallel else 1)))


def addresses(tensors: Sequence[Tensor], offset: int = 0) -> array[int]:
    """The address of each tensor's data, plus `offset` bytes."""
    return array("q", [t.data_ptr() + offset for t in tensors] or [0])


def address(numbers: array[int]) -> int:
    return numbers.buffer_info()[0]


def row_address(rows: Tensor, row: int) -> int:
    """The address of a row."""
    return rows.data_ptr() + row * rows.stride(0) * rows.element_size()


class Columns(NamedTuple):
    """Whole vectors of outputs: those of the matrices themselves, or a padded copy of the last outputs."""

    vectors: int
    outputs: int
    """The number of real outputs."""
    matrices: tuple[Tensor, ...]
    row_length: int
    whole: bool
    """Whether these are the matrices themselves."""


def columns(matrices: Sequence[Tensor], target: Target) -> list[Columns]:
    out, width = matrices[0].shape[1], target.lanes
    whole = out // width
    parts: list[Columns] = []
    if whole:
        parts.append(Columns(whole, whole * width, tuple(matrices), out, True))
    if rest := out - whole * width:
        # Padded with copies of a real column, so that no other values are computed.
        strips = tuple(
            torch.cat([m[:, out - rest :], m[:, -1:].expand(-1, width - rest)], 1).contiguous()
            for m in matrices
        )
        parts.append(Columns(1, rest, strips, width, False))
    return parts


class Sizes(NamedTuple):
    """What launches depend on besides the function: a chunk of samples and some columns."""

    target: Target
    samples: int
    inputs: int
    by_sample: int
    """The distance between two samples of x, in numbers."""
    by_input: int
    vectors: int
    """Of outputs."""
    row_length: int
    """Of matrices and gradients."""
    outer_row_length: int
    """Of the sums and of their errors."""
    threads: int

    @classmethod
    def of(cls, target: Target, x: Tensor, samples: int, part: Columns, outer: Tensor) -> Sizes:
        """The sizes for `samples` rows of x, (batch, in). `outer` holds the sums or their errors."""
        by_sample, by_input = x.stride()
        threads = torch.get_num_threads()
        return cls(
            target,
            samples,
            x.shape[1],
            by_sample,
            by_input,
            part.vectors,
            part.row_length,
            outer.stride(0),
            threads,
        )

    @property
    def parallel(self) -> bool:
        return worth_threads(self.samples, self.inputs, self.vectors * self.target.lanes)

    def bytes(self, numbers: int) -> int:
        return numbers * self.target.size


class Tile(NamedTuple):
    """At most `TILE` samples, arranged for kernels."""

    first: int
    samples: int
    stride: int
    """The number of samples rounded up to whole vectors."""


def tiles(samples: int, target: Target) -> list[Tile]:
    return [Tile(first, stop - first, target.filled(stop - first)) for first, stop in spans(samples, TILE)]


class Block(NamedTuple):
    """Some vectors of outputs, and the places for a forward kernel's sums."""

    first: int
    """The first vector."""
    vectors: int
    scratch: int
    out: int


def blocks(launch: Preparation, sizes: Sizes, tile: Tile, out: int) -> Iterator[Block]:
    """The blocks of a tile's outputs. `out` is the place of the sums, (samples, row)."""
    lanes, count = sizes.target.lanes, -(-sizes.samples // TILE)
    # Enough blocks for all threads.
    threads = sizes.threads if sizes.parallel else 1
    at_once = min(BLOCK_VECTORS, max(1, -(-sizes.vectors * count // threads)))
    for first, stop in spans(sizes.vectors, at_once):
        scratch = launch.scratch(sizes.bytes((stop - first) * tile.stride * lanes))
        place = out + sizes.bytes(tile.first * sizes.outer_row_length + first * lanes)
        yield Block(first, stop - first, scratch, place)


class Packed(NamedTuple):
    """A tile's errors, (vectors, stride, lanes)."""

    sizes: Sizes
    tile: Tile
    place: int
    calls: list[list[Call]]
    """The calls that fill each vector."""

    def at(self, vector: int) -> int:
        """The place of a vector's errors."""
        return self.place + vector * self.sizes.bytes(self.tile.stride * self.sizes.target.lanes)


def packed(launch: Preparation, sizes: Sizes, tile: Tile, errors: int) -> Packed:
    """`errors` is the place of the errors at the sums, (samples, row)."""
    lanes, code = sizes.target.lanes, kernel(pack, sizes.target)
    place = launch.scratch(sizes.bytes(sizes.vectors * tile.stride * lanes))
    result = Packed(sizes, tile, place, [])
    for vector in range(sizes.vectors):
        args = PackArgs(
            vectors=1,
            samples=tile.samples,
            stride=tile.stride,
            source=errors + sizes.bytes(tile.first * sizes.outer_row_length + vector * lanes),
            row_length=sizes.outer_row_length,
            g=result.at(vector),
        )
        result.calls.append([(code, args)])
    return result


def check_call(target: Target, source: int, numbers: int, flag: int) -> Call:
    """Sets a flag if some of these numbers are not finite."""
    return kernel(check, target), CheckArgs(numbers=numbers, source=source, flag=flag)


class SentDown(NamedTuple):
    """The error that a tile sends down to some inputs, while it is in the cache: (inputs, row)."""

    sizes: Sizes
    tile: Tile
    row_length: int
    start: int
    stop: int
    place: int

    @classmethod
    def of(
        cls, launch: Preparation, sizes: Sizes, tile: Tile, row_length: int, start: int, stop: int
    ) -> SentDown:
        place = launch.scratch(sizes.bytes((stop - start) * row_length))
        return cls(sizes, tile, row_length, start, stop, place)

    def calls(self, down: int, flag: int | None) -> list[Call]:
        """Copy it to its place in `down`, (batch, in), and perhaps set a flag if it is not finite."""
        sizes, tile, inputs = self.sizes, self.tile, self.stop - self.start
        back = TransposeArgs(
            rows=tile.samples,
            columns=inputs,
            width=inputs,
            source=self.place,
            source_by_row=1,
            source_by_column=self.row_length,
            target=down + sizes.bytes(tile.first * sizes.inputs + self.start),
            target_by_row=sizes.inputs,
        )
        calls: list[Call] = [(kernel(transpose, sizes.target), back)]
        if flag is not None:
            calls.append(check_call(sizes.target, self.place, inputs * self.row_length, flag))
        return calls


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

    @property
    def checked(self) -> bool:
        """Whether launches fill the gradients whole, and so can tell if all are finite."""
        return self.columns.whole and self.columns.row_length == self.columns.outputs

    def addresses(self, start: int) -> tuple[int, ...]:
        """Of the errors and the error sent down from a sample on, of the matrices and the gradients."""
        return (
            row_address(self.errors, start),
            0 if self.down is None else row_address(self.down, start),
            *(matrix.data_ptr() for matrix in self.columns.matrices),
            *(gradient.data_ptr() for gradient in self.gradients),
        )
