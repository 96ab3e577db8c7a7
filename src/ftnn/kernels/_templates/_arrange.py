"""What happens to arrays before and after: elementwise functions, lists of samples, packed errors."""

from __future__ import annotations

from enum import IntEnum

from llvmlite import ir

from ftnn.formula._expr import INPUT, Expr, symbol
from ftnn.kernels._emit import I32, I64, Emitter, loop, regrouped, when
from ftnn.kernels._templates._kernel import Kernel
from ftnn.kernels._vector import DType


class MapArgs(IntEnum):
    vectors = 0
    source = 1
    target = 2


def elementwise(expr: Expr, dtype: DType, lanes: int) -> str:
    """target = expr(source), over whole vectors."""
    k = Kernel("map", dtype, lanes)
    source, target = k.pointer(MapArgs.source), k.pointer(MapArgs.target)

    def each(vec: ir.Value, _: list[ir.Value]) -> None:
        place = k.times(vec, lanes)
        x = k.load(source, place)
        k.store(Emitter(k.v, {symbol(INPUT): x}).evaluate(regrouped(expr))[0], target, place)

    loop(k.v, k.number(MapArgs.vectors), each)
    return k.finish()


class CollectArgs(IntEnum):
    inputs = 0
    samples = 1
    stride = 2
    x = 3
    """The first of this tile's samples."""
    by_input = 4
    """How far the next input of the same sample is, in numbers."""
    by_sample = 5
    count = 6
    index = 7
    values = 8
    least = 9
    """Fewer zeros than this are not worth a list of their own."""
    zeros = 10
    """Whether the zeros are listed too, after the others: where each of them is visited."""
    signed = 11
    """Whether -0 is a number like any other: 1/x tells it from 0."""


