"""The backward pass over lists of nonzero samples: gradients, or the update at once."""

from __future__ import annotations

from llvmlite import ir

from ftnn.formula._expr import INPUT, ONE, ZERO, Expr, plus, symbol, times
from ftnn.kernels.codegen.control import loop, when
from ftnn.kernels.codegen.emitting import Emitter
from ftnn.kernels.codegen.placeholders import ERROR, SUM
from ftnn.kernels.codegen.rewriting import (
    frontier,
)
from ftnn.kernels.codegen.target import Args, Target
from ftnn.kernels.loops.forms import slopes_of
from ftnn.kernels.loops.kernel import TILE, Kernel, SampleLists, hoisted, matrix_values, over_vectors
from ftnn.kernels.loops.updates import Update, Updating
from ftnn.kernels.loops.zeros import ZerosErrors
from ftnn.kernels.program import Program


class BackwardArgs(Args):
    inputs: int
    vectors: int
    samples: int
    stride: int
    counts: int
    indices: int
    values: int
    matrices: int
    row_length: int
    g: int
    """The error at the sums, (vectors, stride, lanes)."""
    subset_sums: int
    """Sums of the errors of groups of samples: see `zeros.py`."""
    gradients: int
    """Addresses of the gradients or, with an update, of the rule's states, parameter by parameter."""
    gradient_row_length: int
    accumulate: int
    """Whether to add to the gradients rather than overwrite them."""
    dx: int
    """The error passed down, (in, row)."""
    dx_row_length: int
    dx_at_zero: int
    """Whether `dx` is needed where x is zero."""
    scalars: int
    """Used with an update: see `updates.py`."""


