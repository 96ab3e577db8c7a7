"""Dividing work: whole vectors of outputs, chunks and tiles of samples, shares for threads."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ftnn.kernels.codegen.target import Target
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


class Sizes(NamedTuple):
    """What launches depend on besides the function: a chunk of samples of a layer."""

    target: Target
    samples: int
    inputs: int
    outputs: int
    by_sample: int
    """The distance between two samples of x, in numbers."""
    by_input: int
    threads: int

    @classmethod
    def of(cls, target: Target, x: Tensor, samples: int, outputs: int) -> Sizes:
        """The sizes for `samples` rows of x, (batch, in)."""
        by_sample, by_input = x.stride()
        return cls(target, samples, x.shape[1], outputs, by_sample, by_input, torch.get_num_threads())

    @property
    def parallel(self) -> bool:
        return worth_threads(self.samples, self.inputs, self.outputs)

    def bytes(self, numbers: int) -> int:
        return numbers * self.target.size


class Tile(NamedTuple):
    """At most `TILE` samples, arranged for kernels."""

    first: int
    samples: int
    stride: int
    """The number of samples rounded up to whole vectors."""


def tiles(sizes: Sizes) -> list[Tile]:
    every = spans(sizes.samples, TILE)
    return [Tile(first, stop - first, sizes.target.filled(stop - first)) for first, stop in every]
