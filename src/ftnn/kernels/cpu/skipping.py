"""Launches kernels on data with many zeros: the samples of each input that are not zero, in lists."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ftnn.kernels.codegen.rewriting import may_have_poles
from ftnn.kernels.codegen.target import Target
from ftnn.kernels.cpu import tiling
from ftnn.kernels.cpu.compiler import Code, kernel
from ftnn.kernels.cpu.threads import Call, run
from ftnn.kernels.cpu.tiling import Block, Columns, Tile, address, addresses
from ftnn.kernels.loops.copies import CollectArgs, TotalArgs, collect, total
from ftnn.kernels.loops.skipping_backward import BackwardArgs, slopes_of
from ftnn.kernels.loops.skipping_backward import backward as skipping_backward
from ftnn.kernels.loops.skipping_forward import ForwardArgs
from ftnn.kernels.loops.skipping_forward import forward as skipping_forward
from ftnn.kernels.loops.zeros import SubsetSumArgs, subset_sums, subset_sums_size
from ftnn.kernels.program import Program

TASK_ROWS = 8
"""Listing a number takes about as long as so many evaluations."""
LEAST_ZEROS = 2
"""Fewer samples than this with x = 0 are cheaper evaluated one by one."""


@dataclass(frozen=True)
class _Tile(Tile):
    """For each input the list of the samples whose x is not zero, then the others."""

    counts: Tensor
    indices: Tensor
    values: Tensor

    def addresses(self, row: int) -> tuple[int, int, int]:
        """Of counts, indices and values at an input."""
        place = row * self.stride
        return (
            self.counts.data_ptr() + 4 * row,
            self.indices.data_ptr() + 4 * place,
            self.values.data_ptr() + self.values.element_size() * place,
        )


def _tiles(
    program: Program,
    x: Tensor,
    start: int,
    stop: int,
    target: Target,
    matrices: Sequence[Tensor],
    *,
    zeros: bool,
) -> list[_Tile] | None:
    """The tiles of samples start:stop of x, (batch, in); with the zeros listed too, where they are needed.

    None where a matrix is not finite: zeros may not be skipped then, as 0·∞ is not 0.
    """
    inputs, width, size = x.shape[1], target.lanes, target.size
    parallel = tiling.worth_threads(stop - start, inputs, TASK_ROWS)
    totals = x.new_empty(len(matrices), width)
    tasks: list[list[Call]] = []
    for n, matrix in enumerate(matrices):
        place = totals.data_ptr() + n * width * size
        total_args = TotalArgs(numbers=matrix.numel(), source=matrix.data_ptr(), target=place)
        tasks.append([(kernel(total, target), total_args)])
    tiles: list[_Tile] = []
    for first, samples, stride in tiling.tiles(start, stop, target):
        tile = _Tile(
            first,
            samples,
            stride,
            torch.empty(inputs, dtype=torch.int32),
            torch.empty(inputs, stride, dtype=torch.int32),
            torch.empty(inputs, stride, dtype=x.dtype),
        )
        tiles.append(tile)
        for row, end in tiling.pieces(inputs, parallel=parallel):
            counts, indices, values = tile.addresses(row)
            args = CollectArgs(
                inputs=end - row,
                samples=samples,
                stride=stride,
                x=x.data_ptr() + (first * x.stride(0) + row * x.stride(1)) * size,
                by_input=x.stride(1),
                by_sample=x.stride(0),
                counts=counts,
                indices=indices,
                values=values,
                least=LEAST_ZEROS,
                zeros=int(zeros),
                signed=int(may_have_poles(program.expr)),
            )
            tasks.append([(kernel(collect, target), args)])
    run(tasks, parallel=parallel)
    return tiles if math.isfinite(totals.sum().item()) else None


def forward(program: Program, target: Target, x: Tensor, parts: Sequence[Columns], out: Tensor) -> bool:
    """Fill `out`, (batch, out); False where zeros may not be skipped."""
    for start, stop in tiling.chunks(len(x)):
        # Zeros share F(0), unless that may have cost digits.
        for explicit in (False, True):
            tiles = _tiles(program, x, start, stop, target, parts[0].matrices, zeros=explicit)
            if tiles is None:
                return False
            if _forward(program, target, tiles, parts, out, explicit=explicit):
                break
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
    """Fill the rows of these tiles; False if sharing F(0) may have cost digits."""
    code = kernel(skipping_forward, program, target)
    lost = torch.zeros(1, dtype=torch.int64)
    alive: list[Any] = []  # what the addresses point to

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
    program: Program,
    target: Target,
    x: Tensor,
    part: Columns,
    errors: Tensor,
    gradients: Sequence[Tensor],
    down: Tensor | None,
) -> bool:
    """Fill the gradients, as `part` has its matrices, and `down`, (batch, in); False as for `forward`."""
    by_x, by_parameters = down is not None, bool(gradients)
    code = kernel(skipping_backward, program, target, by_x=by_x, by_parameters=by_parameters)
    zeros_count = slopes_of(program, by_x, by_parameters).of_zeros
    down_t = None if down is None else down.new_empty(*reversed(down.shape))
    for start, stop in tiling.chunks(len(x)):
        tiles = _tiles(program, x, start, stop, target, part.matrices, zeros=by_x)
        if tiles is None:
            return False
        _backward(code, zeros_count, target, tiles, part, errors, gradients, down_t, first=start == 0)
    if down is not None and down_t is not None:
        down.copy_(down_t.t())
    return True


def _backward(
    code: Code,
    zeros_count: bool,
    target: Target,
    tiles: Sequence[_Tile],
    part: Columns,
    errors: Tensor,
    gradients: Sequence[Tensor],
    down: Tensor | None,
    *,
    first: bool,
) -> None:
    inputs, size = part.inputs, target.size
    parallel = tiling.worth_threads(sum(t.samples for t in tiles), inputs, part.vectors * target.lanes)
    packs = tiling.packed(errors, tiles, part.vectors, target, parallel=parallel)
    sums = _subset_sums(packs, tiles, target, parallel=parallel) if zeros_count else packs
    alive: list[Any] = []  # what the addresses point to

    def rows(start: int, stop: int) -> list[Call]:
        """All tiles, in order, for some of the inputs."""
        offset = start * part.row_length * size
        table, targets = addresses(part.matrices, offset), addresses(gradients, offset)
        alive.extend((table, targets))
        calls: list[Call] = []
        for n, (tile, g, subsets) in enumerate(zip(tiles, packs, sums, strict=True)):
            counts, indices, values = tile.addresses(start)
            dx = 0 if down is None else down.data_ptr() + (start * down.shape[1] + tile.first) * size
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
                gradients=address(targets),
                gradient_row_length=part.row_length,
                accumulate=int(n > 0 or not first),
                dx=dx,
                dx_row_length=0 if down is None else down.shape[1],
                dx_at_zero=1,
                scalars=0,
            )
            calls.append((code, args))
        return calls

    run([rows(*piece) for piece in tiling.pieces(inputs, parallel=parallel)], parallel=parallel)


def _subset_sums(
    packs: Sequence[Tensor], tiles: Sequence[_Tile], target: Target, *, parallel: bool
) -> list[Tensor]:
    """Of each tile's errors, the sums over the subsets of each group of samples."""
    all_sums: list[Tensor] = []
    tasks: list[list[Call]] = []
    for g, tile in zip(packs, tiles, strict=True):
        vectors = g.shape[0]
        sums = g.new_empty(subset_sums_size(vectors, tile.samples, target))
        all_sums.append(sums)
        args = SubsetSumArgs(
            vectors=vectors,
            samples=tile.samples,
            stride=tile.stride,
            g=g.data_ptr(),
            sums=sums.data_ptr(),
        )
        tasks.append([(kernel(subset_sums, target), args)])
    run(tasks, parallel=parallel)
    return all_sums
