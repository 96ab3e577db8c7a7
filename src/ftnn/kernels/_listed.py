"""Generated kernels on data with many zeros: the samples of each input that are not zero, in lists."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ftnn.kernels import _blocks as blocks
from ftnn.kernels import _templates as templates
from ftnn.kernels._blocks import Columns, Ending, Tile, address, addresses
from ftnn.kernels._emit import may_have_poles
from ftnn.kernels._llvm import Code, compiled, lanes
from ftnn.kernels._pool import Call, run
from ftnn.kernels._program import Program
from ftnn.kernels._vector import DType

TASK_ROWS = 8
"""Listing a number takes about as long as so many evaluations."""
LEAST_ZEROS = 2
"""Fewer samples than this with x = 0 are cheaper evaluated one by one."""


@lru_cache(maxsize=256)
def _forward_code(program: Program, dtype: DType) -> Code:
    return compiled(templates.forward(program, dtype, lanes(dtype)))


@lru_cache(maxsize=256)
def _backward_code(program: Program, dtype: DType, by_x: bool, by_parameters: bool) -> Code:
    text = templates.backward(
        program, dtype, lanes(dtype), by_x=by_x, by_parameters=by_parameters, update=False
    )
    return compiled(text)


@lru_cache(maxsize=2)
def _subset_code(dtype: DType) -> Code:
    return compiled(templates.subset_sums(dtype, lanes(dtype)))


@lru_cache(maxsize=2)
def _collect_code(dtype: DType) -> Code:
    return compiled(templates.collect(dtype, lanes(dtype)))


@dataclass(frozen=True)
class _Tile(Tile):
    """For each input the list of the samples whose x is not zero, then the others."""

    count: Tensor
    index: Tensor
    value: Tensor

    def addresses(self, row: int) -> tuple[int, int, int]:
        """Of count, index and value at an input."""
        place = row * self.stride
        return (
            self.count.data_ptr() + 4 * row,
            self.index.data_ptr() + 4 * place,
            self.value.data_ptr() + self.value.element_size() * place,
        )


@lru_cache(maxsize=2)
def _total_code(dtype: DType) -> Code:
    return compiled(templates.total(dtype, lanes(dtype)))


def _tiles(
    program: Program,
    x: Tensor,
    start: int,
    stop: int,
    dtype: DType,
    matrices: Sequence[Tensor],
    *,
    zeros: bool,
) -> list[_Tile] | None:
    """The tiles of samples start:stop of x, (batch, in); with the zeros listed too, where they are wanted.

    None where a matrix is not finite: zeros may not be skipped then, as 0·∞ is not 0.
    """
    inputs, width = x.shape[1], lanes(dtype)
    by_sample, by_input, size = x.stride(0), x.stride(1), x.element_size()
    parallel = blocks.worth_threads(stop - start, inputs, TASK_ROWS)
    totals = x.new_empty(len(matrices), width)
    tasks: list[list[Call]] = [
        [(_total_code(dtype), (m.numel(), m.data_ptr(), totals.data_ptr() + n * width * size))]
        for n, m in enumerate(matrices)
    ]
    found: list[_Tile] = []
    for first, samples, stride in blocks.tiles(start, stop, width):
        tile = _Tile(
            first,
            samples,
            stride,
            torch.empty(inputs, dtype=torch.int32),
            torch.empty(inputs, stride, dtype=torch.int32),
            torch.empty(inputs, stride, dtype=x.dtype),
        )
        found.append(tile)
        for row, end in blocks.pieces(inputs, parallel=parallel):
            source = x.data_ptr() + (first * by_sample + row * by_input) * size
            args = (
                end - row,
                samples,
                stride,
                source,
                by_input,
                by_sample,
                *tile.addresses(row),
                LEAST_ZEROS,
                int(zeros),
                int(may_have_poles(program.expr)),
            )
            tasks.append([(_collect_code(dtype), args)])
    run(tasks, parallel=parallel)
    return found if math.isfinite(totals.sum().item()) else None


def forward(program: Program, dtype: DType, x: Tensor, parts: Sequence[Columns], out: Tensor) -> bool:
    """Fill `out`, (batch, out); False where zeros may not be skipped."""
    for start, stop in blocks.chunks(len(x)):
        # Zeros share F(0), unless that may have cost digits.
        for explicit in (False, True):
            tiles = _tiles(program, x, start, stop, dtype, parts[0].matrices, zeros=explicit)
            if tiles is None:
                return False
            if _forward(program, dtype, tiles, parts, out, explicit=explicit):
                break
    return True


def _forward(
    program: Program,
    dtype: DType,
    tiles: Sequence[_Tile],
    parts: Sequence[Columns],
    out: Tensor,
    *,
    explicit: bool,
) -> bool:
    """Fill the rows of these tiles; False if sharing F(0) may have cost digits."""
    code, width, size = _forward_code(program, dtype), lanes(dtype), out.element_size()
    lost = torch.zeros(1, dtype=torch.int64)
    kept: list[Any] = []  # what the addresses point to

    def call(tile: _Tile, part: Columns, vector: int, vectors: int, ending: Ending) -> Call:
        table = addresses(part.matrices, vector * width * size)
        kept.append(table)
        return code, (
            part.inputs,
            vectors,
            tile.samples,
            tile.stride,
            *tile.addresses(0),
            address(table),
            part.row_length,
            *ending,
            int(explicit),
            lost.data_ptr(),
        )

    blocks.run_forward(tiles, parts, out, width, call)
    return not lost.item()


def backward(
    program: Program,
    dtype: DType,
    x: Tensor,
    part: Columns,
    errors: Tensor,
    gradients: Sequence[Tensor],
    down: Tensor | None,
) -> bool:
    """Fill the gradients, as `part` has its matrices, and `down`, (batch, in); False as for `forward`."""
    code = _backward_code(program, dtype, down is not None, bool(gradients))
    of_zeros = templates.slopes_of(program, down is not None, bool(gradients)).of_zeros
    down_t = None if down is None else down.new_empty(*reversed(down.shape))
    for start, stop in blocks.chunks(len(x)):
        tiles = _tiles(program, x, start, stop, dtype, part.matrices, zeros=down is not None)
        if tiles is None:
            return False
        _backward(code, of_zeros, dtype, tiles, part, errors, gradients, down_t, first=start == 0)
    if down is not None and down_t is not None:
        down.copy_(down_t.t())
    return True


def _backward(
    code: Code,
    of_zeros: bool,
    dtype: DType,
    tiles: Sequence[_Tile],
    part: Columns,
    errors: Tensor,
    gradients: Sequence[Tensor],
    down: Tensor | None,
    *,
    first: bool,
) -> None:
    inputs, size = part.inputs, errors.element_size()
    parallel = blocks.worth_threads(sum(t.samples for t in tiles), inputs, part.vectors * lanes(dtype))
    packs = blocks.packed(errors, tiles, part.vectors, dtype, parallel=parallel)
    sums = _subset_sums(packs, tiles, dtype, parallel=parallel) if of_zeros else packs
    kept: list[Any] = []  # what the addresses point to

    def rows(start: int, stop: int) -> list[Call]:
        """All tiles, in order, for some of the inputs."""
        offset = start * part.row_length * size
        table, targets = addresses(part.matrices, offset), addresses(gradients, offset)
        kept.extend((table, targets))
        return [
            (
                code,
                (
                    stop - start,
                    part.vectors,
                    tile.samples,
                    tile.stride,
                    *tile.addresses(start),
                    address(table),
                    part.row_length,
                    g.data_ptr(),
                    subsets.data_ptr(),
                    address(targets),
                    part.row_length,
                    int(n > 0 or not first),
                    0 if down is None else down.data_ptr() + (start * down.shape[1] + tile.first) * size,
                    0 if down is None else down.shape[1],
                    1,
                    0,
                ),
            )
            for n, (tile, g, subsets) in enumerate(zip(tiles, packs, sums, strict=True))
        ]

    run([rows(*piece) for piece in blocks.pieces(inputs, parallel=parallel)], parallel=parallel)


def _subset_sums(
    packs: Sequence[Tensor], tiles: Sequence[_Tile], dtype: DType, *, parallel: bool
) -> list[Tensor]:
    """Of each tile's errors, the sums over the subsets of each group of samples."""
    code, found = _subset_code(dtype), list[Tensor]()
    tasks: list[list[Call]] = []
    for g, tile in zip(packs, tiles, strict=True):
        vectors = g.shape[0]
        sums = g.new_empty(templates.subset_sums_size(vectors, tile.samples, lanes(dtype)))
        found.append(sums)
        tasks.append([(code, (vectors, tile.samples, tile.stride, g.data_ptr(), sums.data_ptr()))])
    run(tasks, parallel=parallel)
    return found
