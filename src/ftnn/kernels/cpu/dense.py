"""Launch the kernels for data with few zeros, which evaluate every sample in place."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from torch import Tensor

from ftnn.kernels.codegen.target import Target
from ftnn.kernels.cpu import tiling
from ftnn.kernels.cpu.compiler import kernel
from ftnn.kernels.cpu.launch import Launch, Preparation, array
from ftnn.kernels.cpu.threads import Call
from ftnn.kernels.cpu.tiling import (
    CHUNK,
    Backward,
    Columns,
    Sizes,
    check_call,
    row_address,
    shares,
    spans,
)
from ftnn.kernels.loops.copies import TransposeArgs, transpose
from ftnn.kernels.loops.dense import DenseBackwardArgs, DenseForwardArgs, dense_backward, dense_forward
from ftnn.kernels.program import Program


def _transposing(launch: Preparation, sizes: Sizes, x: int) -> tuple[list[int], list[list[Call]]]:
    """The places of the tiles of x, each (in, stride) and padded with zeros, and tasks that fill them."""
    code, places, tasks = kernel(transpose, sizes.target), list[int](), list[list[Call]]()
    for tile in tiling.tiles(sizes.samples, sizes.target):
        place = launch.scratch(sizes.bytes(sizes.inputs * tile.stride))
        args = TransposeArgs(
            rows=sizes.inputs,
            columns=tile.samples,
            width=tile.stride,
            source=x + sizes.bytes(tile.first * sizes.by_sample),
            source_by_row=sizes.by_input,
            source_by_column=sizes.by_sample,
            target=place,
            target_by_row=tile.stride,
        )
        places.append(place)
        tasks.append([(code, args)])
    return places, tasks


def forward(program: Program, target: Target, x: Tensor, parts: Sequence[Columns], out: Tensor) -> None:
    """Fill `out`, (batch, out)."""
    for start, stop in spans(x.shape[0], CHUNK):
        for part in parts:
            sums, first = (out, start) if part.whole else (x.new_empty(stop - start, target.lanes), 0)
            launch = _forward_launch(program, Sizes.of(target, x, stop - start, part, sums))
            launch(
                row_address(x, start),
                row_address(sums, first),
                *(matrix.data_ptr() for matrix in part.matrices),
            )
            if not part.whole:
                out[start:stop, -part.outputs :] = sums[:, : part.outputs]


@lru_cache(maxsize=256)
def _forward_launch(program: Program, sizes: Sizes) -> Launch:
    """Its arrays: x, sums and matrices."""
    launch, target = Preparation(), sizes.target
    x, sums, *matrices = (array(n) for n in range(2 + len(program.matrices)))
    places, tasks = _transposing(launch, sizes, x)
    launch.then(tasks, parallel=tiling.worth_threads(sizes.samples, sizes.inputs, 1))
    code, table = kernel(dense_forward, program, target), launch.table(matrices)
    tasks = []
    for tile, place in zip(tiling.tiles(sizes.samples, target), places, strict=True):
        for block in tiling.blocks(launch, sizes, tile, sums):
            args = DenseForwardArgs(
                inputs=sizes.inputs,
                vectors=block.vectors,
                samples=tile.samples,
                stride=tile.stride,
                x=place,
                matrices=table,
                first=block.first * target.lanes,
                row_length=sizes.row_length,
                u=block.scratch,
                out=block.out,
                out_row_length=sizes.outer_row_length,
            )
            tasks.append([(code, args)])
    launch.then(tasks, parallel=sizes.parallel)
    return launch.launch()


def backward(program: Program, target: Target, x: Tensor, work: Backward) -> bool:
    """Fill the gradients; returns whether all are known to be finite."""
    by_x, by_parameters, finite = work.down is not None, bool(work.gradients), work.checked
    for start, stop in spans(x.shape[0], CHUNK):
        sizes = Sizes.of(target, x, stop - start, work.columns, work.errors)
        launch = _backward_launch(program, sizes, by_x, by_parameters, start == 0, work.checked)
        finite = not launch(row_address(x, start), *work.addresses(start))[0] and finite
    return finite


@lru_cache(maxsize=256)
def _backward_launch(
    program: Program, sizes: Sizes, by_x: bool, by_parameters: bool, first: bool, checked: bool
) -> Launch:
    """Its arrays: x, errors, the error sent down, matrices and gradients.

    Its result: whether a gradient is not finite. For the arguments, see the same function of `skipping`.
    """
    launch, target, count = Preparation(), sizes.target, len(program.matrices)
    infinite = launch.table([0])
    gradients_count = len(program.parameters) if by_parameters else 0
    x, errors, down, *rest = (array(n) for n in range(3 + count + gradients_count))
    table, gradients = launch.table(rest[:count]), rest[count:]
    targets = launch.table(gradients)
    tiles = tiling.tiles(sizes.samples, target)
    places, tasks = _transposing(launch, sizes, x)
    packs = [tiling.packed(launch, sizes, tile, errors) for tile in tiles]
    launch.then(tasks + [calls for pack in packs for calls in pack.calls], parallel=sizes.parallel)
    code = kernel(dense_backward, program, target, by_x=by_x, by_parameters=by_parameters)
    tasks = []
    for start, stop in shares(sizes.inputs, parallel=sizes.parallel):
        calls: list[Call] = []
        for n, (tile, place, pack) in enumerate(zip(tiles, places, packs, strict=True)):
            sent = tiling.SentDown.of(launch, sizes, tile, tile.stride, start, stop) if by_x else None
            args = DenseBackwardArgs(
                inputs=stop - start,
                vectors=sizes.vectors,
                samples=tile.samples,
                stride=tile.stride,
                x=place + sizes.bytes(start * tile.stride),
                matrices=table,
                first=start * sizes.row_length,
                row_length=sizes.row_length,
                g=pack.place,
                gradients=targets,
                accumulate=int(n > 0 or not first),
                dx=0 if sent is None else sent.place,
            )
            calls.append((code, args))
            if sent is not None:
                calls += sent.calls(down, infinite if checked else None)
        if checked:
            row = sizes.bytes(sizes.row_length)
            numbers = (stop - start) * sizes.row_length
            calls += [check_call(target, gradient + start * row, numbers, infinite) for gradient in gradients]
        tasks.append(calls)
    launch.then(tasks, parallel=sizes.parallel)
    return launch.launch()
