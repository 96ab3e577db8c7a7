"""One step of a memory function, and the update after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

from ftnn.formula._expr import INPUT, MEMORY, symbol
from ftnn.kernels.codegen.control import I64, loop
from ftnn.kernels.codegen.emitting import Emitter
from ftnn.kernels.codegen.rewriting import regrouped
from ftnn.kernels.codegen.target import Args, Target
from ftnn.kernels.loops.kernel import Kernel, matrix_values
from ftnn.kernels.program import Program


class MemoryArgs(Args):
    inputs: int
    vectors: int
    x: int
    matrices: int
    row_length: int
    before: int
    """Every connection's previous value, (in, row)."""
    after: int
    """Its new value, (in, row)."""
    u: int
    """The sums, or the error at them, (vectors, lanes)."""
    settings: int
    """The rate and the clip, as numbers of the kernel's dtype."""


_ARGS = MemoryArgs.places()


def memory_forward(program: Program, target: Target) -> str:
    """One step of a memory function for one sample: `after` = F(x; before), u = its sums."""
    k = Kernel("memory_forward", target, MemoryArgs)
    v = k.v
    value = regrouped(program.expr)
    sums, after = k.pointer(_ARGS.u), k.pointer(_ARGS.after)
    loop(v, k.number(_ARGS.vectors), lambda vec, _: k.store(v.const(0.0), sums, k.times(vec, v.lanes)))

    def each(vec: ir.Value, place: ir.Value, emit: Emitter, tables: Sequence[ir.Value]) -> None:
        new = emit.evaluate(value)[0]
        k.store(new, after, place)
        cell = k.times(vec, v.lanes)
        k.store(v.add(k.load(sums, cell), new), sums, cell)

    return _over_memory(k, program, each)


def memory_update(program: Program, target: Target) -> str:
    """The SGD update after one step, `before` taken as given: the paper's one-step derivative."""
    k = Kernel("memory_update", target, MemoryArgs)
    v = k.v
    slopes = [regrouped(program.slopes[name]) for name in program.parameters]
    errors = k.pointer(_ARGS.u)
    rate, clip = (k.broadcast(k.pointer(_ARGS.settings), ir.Constant(I64, n)) for n in range(2))

    def each(vec: ir.Value, place: ir.Value, emit: Emitter, tables: Sequence[ir.Value]) -> None:
        error = k.load(errors, k.times(vec, v.lanes))
        for name, slope, table in zip(program.parameters, emit.evaluate(*slopes), tables, strict=False):
            step = v.clamp(v.mul(error, slope), clip)
            k.store(v.fma(v.neg(rate), step, emit.known[symbol(name)]), table, place)

    return _over_memory(k, program, each)


def _over_memory(
    k: Kernel,
    program: Program,
    each: Callable[[ir.Value, ir.Value, Emitter, Sequence[ir.Value]], None],
) -> str:
    """The loops over inputs and vectors of outputs that both memory kernels have."""
    A = _ARGS
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
            matrices = matrix_values(k, program, tables, place)
            emit = Emitter(k.v, matrices | {symbol(INPUT): value, symbol(MEMORY): k.load(before, place)})
            each(vec, place, emit, tables)

        loop(k.v, vectors, each_vector)

    loop(k.v, k.number(A.inputs), each_input)
    return k.finish()
