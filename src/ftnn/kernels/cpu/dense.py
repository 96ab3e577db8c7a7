"""Launch the kernels for data with few zeros, which evaluate every sample in place."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from torch import Tensor

from ftnn.kernels.codegen.target import Target
from ftnn.kernels.cpu.columns import Results, Step, backward_tasks, blocks, columns_of, packed
from ftnn.kernels.cpu.compiler import kernel
from ftnn.kernels.cpu.launch import Launch, Preparation, array
from ftnn.kernels.cpu.threads import Call
from ftnn.kernels.cpu.tiling import CHUNK, Sizes, row_address, spans, tiles, worth_threads
from ftnn.kernels.loops.copies import TransposeArgs, transpose
from ftnn.kernels.loops.dense import DenseBackwardArgs, DenseForwardArgs, dense_backward, dense_forward
from ftnn.kernels.program import Program


def _transposing(launch: Preparation, sizes: Sizes, x: int) -> tuple[list[int], list[list[Call]]]:
    """The places of the tiles of x, each (in, stride) and padded with zeros, and tasks that fill them."""
    code, places, tasks = kernel(transpose, sizes.target), list[int](), list[list[Call]]()
    for tile in tiles(sizes):
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


def forward(program: Program, target: Target, x: Tensor, matrices: Sequence[Tensor], out: Tensor) -> None:
    """Fill `out`, (batch, out)."""
    addresses = [matrix.data_ptr() for matrix in matrices]
    for start, stop in spans(x.shape[0], CHUNK):
        launch = _forward_launch(program, Sizes.of(target, x, stop - start, out.shape[1]))
        launch(row_address(x, start), row_address(out, start), *addresses)


@lru_cache(maxsize=256)
def _forward_launch(program: Program, sizes: Sizes) -> Launch:
    """Its arrays: x, sums and matrices."""
    launch, target = Preparation(), sizes.target
    x, sums, *matrices = (array(n) for n in range(2 + len(program.matrices)))
    every, (places, tasks) = columns_of(launch, sizes, matrices), _transposing(launch, sizes, x)
    for columns in every:
        tasks += columns.copying
    launch.then(tasks, parallel=worth_threads(sizes.samples, sizes.inputs, 1))
    code, tasks = kernel(dense_forward, program, target), []
    for columns in every:
        for tile, place in zip(tiles(sizes), places, strict=True):
            for block in blocks(launch, columns, tile, sums):
                args = DenseForwardArgs(
                    inputs=sizes.inputs,
                    vectors=block.vectors,
                    samples=tile.samples,
                    stride=tile.stride,
                    x=place,
                    matrices=launch.table(block.matrices),
                    row_length=columns.row_length,
                    u=block.scratch,
                    out=block.out,
                    out_row_length=columns.row_length,
                )
                tasks.append([(code, args), *block.after])
    launch.then(tasks, parallel=sizes.parallel)
    return launch.launch()


def backward(
    program: Program,
    target: Target,
    x: Tensor,
    matrices: Sequence[Tensor],
    grad: Tensor,
    gradients: Sequence[Tensor],
    down: Tensor | None,
) -> bool:
    """Fill the gradients; returns whether all are known to be finite."""
    by_x, by_parameters, finite = down is not None, bool(gradients), True
    addresses = [tensor.data_ptr() for tensor in (*matrices, *gradients)]
    for start, stop in spans(x.shape[0], CHUNK):
        sizes = Sizes.of(target, x, stop - start, grad.shape[1])
        launch = _backward_launch(program, sizes, by_x, by_parameters, start == 0)
        down_at = 0 if down is None else row_address(down, start)
        results = launch(row_address(x, start), row_address(grad, start), down_at, *addresses)
        finite = finite and not results[0]
    return finite


@lru_cache(maxsize=256)
def _backward_launch(program: Program, sizes: Sizes, by_x: bool, by_parameters: bool, first: bool) -> Launch:
    """Its arrays: x, errors, the error sent down, matrices and gradients.

    Its result: whether a gradient is not finite. `first`: whether these are the first samples, whose
    gradients overwrite what was there.
    """
    launch, target, count = Preparation(), sizes.target, len(program.matrices)
    infinite = launch.table([0])
    x, errors, down, *matrices = (array(n) for n in range(3 + count))
    gradients = [array(3 + count + n) for n in range(len(program.parameters) if by_parameters else 0)]
    every, (places, tasks) = columns_of(launch, sizes, matrices), _transposing(launch, sizes, x)
    packs = [[packed(launch, columns, tile, errors) for tile in tiles(sizes)] for columns in every]
    for columns, of_tiles in zip(every, packs, strict=True):
        tasks += columns.copying
        for pack in of_tiles:
            tasks += pack.tasks
    launch.then(tasks, parallel=sizes.parallel)
    code = kernel(dense_backward, program, target, by_x=by_x, by_parameters=by_parameters)

    def call(step: Step) -> Call:
        columns, tile = step.packed.columns, step.packed.tile
        args = DenseBackwardArgs(
            inputs=step.inputs,
            vectors=columns.vectors,
            samples=tile.samples,
            stride=tile.stride,
            x=places[step.number] + sizes.bytes(step.start * tile.stride),
            matrices=step.matrices,
            row_length=columns.row_length,
            g=step.packed.place,
            gradients=step.gradients,
            accumulate=step.accumulate,
            dx=step.dx,
        )
        return code, args

    results = Results(gradients, down if by_x else None, infinite)
    launch.then(
        backward_tasks(launch, packs, results, call, first=first, padded=True), parallel=sizes.parallel
    )
    return launch.launch()