def collect(dtype: DType, lanes: int) -> str:
    """The lists of a tile from x, whatever its strides."""
    k = Kernel("collect", dtype, lanes)
    b, A = k.builder, CollectArgs
    samples, stride = k.number(A.samples), k.number(A.stride)
    x, by_input, by_sample = k.pointer(A.x), k.number(A.by_input), k.number(A.by_sample)
    count, index, value, least = (
        k.pointer(A.count),
        k.pointer(A.index),
        k.pointer(A.values),
        k.number(A.least),
    )
    scalar, nothing, one = k.v.scalar, ir.Constant(I64, 0), ir.Constant(I64, 1)
    whole = ir.IntType(k.v.bits)
    zeros = k.is_set(k.number(A.zeros))
    all_bits, but_the_sign = ir.Constant(whole, -1), ir.Constant(whole, 2 ** (k.v.bits - 1) - 1)
    bits = b.select(k.is_set(k.number(A.signed)), all_bits, but_the_sign)

    def is_zero(found: ir.Value) -> ir.Value:
        return b.icmp_unsigned("==", b.and_(b.bitcast(found, whole), bits), ir.Constant(whole, 0))

    def each_input(j: ir.Value, _: list[ir.Value]) -> None:
        source, target = k.times(j, by_input), k.times(j, stride)

        def put(place: ir.Value, s: ir.Value, found: ir.Value) -> None:
            there = k.plus(target, place)
            b.store(b.trunc(s, I32), k.at(index, I32, there))
            b.store(found, k.at(value, scalar, there))

        def at(s: ir.Value) -> ir.Value:
            return k.scalar(x, k.plus(source, k.times(s, by_sample)))

        def first_pass(s: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            found = at(s)
            put(carried[0], s, found)  # without a branch: a zero is written over by the next
            return [k.plus(carried[0], b.zext(b.not_(is_zero(found)), I64))]

        listed = loop(k.v, samples, first_pass, [nothing])[0]
        few = b.icmp_signed("<", b.sub(samples, listed), least)

        def all_in_order() -> list[ir.Value]:
            loop(k.v, samples, lambda s, _: put(s, s, at(s)))
            return [samples]

        kept = when(k.v, few, all_in_order, [listed])[0]

        def zeros_last() -> None:
            def second_pass(s: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
                found = at(s)
                silent = is_zero(found)
                when(k.v, silent, lambda: put(carried[0], s, found))
                return [b.select(silent, k.plus(carried[0], one), carried[0])]

            loop(k.v, samples, second_pass, [listed])

        when(k.v, b.and_(b.not_(few), zeros), zeros_last)
        b.store(b.trunc(kept, I32), k.at(count, I32, j))

    loop(k.v, k.number(A.inputs), each_input)
    return k.finish()


class PackArgs(IntEnum):
    vectors = 0
    samples = 1
    stride = 2
    source = 3
    """(samples, row)."""
    row_length = 4
    g = 5


def pack(dtype: DType, lanes: int) -> str:
    """g, (vectors, stride, lanes), from rows."""
    k = Kernel("pack", dtype, lanes)
    A = PackArgs
    stride, source, row_length = k.number(A.stride), k.pointer(A.source), k.number(A.row_length)
    g, samples = k.pointer(A.g), k.number(A.samples)

    def each_vector(vec: ir.Value, _: list[ir.Value]) -> None:
        def each_sample(s: ir.Value, _: list[ir.Value]) -> None:
            found = k.load(source, k.plus(k.times(s, row_length), k.times(vec, lanes)))
            k.store(found, g, k.times(k.plus(k.times(vec, stride), s), lanes))

        loop(k.v, samples, each_sample)

    loop(k.v, k.number(A.vectors), each_vector)
    return k.finish()


class TurnArgs(IntEnum):
    rows = 0
    columns = 1
    width = 2
    """How many columns the target has room for: zeros fill it up."""
    source = 3
    source_by_row = 4
    """How far the next row is, in numbers."""
    source_by_column = 5
    target = 6
    target_by_row = 7


def turn(dtype: DType, lanes: int) -> str:
    """target[row, column] = source[row, column], whatever the source's strides: a transposition, mostly."""
    k = Kernel("turn", dtype, lanes)
    b, A = k.builder, TurnArgs
    columns, width = k.number(A.columns), k.number(A.width)
    source, by_row, by_column = k.pointer(A.source), k.number(A.source_by_row), k.number(A.source_by_column)
    target, target_by_row = k.pointer(A.target), k.number(A.target_by_row)

    def each_row(row: ir.Value, _: list[ir.Value]) -> None:
        here, there = k.times(row, by_row), k.times(row, target_by_row)

        def place(column: ir.Value) -> ir.Value:
            return k.at(target, k.v.scalar, k.plus(there, column))

        def copy(column: ir.Value, _: list[ir.Value]) -> None:
            b.store(k.scalar(source, k.plus(here, k.times(column, by_column))), place(column))

        def clear(column: ir.Value, _: list[ir.Value]) -> None:
            b.store(ir.Constant(k.v.scalar, 0.0), place(column))

        loop(k.v, columns, copy)
        loop(k.v, width, clear, start=columns)

    loop(k.v, k.number(A.rows), each_row)
    return k.finish()


class TotalArgs(IntEnum):
    numbers = 0
    """How many; at least a vector."""
    source = 1
    target = 2


def total(dtype: DType, lanes: int) -> str:
    """target, a vector, is finite where all numbers are (and their sum is): a cheap question about them."""
    k = Kernel("total", dtype, lanes)
    source, target, numbers = (
        k.pointer(TotalArgs.source),
        k.pointer(TotalArgs.target),
        k.number(TotalArgs.numbers),
    )
    width = ir.Constant(I64, lanes)

    def each(vec: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
        return [k.v.add(carried[0], k.load(source, k.times(vec, lanes)))]

    whole = k.builder.sdiv(numbers, width)
    # The last vector may hold some numbers for the second time.
    last = k.load(source, k.builder.sub(numbers, width))
    k.store(loop(k.v, whole, each, [last])[0], target, ir.Constant(I64, 0))
    return k.finish()
