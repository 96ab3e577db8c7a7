"""Loops and branches around vector instructions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from ftnn.kernels.codegen.vectors import Vectors

I64, I32 = ir.IntType(64), ir.IntType(32)
POINTER = ir.PointerType()


def _type(value: Any) -> ir.Type:
    return value.type


def loop(
    v: Vectors,
    stop: ir.Value,
    body: Callable[[ir.Value, list[ir.Value]], Sequence[ir.Value] | None],
    carried: Sequence[ir.Value] = (),
    start: ir.Value | None = None,
    step: int = 1,
) -> list[ir.Value]:
    """`for i in range(start, stop, step)`: `body(i, carried)` returns the values to carry on.

    The last of these are returned. A body that carries nothing on may return None.
    """
    b: Any = v.builder
    first = ir.Constant(I64, 0) if start is None else start
    before = b.block
    inside, after = b.append_basic_block("loop"), b.append_basic_block("after")
    b.cbranch(b.icmp_signed("<", first, stop), inside, after)
    b.position_at_end(inside)
    index = b.phi(I64)
    index.add_incoming(first, before)
    phis = [b.phi(_type(value)) for value in carried]
    for phi, value in zip(phis, carried, strict=True):
        phi.add_incoming(value, before)
    with v.scope():
        results = list(body(index, phis) or ())
    following = b.add(index, ir.Constant(I64, step))
    latch = b.block
    index.add_incoming(following, latch)
    for phi, value in zip(phis, results, strict=True):
        phi.add_incoming(value, latch)
    b.cbranch(b.icmp_signed("<", following, stop), inside, after)
    b.position_at_end(after)
    finals = [b.phi(_type(value)) for value in carried]
    for final, value, result in zip(finals, carried, results, strict=True):
        final.add_incoming(value, before)
        final.add_incoming(result, latch)
    return finals


def when(
    v: Vectors,
    condition: ir.Value,
    then: Callable[[], Sequence[ir.Value] | None],
    otherwise: Sequence[ir.Value] = (),
) -> list[ir.Value]:
    """The result of `then()` if the scalar condition holds, else `otherwise`."""
    b: Any = v.builder
    before = b.block
    inside, after = b.append_basic_block("then"), b.append_basic_block("done")
    b.cbranch(condition, inside, after)
    b.position_at_end(inside)
    with v.scope():
        results = list(then() or ())
    end = b.block
    b.branch(after)
    b.position_at_end(after)
    phis = [b.phi(_type(value)) for value in otherwise]
    for phi, value, result in zip(phis, otherwise, results, strict=True):
        phi.add_incoming(value, before)
        phi.add_incoming(result, end)
    return phis
