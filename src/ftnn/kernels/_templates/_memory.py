"""One step of a memory function, and the update after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum

from llvmlite import ir

from ftnn.formula._expr import INPUT, MEMORY, symbol
from ftnn.kernels._emit import I64, Emitter, loop, regrouped
from ftnn.kernels._program import Program
from ftnn.kernels._templates._kernel import Kernel, matrix_values
from ftnn.kernels._vector import DType


class MemoryArgs(IntEnum):
    inputs = 0
    vectors = 1
    x = 2
    matrices = 3
    row_length = 4
    before = 5
    """Every connection's previous value, (in, row)."""
    after = 6
    """Its new value, (in, row)."""
    u = 7
    """The sums, or the error at them, (vectors, lanes)."""
    settings = 8


def memory_forward(program: Program, dtype: DType, lanes: int) -> str:
    """One step of a memory function for one sample: `after` = F(x; before), u = its sums."""
    k = Kernel("memory_forward", dtype, lanes)
    v = k.v
    value = regrouped(program.expr)
    sums, after = k.pointer(MemoryArgs.u), k.pointer(MemoryArgs.after)
    loop(v, k.number(MemoryArgs.vectors), lambda vec, _: k.store(v.const(0.0), sums, k.times(vec, lanes)))

    def each(vec: ir.Value, place: ir.Value, emit: Emitter, tables: Sequence[ir.Value]) -> None:
        found = emit.evaluate(value)[0]
        k.store(found, after, place)
        cell = k.times(vec, lanes)
        k.store(v.add(k.load(sums, cell), found), sums, cell)

    return _over_memory(k, program, each)


def memory_update(program: Program, dtype: DType, lanes: int) -> str:
    """The SGD update after one step, `before` taken as given: the paper's one-step derivative."""
    k = Kernel("memory_update", dtype, lanes)
    v = k.v
    slopes = [regrouped(program.slopes[name]) for name in program.parameters]
    errors = k.pointer(MemoryArgs.u)
    rate, clip = (k.broadcast(k.pointer(MemoryArgs.settings), ir.Constant(I64, n)) for n in range(2))

    def each(vec: ir.Value, place: ir.Value, emit: Emitter, tables: Sequence[ir.Value]) -> None:
        error = k.load(errors, k.times(vec, lanes))
        for name, slope, table in zip(program.parameters, emit.evaluate(*slopes), tables, strict=False):
            step = v.clamp(v.mul(error, slope), clip)
            k.store(v.fma(v.neg(rate), step, emit.given[symbol(name)]), table, place)

    return _over_memory(k, program, each)


def _over_memory(
    k: Kernel,
    program: Program,
    each: Callable[[ir.Value, ir.Value, Emitter, Sequence[ir.Value]], None],
) -> str:
    """The loops over inputs and vectors of outputs that both memory kernels have."""
    A = MemoryArgs
    vectors, x, before, row_length = (
        k.number(A.vectors),
        k.pointer(A.x),
        k.pointer(A.before),
        k.number(A.row_length),
    )
    tables = k.pointers(A.matrices, len(program.matrices))

    def each_input(j: ir.Value, _: list[ir.Value]) -> None:
        value = k.broadcast(x, j)

        def each_vector(vec: ir.Value, _: list[ir.Value]) -> None:
            place = k.plus(k.times(j, row_length), k.times(vec, k.v.lanes))
            given = matrix_values(k, program, tables, place)
            emit = Emitter(k.v, given | {symbol(INPUT): value, symbol(MEMORY): k.load(before, place)})
            each(vec, place, emit, tables)

        loop(k.v, vectors, each_vector)

    loop(k.v, k.number(A.inputs), each_input)
    return k.finish()
