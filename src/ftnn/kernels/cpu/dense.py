"""Launch the kernels for data with few zeros, which evaluate every sample in place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from ftnn.kernels.codegen.target import Target
from ftnn.kernels.cpu import tiling
from ftnn.kernels.cpu.compiler import Code, kernel
from ftnn.kernels.cpu.threads import Call, run
from ftnn.kernels.cpu.tiling import CHUNK, Backward, Block, Columns, Tile, address, addresses, spans
from ftnn.kernels.loops.copies import TransposeArgs, transpose
from ftnn.kernels.loops.dense import DenseBackwardArgs, DenseForwardArgs, dense_backward, dense_forward
from ftnn.kernels.program import Program


@dataclass(frozen=True)
class _Tile(Tile):
    """Samples of x, (in, stride), padded with zeros."""

    x: int
    """Their address."""
    memory: Tensor = field(repr=False)
    """The array it points into, kept alive."""


def _tiles(x: Tensor, start: int, stop: int, target: Target) -> list[_Tile]:
    """The tiles of samples start:stop of x, (batch, in), which need not be contiguous."""
    inputs, code = x.shape[1], kernel(transpose, target)
    sizes_of = list(tiling.tiles(start, stop, target))
    memory = x.new_empty(inputs * sum(stride for _, _, stride in sizes_of))
    place, tiles = memory.data_ptr(), list[_Tile]()
    for sizes in sizes_of:
        tiles.append(_Tile(*sizes, place, memory))
        place += inputs * sizes[2] * target.size
    source, by_sample, by_input = x.data_ptr(), x.stride(0), x.stride(1)
    args = [
        TransposeArgs(
            rows=inputs,
            columns=tile.samples,
            width=tile.stride,
            source=source + tile.first * by_sample * target.size,
            source_by_row=by_input,
            source_by_column=by_sample,
            target=tile.x,
            target_by_row=tile.stride,
        )
        for tile in tiles
    ]
    parallel = tiling.worth_threads(stop - start, inputs, 1)
    run(
        [[(code, each)] for each in args] if parallel else [[(code, each) for each in args]],
        parallel=parallel,
    )
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
            x=tile.x,
            matrices=address(block.columns.table),
            first=block.first * target.lanes,
            row_length=block.columns.row_length,
            u=block.scratch,
            out=block.out,
            out_row_length=block.out_row_length,
        )

    for start, stop in spans(len(x), CHUNK):
        tiling.run_forward(_tiles(x, start, stop, target), parts, out, target, call)


def backward(program: Program, target: Target, x: Tensor, work: Backward) -> None:
    """Fill the gradients."""
    by_x, by_parameters = work.down is not None, bool(work.gradients)
    code = kernel(dense_backward, program, target, by_x=by_x, by_parameters=by_parameters)
    for start, stop in spans(len(x), CHUNK):
        _backward(code, target, _tiles(x, start, stop, target), work, first=start == 0)


def _backward(code: Code, target: Target, tiles: Sequence[_Tile], work: Backward, *, first: bool) -> None:
    part, down, size = work.columns, work.down, target.size
    packs, gradients = work.packed_errors(tiles, target), addresses(work.gradients)
    alive: list[Any] = []  # the targets of addresses

    def calls(start: int, stop: int) -> list[Call]:
        calls: list[Call] = []
        for n, (tile, g) in enumerate(zip(tiles, packs, strict=True)):
            dx = None if down is None else down.new_empty(stop - start, tile.stride)
            alive.append(dx)
            args = DenseBackwardArgs(
                inputs=stop - start,
                vectors=part.vectors,
                samples=tile.samples,
                stride=tile.stride,
                x=tile.x + start * tile.stride * size,
                matrices=address(part.table),
                first=start * part.row_length,
                row_length=part.row_length,
                g=g.data_ptr(),
                gradients=address(gradients),
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
                    target=down.data_ptr() + (tile.first * part.inputs + start) * size,
                    target_by_row=part.inputs,
                )
                calls.append((kernel(transpose, target), back))
        return calls

    work.run(tiles, calls)
