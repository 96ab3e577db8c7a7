"""The forward pass over lists of nonzero samples. `zeros.py` explains how the others are handled."""

from __future__ import annotations

from llvmlite import ir

from ftnn.formula._expr import INPUT, ZERO, call, folded, symbol
from ftnn.kernels.codegen.control import loop, when
from ftnn.kernels.codegen.emitting import Emitter
from ftnn.kernels.codegen.placeholders import SILENT_VALUE, SUM
from ftnn.kernels.codegen.rewriting import at_zero, frontier, kernel_form, regrouped, without_cancellation
from ftnn.kernels.codegen.target import Args, Target
from ftnn.kernels.loops.kernel import TILE, Kernel, SampleLists, hoisted, matrix_values, over_vectors
from ftnn.kernels.loops.zeros import SharedZeros
from ftnn.kernels.program import Program


class ForwardArgs(Args):
    inputs: int
    vectors: int
    samples: int
    stride: int
    counts: int
    indices: int
    values: int
    matrices: int
    row_length: int
    u: int
    """Scratch for (vectors, stride, lanes) numbers."""
    out: int
    out_row_length: int
    explicit: int
    """How zero samples are treated: `SHARED`, `EXPLICIT` or `FLAGGED`. Unless F(0) is shared, the lists must
    include them, after the others."""
    lost: int
    """Set to 1 if sharing F(0) may cost digits, or F(0) is not finite: it has to be explicit."""


def forward(program: Program, target: Target, tile: int = TILE) -> str:
    """out[s] = F ⊙ x[s], for the samples of a tile and whole vectors of outputs."""
    k = Kernel("forward", target, ForwardArgs)
    v, A = k.v, ForwardArgs.places()
    lanes = target.lanes
    (form,) = without_cancellation(kernel_form(program))
    value = regrouped(form)
    silent = regrouped(at_zero(form))
    inputs, vectors, stride = k.number(A.inputs), k.number(A.vectors), k.number(A.stride)
    lists = SampleLists(
        k, k.pointer(A.counts), k.pointer(A.indices), k.pointer(A.values), stride, k.number(A.samples)
    )
    tables, row_length = k.pointers(A.matrices, len(program.matrices)), k.number(A.row_length)
    u, out, out_row_length = k.pointer(A.u), k.pointer(A.out), k.number(A.out_row_length)
    by_x = frontier([value], "input")
    tables_by_x = [k.scratch(tile + lanes) for _ in by_x]
    per_vector = k.times(stride, lanes)
    zero = v.const(0.0)
    plain = folded("add", SUM, value)
    total = folded("add", call("sub", SUM, SILENT_VALUE), value)
    zeros = None
    if silent is not ZERO:
        zeros = SharedZeros(k, lists, vectors, tile, k.number(A.explicit), k.pointer(A.lost))

    loop(v, k.times(vectors, stride), lambda place, _: k.store(zero, u, k.times(place, lanes)))

    def each_input(j: ir.Value, _: list[ir.Value]) -> None:
        lists.at(j)
        lists.tabulate(by_x, tables_by_x)
        if zeros is not None:
            zeros.at_input()
        row = k.times(j, row_length)

        def prepare(vec: ir.Value, *, explicit: bool) -> tuple[Emitter, ir.Value]:
            """What is evaluated for a vector of outputs, and where its sums are."""
            place = k.plus(row, k.times(vec, lanes))
            emit = hoisted(Emitter(v, matrix_values(k, program, tables, place)), [value, silent])
            here = k.times(vec, per_vector)
            if zeros is not None:
                (silent_value,) = emit.evaluate(silent)
                if explicit:
                    zeros.add_to_each(vec, u, here, silent_value)
                else:
                    emit = emit.also({SILENT_VALUE: zeros.share(vec, silent_value)})
            return emit, here

        def each_group(group: list[ir.Value], *, explicit: bool) -> None:
            prepared = [prepare(vec, explicit=explicit) for vec in group]

            def each_sample(s: ir.Value, _: list[ir.Value]) -> None:
                offset = k.times(lists.sample(s), lanes)
                more = {part: k.broadcast(table, s) for part, table in zip(by_x, tables_by_x, strict=True)}
                more[symbol(INPUT)] = lists.x(s)
                for emit, here in prepared:
                    cell = k.plus(here, offset)
                    with_sum = emit.also(more | {SUM: k.load(u, cell)})
                    k.store(with_sum.evaluate(plain if explicit else total)[0], u, cell)

            loop(v, lists.listed, each_sample)

        def all_vectors(*, explicit: bool) -> None:
            over_vectors(v, vectors, [value], lambda group: each_group(group, explicit=explicit))

        if zeros is not None:  # two loops: a branch inside one would cost more than it saves
            when(v, zeros.explicit, lambda: all_vectors(explicit=True))
            when(v, k.builder.not_(zeros.explicit), lambda: all_vectors(explicit=False))
        else:
            all_vectors(explicit=True)

    loop(v, inputs, each_input)
    most = None if zeros is None else zeros.most_listed()

    def finish(vec: ir.Value, _: list[ir.Value]) -> None:
        shared = zero if zeros is None or most is None else zeros.shared(vec, most)

        def each_sample(s: ir.Value, _: list[ir.Value]) -> None:
            sums = k.load(u, k.plus(k.times(vec, per_vector), k.times(s, lanes)))
            k.store(v.add(sums, shared), out, k.plus(k.times(s, out_row_length), k.times(vec, lanes)))

        loop(v, lists.samples, each_sample)

    loop(v, vectors, finish)
    return k.finish()
