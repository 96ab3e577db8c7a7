"""One step of a memory function, and the update after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

from ftnn.formula._expr import INPUT, MEMORY, symbol
from ftnn.kernels.codegen.control import loop
from ftnn.kernels.codegen.emitting import Emitter
from ftnn.kernels.codegen.rewriting import regrouped
from ftnn.kernels.codegen.target import Args, Target
from ftnn.kernels.loops.kernel import Kernel, matrix_values
from ftnn.kernels.loops.updates import Update, Updating
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
    """The sums, or the error at them: a vector for each vector of outputs."""
    u_stride: int
    """The distance to the next of these vectors, in numbers."""
    states: int
    """Addresses of the rule's states, parameter by parameter."""
    scalars: int
    """See `updates.py`."""


_ARGS = MemoryArgs.places()


def memory_forward(program: Program, target: Target) -> str:
    """One step of a memory function for one sample: `after` = F(x; before), u = its sums."""
    k = Kernel("memory_forward", target, MemoryArgs)
    v = k.v
    value = regrouped(program.expr)
    sums, stride, after = k.pointer(_ARGS.u), k.number(_ARGS.u_stride), k.pointer(_ARGS.after)
    loop(v, k.number(_ARGS.vectors), lambda vec, _: k.store(v.const(0.0), sums, k.times(vec, stride)))

    def each(vec: ir.Value, place: ir.Value, emit: Emitter, tables: Sequence[ir.Value]) -> None:
        new = emit.evaluate(value)[0]
        k.store(new, after, place)
        cell = k.times(vec, stride)
        k.store(v.add(k.load(sums, cell), new), sums, cell)

    return _over_memory(k, program, each)


def memory_update(program: Program, target: Target, update: Update) -> str:
    """The update after one step, with `before` held constant: the paper's one-step derivative."""
    k = Kernel("memory_update", target, MemoryArgs)
    v = k.v
    slopes = [regrouped(program.slopes[name]) for name in program.parameters]
    errors, stride = k.pointer(_ARGS.u), k.number(_ARGS.u_stride)
    count = len(update.state)
    states = k.pointers(_ARGS.states, count * len(program.parameters))
    updating = Updating(k, update, k.pointer(_ARGS.scalars))

    def each(vec: ir.Value, place: ir.Value, emit: Emitter, tables: Sequence[ir.Value]) -> None:
        error = k.load(errors, k.times(vec, stride))
        for n, (name, slope) in enumerate(zip(program.parameters, emit.evaluate(*slopes), strict=True)):
            own_states = states[n * count : (n + 1) * count]
            updating.at(place, tables[n], own_states, v.mul(error, slope), emit.known[symbol(name)])

    return _over_memory(k, program, each)


def _over_memory(
    k: Kernel,
    program: Program,
    each: Callable[[ir.Value, ir.Value, Emitter, Sequence[ir.Value]], None],
) -> str:
    """The loops over inputs and vectors of outputs that both memory kernels share."""
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
