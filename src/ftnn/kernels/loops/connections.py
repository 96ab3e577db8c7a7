"""What each connection sends, sample by sample: the values that Jacobians and product units need."""

from __future__ import annotations

from llvmlite import ir

from ftnn.formula._derive import lower
from ftnn.formula._expr import INPUT, Expr, symbol
from ftnn.kernels.codegen.control import I64, loop
from ftnn.kernels.codegen.emitting import Emitter
from ftnn.kernels.codegen.target import Args, Target
from ftnn.kernels.loops.kernel import Kernel, hoisted


class ConnectionsArgs(Args):
    connections: int
    samples: int
    """At least as many as a vector has lanes."""
    x: int
    starts: int
    """For each connection, the place of its input's first sample in x."""
    matrices: int
    """The address of each matrix, (connections,)."""
    targets: int
    """The address of each result, (connections, samples)."""


def connections(exprs: tuple[Expr, ...], matrices: tuple[str, ...], target: Target) -> str:
    """Evaluate expressions of x and of the matrices, which have these names, into one array each."""
    k = Kernel("connections", target, ConnectionsArgs)
    v, b, A = k.v, k.builder, ConnectionsArgs.places()
    samples, x, starts = k.number(A.samples), k.pointer(A.x), k.pointer(A.starts)
    tables, targets = k.pointers(A.matrices, len(matrices)), k.pointers(A.targets, len(exprs))
    formulas = [lower(expr, "llvm") for expr in exprs]
    # The last vector overlaps the one before, so there are only whole vectors.
    last = b.sub(samples, ir.Constant(I64, target.lanes))

    def each_connection(n: ir.Value, _: list[ir.Value]) -> None:
        known = {symbol(name): k.broadcast(table, n) for name, table in zip(matrices, tables, strict=True)}
        emit = hoisted(Emitter(v, known), formulas)
        source, row = k.int64_at(starts, n), k.times(n, samples)

        def each_vector(vector: ir.Value, _: list[ir.Value]) -> None:
            place = k.times(vector, target.lanes)
            place = b.select(b.icmp_signed("<", place, last), place, last)
            inputs = k.load(x, k.plus(source, place))
            results = emit.also({symbol(INPUT): inputs}).evaluate(*formulas)
            for result, values in zip(results, targets, strict=True):
                k.store(result, values, k.plus(row, place))

        loop(v, k.vectors(samples), each_vector)

    loop(v, k.number(A.connections), each_connection)
    return k.finish()
