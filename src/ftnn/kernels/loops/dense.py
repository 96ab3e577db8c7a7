"""Forward and backward kernels for data with few zeros: no lists, every sample is evaluated in place.

x comes in tiles, (in, stride), padded with zeros. If the arguments of elementary functions are small for all
samples of an input and a vector of outputs, which one test decides, the short forms in `math/small.py` are
used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from llvmlite import ir

from ftnn.formula._expr import INPUT, ONE, Expr, folded, plus, symbol
from ftnn.kernels.codegen.bounds import limits
from ftnn.kernels.codegen.control import I64, loop, when
from ftnn.kernels.codegen.emitting import Emitter
from ftnn.kernels.codegen.placeholders import ERROR, LARGEST, SUM, numbered_sum
from ftnn.kernels.codegen.rewriting import frontier
from ftnn.kernels.codegen.target import Args, Target
from ftnn.kernels.loops.forms import slopes_of, value_of
from ftnn.kernels.loops.kernel import TILE, Kernel, hoisted, matrix_values
from ftnn.kernels.program import Program

Values = list[ir.Value]
EachSample = Callable[[ir.Value, Emitter, Values], Values]
"""Takes a sample's index, an emitter that knows its x, and the carried values; returns their new values."""


class _Tile:
    """The samples of a tile, input by input: what both kernels do around their innermost loop."""

    def __init__(self, k: Kernel, x: ir.Value, stride: ir.Value, samples: ir.Value, roots: Sequence[Expr]):
        self.k, self.samples, self._x, self._stride, self._roots = k, samples, x, stride, roots
        self._by_x = frontier(roots, "input")
        self._tables = [k.scratch(TILE) for _ in self._by_x]
        self._limits = limits(roots)

    def at(self, j: ir.Value) -> None:
        """Move to input j: tabulate the parts that depend on x alone, and find the largest |x|."""
        k, v = self.k, self.k.v
        row = self.row = k.times(j, self._stride)
        self._largest = v.const(0.0)
        if not self._by_x and self._limits is None:
            return

        def each(block: ir.Value, largest: Values) -> Values:
            first = k.times(block, v.lanes)
            x = k.load(self._x, k.plus(row, first))
            for value, table in zip(
                Emitter(v, {symbol(INPUT): x}).evaluate(*self._by_x), self._tables, strict=True
            ):
                k.store(value, table, first)
            return [v.maximum(v.abs(x), largest[0])]

        (largest,) = loop(v, k.vectors(self.samples), each, [self._largest])
        if self._limits is not None:
            self._largest = v.splat(v.largest(largest))

    def over(self, emit: Emitter, each: EachSample, carried: Values) -> Values:
        """Loop over the samples, with the short forms of functions if their arguments allow it."""
        k, v = self.k, self.k.v

        def body(s: ir.Value, values: Values) -> Values:
            more = {part: k.broadcast(table, s) for part, table in zip(self._by_x, self._tables, strict=True)}
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

        results = when(v, k.builder.not_(wild), tame, carried)
        return when(v, wild, lambda: loop(v, self.samples, body, carried), results)


class DenseForwardArgs(Args):
    inputs: int
    vectors: int
    samples: int
    stride: int
    x: int
    matrices: int
    row_length: int
    u: int
    """Scratch for (vectors, stride, lanes) numbers."""
    out: int
    out_row_length: int


