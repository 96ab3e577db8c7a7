"""The frame of a training step: its progress and scalars, and samples gathered into lists."""

from __future__ import annotations

from llvmlite import ir

from ftnn.kernels.codegen.control import I64, loop, when
from ftnn.kernels.codegen.target import Args, Target
from ftnn.kernels.loops.kernel import Kernel

EXPLICIT_STEPS = 64
"""For how many steps a layer adds F(0) to each zero, after sharing it may have cost digits."""


class Progress(Args):
    """The state shared by the kernels of a step: a block that they read and write."""

    step: int
    """The current step, from 0; -1 before the first."""
    right: int
    """How many samples were classified correctly."""
    stop: int
    """Whether a loss was not finite."""


class ZerosMode(Args):
    """How one layer treats samples whose x is zero: a block that kernels read and write (see `zeros.py`)."""

    shared: int
    """Whether this step begins by sharing F(0)."""
    lost: int
    """Whether that may have cost digits."""
    explicit: int
    """For how many more steps F(0) is added to each zero; 0 if it is shared."""


class BeginArgs(Args):
    progress: int
    table: int
    """The scalars of each step, (steps, scalars)."""
    scalar_count: int
    scalars: int
    """Receives the scalars of this step."""
    modes: int
    """Consecutive `ZerosMode` blocks."""
    mode_count: int


def begin(target: Target) -> str:
    """Advance to the next step: fetch its scalars, and choose how to treat zeros."""
    k = Kernel("begin", target, BeginArgs)
    b, A, P, M = k.builder, BeginArgs.places(), Progress.places(), ZerosMode.places()
    progress, count = k.pointer(A.progress), k.number(A.scalar_count)
    table, scalars, modes = k.pointer(A.table), k.pointer(A.scalars), k.pointer(A.modes)
    step = k.plus(k.int64_at(progress, P.step), ir.Constant(I64, 1))
    k.put_int64(step, progress, P.step)
    row = k.times(step, count)
    loop(k.v, count, lambda n, _: k.put_scalar(k.scalar(table, k.plus(row, n)), scalars, n))

    def each_mode(n: ir.Value, _: list[ir.Value]) -> None:
        mode = k.at(modes, I64, k.times(n, len(ZerosMode.names)))
        remaining = k.int64_at(mode, M.explicit)
        is_over = b.icmp_signed("<=", remaining, ir.Constant(I64, 1))
        one_less = b.sub(remaining, ir.Constant(I64, 1))
        k.put_int64(b.select(is_over, ir.Constant(I64, 0), one_less), mode, M.explicit)
        k.put_int64(b.zext(is_over, I64), mode, M.shared)
        k.put_int64(0, mode, M.lost)

    loop(k.v, k.number(A.mode_count), each_mode)
    return k.finish()


class DecideArgs(Args):
    mode: int


def decide(target: Target) -> str:
    """If sharing F(0) may have cost digits, add it to each zero in this step and the next ones."""
    k, A, M = Kernel("decide", target, DecideArgs), DecideArgs.places(), ZerosMode.places()
    mode = k.pointer(A.mode)
    when(k.v, k.is_set(k.int64_at(mode, M.lost)), lambda: k.put_int64(EXPLICIT_STEPS, mode, M.explicit))
    return k.finish()


class Rows:
    """The indices of a step's samples, read from `order`: `batch` of them per step.

    `first` is the first of these that a kernel call processes.
    """

    def __init__(self, k: Kernel, progress: ir.Value, order: ir.Value, batch: ir.Value, first: ir.Value):
        step = k.int64_at(progress, Progress.places().step)
        self.start = k.plus(k.times(step, batch), first)
        self._k, self._order = k, order

    def __getitem__(self, s: ir.Value) -> ir.Value:
        return self._k.int64_at(self._order, self._k.plus(self.start, s))


class GatherArgs(Args):
    progress: int
    order: int
    batch: int
    first: int
    samples: int
    inputs: int
    stride: int
    x: int
    """(samples, inputs), dense; or the values of compressed rows."""
    row_length: int
    """The length of dense rows, in numbers."""
    starts: int
    """Where each compressed row begins."""
    columns: int
    """The input of each value of compressed rows."""
    counts: int
    indices: int
    values: int


def _rows_of(k: Kernel, A: GatherArgs) -> Rows:
    return Rows(k, k.pointer(A.progress), k.pointer(A.order), k.number(A.batch), k.number(A.first))


