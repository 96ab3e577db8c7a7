"""Forward, over lists of the samples that are not zero. `_zeros.py` says what becomes of the others."""

from __future__ import annotations

from enum import IntEnum

from llvmlite import ir

from ftnn.formula._expr import INPUT, ZERO, Expr, call, folded, symbol
from ftnn.kernels._emit import (
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
from ftnn.kernels._templates._kernel import TILE, Kernel, Lists, hoisted, matrix_values
from ftnn.kernels._templates._zeros import SharedZeros
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
    explicit = 12
    """Whether F(0) is added to each zero sample; the lists must name these too, after the others."""
    lost = 13
    """Set to 1 where sharing F(0) may have cost digits, or F(0) is not finite: ask again, explicitly."""


def forward(program: Program, dtype: DType, lanes: int, tile: int = TILE) -> str:
    """out[s] = F ⊙ x[s], for the samples of a tile and whole vectors of outputs."""
    k = Kernel("forward", dtype, lanes)
    v, A = k.v, ForwardArgs
    (form,) = without_cancellation(kernel_form(program))
    value = regrouped(form)
    silent = regrouped(at_zero(form))
    inputs, vectors, stride = k.number(A.inputs), k.number(A.vectors), k.number(A.stride)
    lists = Lists(k, k.pointer(A.count), k.pointer(A.index), k.pointer(A.values), stride, k.number(A.samples))
    tables, row_length = k.pointers(A.matrices, len(program.matrices)), k.number(A.row_length)
    u, out, out_row_length = k.pointer(A.u), k.pointer(A.out), k.number(A.out_row_length)
    by_x = frontier([value], "input")
    rooms = [k.room(tile + lanes) for _ in by_x]
    per_vector = k.times(stride, lanes)
    zero = v.const(0.0)
    sum_name, silent_name = symbol("∑"), symbol("F(0)")
    plain = folded("add", sum_name, value)
    total = folded("add", call("sub", sum_name, silent_name), value)
    zeros = None
    if silent is not ZERO:
        zeros = SharedZeros(k, lists, vectors, tile, k.number(A.explicit), k.pointer(A.lost))

    loop(v, k.times(vectors, stride), lambda place, _: k.store(zero, u, k.times(place, lanes)))

    def each_input(j: ir.Value, _: list[ir.Value]) -> None:
        lists.at(j)
        lists.tabulate(by_x, rooms)
        if zeros is not None:
            zeros.at_input()
        row = k.times(j, row_length)

        def each_vector(vec: ir.Value, *, explicit: bool) -> None:
            place = k.plus(row, k.times(vec, lanes))
            emit = hoisted(Emitter(v, matrix_values(k, program, tables, place)), [value, silent])
            here = k.times(vec, per_vector)
            given: dict[Expr, ir.Value] = {}
            if zeros is not None:
                (found,) = emit.evaluate(silent)
                if explicit:
                    zeros.add_to_each(u, here, found)
                else:
                    given[silent_name] = zeros.share(vec, found)

            def each_sample(s: ir.Value, _: list[ir.Value]) -> None:
                cell = k.plus(here, k.times(lists.sample(s), lanes))
                more = {part: k.broadcast(room, s) for part, room in zip(by_x, rooms, strict=True)}
                more |= given | {symbol(INPUT): lists.x(s), sum_name: k.load(u, cell)}
                k.store(emit.also(more).evaluate(plain if explicit else total)[0], u, cell)

            loop(v, lists.listed, each_sample)

        def all_vectors(*, explicit: bool) -> None:
            loop(v, vectors, lambda vec, _: each_vector(vec, explicit=explicit))

        if zeros is not None:  # two loops: a branch inside one would cost more than the work it selects
            when(v, zeros.explicit, lambda: all_vectors(explicit=True))
            when(v, k.builder.not_(zeros.explicit), lambda: all_vectors(explicit=False))
        else:
            all_vectors(explicit=True)

    loop(v, inputs, each_input)
    most = None if zeros is None else zeros.most_listed()

    def finish(vec: ir.Value, _: list[ir.Value]) -> None:
        shared = zero if zeros is None or most is None else zeros.shared(vec, most)

        def each_sample(s: ir.Value, _: list[ir.Value]) -> None:
            found = k.load(u, k.plus(k.times(vec, per_vector), k.times(s, lanes)))
            k.store(v.add(found, shared), out, k.plus(k.times(s, out_row_length), k.times(vec, lanes)))

        loop(v, lists.samples, each_sample)

    loop(v, vectors, finish)
    return k.finish()
