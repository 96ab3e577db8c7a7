"""Forward and backward kernels for partial matrices, which have a list of connections for each output.

With most connections gone, vectors of outputs would be mostly empty. So here a vector holds samples: a
connection's parameters are the same in all lanes, and an output's sums stay in registers while the kernel
loops over its connections.

Layouts, for one tile of `width` = `vectors`·lanes samples: x and the error passed down (in, width), the sums
and their error (outputs, width). Parameters, constants, gradients and inputs have one number per connection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

from ftnn.formula._derive import differentiate
from ftnn.formula._expr import INPUT, Expr, folded, symbol
from ftnn.kernels.codegen.control import I64, loop
from ftnn.kernels.codegen.emitting import Emitter
from ftnn.kernels.codegen.placeholders import SUM
from ftnn.kernels.codegen.rewriting import kernel_form, regrouped, split_product
from ftnn.kernels.codegen.rewriting import without_cancellation as exact
from ftnn.kernels.codegen.target import Args, Target
from ftnn.kernels.loops.kernel import Kernel, hoisted
from ftnn.kernels.program import Program

Values = list[ir.Value]


class PartialArgs(Args):
    outputs: int
    bounds: int
    """The start of each output's connections, and the end of the last: outputs + 1 int64."""
    inputs: int
    """The input of each connection, int32."""
    matrices: int
    x: int
    sums: int
    """The sums, which `forward` writes, or their error."""
    targets: int
    """Arrays to add gradients to: one per parameter, or the error passed down."""


_ARGS = PartialArgs.places()


def forward(program: Program, target: Target, vectors: int) -> str:
    """sums = F ⊙ x for a tile of samples and some of the outputs."""
    k = Kernel("partial_forward", target, PartialArgs)
    value = regrouped(exact(kernel_form(program))[0])
    total, sums = folded("add", SUM, value), k.pointer(_ARGS.sums)
    walk = _Walk(k, program, vectors, [value])

    def each_output(o: ir.Value, _: Values) -> None:
        def each_connection(c: ir.Value, carried: Values) -> Values:
            emit, row = walk.at(c)
            return [
                emit.also({symbol(INPUT): walk.x(row, n), SUM: so_far}).evaluate(total)[0]
                for n, so_far in enumerate(carried)
            ]

        totals = walk.connections(o, each_connection, [k.v.const(0.0)] * vectors)
        for n, vector in enumerate(totals):
            k.store(vector, sums, walk.place(k.times(o, walk.width), n))

    loop(k.v, k.number(_ARGS.outputs), each_output)
    return k.finish()


def by_parameters(program: Program, target: Target, vectors: int) -> str:
    """Add the gradients of a tile of samples to those of every connection."""
    k = Kernel("partial_by_parameters", target, PartialArgs)
    v, b = k.v, k.builder
    form = kernel_form(program)
    slopes = [regrouped(part) for part in exact(*(differentiate(form, n) for n in program.parameters))]
    # A factor of parameters alone is applied after the sum over the samples.
    outer, inner = map(list, zip(*map(split_product, slopes), strict=True))
    errors, targets = k.pointer(_ARGS.sums), k.pointers(_ARGS.targets, len(slopes))
    walk = _Walk(k, program, vectors, [*inner, *outer])

    def each_connection(c: ir.Value, error: Values) -> None:
        emit, row = walk.at(c)
        totals = [v.const(0.0)] * len(inner)
        for n in range(vectors):
            slopes = emit.also({symbol(INPUT): walk.x(row, n)}).evaluate(*inner)
            totals = [v.fma(error[n], part, total) for part, total in zip(slopes, totals, strict=True)]
        for factor, total, target in zip(emit.evaluate(*outer), totals, targets, strict=True):
            place = k.at(target, v.scalar, c)
            b.store(b.fadd(b.load(place, typ=v.scalar), v.hsum(v.mul(total, factor))), place)

    walk.with_errors(errors, each_connection)
    return k.finish()


def by_x(program: Program, target: Target, vectors: int) -> str:
    """Add the error that these outputs pass down."""
    k = Kernel("partial_by_x", target, PartialArgs)
    (slope,) = map(regrouped, exact(differentiate(kernel_form(program), INPUT)))
    errors, down = k.pointer(_ARGS.sums), k.pointer(_ARGS.targets)
    walk = _Walk(k, program, vectors, [slope])

    def each_connection(c: ir.Value, error: Values) -> None:
        emit, row = walk.at(c)
        for n in range(vectors):
            place = walk.place(row, n)
            value = emit.also({symbol(INPUT): walk.x(row, n)}).evaluate(slope)[0]
            k.store(k.v.fma(error[n], value, k.load(down, place)), down, place)

    walk.with_errors(errors, each_connection)
    return k.finish()


class _Walk:
    """The loop over connections, and the values known at each."""

    def __init__(self, k: Kernel, program: Program, vectors: int, roots: Sequence[Expr]):
        self._k, self._program, self._vectors, self._roots = k, program, vectors, roots
        self.width = vectors * k.v.lanes
        self._bounds, self._inputs = k.pointer(_ARGS.bounds), k.pointer(_ARGS.inputs)
        self._tables = k.pointers(_ARGS.matrices, len(program.matrices))
        self._x = k.pointer(_ARGS.x)

    def with_errors(self, errors: ir.Value, body: Callable[[ir.Value, Values], None]) -> None:
        """Run `body(connection, errors)` for every connection of every output."""
        k = self._k

        def each_output(o: ir.Value, _: Values) -> None:
            row = k.times(o, self.width)
            error = [k.load(errors, self.place(row, n)) for n in range(self._vectors)]
            self.connections(o, lambda c, _: body(c, error))

        loop(k.v, k.number(_ARGS.outputs), each_output)

    def connections(
        self, o: ir.Value, body: Callable[[ir.Value, Values], Values | None], carried: Sequence[ir.Value] = ()
    ) -> Values:
        """Loop over the connections of output o."""
        k = self._k
        first, last = (
            k.builder.load(k.at(self._bounds, I64, place), typ=I64)
            for place in (o, k.plus(o, ir.Constant(I64, 1)))
        )
        return loop(k.v, last, body, carried, start=first)

    def at(self, c: ir.Value) -> tuple[Emitter, ir.Value]:
        """An emitter for connection c, with sample-independent parts computed, and its row of x."""
        k = self._k
        names = zip(self._program.matrices, self._tables, strict=True)
        emit = Emitter(k.v, {symbol(name): k.broadcast(table, c) for name, table in names})
        row = k.times(k.index_at(self._inputs, c), self.width)
        return hoisted(emit, self._roots), row

    def place(self, row: ir.Value, n: int) -> ir.Value:
        """The place of a row's nth vector."""
        return self._k.plus(row, ir.Constant(I64, n * self._k.v.lanes))

    def x(self, row: ir.Value, n: int) -> ir.Value:
        return self._k.load(self._x, self.place(row, n))
