"""Launch the kernels for data with many zeros, which list the nonzero samples of each input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from torch import Tensor

from ftnn.kernels.codegen.target import Target
from ftnn.kernels.cpu import tiling
from ftnn.kernels.cpu.compiler import kernel
from ftnn.kernels.cpu.launch import Launch, Preparation, array
from ftnn.kernels.cpu.lists import collecting, empty_lists, in_parallel, lists_of
from ftnn.kernels.cpu.threads import Call
from ftnn.kernels.cpu.tiling import CHUNK, Backward, Columns, Sizes, check_call, row_address, shares, spans
from ftnn.kernels.loops.forms import slopes_of
from ftnn.kernels.loops.skipping_backward import BackwardArgs
from ftnn.kernels.loops.skipping_backward import backward as skipping_backward
from ftnn.kernels.loops.skipping_forward import ForwardArgs
from ftnn.kernels.loops.skipping_forward import forward as skipping_forward
from ftnn.kernels.loops.zeros import SubsetSumArgs, subset_sums, subset_sums_size
from ftnn.kernels.program import Program


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
    """Whether sharing F(0) between zeros may have lost digits."""
    finite: bool
    """Whether all matrices are finite."""


def forward(
    program: Program,
    target: Target,
    x: Tensor,
    parts: Sequence[Columns],
    out: Tensor,
    listed: Listed | None = None,
) -> bool:
    """Fill `out`, (batch, out), and `listed` if it is given; False if zeros must not be skipped.

    They must not if a matrix is not finite, because 0·∞ is not 0.
    """
    for start, stop in spans(x.shape[0], CHUNK):
        # Zeros share F(0), unless that may have lost digits.
        for explicit in (False, True):
            zeros = explicit or (listed is not None and listed.zeros)
            lists, outcome = _forward(program, target, x, (start, stop), parts, out, zeros, explicit)
            if not outcome.finite:
                return False
            if not outcome.lost:
                break
        if listed is not None:
            listed.chunks.append(lists)
    return True


def _forward(
    program: Program,
    target: Target,
    x: Tensor,
    chunk: tuple[int, int],
    parts: Sequence[Columns],
    out: Tensor,
    zeros: bool,
    explicit: bool,
) -> tuple[Tensor, Outcome]:
    """Fill the rows of one chunk, (start, stop). Returns the lists of its samples."""
    start, stop = chunk
    lists = empty_lists(Sizes.of(target, x, stop - start, parts[0], out))
    for n, part in enumerate(parts):
        sums, first = (out, start) if part.whole else (x.new_empty(stop - start, target.lanes), 0)
        sizes = Sizes.of(target, x, stop - start, part, sums)
        launch = _forward_launch(program, sizes, n == 0, zeros, explicit)
        results = launch(
            row_address(x, start),
            lists.data_ptr(),
            row_address(sums, first),
            *(matrix.data_ptr() for matrix in part.matrices),
        )
        outcome = Outcome(lost=bool(results[0]), finite=not results[1])
        if outcome.lost or not outcome.finite:
            return lists, outcome
        if not part.whole:
            out[start:stop, -part.outputs :] = sums[:, : part.outputs]
    return lists, Outcome(lost=False, finite=True)


@lru_cache(maxsize=256)
def _forward_launch(program: Program, sizes: Sizes, first: bool, zeros: bool, explicit: bool) -> Launch:
    """Its arrays: x, lists, sums and matrices.

    Its results: whether digits were lost, and whether a matrix is not finite.

    **Arguments:**

    - `first`: whether to fill the lists, and to check the matrices.
    - `zeros`: whether zeros are listed too.
    - `explicit`: whether to add F(0) to each zero instead of sharing it.
    """
    launch, target = Preparation(), sizes.target
    lost, infinite = launch.table([0]), launch.table([0])
    x, place, sums, *matrices = (array(n) for n in range(3 + len(program.matrices)))
    lists = lists_of(sizes, place)
    if first:
        numbers = sizes.inputs * sizes.row_length
        checks = [[check_call(target, matrix, numbers, infinite)] for matrix in matrices]
        launch.then(checks + collecting(program, lists, x, zeros=zeros), parallel=in_parallel(sizes))
    code = kernel(skipping_forward, program, target)
    tasks: list[list[Call]] = []
    for each in lists:
        for block in tiling.blocks(launch, sizes, each.tile, sums):
            offset = sizes.bytes(block.first * target.lanes)
            args = ForwardArgs(
                **each.at(0),
                inputs=sizes.inputs,
                vectors=block.vectors,
                matrices=launch.table([matrix + offset for matrix in matrices]),
                row_length=sizes.row_length,
                u=block.scratch,
                out=block.out,
                out_row_length=sizes.outer_row_length,
                explicit=int(explicit),
                lost=lost,
            )
            tasks.append([(code, args)])
    launch.then(tasks, parallel=sizes.parallel)
    return launch.launch()


def backward(
    program: Program, target: Target, x: Tensor, work: Backward, listed: Listed | None = None
) -> bool | None:
    """Fill the gradients; returns whether all are known to be finite, or None if zeros must not be skipped.

    `listed` has the lists, if they were made.
    """
    by_x, by_parameters = work.down is not None, bool(work.gradients)
    ready = listed is not None and (listed.zeros or not by_x)
    finite = work.checked
    for n, (start, stop) in enumerate(spans(x.shape[0], CHUNK)):
        sizes = Sizes.of(target, x, stop - start, work.columns, work.errors)
        lists = listed.chunks[n] if listed is not None and ready else empty_lists(sizes)
        launch = _backward_launch(program, sizes, by_x, by_parameters, not ready, start == 0, work.checked)
        results = launch(row_address(x, start), lists.data_ptr(), *work.addresses(start))
        if results[0]:
            return None
        finite = finite and not results[1]
    return finite


@lru_cache(maxsize=256)
def _backward_launch(
    program: Program,
    sizes: Sizes,
    by_x: bool,
    by_parameters: bool,
    collects: bool,
    first: bool,
    checked: bool,
) -> Launch:
    """Its arrays: x, lists, errors, the error sent down, matrices and gradients.

    Its results: whether a matrix is not finite, so that zeros must not be skipped, and whether a gradient is.

    **Arguments:**

    - `collects`: whether to fill the lists, and to check the matrices.
    - `first`: whether these are the first samples, whose gradients overwrite what was there.
    - `checked`: whether to check the gradients.
    """
    launch, target = Preparation(), sizes.target
    unusable, infinite = launch.table([0]), launch.table([0])
    gradients_count = len(program.parameters) if by_parameters else 0
    x, place, errors, down, *rest = (array(n) for n in range(4 + len(program.matrices) + gradients_count))
    matrices, gradients = rest[: len(program.matrices)], rest[len(program.matrices) :]
    lists, row = lists_of(sizes, place), sizes.bytes(sizes.row_length)
    tasks: list[list[Call]] = []
    if collects:
        numbers = sizes.inputs * sizes.row_length
        tasks += [[check_call(target, matrix, numbers, unusable)] for matrix in matrices]
        tasks += collecting(program, lists, x, zeros=by_x)
    packs = [tiling.packed(launch, sizes, each.tile, errors) for each in lists]
    sums = [0] * len(packs)
    if slopes_of(program, by_x, by_parameters).of_zeros:
        sums = [_subset_sums(launch, sizes, pack) for pack in packs]
    launch.then(tasks + [calls for pack in packs for calls in pack.calls], parallel=sizes.parallel)
    code = kernel(skipping_backward, program, target, by_x=by_x, by_parameters=by_parameters)
    tasks = []
    for start, stop in shares(sizes.inputs, parallel=sizes.parallel):
        table = launch.table([matrix + start * row for matrix in matrices])
        targets = [gradient + start * row for gradient in gradients]
        targets_at = launch.table(targets)
        calls: list[Call] = []
        for n, (each, pack, subsets) in enumerate(zip(lists, packs, sums, strict=True)):
            sent = (
                tiling.SentDown.of(launch, sizes, each.tile, each.tile.samples, start, stop) if by_x else None
            )
            args = BackwardArgs(
                **each.at(start),
                inputs=stop - start,
                vectors=sizes.vectors,
                matrices=table,
                row_length=sizes.row_length,
                g=pack.place,
                subset_sums=subsets,
                gradients=targets_at,
                gradient_row_length=sizes.row_length,
                accumulate=int(n > 0 or not first),
                dx=0 if sent is None else sent.place,
                dx_row_length=each.tile.samples,
                dx_at_zero=1,
                scalars=0,
            )
            calls.append((code, args))
            if sent is not None:
                calls += sent.calls(down, infinite if checked else None)
        if checked:
            numbers = (stop - start) * sizes.row_length
            calls += [check_call(target, gradient, numbers, infinite) for gradient in targets]
        tasks.append(calls)
    launch.then(tasks, parallel=sizes.parallel)
    return launch.launch()


def _subset_sums(launch: Preparation, sizes: Sizes, pack: tiling.Packed) -> int:
    """The place of the sums of a tile's errors over the subsets of each group of samples.

    They are computed vector by vector, right after these are packed.
    """
    code, tile = kernel(subset_sums, sizes.target), pack.tile
    per_vector = sizes.bytes(subset_sums_size(1, tile.samples, sizes.target))
    place = launch.scratch(sizes.vectors * per_vector)
    for vector, calls in enumerate(pack.calls):
        args = SubsetSumArgs(
            vectors=1,
            samples=tile.samples,
            stride=tile.stride,
            g=pack.at(vector),
            sums=place + vector * per_vector,
        )
        calls.append((code, args))
    return place
