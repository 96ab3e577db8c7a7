"""Generated kernels on data with few zeros: every sample is evaluated in its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from torch import Tensor

from ftnn.kernels import _blocks as blocks
from ftnn.kernels import _templates as templates
from ftnn.kernels._blocks import Columns, Ending, Tile, address, addresses
from ftnn.kernels._llvm import Code, compiled, lanes, quick_reciprocal
from ftnn.kernels._pool import Call, run
from ftnn.kernels._program import Program
from ftnn.kernels._vector import DType


@lru_cache(maxsize=256)
def _forward_code(program: Program, dtype: DType) -> Code:
    quick = quick_reciprocal(dtype)
    return compiled(templates.dense_forward(program, dtype, lanes(dtype), quick_reciprocal=quick))


@lru_cache(maxsize=256)
def _backward_code(program: Program, dtype: DType, by_x: bool, by_parameters: bool) -> Code:
    text = templates.dense_backward(
        program,
        dtype,
        lanes(dtype),
        by_x=by_x,
        by_parameters=by_parameters,
        quick_reciprocal=quick_reciprocal(dtype),
    )
    return compiled(text)


@lru_cache(maxsize=2)
def _turn_code(dtype: DType) -> Code:
    return compiled(templates.turn(dtype, lanes(dtype)))


@dataclass(frozen=True)
class _Tile(Tile):
    """Samples of x, (in, stride), with zeros behind them."""

    x: Tensor


def _tiles(x: Tensor, start: int, stop: int, dtype: DType) -> list[_Tile]:
    """The tiles of samples start:stop of x, (batch, in), which need not be contiguous."""
    inputs, by_sample, by_input = x.shape[1], x.stride(0), x.stride(1)
    found: list[_Tile] = []
    tasks: list[list[Call]] = []
    for first, samples, stride in blocks.tiles(start, stop, lanes(dtype)):
        tile = _Tile(first, samples, stride, x.new_empty(inputs, stride))
        found.append(tile)
        source = x.data_ptr() + first * by_sample * x.element_size()
        args = (inputs, samples, stride, source, by_input, by_sample, tile.x.data_ptr(), stride)
        tasks.append([(_turn_code(dtype), args)])
    run(tasks, parallel=blocks.worth_threads(stop - start, inputs, 1))
    return found


def forward(program: Program, dtype: DType, x: Tensor, parts: Sequence[Columns], out: Tensor) -> None:
    """Fill `out`, (batch, out)."""
    for start, stop in blocks.chunks(len(x)):
        _forward(program, dtype, _tiles(x, start, stop, dtype), parts, out)


def _forward(
    program: Program, dtype: DType, tiles: Sequence[_Tile], parts: Sequence[Columns], out: Tensor
) -> None:
    code, width = _forward_code(program, dtype), lanes(dtype)

    def call(tile: _Tile, part: Columns, vector: int, vectors: int, ending: Ending) -> Call:
        return code, (
            part.inputs,
            vectors,
            tile.samples,
            tile.stride,
            tile.x.data_ptr(),
            address(part.table),
            vector * width,
            part.row_length,
            *ending,
        )

    blocks.run_forward(tiles, parts, out, width, call)


def backward(
    program: Program,
    dtype: DType,
    x: Tensor,
    part: Columns,
    errors: Tensor,
    gradients: Sequence[Tensor],
    down: Tensor | None,
) -> None:
    """Fill the gradients, as `part` has its matrices, and `down`, (batch, in)."""
    code = _backward_code(program, dtype, down is not None, bool(gradients))
    targets = addresses(gradients)
    for start, stop in blocks.chunks(len(x)):
        tiles = _tiles(x, start, stop, dtype)
        _backward(code, dtype, tiles, part, errors, address(targets), down, first=start == 0)


def _backward(
    code: Code,
    dtype: DType,
    tiles: Sequence[_Tile],
    part: Columns,
    errors: Tensor,
    targets: int,
    down: Tensor | None,
    *,
    first: bool,
) -> None:
    inputs, size, turn = part.inputs, errors.element_size(), _turn_code(dtype)
    parallel = blocks.worth_threads(sum(t.samples for t in tiles), inputs, part.vectors * lanes(dtype))
    packs = blocks.packed(errors, tiles, part.vectors, dtype, parallel=parallel)
    kept: list[Any] = []  # what the addresses point to

    def rows(start: int, stop: int) -> list[Call]:
        """All tiles, in order, for some of the inputs."""
        calls: list[Call] = []
        for n, (tile, g) in enumerate(zip(tiles, packs, strict=True)):
            sent = None if down is None else down.new_empty(stop - start, tile.stride)
            kept.append(sent)
            args = (
                stop - start,
                part.vectors,
                tile.samples,
                tile.stride,
                tile.x.data_ptr() + start * tile.stride * size,
                address(part.table),
                start * part.row_length,
                part.row_length,
                g.data_ptr(),
                targets,
                int(n > 0 or not first),
                0 if sent is None else sent.data_ptr(),
            )
            calls.append((code, args))
            if sent is not None and down is not None:
                # Back to (batch, in) while it is in the cache.
                place = down.data_ptr() + (tile.first * inputs + start) * size
                width = stop - start
                back = (tile.samples, width, width, sent.data_ptr(), 1, tile.stride, place, inputs)
                calls.append((turn, back))
        return calls

    run([rows(*piece) for piece in blocks.pieces(inputs, parallel=parallel)], parallel=parallel)
