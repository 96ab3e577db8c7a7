"""Expressions over arrays of numbers, element by element: what matrix products need before and after."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from ftnn.formula._derive import lower
from ftnn.formula._expr import Expr, symbol
from ftnn.kernels.codegen.control import I64, loop, when
from ftnn.kernels.codegen.emitting import Emitter
from ftnn.kernels.codegen.target import Args, Target
from ftnn.kernels.loops.kernel import Kernel


class ElementwiseArgs(Args):
    rows: int
    columns: int
    sources: int
    """The address of each source."""
    source_row_lengths: int
    """The distance between the rows of each source, in numbers: 0 if all rows are the same."""
    targets: int
    """The address of each result. It may be a source's own memory if the rows are in the same places."""
    target_row_length: int
    """The distance between rows, the same for all results."""


def elementwise(exprs: tuple[Expr, ...], names: tuple[str, ...], target: Target) -> str:
    """Evaluate expressions of the sources, which have these names, into one array each."""
    k = Kernel("elementwise", target, ElementwiseArgs)
    v, b, A = k.v, k.builder, ElementwiseArgs.places()
    columns, lanes, scalar = k.number(A.columns), ir.Constant(I64, target.lanes), k.v.scalar
    sources, targets = k.pointers(A.sources, len(names)), k.pointers(A.targets, len(exprs))
    lengths = k.pointer(A.source_row_lengths)
    row_lengths = [k.int64_at(lengths, n) for n in range(len(names))]
    target_row_length = k.number(A.target_row_length)
    formulas = [lower(expr, "llvm") for expr in exprs]
    symbols = [symbol(name) for name in names]
    # A last, partial vector is copied here and back.
    copies = [k.scratch(target.lanes) for _ in (*names, *exprs)]
    zero, nothing = v.const(0.0), ir.Constant(I64, 0)
    for copy in copies:
        k.store(zero, copy, nothing)

    def each_row(row: ir.Value, _: list[ir.Value]) -> None:
        starts = [k.times(row, length) for length in row_lengths] + [k.times(row, target_row_length)] * len(
            exprs
        )

        def each_vector(vec: ir.Value, _: list[ir.Value]) -> None:
            place = k.times(vec, target.lanes)
            rest = b.sub(columns, place)
            partial = b.icmp_signed("<", rest, lanes)
            there = [
                k.at(table, scalar, k.plus(start, place))
                for table, start in zip((*sources, *targets), starts, strict=True)
            ]
            here = [b.select(partial, copy, place) for copy, place in zip(copies, there, strict=True)]

            def copy_some(pairs: Sequence[tuple[ir.Value, ir.Value]]) -> None:
                def each(n: ir.Value, _: list[ir.Value]) -> None:
                    for old, new in pairs:
                        k.put_scalar(k.scalar(old, n), new, n)

                loop(v, rest, each)

            count = len(names)
            when(v, partial, lambda: copy_some(list(zip(there[:count], copies[:count], strict=True))))
            known = {name: k.load(place, nothing) for name, place in zip(symbols, here[:count], strict=True)}
            results = Emitter(v, known).evaluate(*formulas)
            for result, place in zip(results, here[count:], strict=True):
                k.store(result, place, nothing)
            when(v, partial, lambda: copy_some(list(zip(copies[count:], there[count:], strict=True))))

        loop(v, k.vectors(columns), each_vector)

    loop(v, k.number(A.rows), each_row)
    return k.finish()
