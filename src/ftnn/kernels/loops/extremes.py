"""The smallest and largest sizes of expressions, over arrays."""

from __future__ import annotations

import math

from llvmlite import ir

from ftnn.formula._derive import lower
from ftnn.formula._expr import Expr, symbol
from ftnn.kernels.codegen.control import I64, loop
from ftnn.kernels.codegen.emitting import Emitter
from ftnn.kernels.codegen.target import Args, Target
from ftnn.kernels.loops.kernel import Kernel

KINDS = 3
"""Numbers for each expression: its smallest size, the smallest that is not 0, and the largest."""


class ExtremesArgs(Args):
    numbers: int
    """The length of each source."""
    sources: int
    """The address of each."""
    results: int
    """(expressions, KINDS). NaN if a value is NaN; the smallest that is not 0 is infinite if all are 0."""


def extremes(exprs: tuple[Expr, ...], names: tuple[str, ...], target: Target) -> str:
    """The extremes of |expr| for expressions of the sources, which have these names."""
    k = Kernel("extremes", target, ExtremesArgs)
    v, A = k.v, ExtremesArgs.places()
    numbers, results = k.number(A.numbers), k.pointer(A.results)
    sources = k.pointers(A.sources, len(names))
    symbols, formulas = [symbol(name) for name in names], [lower(expr, "llvm") for expr in exprs]
    zero, infinity = v.const(0.0), v.const(math.inf)

    def update(values: list[ir.Value], carried: list[ir.Value]) -> list[ir.Value]:
        new: list[ir.Value] = []
        for value, (low, nonzero, high) in zip(
            Emitter(v, dict(zip(symbols, values, strict=True))).evaluate(*formulas),
            zip(*[iter(carried)] * KINDS, strict=True),
            strict=True,
        ):
            size = v.abs(value)
            larger = v.select(v.eq(size, zero), infinity, size)
            new += [v.minimum(low, size), v.minimum(nonzero, larger), v.maximum(high, size)]
        return new

    def each_vector(vec: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
        return update([k.load(source, k.times(vec, v.lanes)) for source in sources], carried)

    def each_number(n: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
        return update([k.broadcast(source, n) for source in sources], carried)

    whole = k.builder.sdiv(numbers, ir.Constant(I64, v.lanes))
    found = loop(v, whole, each_vector, [infinity, infinity, zero] * len(exprs))
    found = loop(v, numbers, each_number, found, start=k.times(whole, v.lanes))
    for n, one in enumerate(found):
        is_largest = n % KINDS == KINDS - 1
        extreme = v.largest(one) if is_largest else k.builder.fneg(v.largest(v.neg(one)))
        k.put_scalar(extreme, results, ir.Constant(I64, n))
    return k.finish()
