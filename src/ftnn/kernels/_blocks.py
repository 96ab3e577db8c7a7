"""How work is cut: whole vectors of outputs, chunks and tiles of samples, shares for threads."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor

from ftnn.kernels import _templates as templates
from ftnn.kernels._llvm import Code, compiled, lanes
from ftnn.kernels._pool import Call
from ftnn.kernels._templates import TILE
from ftnn.kernels._vector import DType

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


def tiles(start: int, stop: int, width: int) -> Iterator[tuple[int, int, int]]:
    """The first sample of each tile, how many it has, and how many fill whole vectors."""
    for first in range(start, stop, TILE):
        samples = min(TILE, stop - first)
        yield first, samples, -(-samples // width) * width


@dataclass(frozen=True)
class Columns:
    """Whole vectors of outputs: those of the matrices themselves, or the last ones, filled up in a copy."""

    vectors: int
    wanted: int
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


def columns(matrices: Sequence[Tensor], width: int) -> list[Columns]:
    out = matrices[0].shape[1]
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


@lru_cache(maxsize=2)
def _pack_code(dtype: DType) -> Code:
    return compiled(templates.pack(dtype, lanes(dtype)))


def packing(
    errors: Tensor, first: int, samples: int, stride: int, vectors: int, dtype: DType
) -> tuple[Tensor, Tensor, Call]:
    """Room for a tile's errors, (vectors, stride, lanes), and their sums; and the call that fills them."""
    width = lanes(dtype)
    g, g_sum = errors.new_empty(vectors, stride, width), errors.new_empty(vectors, width)
    row = errors.shape[1]
    source = errors.data_ptr() + first * row * errors.element_size()
    args = (vectors, samples, stride, source, row, g.data_ptr(), g_sum.data_ptr())
    return g, g_sum, (_pack_code(dtype), args)
