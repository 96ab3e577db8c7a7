"""Copies around the loops: lists of samples, packed errors, transpositions."""

from __future__ import annotations

from functools import reduce

from llvmlite import ir

from ftnn.kernels.codegen.control import I32, I64, loop, when
from ftnn.kernels.codegen.target import Args, Target
from ftnn.kernels.loops.kernel import Kernel


class CollectArgs(Args):
    inputs: int
    samples: int
    stride: int
    x: int
    """The first sample of this tile."""
    by_input: int
    """The distance to the next input of the same sample, in numbers."""
    by_sample: int
    counts: int
    indices: int
    values: int
    least: int
    """Inputs with fewer zeros than this list all samples."""
    zeros: int
    """Whether zeros are listed too, after the others, so that each can be visited."""
    signed: int
    """Whether -0 counts as nonzero: 1/x distinguishes it from 0."""


def collect(target: Target) -> str:
    """Build the lists of a tile from x, which may have any strides."""
    k = Kernel("collect", target, CollectArgs)
    b, A = k.builder, CollectArgs.places()
    samples, stride = k.number(A.samples), k.number(A.stride)
    x, by_input, by_sample = k.pointer(A.x), k.number(A.by_input), k.number(A.by_sample)
    count, index, value, least = (
        k.pointer(A.counts),
        k.pointer(A.indices),
        k.pointer(A.values),
        k.number(A.least),
    )
    scalar, nothing, one = k.v.scalar, ir.Constant(I64, 0), ir.Constant(I64, 1)
    integer = ir.IntType(k.v.bits)
    zeros = k.is_set(k.number(A.zeros))
    all_bits, all_but_sign = ir.Constant(integer, -1), ir.Constant(integer, 2 ** (k.v.bits - 1) - 1)
    bits = b.select(k.is_set(k.number(A.signed)), all_bits, all_but_sign)

    def is_zero(x_here: ir.Value) -> ir.Value:
        return b.icmp_unsigned("==", b.and_(b.bitcast(x_here, integer), bits), ir.Constant(integer, 0))

    def each_input(j: ir.Value, _: list[ir.Value]) -> None:
        source, target = k.times(j, by_input), k.times(j, stride)

        def put(place: ir.Value, s: ir.Value, x_here: ir.Value) -> None:
            there = k.plus(target, place)
            b.store(b.trunc(s, I32), k.at(index, I32, there))
            b.store(x_here, k.at(value, scalar, there))

        def at(s: ir.Value) -> ir.Value:
            return k.scalar(x, k.plus(source, k.times(s, by_sample)))

        def first_pass(s: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            x_here = at(s)
            put(carried[0], s, x_here)  # without a branch: the next sample overwrites a zero
            return [k.plus(carried[0], b.zext(b.not_(is_zero(x_here)), I64))]

        listed = loop(k.v, samples, first_pass, [nothing])[0]
        few = b.icmp_signed("<", b.sub(samples, listed), least)

        def all_in_order() -> list[ir.Value]:
            loop(k.v, samples, lambda s, _: put(s, s, at(s)))
            return [samples]

        final_count = when(k.v, few, all_in_order, [listed])[0]

        def zeros_last() -> None:
            def second_pass(s: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
                x_here = at(s)
                silent = is_zero(x_here)
                when(k.v, silent, lambda: put(carried[0], s, x_here))
                return [b.select(silent, k.plus(carried[0], one), carried[0])]

            loop(k.v, samples, second_pass, [listed])

        when(k.v, b.and_(b.not_(few), zeros), zeros_last)
        b.store(b.trunc(final_count, I32), k.at(count, I32, j))

    loop(k.v, k.number(A.inputs), each_input)
    return k.finish()


class PackArgs(Args):
    vectors: int
    samples: int
    stride: int
    source: int
    """(samples, row)."""
    row_length: int
    g: int


def pack(target: Target) -> str:
    """Copy rows into g, (vectors, stride, lanes)."""
    k = Kernel("pack", target, PackArgs)
    A = PackArgs.places()
    stride, source, row_length = k.number(A.stride), k.pointer(A.source), k.number(A.row_length)
    g, samples = k.pointer(A.g), k.number(A.samples)

    def each_vector(vec: ir.Value, _: list[ir.Value]) -> None:
        def each_sample(s: ir.Value, _: list[ir.Value]) -> None:
            errors = k.load(source, k.plus(k.times(s, row_length), k.times(vec, k.v.lanes)))
            k.store(errors, g, k.times(k.plus(k.times(vec, stride), s), k.v.lanes))

        loop(k.v, samples, each_sample)

    loop(k.v, k.number(A.vectors), each_vector)
    return k.finish()


class TransposeArgs(Args):
    rows: int
    columns: int
    width: int
    """The number of columns of the target."""
    source: int
    source_by_row: int
    """The distance to the next row, in numbers."""
    source_by_column: int
    target: int
    target_by_row: int


def transpose(target: Target, *, repeats: bool = False) -> str:
    """target[row, column] = source[row, column] for any strides of the source; usually a transposition.

    The rest of each row is padded with zeros, or repeats the last column.
    """
    k = Kernel("transpose", target, TransposeArgs)
    A = TransposeArgs.places()
    columns, width = k.number(A.columns), k.number(A.width)
    source, by_row, by_column = k.pointer(A.source), k.number(A.source_by_row), k.number(A.source_by_column)
    result, target_by_row = k.pointer(A.target), k.number(A.target_by_row)
    transposed(
        k,
        rows=k.number(A.rows),
        columns=columns,
        width=width,
        source=source,
        source_by_row=by_row,
        source_by_column=by_column,
        target=result,
        target_by_row=target_by_row,
        repeats=repeats,
    )
    return k.finish()


def transposed(
    k: Kernel,
    *,
    rows: ir.Value,
    columns: ir.Value,
    width: ir.Value,
    source: ir.Value,
    source_by_row: ir.Value,
    source_by_column: ir.Value,
    target: ir.Value,
    target_by_row: ir.Value,
    repeats: bool = False,
) -> None:
    """Emit `transpose` as part of a kernel. The rest is padded with zeros, or it repeats the last column."""
    b = k.builder

    def each_row(row: ir.Value, _: list[ir.Value]) -> None:
        here, there = k.times(row, source_by_row), k.times(row, target_by_row)

        def place(column: ir.Value) -> ir.Value:
            return k.at(target, k.v.scalar, k.plus(there, column))

        def value(column: ir.Value) -> ir.Value:
            return k.scalar(source, k.plus(here, k.times(column, source_by_column)))

        def copy(column: ir.Value, _: list[ir.Value]) -> None:
            b.store(value(column), place(column))

        loop(k.v, columns, copy)
        last = value(b.sub(columns, ir.Constant(I64, 1))) if repeats else ir.Constant(k.v.scalar, 0.0)

        def pad(column: ir.Value, _: list[ir.Value]) -> None:
            b.store(last, place(column))

        loop(k.v, width, pad, start=columns)

    loop(k.v, rows, each_row)


class CheckArgs(Args):
    numbers: int
    source: int
    flag: int
    """Set to 1 if some numbers are not finite, else left as it is."""


def check(target: Target) -> str:
    """Look for NaN and infinity among the numbers: a sum of them is finite only if all are.

    If the sum itself overflows, the flag is set, too.
    """
    k, A = Kernel("check", target, CheckArgs), CheckArgs.places()
    v, source, numbers = k.v, k.pointer(A.source), k.number(A.numbers)
    group = 4 * v.lanes  # four sums, so that additions need not wait for each other
    whole = k.builder.sdiv(numbers, ir.Constant(I64, group))

    def each_group(n: ir.Value, sums: list[ir.Value]) -> list[ir.Value]:
        first = k.times(n, group)
        places = [k.plus(first, ir.Constant(I64, m * v.lanes)) for m in range(len(sums))]
        return [v.add(total, k.load(source, place)) for total, place in zip(sums, places, strict=True)]

    def each_number(n: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
        return [v.add(carried[0], k.broadcast(source, n))]

    sums = loop(v, whole, each_group, [v.const(0.0)] * 4)
    sums = [reduce(v.add, sums)]
    (total,) = loop(v, numbers, each_number, sums, start=k.times(whole, group))
    is_finite = v.eq(v.sub(total, total), v.const(0.0))
    flag = k.pointer(A.flag)
    when(v, v.any(v.logical_not(is_finite)), lambda: k.put_int64(1, flag, 0))
    return k.finish()
