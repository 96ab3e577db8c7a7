"""The smallest kernel there is, for tests of compiling and calling."""

from __future__ import annotations

from llvmlite import ir

from ftnn.formula._expr import INPUT, Expr, symbol
from ftnn.kernels.codegen.control import loop
from ftnn.kernels.codegen.emitting import Emitter
from ftnn.kernels.codegen.rewriting import regrouped
from ftnn.kernels.codegen.target import Args, Target
from ftnn.kernels.loops.kernel import Kernel


class MapArgs(Args):
    vectors: int
    source: int
    target: int


def elementwise(expr: Expr, target: Target) -> str:
    """target = expr(source), over whole vectors."""
    k, A = Kernel("map", target, MapArgs), MapArgs.places()
    source, result = k.pointer(A.source), k.pointer(A.target)

    def each(vec: ir.Value, _: list[ir.Value]) -> None:
        place = k.times(vec, k.v.lanes)
        x = k.load(source, place)
        k.store(Emitter(k.v, {symbol(INPUT): x}).evaluate(regrouped(expr))[0], result, place)

    loop(k.v, k.number(A.vectors), each)
    return k.finish()
