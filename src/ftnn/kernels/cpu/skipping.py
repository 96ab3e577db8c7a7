"""Launch the kernels for data with many zeros, which list the nonzero samples of each input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from torch import Tensor

from ftnn.kernels.codegen.target import Target
from ftnn.kernels.cpu.columns import (
    Packed,
    Results,
    Step,
    backward_tasks,
    blocks,
    check_call,
    columns_of,
    packed,
)
from ftnn.kernels.cpu.compiler import kernel
from ftnn.kernels.cpu.launch import Launch, Preparation, array
from ftnn.kernels.cpu.lists import collecting, empty_lists, in_parallel, lists_of
from ftnn.kernels.cpu.threads import Call
from ftnn.kernels.cpu.tiling import CHUNK, Sizes, row_address, spans
from ftnn.kernels.loops.forms import slopes_of
from ftnn.kernels.loops.skipping_backward import BackwardArgs
from ftnn.kernels.loops.skipping_backward import backward as skipping_backward
from ftnn.kernels.loops.skipping_forward import ForwardArgs
from ftnn.kernels.loops.skipping_forward import forward as skipping_forward
from ftnn.kernels.loops.zeros import FLAGGED, SHARED, SubsetSumArgs, subset_sums, subset_sums_size
from ftnn.kernels.program import Program

MOST_HINTS = 1000
_EXPLICIT: set[int] = set()
"""The addresses of matrices with which sharing F(0) lost digits the last time: a hint where to begin."""


@dataclass(slots=True)
class Listed:
    """The lists of a forward pass, for the backward pass."""

    zeros: bool
    """Whether zeros are listed too, which the gradient by x needs."""
    chunks: list[Tensor] = field(default_factory=list[Tensor])
    """The lists of each chunk of samples."""


class Outcome(NamedTuple):
    """What kernels found out in a forward pass."""

    lost: bool
    """Whether sharing F(0) between zeros may lose digits."""
    finite: bool
    """Whether all matrices are finite."""


def forward(
    program: Program,
    target: Target,
    x: Tensor,
    matrices: Sequence[Tensor],
    out: Tensor,
    listed: Listed | None = None,
) -> bool:
    """Fill `out`, (batch, out), and `listed` if it is given; False if zeros must not be skipped.

    They must not if a matrix is not finite, because 0·∞ is not 0.
    """
    place = matrices[0].data_ptr()
    for chunk in spans(x.shape[0], CHUNK):

        def attempt(explicit: bool, chunk: tuple[int, int] = chunk) -> tuple[Tensor, Outcome]:
            zeros = explicit or (listed is not None and listed.zeros)
            return _forward(program, target, x, chunk, matrices, out, zeros, explicit)

        # Zeros share F(0), unless that may lose digits. What is tried first does not change the result.
        first = place in _EXPLICIT
        lists, outcome = attempt(first)
        if outcome.finite and outcome.lost != first:
            lists, outcome = attempt(not first)
        if not outcome.finite:
            return False
        if outcome.lost and len(_EXPLICIT) < MOST_HINTS:
            _EXPLICIT.add(place)
        else:
            _EXPLICIT.discard(place)
        if listed is not None:
            listed.chunks.append(lists)
    return True


def _forward(
    program: Program,
    target: Target,
    x: Tensor,
    chunk: tuple[int, int],
    matrices: Sequence[Tensor],
    out: Tensor,
    zeros: bool,
    explicit: bool,
) -> tuple[Tensor, Outcome]:
    """Fill the rows of one chunk, (start, stop). Returns the lists of its samples."""
    start, stop = chunk
    sizes = Sizes.of(target, x, stop - start, out.shape[1])
    lists, launch = empty_lists(sizes), _forward_launch(program, sizes, zeros, explicit)
    addresses = (matrix.data_ptr() for matrix in matrices)
    results = launch(row_address(x, start), lists.data_ptr(), row_address(out, start), *addresses)
    return lists, Outcome(lost=bool(results[0]), finite=not results[1])


@lru_cache(maxsize=256)
def _forward_launch(program: Program, sizes: Sizes, zeros: bool, explicit: bool) -> Launch:
    """Its arrays: x, lists, sums and matrices.

    Its results: whether digits were lost, and whether a matrix is not finite.

    **Arguments:**

    - `zeros`: whether zeros are listed too.
    - `explicit`: whether to add F(0) to each zero instead of sharing it.
    """
    launch, target = Preparation(), sizes.target
    mode = FLAGGED if explicit else SHARED
    lost, infinite = launch.table([0]), launch.table([0])
    x, place, sums, *matrices = (array(n) for n in range(3 + len(program.matrices)))
    lists, every = lists_of(sizes, place), columns_of(launch, sizes, matrices)
    tasks = _checks(sizes, matrices, infinite) + collecting(program, lists, x, zeros=zeros)
    for columns in every:
        tasks += columns.copying
    launch.then(tasks, parallel=in_parallel(sizes))
    code, tasks = kernel(skipping_forward, program, target), []
    for columns in every:
        for each in lists:
            for block in blocks(launch, columns, each.tile, sums):
                args = ForwardArgs(
                    **each.at(0),
                    inputs=sizes.inputs,
                    vectors=block.vectors,
                    matrices=launch.table(block.matrices),
                    row_length=columns.row_length,
                    u=block.scratch,
                    out=block.out,
                    out_row_length=columns.row_length,
                    explicit=mode,
                    lost=lost,
                )
                tasks.append([(code, args), *block.after])
    launch.then(tasks, parallel=sizes.parallel)
    return launch.launch()


def _checks(sizes: Sizes, matrices: Sequence[int], flag: int) -> list[list[Call]]:
    """Tasks that set a flag if a matrix is not finite."""
    numbers = sizes.inputs * sizes.outputs
    return [[check_call(sizes.target, matrix, numbers, flag)] for matrix in matrices]


def backward(
    program: Program,
    target: Target,
    x: Tensor,
    matrices: Sequence[Tensor],
    grad: Tensor,
    gradients: Sequence[Tensor],
    down: Tensor | None,
    listed: Listed | None = None,
) -> bool | None:
    """Fill the gradients; returns whether all are known to be finite, or None if zeros must not be skipped.

    `listed` has the lists, if they were made.
    """
    by_x, by_parameters, finite = down is not None, bool(gradients), True
    ready = listed is not None and (listed.zeros or not by_x)
    addresses = [tensor.data_ptr() for tensor in (*matrices, *gradients)]
    for n, (start, stop) in enumerate(spans(x.shape[0], CHUNK)):
        sizes = Sizes.of(target, x, stop - start, grad.shape[1])
        lists = listed.chunks[n] if listed is not None and ready else empty_lists(sizes)
        launch = _backward_launch(program, sizes, by_x, by_parameters, not ready, start == 0)
        results = launch(
            row_address(x, start),
            lists.data_ptr(),
            row_address(grad, start),
            0 if down is None else row_address(down, start),
            *addresses,
        )
        if results[0]:
            return None
        finite = finite and not results[1]
    return finite


@lru_cache(maxsize=256)
def _backward_launch(
    program: Program, sizes: Sizes, by_x: bool, by_parameters: bool, collects: bool, first: bool
) -> Launch:
    """Its arrays: x, lists, errors, the error sent down, matrices and gradients.

    Its results: whether a matrix is not finite, so that zeros must not be skipped, and whether a gradient is.

    **Arguments:**

    - `collects`: whether to fill the lists, and to check the matrices.
    - `first`: whether these are the first samples, whose gradients overwrite what was there.
    """
    launch, target, count = Preparation(), sizes.target, len(program.matrices)
    unusable, infinite = launch.table([0]), launch.table([0])
    x, place, errors, down, *matrices = (array(n) for n in range(4 + count))
    gradients = [array(4 + count + n) for n in range(len(program.parameters) if by_parameters else 0)]
    lists, every = lists_of(sizes, place), columns_of(launch, sizes, matrices)
    tasks = _checks(sizes, matrices, unusable) + collecting(program, lists, x, zeros=by_x) if collects else []
    packs = [[packed(launch, columns, each.tile, errors) for each in lists] for columns in every]
    sums: dict[int, int] = {}  # the place of the sums for each place of errors
    for columns, of_tiles in zip(every, packs, strict=True):
        tasks += columns.copying
        for pack in of_tiles:
            if slopes_of(program, by_x, by_parameters).of_zeros:
                sums[pack.place] = _subset_sums(launch, pack)
            tasks += pack.tasks
    launch.then(tasks, parallel=sizes.parallel)
    code = kernel(skipping_backward, program, target, by_x=by_x, by_parameters=by_parameters)

    def call(step: Step) -> Call:
        columns = step.packed.columns
        args = BackwardArgs(
            **lists[step.number].at(step.start),
            inputs=step.inputs,
            vectors=columns.vectors,
            matrices=step.matrices,
            row_length=columns.row_length,
            g=step.packed.place,
            subset_sums=sums.get(step.packed.place, 0),
            gradients=step.gradients,
            gradient_row_length=columns.row_length,
            accumulate=step.accumulate,
            dx=step.dx,
            dx_row_length=step.dx_row_length,
            dx_at_zero=1,
            scalars=0,
        )
        return code, args

    results = Results(gradients, down if by_x else None, infinite)
    launch.then(
        backward_tasks(launch, packs, results, call, first=first, padded=False), parallel=sizes.parallel
    )
    return launch.launch()


def _subset_sums(launch: Preparation, pack: Packed) -> int:
    """The place of the sums of a tile's errors over the subsets of each group of samples.

    They are computed vector by vector, right after these are packed.
    """
    sizes, tile = pack.columns.sizes, pack.tile
    code, per_vector = kernel(subset_sums, sizes.target), subset_sums_size(1, tile.samples, sizes.target)
    place = launch.scratch(sizes.bytes(pack.columns.vectors * per_vector))
    for vector, calls in enumerate(pack.tasks):
        args = SubsetSumArgs(
            vectors=1,
            samples=tile.samples,
            stride=tile.stride,
            g=pack.at(vector),
            sums=place + sizes.bytes(vector * per_vector),
        )
        calls.append((code, args))
    return place
