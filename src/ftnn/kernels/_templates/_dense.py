"""Forward and backward where few inputs are zero: no lists, every sample evaluated in its place.

x comes in tiles, (in, stride), zeros behind the samples. Where the arguments of elementary functions are
small for all samples of an input and a vector of outputs, which is tested once for them together, the short
forms of `_tame.py` serve.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import reduce

from llvmlite import ir

from ftnn.formula._derive import differentiate
from ftnn.formula._expr import INPUT, ONE, ZERO, Expr, folded, plus, symbol, times
from ftnn.kernels._bounds import LARGEST, limits
from ftnn.kernels._emit import (
    ERROR,
    I64,
    Emitter,
    frontier,
    kernel_form,
    loop,
    product,
    regrouped,
    sides,
    split_product,
    when,
    without_cancellation,
)
from ftnn.kernels._program import Program
from ftnn.kernels._templates._kernel import TILE, Kernel, hoisted, matrix_values
from ftnn.kernels._vector import DType

_SUM = symbol("∑")  # no parameter is called so

Values = list[ir.Value]
EachSample = Callable[[ir.Value, Emitter, Values], Values]
"""What happens at a sample, given its number, an emitter that knows x there, and what is carried so far."""


class _Tile:
    """The samples of a tile, one input after the other: what both kernels do around their innermost loop."""

    def __init__(self, k: Kernel, x: ir.Value, stride: ir.Value, samples: ir.Value, roots: Sequence[Expr]):
        self.k, self.samples, self._x, self._stride, self._roots = k, samples, x, stride, roots
        self._by_x = frontier(roots, "input")
        self._rooms = [k.room(TILE) for _ in self._by_x]
        # float64 has libm's functions, whatever their arguments.
        self._limits = limits(roots) if k.v.dtype == "float32" else None

    def at(self, j: ir.Value) -> None:
        """Turn to input j: tabulate what depends on x alone, and find how large x is."""
        k, v = self.k, self.k.v
        row = self.row = k.times(j, self._stride)
        self._largest = v.const(0.0)
        if not self._by_x and self._limits is None:
            return

        def each(block: ir.Value, largest: Values) -> Values:
            first = k.times(block, v.lanes)
            x = k.load(self._x, k.plus(row, first))
            for value, room in zip(
                Emitter(v, {symbol(INPUT): x}).evaluate(*self._by_x), self._rooms, strict=True
            ):
                k.store(value, room, first)
            return [v.maximum(v.abs(x), largest[0])]

        (found,) = loop(v, k.vectors(self.samples), each, [self._largest])
        if self._limits is not None:
            self._largest = v.splat(v.largest(found))

    def over(self, emit: Emitter, each: EachSample, carried: Values) -> Values:
        """Run over the samples, with the short forms of functions where their arguments allow it."""
        k, v = self.k, self.k.v

        def body(s: ir.Value, values: Values) -> Values:
            more = {part: k.broadcast(room, s) for part, room in zip(self._by_x, self._rooms, strict=True)}
            more[symbol(INPUT)] = k.broadcast(self._x, k.plus(self.row, s))
            return each(s, emit.also(more), values)

        if self._limits is None:
            return loop(v, self.samples, body, carried)
        bounds = emit.also({LARGEST: self._largest}).evaluate(*(bound for bound, _ in self._limits))
        small = [v.le(bound, v.const(limit)) for bound, (_, limit) in zip(bounds, self._limits, strict=True)]
        wild = v.any(v.logical_not(reduce(v.logical_and, small)))

        def tame() -> Values:
            with v.tamed():
                return loop(v, self.samples, body, carried)

        found = when(v, k.builder.not_(wild), tame, carried)
        return when(v, wild, lambda: loop(v, self.samples, body, carried), found)


class DenseForwardArgs(IntEnum):
    inputs = 0
    vectors = 1
    samples = 2
    stride = 3
    x = 4
    matrices = 5
    first = 6
    """Where in each matrix to begin."""
    row_length = 7
    u = 8
    """Room for (vectors, stride, lanes) numbers."""
    out = 9
    out_row_length = 10


def dense_forward(program: Program, dtype: DType, lanes: int, *, quick_reciprocal: bool = False) -> str:
    """out[s] = F ⊙ x[s], for the samples of a tile and whole vectors of outputs."""
    k = Kernel("dense forward", dtype, lanes)
    v, A = k.v, DenseForwardArgs
    v.quick_reciprocal = quick_reciprocal
    value = regrouped(without_cancellation(kernel_form(program))[0])
    vectors, stride = k.number(A.vectors), k.number(A.stride)
    tile = _Tile(k, k.pointer(A.x), stride, k.number(A.samples), [value])
    tables, first, row_length = (
        k.pointers(A.matrices, len(program.matrices)),
        k.number(A.first),
        k.number(A.row_length),
    )
    u, out, out_row_length = k.pointer(A.u), k.pointer(A.out), k.number(A.out_row_length)
    per_vector, zero = k.times(stride, lanes), v.const(0.0)
    loop(v, k.times(vectors, stride), lambda place, _: k.store(zero, u, k.times(place, lanes)))

    def each_input(j: ir.Value, _: Values) -> None:
        tile.at(j)
        row = k.plus(first, k.times(j, row_length))

        def each_vector(vec: ir.Value, _: Values) -> None:
            place = k.plus(row, k.times(vec, lanes))
            emit = hoisted(Emitter(v, matrix_values(k, program, tables, place)), [value])
            here = k.times(vec, per_vector)

            def each_sample(s: ir.Value, there: Emitter, _: Values) -> Values:
                cell = k.plus(here, k.times(s, lanes))
                total = there.also({_SUM: k.load(u, cell)}).evaluate(folded("add", _SUM, value))[0]
                k.store(total, u, cell)
                return []

            tile.over(emit, each_sample, [])

        loop(v, vectors, each_vector)

    loop(v, k.number(A.inputs), each_input)

    def finish(vec: ir.Value, _: Values) -> None:
        def each_sample(s: ir.Value, _: Values) -> None:
            found = k.load(u, k.plus(k.times(vec, per_vector), k.times(s, lanes)))
            k.store(found, out, k.plus(k.times(s, out_row_length), k.times(vec, lanes)))

        loop(v, tile.samples, each_sample)

    loop(v, vectors, finish)
    return k.finish()


class DenseBackwardArgs(IntEnum):
    inputs = 0
    vectors = 1
    samples = 2
    stride = 3
    x = 4
    matrices = 5
    first = 6
    """Where in each matrix, and each gradient, to begin."""
    row_length = 7
    g = 8
    """The error at the sums, (vectors, stride, lanes)."""
    gradients = 9
    accumulate = 10
    """Whether gradients are added to what is there."""
    dx = 11
    """The error sent down, (in, stride)."""


def dense_backward(
    program: Program,
    dtype: DType,
    lanes: int,
    *,
    by_x: bool,
    by_parameters: bool,
    quick_reciprocal: bool = False,
) -> str:
    """Gradients of Σ g·(F ⊙ x) by x and every parameter in one pass."""
    k = Kernel("dense backward", dtype, lanes)
    v, b, A = k.v, k.builder, DenseBackwardArgs
    v.quick_reciprocal = quick_reciprocal
    form = kernel_form(program)
    names = (*(program.parameters if by_parameters else ()), *((INPUT,) if by_x else ()))
    slopes = [regrouped(s) for s in without_cancellation(*(differentiate(form, name) for name in names))]
    down = slopes.pop() if by_x else ZERO
    # A factor of matrices alone is left for after the sum over the samples.
    outer, inner = map(list, zip(*map(split_product, slopes), strict=True)) if slopes else ([], [])
    parts = [*map(_with_error, inner), _with_error(down)]
    stride = k.number(A.stride)
    tile = _Tile(k, k.pointer(A.x), stride, k.number(A.samples), parts)
    vectors, first, row_length = k.number(A.vectors), k.number(A.first), k.number(A.row_length)
    tables = k.pointers(A.matrices, len(program.matrices))
    gradients = k.pointers(A.gradients, len(program.parameters) if by_parameters else 0)
    accumulate = b.icmp_signed("!=", k.number(A.accumulate), ir.Constant(I64, 0))
    g, dx = k.pointer(A.g), k.pointer(A.dx)
    partial = k.room(TILE * lanes if by_x else 0)
    per_vector, zero = k.times(stride, lanes), v.const(0.0)

    def each_input(j: ir.Value, _: Values) -> None:
        tile.at(j)
        if by_x:
            loop(v, stride, lambda s, _: k.store(zero, partial, k.times(s, lanes)))
        row = k.plus(first, k.times(j, row_length))

        def each_vector(vec: ir.Value, _: Values) -> None:
            place = k.plus(row, k.times(vec, lanes))
            emit = hoisted(
                Emitter(v, matrix_values(k, program, tables, place)), [*inner, down, *outer, *parts]
            )
            here = k.times(vec, per_vector)

            def each_sample(s: ir.Value, there: Emitter, sums: Values) -> Values:
                cell = k.times(s, lanes)
                names = [symbol(f"∑{n}") for n in range(len(sums))]
                given: dict[Expr, ir.Value] = dict(zip(names, sums, strict=True))
                given[ERROR] = k.load(g, k.plus(here, cell))
                given[_SUM] = k.load(partial, cell) if by_x else zero
                totals = [plus(name, part) for name, part in zip((*names, _SUM), parts, strict=True)]
                *found, sent = there.also(given).evaluate(*totals)
                if by_x:
                    k.store(sent, partial, cell)
                return found

            sums = tile.over(emit, each_sample, [zero] * len(inner))
            for factor, part, total, table in zip(emit.evaluate(*outer), outer, sums, gradients, strict=True):
                found = total if part is ONE else v.mul(total, factor)

                def old(table: ir.Value = table) -> Values:
                    return [k.load(table, place)]

                k.store(v.add(when(v, accumulate, old, [zero])[0], found), table, place)

        loop(v, vectors, each_vector)
        if by_x:

            def add_up(block: ir.Value, _: Values) -> None:
                start = k.times(block, lanes)
                cells = [k.plus(start, ir.Constant(I64, n)) for n in range(lanes)]
                total = v.hsums([k.load(partial, k.times(cell, lanes)) for cell in cells])
                k.store(total, dx, k.plus(k.times(j, stride), start))

            loop(v, k.vectors(tile.samples), add_up)

    loop(v, k.number(A.inputs), each_input)
    return k.finish()


def _with_error(slope: Expr) -> Expr:
    """slope·∂, with what depends on both x and matrices multiplied first: slopes share that."""
    by = sides(slope)
    shared = times(product(by["both"]), ERROR)
    return times(product(by["number"] + by["matrices"]), times(product(by["input"]), shared))