def dense_forward(program: Program, target: Target) -> str:
    """out[s] = F ⊙ x[s] for the samples of a tile and whole vectors of outputs."""
    k = Kernel("dense forward", target, DenseForwardArgs)
    v, A = k.v, DenseForwardArgs.places()
    lanes = target.lanes
    value = value_of(program)
    vectors, stride = k.number(A.vectors), k.number(A.stride)
    tile = _Tile(k, k.pointer(A.x), stride, k.number(A.samples), [value])
    tables = k.pointers(A.matrices, len(program.matrices))
    row_length = k.number(A.row_length)
    u, out, out_row_length = k.pointer(A.u), k.pointer(A.out), k.number(A.out_row_length)
    per_vector, zero = k.times(stride, lanes), v.const(0.0)
    loop(v, k.times(vectors, stride), lambda place, _: k.store(zero, u, k.times(place, lanes)))

    def each_input(j: ir.Value, _: Values) -> None:
        tile.at(j)
        row = k.times(j, row_length)

        def each_vector(vec: ir.Value, _: Values) -> None:
            place = k.plus(row, k.times(vec, lanes))
            emit = hoisted(Emitter(v, matrix_values(k, program, tables, place)), [value])
            here = k.times(vec, per_vector)

            def each_sample(s: ir.Value, there: Emitter, _: Values) -> Values:
                cell = k.plus(here, k.times(s, lanes))
                total = there.also({SUM: k.load(u, cell)}).evaluate(folded("add", SUM, value))[0]
                k.store(total, u, cell)
                return []

            tile.over(emit, each_sample, [])

        loop(v, vectors, each_vector)

    loop(v, k.number(A.inputs), each_input)

    def finish(vec: ir.Value, _: Values) -> None:
        def each_sample(s: ir.Value, _: Values) -> None:
            sums = k.load(u, k.plus(k.times(vec, per_vector), k.times(s, lanes)))
            k.store(sums, out, k.plus(k.times(s, out_row_length), k.times(vec, lanes)))

        loop(v, tile.samples, each_sample)

    loop(v, vectors, finish)
    return k.finish()


class DenseBackwardArgs(Args):
    inputs: int
    vectors: int
    samples: int
    stride: int
    x: int
    matrices: int
    row_length: int
    """Of matrices and gradients."""
    g: int
    """The error at the sums, (vectors, stride, lanes)."""
    gradients: int
    accumulate: int
    """Whether to add to the gradients rather than overwrite them."""
    dx: int
    """The error passed down, (in, stride)."""


def dense_backward(program: Program, target: Target, *, by_x: bool, by_parameters: bool) -> str:
    """The gradients of Σ g·(F ⊙ x) by x and every parameter, in one pass."""
    k = Kernel("dense backward", target, DenseBackwardArgs)
    v, A = k.v, DenseBackwardArgs.places()
    lanes = target.lanes
    slopes = slopes_of(program, by_x, by_parameters)
    inner, outer, down, parts = slopes.inner, slopes.outer, slopes.down, slopes.times_error
    stride = k.number(A.stride)
    tile = _Tile(k, k.pointer(A.x), stride, k.number(A.samples), parts)
    vectors, row_length = k.number(A.vectors), k.number(A.row_length)
    tables = k.pointers(A.matrices, len(program.matrices))
    gradients = k.pointers(A.gradients, len(program.parameters) if by_parameters else 0)
    accumulate = k.is_set(k.number(A.accumulate))
    g, dx = k.pointer(A.g), k.pointer(A.dx)
    partial = k.scratch(TILE * lanes if by_x else 0)
    per_vector, zero = k.times(stride, lanes), v.const(0.0)

    def each_input(j: ir.Value, _: Values) -> None:
        tile.at(j)
        if by_x:
            loop(v, stride, lambda s, _: k.store(zero, partial, k.times(s, lanes)))
        row = k.times(j, row_length)

        def each_vector(vec: ir.Value, _: Values) -> None:
            place = k.plus(row, k.times(vec, lanes))
            known = matrix_values(k, program, tables, place)
            emit = hoisted(Emitter(v, known), [*inner, down, *outer, *parts])
            here = k.times(vec, per_vector)

            def each_sample(s: ir.Value, there: Emitter, sums: Values) -> Values:
                cell = k.times(s, lanes)
                names = [numbered_sum(n) for n in range(len(sums))]
                known: dict[Expr, ir.Value] = dict(zip(names, sums, strict=True))
                known[ERROR] = k.load(g, k.plus(here, cell))
                known[SUM] = k.load(partial, cell) if by_x else zero
                totals = [plus(name, part) for name, part in zip((*names, SUM), parts, strict=True)]
                *new_sums, sent = there.also(known).evaluate(*totals)
                if by_x:
                    k.store(sent, partial, cell)
                return new_sums

            sums = tile.over(emit, each_sample, [zero] * len(inner))
            for factor, part, total, table in zip(emit.evaluate(*outer), outer, sums, gradients, strict=True):
                gradient = total if part is ONE else v.mul(total, factor)

                def old(table: ir.Value = table) -> Values:
                    return [k.load(table, place)]

                k.store(v.add(when(v, accumulate, old, [zero])[0], gradient), table, place)

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