def backward(
    program: Program,
    target: Target,
    *,
    by_x: bool,
    by_parameters: bool,
    update: Update | None = None,
    tile: int = TILE,
) -> str:
    """The gradients of Σ g·(F ⊙ x) by x and every parameter in one pass, or the update at once."""
    k = Kernel("update" if update else "backward", target, BackwardArgs)
    v, b, A = k.v, k.builder, BackwardArgs.places()
    lanes = target.lanes
    slopes = slopes_of(program, by_x, by_parameters)
    inner, outer, inner_at_zero = slopes.inner, slopes.outer, slopes.inner_at_zero
    down, down_at_zero = slopes.down, slopes.down_at_zero
    inputs, vectors, stride = k.number(A.inputs), k.number(A.vectors), k.number(A.stride)
    lists = SampleLists(
        k, k.pointer(A.counts), k.pointer(A.indices), k.pointer(A.values), stride, k.number(A.samples)
    )
    tables, row_length = k.pointers(A.matrices, len(program.matrices)), k.number(A.row_length)
    g = k.pointer(A.g)
    zeros_errors = None
    if slopes.of_zeros:
        zeros_errors = ZerosErrors(k, lists, k.pointer(A.subset_sums), tile)
    arrays = 1 if update is None else len(update.state)  # per parameter
    gradients = k.pointers(A.gradients, arrays * len(program.parameters) if by_parameters else 0)
    gradient_row_length = k.number(A.gradient_row_length)
    accumulate = k.is_set(k.number(A.accumulate))
    dx, dx_row_length = k.pointer(A.dx), k.number(A.dx_row_length)
    dx_at_zero = k.is_set(k.number(A.dx_at_zero))
    partial = k.scratch(tile * lanes if by_x else 0)
    zero = v.const(0.0)
    updating = None if update is None else Updating(k, update, k.pointer(A.scalars))
    roots = [*inner, down]
    tabulated = frontier(roots, "input")
    tables_by_x = [k.scratch(tile + lanes) for _ in tabulated]
    per_vector = k.times(stride, lanes)

    def each_input(j: ir.Value, _: list[ir.Value]) -> None:
        lists.at(j)
        lists.tabulate(tabulated, tables_by_x)
        if zeros_errors is not None:
            zeros_errors.at_input()
        if by_x:
            loop(v, lists.samples, lambda s, _: k.store(zero, partial, k.times(s, lanes)))
        row = k.times(j, row_length)

        def each_group(group: list[ir.Value]) -> None:
            places = [k.plus(row, k.times(vec, lanes)) for vec in group]
            matrices = [matrix_values(k, program, tables, place) for place in places]
            emitters = [
                hoisted(Emitter(v, values), [*roots, *outer, *inner_at_zero, down_at_zero])
                for values in matrices
            ]
            errors = [k.times(vec, per_vector) for vec in group]
            if tile > TILE:  # enough work for a row to arrive in time
                for place in places:
                    for table in (*tables, *gradients) if update else tables:
                        k.prefetch(table, k.plus(place, row_length))

            def each_sample(s: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
                offset, cell = k.times(lists.sample(s), lanes), k.times(s, lanes)
                more = {
                    part: k.broadcast(table, s) for part, table in zip(tabulated, tables_by_x, strict=True)
                }
                more[symbol(INPUT)] = lists.x(s)
                passed_down = k.load(partial, cell) if by_x else zero
                results: list[ir.Value] = []
                for n, (emit, here) in enumerate(zip(emitters, errors, strict=True)):
                    error = k.load(g, k.plus(here, offset))
                    *slopes_here, slope = emit.also(more).evaluate(*inner, *([down] if by_x else [ZERO]))
                    passed_down = v.fma(error, slope, passed_down) if by_x else zero
                    sums = carried[n * len(inner) : (n + 1) * len(inner)]
                    results += [
                        v.add(total, error) if part is ONE else v.fma(error, value, total)
                        for part, value, total in zip(inner, slopes_here, sums, strict=True)
                    ]
                if by_x:
                    k.store(passed_down, partial, cell)
                return results

            totals = loop(v, lists.listed, each_sample, [zero] * (len(inner) * len(group)))
            for n, vec in enumerate(group):
                sums = totals[n * len(inner) : (n + 1) * len(inner)]
                finish_vector(vec, places[n], matrices[n], emitters[n], errors[n], sums)

        def finish_vector(
            vec: ir.Value,
            place: ir.Value,
            values: dict[Expr, ir.Value],
            emit: Emitter,
            here: ir.Value,
            sums: list[ir.Value],
        ) -> None:
            """Add what zeros contribute, and write gradients or update."""

            def error_at(s: ir.Value) -> ir.Value:
                return k.load(g, k.plus(here, k.times(lists.sample(s), lanes)))

            def pass_down(s: ir.Value, error: ir.Value, emit: Emitter, slope: Expr) -> None:
                cell = k.times(s, lanes)
                more = {ERROR: error, SUM: k.load(partial, cell)}
                total = plus(SUM, times(ERROR, slope))
                k.store(emit.also(more).evaluate(total)[0], partial, cell)

            if zeros_errors is not None:

                def all_zeros_at_once(zeros: ZerosErrors = zeros_errors) -> list[ir.Value]:
                    error = zeros.total(vec)
                    slopes_at_zero = emit.evaluate(*inner_at_zero)
                    return [
                        total if part is ZERO else v.fma(error, value, total)
                        for part, value, total in zip(inner_at_zero, slopes_at_zero, sums, strict=True)
                    ]

                sums = when(v, lists.some_are_zero, all_zeros_at_once, sums)
            if by_x and down_at_zero is not ZERO:

                def zeros_too() -> None:
                    def each_zero(s: ir.Value, _: list[ir.Value]) -> None:
                        pass_down(s, error_at(s), emit, down_at_zero)

                    loop(v, lists.samples, each_zero, start=lists.listed)

                when(v, b.and_(lists.some_are_zero, dx_at_zero), zeros_too)
            if by_parameters:
                totals = [
                    v.mul(total, factor) if part is not ONE else total
                    for part, total, factor in zip(outer, sums, emit.evaluate(*outer), strict=True)
                ]
                for n, (name, total) in enumerate(zip(program.parameters, totals, strict=True)):
                    if updating is not None:
                        states = gradients[n * arrays : (n + 1) * arrays]
                        updating.at(place, tables[n], states, total, values[symbol(name)])
                    else:
                        there = k.plus(k.times(j, gradient_row_length), k.times(vec, lanes))
                        table = gradients[n]
                        old = when(
                            v, accumulate, lambda table=table, there=there: [k.load(table, there)], [zero]
                        )[0]
                        k.store(v.add(old, total), table, there)

        over_vectors(v, vectors, roots, each_group)
        if by_x:
            below = k.times(j, dx_row_length)

            def add_up(s: ir.Value, _: list[ir.Value]) -> None:
                total = v.hsum(k.load(partial, k.times(s, lanes)))
                b.store(total, k.at(dx, v.scalar, k.plus(below, lists.sample(s))))

            loop(v, lists.samples, add_up)

    loop(v, inputs, each_input)
    return k.finish()
