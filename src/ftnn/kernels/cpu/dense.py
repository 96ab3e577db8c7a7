"""Launches kernels on data with few zeros: every sample is evaluated in its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ftnn.kernels.codegen.target import Target
from ftnn.kernels.cpu import tiling
from ftnn.kernels.cpu.compiler import Code, kernel
from ftnn.kernels.cpu.threads import Call, run
from ftnn.kernels.cpu.tiling import Block, Columns, Tile, address, addresses
from ftnn.kernels.loops.copies import TransposeArgs, transpose
from ftnn.kernels.loops.dense import DenseBackwardArgs, DenseForwardArgs, dense_backward, dense_forward
from ftnn.kernels.program import Program


@dataclass(frozen=True)
class _Tile(Tile):
    """Samples of x, (in, stride), with zeros behind them."""

    x: Tensor


def _tiles(x: Tensor, start: int, stop: int, target: Target) -> list[_Tile]:
    """The tiles of samples start:stop of x, (batch, in), which need not be contiguous."""
    inputs, code = x.shape[1], kernel(transpose, target)
    tiles: list[_Tile] = []
    tasks: list[list[Call]] = []
    for first, samples, stride in tiling.tiles(start, stop, target):
        tile = _Tile(first, samples, stride, x.new_empty(inputs, stride))
        tiles.append(tile)
        args = TransposeArgs(
            rows=inputs,
            columns=samples,
            width=stride,
            source=x.data_ptr() + first * x.stride(0) * target.size,
            source_by_row=x.stride(1),
            source_by_column=x.stride(0),
            target=tile.x.data_ptr(),
            target_by_row=stride,
        )
        tasks.append([(code, args)])
    run(tasks, parallel=tiling.worth_threads(stop - start, inputs, 1))
    return tiles


def forward(program: Program, target: Target, x: Tensor, parts: Sequence[Columns], out: Tensor) -> None:
    """Fill `out`, (batch, out)."""
    code = kernel(dense_forward, program, target)

    def call(tile: _Tile, block: Block) -> Call:
        return code, DenseForwardArgs(
            inputs=block.columns.inputs,
            vectors=block.vectors,
            samples=tile.samples,
            stride=tile.stride,
            x=tile.x.data_ptr(),
            matrices=address(block.columns.table),
            first=block.first * target.lanes,
            row_length=block.columns.row_length,
            u=block.scratch,
            out=block.out,
            out_row_length=block.out_row_length,
        )

    for start, stop in tiling.chunks(len(x)):
        tiling.run_forward(_tiles(x, start, stop, target), parts, out, target, call)


def backward(
    program: Program,
    target: Target,
    x: Tensor,
    part: Columns,
    errors: Tensor,
    gradients: Sequence[Tensor],
    down: Tensor | None,
) -> None:
    """Fill the gradients, as `part` has its matrices, and `down`, (batch, in)."""
    code = kernel(dense_backward, program, target, by_x=down is not None, by_parameters=bool(gradients))
    table = addresses(gradients)
    for start, stop in tiling.chunks(len(x)):
        tiles = _tiles(x, start, stop, target)
        _backward(code, target, tiles, part, errors, address(table), down, first=start == 0)


def _backward(
    code: Code,
    target: Target,
    tiles: Sequence[_Tile],
    part: Columns,
    errors: Tensor,
    gradients: int,
    down: Tensor | None,
    *,
    first: bool,
) -> None:
    inputs, size = part.inputs, target.size
    parallel = tiling.worth_threads(sum(t.samples for t in tiles), inputs, part.vectors * target.lanes)
    packs = tiling.packed(errors, tiles, part.vectors, target, parallel=parallel)
    alive: list[Any] = []  # what the addresses point to

    def rows(start: int, stop: int) -> list[Call]:
        """All tiles, in order, for some of the inputs."""
        calls: list[Call] = []
        for n, (tile, g) in enumerate(zip(tiles, packs, strict=True)):
            dx = None if down is None else down.new_empty(stop - start, tile.stride)
            alive.append(dx)
            args = DenseBackwardArgs(
                inputs=stop - start,
                vectors=part.vectors,
                samples=tile.samples,
                stride=tile.stride,
                x=tile.x.data_ptr() + start * tile.stride * size,
                matrices=address(part.table),
                first=start * part.row_length,
                row_length=part.row_length,
                g=g.data_ptr(),
                gradients=gradients,
                accumulate=int(n > 0 or not first),
                dx=0 if dx is None else dx.data_ptr(),
            )
            calls.append((code, args))
            if dx is not None and down is not None:
                # Back to (batch, in) while it is in the cache.
                back = TransposeArgs(
                    rows=tile.samples,
                    columns=stop - start,
                    width=stop - start,
                    source=dx.data_ptr(),
                    source_by_row=1,
                    source_by_column=tile.stride,
                    target=down.data_ptr() + (tile.first * inputs + start) * size,
                    target_by_row=inputs,
                )
                calls.append((kernel(transpose, target), back))
        return calls

    run([rows(*piece) for piece in tiling.pieces(inputs, parallel=parallel)], parallel=parallel)
