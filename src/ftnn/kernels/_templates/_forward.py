"""Forward, over lists of the samples that are not zero."""

from __future__ import annotations

from enum import IntEnum

from llvmlite import ir

from ftnn.formula._expr import INPUT, ZERO, Expr, call, folded, symbol
from ftnn.kernels._emit import (
    I64,
    Emitter,
    at_zero,
    frontier,
    kernel_form,
    loop,
    regrouped,
    when,
    without_cancellation,
)
from ftnn.kernels._program import Program
from ftnn.kernels._templates._kernel import TILE, Kernel, Lists, hoisted, matrix_values, untyped
from ftnn.kernels._vector import DType


class ForwardArgs(IntEnum):
    inputs = 0
    vectors = 1
    samples = 2
    stride = 3
    count = 4
    index = 5
    values = 6
    matrices = 7
    row_length = 8
    u = 9
    """Room for (vectors, stride, lanes) numbers."""
    out = 10
    out_row_length = 11
    lost = 12
    """Set to 1 where F(0) is not finite, so that the lists must hold all samples."""


def forward(program: Program, dtype: DType, lanes: int, tile: int = TILE) -> str:
    """out[s] = F ⊙ x[s], for the samples of a tile and whole vectors of outputs."""
    k = Kernel("forward", dtype, lanes)
    v, b, A = k.v, k.builder, ForwardArgs
    (form,) = without_cancellation(kernel_form(program))
    value = regrouped(form)
    silent = regrouped(at_zero(form))
    inputs, vectors, stride = k.number(A.inputs), k.number(A.vectors), k.number(A.stride)
    lists = Lists(k, k.pointer(A.count), k.pointer(A.index), k.pointer(A.values), stride, k.number(A.samples))
    tables, row_length = k.pointers(A.matrices, len(program.matrices)), k.number(A.row_length)
    u, out, out_row_length, lost = (
        k.pointer(A.u),
        k.pointer(A.out),
        k.number(A.out_row_length),
        k.pointer(A.lost),
    )
    by_x = frontier([value], "input")
    rooms = [k.room(tile + lanes) for _ in by_x]
    per_vector = k.times(stride, lanes)
    zero = v.const(0.0)
    sum_name, silent_name = symbol("∑"), symbol("F(0)")
    total = folded("add", sum_name if silent is ZERO else call("sub", sum_name, silent_name), value)
    base = untyped(b.alloca(v.type, size=vectors)) if silent is not ZERO else None

    def clear(place: ir.Value, _: list[ir.Value]) -> None:
        k.store(zero, u, k.times(place, lanes))

    loop(v, k.times(vectors, stride), clear)
    if base is not None:
        loop(v, vectors, lambda vec, _: k.store(zero, base, k.times(vec, lanes)))

    def each_input(j: ir.Value, _: list[ir.Value]) -> None:
        lists.at(j)
        lists.tabulate(by_x, rooms)
        row = k.times(j, row_length)

        def each_vector(vec: ir.Value, _: list[ir.Value]) -> None:
            place = k.plus(row, k.times(vec, lanes))
            emit = hoisted(Emitter(v, matrix_values(k, program, tables, place)), [value, silent])
            given: dict[Expr, ir.Value] = {}
            if base is not None:
                cell_of_all = k.at(base, v.type, vec)

                def all_zeros_at_once() -> list[ir.Value]:
                    found = emit.evaluate(silent)[0]
                    b.store(v.add(b.load(cell_of_all, typ=v.type), found), cell_of_all)
                    return [found]

                given[silent_name] = when(v, lists.some_are_zero, all_zeros_at_once, [zero])[0]
            here = k.times(vec, per_vector)

            def each_sample(s: ir.Value, _: list[ir.Value]) -> None:
                cell = k.plus(here, k.times(lists.sample(s), lanes))
                more = {part: k.broadcast(room, s) for part, room in zip(by_x, rooms, strict=True)}
                more |= given | {symbol(INPUT): lists.x(s), sum_name: k.load(u, cell)}
                k.store(emit.also(more).evaluate(total)[0], u, cell)

            loop(v, lists.listed, each_sample)

        loop(v, vectors, each_vector)

    loop(v, inputs, each_input)

    def finish(vec: ir.Value, _: list[ir.Value]) -> None:
        shared = zero
        if base is not None:
            shared = b.load(k.at(base, v.type, vec), typ=v.type)
            vanishes = v.sub(shared, shared)  # NaN where it is not finite

            def is_lost() -> None:
                b.store(ir.Constant(I64, 1), lost)

            when(v, v.any(v.ne(vanishes, vanishes)), is_lost)

        def each_sample(s: ir.Value, _: list[ir.Value]) -> None:
            found = k.load(u, k.plus(k.times(vec, per_vector), k.times(s, lanes)))
            k.store(v.add(found, shared), out, k.plus(k.times(s, out_row_length), k.times(vec, lanes)))

        loop(v, lists.samples, each_sample)

    loop(v, vectors, finish)
    return k.finish()