def gather_dense(target: Target, *, chosen: bool) -> str:
    """Lists of all samples, by input, from the rows that `order` chooses, or else the first ones."""
    k = Kernel("gather_dense", target, GatherArgs)
    A = GatherArgs.places()
    rows = _rows_of(k, A) if chosen else None
    samples, inputs, stride = k.number(A.samples), k.number(A.inputs), k.number(A.stride)
    x, row_length = k.pointer(A.x), k.number(A.row_length)
    counts, indices, values = k.pointer(A.counts), k.pointer(A.indices), k.pointer(A.values)

    def each_sample(s: ir.Value, _: list[ir.Value]) -> None:
        source = k.times(s if rows is None else rows[s], row_length)

        def each_input(j: ir.Value, _: list[ir.Value]) -> None:
            place = k.plus(k.times(j, stride), s)
            k.put_scalar(k.scalar(x, k.plus(source, j)), values, place)
            k.put_index(s, indices, place)

        loop(k.v, inputs, each_input)

    loop(k.v, samples, each_sample)
    loop(k.v, inputs, lambda j, _: k.put_index(samples, counts, j))
    return k.finish()


def gather_sparse(target: Target) -> str:
    """Lists of nonzero samples, by input, from the compressed rows that `order` chooses."""
    k = Kernel("gather_sparse", target, GatherArgs)
    A = GatherArgs.places()
    rows = _rows_of(k, A)
    stride, starts, columns, x = (
        k.number(A.stride), k.pointer(A.starts), k.pointer(A.columns), k.pointer(A.x),
    )  # fmt: skip
    counts, indices, values = k.pointer(A.counts), k.pointer(A.indices), k.pointer(A.values)
    loop(k.v, k.number(A.inputs), lambda j, _: k.put_index(ir.Constant(I64, 0), counts, j))

    def each_sample(s: ir.Value, _: list[ir.Value]) -> None:
        row = rows[s]

        def each_value(n: ir.Value, _: list[ir.Value]) -> None:
            j = k.index_at(columns, n)
            listed = k.index_at(counts, j)
            place = k.plus(k.times(j, stride), listed)
            k.put_index(s, indices, place)
            k.put_scalar(k.scalar(x, n), values, place)
            k.put_index(k.plus(listed, ir.Constant(I64, 1)), counts, j)

        end = k.int64_at(starts, k.plus(row, ir.Constant(I64, 1)))
        loop(k.v, end, each_value, start=k.int64_at(starts, row))

    loop(k.v, k.number(A.samples), each_sample)
    return k.finish()


class ZerosArgs(Args):
    samples: int
    inputs: int
    stride: int
    counts: int
    indices: int


def list_zeros(target: Target) -> str:
    """Append to each list the samples that are missing from it."""
    k = Kernel("list_zeros", target, ZerosArgs)
    b, A = k.builder, ZerosArgs.places()
    samples, stride = k.number(A.samples), k.number(A.stride)
    counts, indices = k.pointer(A.counts), k.pointer(A.indices)
    one = ir.Constant(I64, 1)

    def each_input(j: ir.Value, _: list[ir.Value]) -> None:
        row, listed = k.times(j, stride), k.index_at(counts, j)

        def each_sample(s: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            place, end = carried  # lists are sorted
            inside = b.icmp_signed("<", place, listed)
            is_next = b.and_(inside, b.icmp_signed("==", k.index_at(indices, k.plus(row, place)), s))
            # Without a branch, which could not be predicted: a sample that is listed stays at its place.
            k.put_index(s, indices, k.plus(row, b.select(is_next, place, end)))
            return [b.select(is_next, k.plus(place, one), place), b.select(is_next, end, k.plus(end, one))]

        loop(k.v, samples, each_sample, [ir.Constant(I64, 0), listed])

    loop(k.v, k.number(A.inputs), each_input)
    return k.finish()


class ResultArgs(Args):
    progress: int
    batch: int
    first: int
    samples: int
    outputs: int
    source: int
    """(samples, row)."""
    row_length: int
    result: int
    """(all samples, outputs)."""


def copy_results(target: Target) -> str:
    """Copy a step's outputs to their place among those of all samples."""
    k = Kernel("copy_results", target, ResultArgs)
    A = ResultArgs.places()
    step = k.int64_at(k.pointer(A.progress), Progress.places().step)
    start = k.plus(k.times(step, k.number(A.batch)), k.number(A.first))
    outputs, source, row_length = k.number(A.outputs), k.pointer(A.source), k.number(A.row_length)
    result = k.pointer(A.result)

    def each_sample(s: ir.Value, _: list[ir.Value]) -> None:
        here, there = k.times(s, row_length), k.times(k.plus(start, s), outputs)
        loop(
            k.v,
            outputs,
            lambda o, _: k.put_scalar(k.scalar(source, k.plus(here, o)), result, k.plus(there, o)),
        )

    loop(k.v, k.number(A.samples), each_sample)
    return k.finish()
