"""Launch the kernels for data with many zeros, which list the nonzero samples of each input."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ftnn.kernels.codegen.rewriting import may_have_poles
from ftnn.kernels.codegen.target import Target
from ftnn.kernels.cpu import tiling
from ftnn.kernels.cpu.compiler import Code, kernel
from ftnn.kernels.cpu.threads import Call, run
from ftnn.kernels.cpu.tiling import CHUNK, Backward, Block, Columns, Tile, address, addresses, spans
from ftnn.kernels.loops.copies import CollectArgs, TotalArgs, collect, total
from ftnn.kernels.loops.forms import slopes_of
from ftnn.kernels.loops.skipping_backward import BackwardArgs
from ftnn.kernels.loops.skipping_backward import backward as skipping_backward
from ftnn.kernels.loops.skipping_forward import ForwardArgs
from ftnn.kernels.loops.skipping_forward import forward as skipping_forward
from ftnn.kernels.loops.zeros import SubsetSumArgs, subset_sums, subset_sums_size
from ftnn.kernels.operands import Matrices
from ftnn.kernels.program import Program

LISTING_COST = 8
"""Listing a number takes about as long as this many evaluations."""
LEAST_ZEROS = 2
"""With fewer zeros than this at an input, evaluating them one by one is cheaper."""


@dataclass(frozen=True)
class _Tile(Tile):
    """For each input a list of the samples whose x is not zero, then the others."""

    counts: Tensor
    indices: Tensor
    values: Tensor

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.counts, self.indices, self.values

    def addresses(self, row: int) -> tuple[int, int, int]:
        """Of counts, indices and values at an input."""
        place = row * self.stride
        return (
            self.counts.data_ptr() + 4 * row,
            self.indices.data_ptr() + 4 * place,
            self.values.data_ptr() + self.values.element_size() * place,
        )


def _tiles(
    program: Program, x: Tensor, start: int, stop: int, target: Target, matrices: Matrices, *, zeros: bool
) -> list[_Tile] | None:
    """The tiles of samples start:stop of x, (batch, in). `zeros`: whether zeros are listed too.

    None if a matrix is not finite: zeros must not be skipped then, because 0·∞ is not 0.
    """
    inputs, width, size = x.shape[1], target.lanes, target.size
    parallel = tiling.worth_threads(stop - start, inputs, LISTING_COST)
    totals = x.new_empty(len(matrices), width)
    tasks: list[list[Call]] = []
    for n, matrix in enumerate(matrices):
        place = totals.data_ptr() + n * width * size
        total_args = TotalArgs(numbers=matrix.numel(), source=matrix.data_ptr(), target=place)
        tasks.append([(kernel(total, target), total_args)])
    tiles: list[_Tile] = []
    for first, samples, stride in tiling.tiles(start, stop, target):
        counts = torch.empty(inputs, dtype=torch.int32)
        indices, values = (torch.empty(inputs, stride, dtype=dtype) for dtype in (torch.int32, x.dtype))
        tile = _Tile(first, samples, stride, counts, indices, values)
        tiles.append(tile)
        for row, end in tiling.shares(inputs, parallel=parallel):
            counts_at, indices_at, values_at = tile.addresses(row)
            args = CollectArgs(
                inputs=end - row,
                samples=samples,
                stride=stride,
                x=x.data_ptr() + (first * x.stride(0) + row * x.stride(1)) * size,
                by_input=x.stride(1),
                by_sample=x.stride(0),
                counts=counts_at,
                indices=indices_at,
                values=values_at,
                least=LEAST_ZEROS,
                zeros=int(zeros),
                signed=int(may_have_poles(program.expr)),
            )
            tasks.append([(kernel(collect, target), args)])
    run(tasks, parallel=parallel)
    return tiles if math.isfinite(totals.sum().item()) else None


@dataclass(slots=True)
class Listed:
    """The lists of a forward pass, for the backward pass."""

    zeros: bool
    """Whether zeros are listed too, which the gradient by x needs."""
    tiles: list[list[_Tile]] = field(default_factory=list[list[_Tile]])
    """The tiles of each chunk of samples."""

    def tensors(self) -> list[Tensor]:
        return [tensor for tiles in self.tiles for tile in tiles for tensor in tile.tensors]

    @staticmethod
    def of(tensors: Sequence[Tensor], samples: int, target: Target, *, zeros: bool) -> Listed:
        """Those that hold `tensors`, in the order of `tensors()`."""
        rest = iter(tensors)
        tiles = [
            [_Tile(*sizes, next(rest), next(rest), next(rest)) for sizes in tiling.tiles(start, stop, target)]
            for start, stop in spans(samples, CHUNK)
        ]
        return Listed(zeros, tiles)


def forward(
    program: Program,
    target: Target,
    x: Tensor,
    parts: Sequence[Columns],
    out: Tensor,
    listed: Listed | None = None,
) -> bool:
    """Fill `out`, (batch, out), and `listed` if it is given; False if zeros must not be skipped."""
    for start, stop in spans(len(x), CHUNK):
        # Zeros share F(0), unless that may have lost digits.
        for explicit in (False, True):
            zeros = explicit or (listed is not None and listed.zeros)
            tiles = _tiles(program, x, start, stop, target, parts[0].matrices, zeros=zeros)
            if tiles is None:
                return False
            if _forward(program, target, tiles, parts, out, explicit=explicit):
                break
        if listed is not None:
            listed.tiles.append(tiles)
    return True


def _forward(
    program: Program,
    target: Target,
    tiles: Sequence[_Tile],
    parts: Sequence[Columns],
    out: Tensor,
    *,
    explicit: bool,
) -> bool:
    """Fill the rows of these tiles; False if sharing F(0) may have lost digits."""
    code = kernel(skipping_forward, program, target)
    lost = torch.zeros(1, dtype=torch.int64)
    alive: list[Any] = []  # the targets of addresses

    def call(tile: _Tile, block: Block) -> Call:
        table = addresses(block.columns.matrices, block.first * target.lanes * target.size)
        alive.append(table)
        counts, indices, values = tile.addresses(0)
        return code, ForwardArgs(
            inputs=block.columns.inputs,
            vectors=block.vectors,
            samples=tile.samples,
            stride=tile.stride,
            counts=counts,
            indices=indices,
            values=values,
            matrices=address(table),
            row_length=block.columns.row_length,
            u=block.scratch,
            out=block.out,
            out_row_length=block.out_row_length,
            explicit=int(explicit),
            lost=lost.data_ptr(),
        )

    tiling.run_forward(tiles, parts, out, target, call)
    return not lost.item()


def backward(
    program: Program, target: Target, x: Tensor, work: Backward, listed: Listed | None = None
) -> bool:
    """Fill the gradients; False if zeros must not be skipped. `listed` has the lists, if they were made."""
    by_x, by_parameters = work.down is not None, bool(work.gradients)
    code = kernel(skipping_backward, program, target, by_x=by_x, by_parameters=by_parameters)
    zeros_count = slopes_of(program, by_x, by_parameters).of_zeros
    down_t = None if work.down is None else work.down.new_empty(*reversed(work.down.shape))
    ready = listed is not None and (listed.zeros or not by_x)
    for n, (start, stop) in enumerate(spans(len(x), CHUNK)):
        if listed is not None and ready:
            tiles = listed.tiles[n]
        else:
            tiles = _tiles(program, x, start, stop, target, work.columns.matrices, zeros=by_x)
        if tiles is None:
            return False
        _backward(code, zeros_count, target, tiles, work, down_t, first=start == 0)
    if work.down is not None and down_t is not None:
        work.down.copy_(down_t.t())
    return True


def _backward(
    code: Code,
    zeros_count: bool,
    target: Target,
    tiles: Sequence[_Tile],
    work: Backward,
    down_t: Tensor | None,
    *,
    first: bool,
) -> None:
    part, size = work.columns, target.size
    packs = work.packed_errors(tiles, target)
    sums = _subset_sums(packs, tiles, target, parallel=work.parallel(tiles)) if zeros_count else packs
    alive: list[Any] = []  # the targets of addresses

    def calls(start: int, stop: int) -> list[Call]:
        offset = start * part.row_length * size
        table, gradients = addresses(part.matrices, offset), addresses(work.gradients, offset)
        alive.extend((table, gradients))
        calls: list[Call] = []
        for n, (tile, g, subsets) in enumerate(zip(tiles, packs, sums, strict=True)):
            counts, indices, values = tile.addresses(start)
            dx = 0 if down_t is None else down_t.data_ptr() + (start * down_t.shape[1] + tile.first) * size
            args = BackwardArgs(
                inputs=stop - start,
                vectors=part.vectors,
                samples=tile.samples,
                stride=tile.stride,
                counts=counts,
                indices=indices,
                values=values,
                matrices=address(table),
                row_length=part.row_length,
                g=g.data_ptr(),
                subset_sums=subsets.data_ptr(),
                gradients=address(gradients),
                gradient_row_length=part.row_length,
                accumulate=int(n > 0 or not first),
                dx=dx,
                dx_row_length=0 if down_t is None else down_t.shape[1],
                dx_at_zero=1,
                scalars=0,
            )
            calls.append((code, args))
        return calls

    work.run(tiles, calls)


def _subset_sums(
    packs: Sequence[Tensor], tiles: Sequence[_Tile], target: Target, *, parallel: bool
) -> list[Tensor]:
    """The sums of each tile's errors over the subsets of each group of samples."""
    sizes = [subset_sums_size(len(g), tile.samples, target) for g, tile in zip(packs, tiles, strict=True)]
    sums = [g.new_empty(size) for g, size in zip(packs, sizes, strict=True)]
    args = [
        SubsetSumArgs(
            vectors=len(g), samples=tile.samples, stride=tile.stride, g=g.data_ptr(), sums=s.data_ptr()
        )
        for g, tile, s in zip(packs, tiles, sums, strict=True)
    ]
    run([[(kernel(subset_sums, target), each)] for each in args], parallel=parallel)
    return sums
