"""Generated kernels on torch tensors: tiles of samples, blocks of outputs or inputs, threads.

Every output element is one sum over the inputs in order, and every gradient one sum over the samples in
order, whatever the blocks: results do not depend on the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import torch
from torch import Tensor

from ftnn.formula._expr import INPUT
from ftnn.kernels import _templates as templates
from ftnn.kernels._llvm import Code, compiled, lanes
from ftnn.kernels._pool import Call, run
from ftnn.kernels._program import Program
from ftnn.kernels._templates import LEAST_INPUTS, TILE
from ftnn.kernels._vector import DType

CHUNK = 1024
"""Samples whose lists are held at once."""
BLOCK_VECTORS = 8
"""Vectors of outputs of one forward task: its sums fit the first-level cache."""
LEAST_ZEROS = 2
"""Fewer samples than this with x = 0 are cheaper evaluated one by one."""
SMALL = 200_000
"""Evaluations below which threads cost more than they bring."""

_DTYPES: dict[torch.dtype, DType] = {torch.float32: "float32", torch.float64: "float64"}


def suits(x: Tensor) -> bool:
    """Whether generated kernels compute this."""
    return x.device.type == "cpu" and x.dtype in _DTYPES


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
def _collect_code(dtype: DType) -> Code:
    return compiled(templates.collect(dtype, lanes(dtype)))


@lru_cache(maxsize=2)
def _pack_code(dtype: DType) -> Code:
    return compiled(templates.pack(dtype, lanes(dtype)))


@dataclass(frozen=True)
class _Columns:
    """Whole vectors of outputs: those of the matrices themselves, or the last ones, filled up in a copy."""

    first: int
    vectors: int
    wanted: int
    """How many of the outputs are real."""
    matrices: tuple[Tensor, ...]
    row_length: int

    def addresses(self, row: int, vector: int, width: int) -> Tensor:
        """Where each matrix has its row and vector, as a table of addresses."""
        size = self.matrices[0].element_size()
        offset = (row * self.row_length + self.first + vector * width) * size
        return torch.tensor([m.data_ptr() + offset for m in self.matrices], dtype=torch.int64)


def _columns(matrices: Sequence[Tensor], width: int) -> list[_Columns]:
    out = matrices[0].shape[1]
    whole = out // width
    parts: list[_Columns] = []
    if whole:
        parts.append(_Columns(0, whole, whole * width, tuple(matrices), out))
    if rest := out - whole * width:
        # Filled up with copies of a real column, so that nothing is computed that would not be anyway.
        strips = tuple(
            torch.cat([m[:, out - rest :], m[:, -1:].expand(-1, width - rest)], 1).contiguous()
            for m in matrices
        )
        parts.append(_Columns(0, 1, rest, strips, width))
    return parts


@dataclass(frozen=True)
class _Tile:
    """At most `TILE` samples, and for each input the list of those whose x is not zero, then the others."""

    first: int
    samples: int
    stride: int
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


def _tiles(
    x_t: Tensor, start: int, stop: int, dtype: DType, least: int, *, zeros: bool = False
) -> list[_Tile]:
    """The tiles of samples start:stop of x, (in, batch); with the zeros listed too, where they are wanted."""
    inputs, batch = x_t.shape
    width, code = lanes(dtype), _collect_code(dtype)
    tiles: list[_Tile] = []
    tasks: list[list[Call]] = []
    for first in range(start, stop, TILE):
        samples = min(TILE, stop - first)
        stride = -(-samples // width) * width
        tile = _Tile(
            first,
            samples,
            stride,
            torch.empty(inputs, dtype=torch.int32),
            torch.empty(inputs, stride, dtype=torch.int32),
            torch.empty(inputs, stride, dtype=x_t.dtype),
        )
        tiles.append(tile)
        source = x_t.data_ptr() + first * x_t.element_size()
        args = (inputs, samples, stride, source, batch, *tile.addresses(0), least, int(zeros))
        tasks.append([(code, args)])
    run(tasks, parallel=inputs * (stop - start) > SMALL)
    return tiles


def _least_zeros(matrices: Sequence[Tensor]) -> int:
    """How many zeros make a list of their own; never, where a matrix is not finite, as 0·∞ is not 0."""
    skips = len(matrices[0]) >= LEAST_INPUTS and all(math.isfinite(m.sum().item()) for m in matrices)
    return LEAST_ZEROS if skips else TILE + 1


def transfer(program: Program, x: Tensor, matrices: Sequence[Tensor]) -> Tensor:
    """F ⊙ x, (batch, out), of x (batch, in) and matrices (in, out)."""
    dtype = _DTYPES[x.dtype]
    width = lanes(dtype)
    batch, inputs = x.shape
    matrices = [m.contiguous() for m in matrices]
    out = x.new_empty(batch, matrices[0].shape[1])
    if not out.numel() or not inputs:
        return out.zero_()
    x_t = x.t().contiguous()
    columns, least = _columns(matrices, width), _least_zeros(matrices)
    for start in range(0, batch, CHUNK):
        stop = min(start + CHUNK, batch)
        tiles = _tiles(x_t, start, stop, dtype, least)
        if not _forward(program, dtype, tiles, columns, out):
            # F(0) is not finite: zeros are evaluated like all others.
            _forward(program, dtype, _tiles(x_t, start, stop, dtype, TILE + 1), columns, out)
    return out


def _forward(
    program: Program, dtype: DType, tiles: Sequence[_Tile], columns: Sequence[_Columns], out: Tensor
) -> bool:
    """Fill `out`; False where a value of F(0) was not finite."""
    code, width = _forward_code(program, dtype), lanes(dtype)
    inputs = columns[0].matrices[0].shape[0]
    lost = torch.zeros(1, dtype=torch.int64)
    keep: list[Tensor] = []  # what the addresses point to
    tasks: list[list[Call]] = []
    strips: list[tuple[_Tile, _Columns, Tensor]] = []
    total = sum(tile.samples for tile in tiles) * inputs * out.shape[1]
    parallel = total > SMALL
    wanted = torch.get_num_threads() if parallel else 1
    for tile in tiles:
        for part in columns:
            at_once = min(BLOCK_VECTORS, max(1, -(-part.vectors * len(tiles) // wanted)))
            direct = part.row_length == out.shape[1] and part.wanted == part.vectors * width
            target = out if direct else out.new_empty(tile.samples, width)
            if not direct:
                strips.append((tile, part, target))
            for vector in range(0, part.vectors, at_once):
                vectors = min(at_once, part.vectors - vector)
                room = out.new_empty(vectors * tile.stride * width)
                table = part.addresses(0, vector, width)
                keep += (room, table, target)
                place = (tile.first * out.shape[1] if direct else 0) + vector * width
                args = (
                    inputs,
                    vectors,
                    tile.samples,
                    tile.stride,
                    *tile.addresses(0),
                    table.data_ptr(),
                    part.row_length,
                    room.data_ptr(),
                    target.data_ptr() + place * out.element_size(),
                    target.shape[1],
                    lost.data_ptr(),
                )
                tasks.append([(code, args)])
    run(tasks, parallel=parallel)
    for tile, part, target in strips:
        out[tile.first : tile.first + tile.samples, -part.wanted :] = target[:, : part.wanted]
    return not lost.item()


def transfer_backward(
    program: Program, grad: Tensor, x: Tensor, matrices: Sequence[Tensor], wanted: tuple[str, ...]
) -> list[Tensor]:
    """The gradients by each of `wanted`, in the order of x, then `program.parameters`."""
    dtype = _DTYPES[x.dtype]
    width = lanes(dtype)
    batch, inputs = x.shape
    matrices = [m.contiguous() for m in matrices]
    out = matrices[0].shape[1]
    by_x, by_parameters = INPUT in wanted, any(name != INPUT for name in wanted)
    filled = bool(batch and inputs and out)  # by the kernels: all of it
    start_from = torch.empty_like if filled else torch.zeros_like
    gradients = {name: start_from(matrices[0]) for name in program.parameters} if by_parameters else {}
    # Whole vectors write all of it, and a strip adds to what they wrote.
    below_from = torch.empty_like if out >= width and filled else torch.zeros_like
    down = below_from(x.t(), memory_format=torch.contiguous_format) if by_x else None
    if filled:
        code = _backward_code(program, dtype, by_x, by_parameters)
        x_t, grad, least = x.t().contiguous(), grad.contiguous(), _least_zeros(matrices)
        for part in _columns(matrices, width):
            if part.row_length == out and part.wanted == part.vectors * width:
                errors, found, below = grad, gradients, down
            else:
                errors = torch.nn.functional.pad(grad[:, out - part.wanted :], (0, width - part.wanted))
                found = {name: x.new_empty(inputs, width) for name in gradients}
                below = torch.empty_like(down) if down is not None else None
            for start in range(0, batch, CHUNK):
                stop = min(start + CHUNK, batch)
                tiles = _tiles(x_t, start, stop, dtype, least, zeros=by_x)
                _backward(code, dtype, tiles, part, errors, found, below, first=start == 0)
            if errors is not grad:
                for name, strip in found.items():
                    gradients[name][:, out - part.wanted :] = strip[:, : part.wanted]
                if down is not None:
                    down += cast(Tensor, below)
    results = {INPUT: down.t().contiguous()} if down is not None else {}
    results |= gradients
    return [results[name] for name in (INPUT, *program.parameters) if name in wanted]


def _backward(
    code: Code,
    dtype: DType,
    tiles: Sequence[_Tile],
    part: _Columns,
    errors: Tensor,
    gradients: dict[str, Tensor],
    down: Tensor | None,
    *,
    first: bool,
) -> None:
    width, size = lanes(dtype), errors.element_size()
    inputs = part.matrices[0].shape[0]
    packs: list[tuple[Tensor, Tensor]] = []
    tasks: list[list[Call]] = []
    work = sum(tile.samples for tile in tiles) * inputs * part.vectors * width
    parallel = work > SMALL
    for tile in tiles:
        g = errors.new_empty(part.vectors, tile.stride, width)
        g_sum = errors.new_empty(part.vectors, width)
        packs.append((g, g_sum))
        source = errors.data_ptr() + tile.first * errors.shape[1] * size
        args = (
            part.vectors,
            tile.samples,
            tile.stride,
            source,
            errors.shape[1],
            g.data_ptr(),
            g_sum.data_ptr(),
        )
        tasks.append([(_pack_code(dtype), args)])
    run(tasks, parallel=parallel)

    kept: list[Tensor] = []  # what the addresses point to

    def rows(start: int, stop: int) -> list[Call]:
        """All tiles, in order, for some of the inputs."""
        table = part.addresses(start, 0, width)
        gradient_row = part.row_length
        targets = torch.tensor(
            [g.data_ptr() + start * gradient_row * size for g in gradients.values()] or [0], dtype=torch.int64
        )
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
                    table.data_ptr(),
                    part.row_length,
                    g.data_ptr(),
                    g_sum.data_ptr(),
                    targets.data_ptr(),
                    gradient_row,
                    int(n > 0 or not first),
                    0 if down is None else down.data_ptr() + (start * down.shape[1] + tile.first) * size,
                    0 if down is None else down.shape[1],
                    1,
                    0,
                ),
            )
            for n, (tile, (g, g_sum)) in enumerate(zip(tiles, packs, strict=True))
        ]

    pieces = torch.get_num_threads() * 4 if parallel else 1
    step = -(-inputs // pieces)
    run([rows(j, min(j + step, inputs)) for j in range(0, inputs, step)], parallel=parallel)
