"""Forward and backward kernels for small layers, where a second call from Python costs more than the work.

A vector holds samples, so that few outputs leave no lane empty. The kernels transpose everything they need,
to (in, stride) and (out, stride), and back.
"""

from __future__ import annotations

from llvmlite import ir

from ftnn.formula._expr import INPUT, Expr, folded, plus, symbol
from ftnn.kernels.codegen.control import I64, loop
from ftnn.kernels.codegen.emitting import Emitter
from ftnn.kernels.codegen.placeholders import ERROR, SILENT, SUM, numbered_sum
from ftnn.kernels.codegen.rewriting import frontier
from ftnn.kernels.codegen.target import Args, Target
from ftnn.kernels.loops.copies import transposed
from ftnn.kernels.loops.forms import slopes_of, value_of
from ftnn.kernels.loops.kernel import Kernel, hoisted
from ftnn.kernels.program import Program

Values = list[ir.Value]


class SmallArgs(Args):
    samples: int
    inputs: int
    outputs: int
    stride: int
    """`samples`, rounded up to whole vectors."""
    x: int
    x_by_sample: int
    """The distance to the next sample, in numbers."""
    x_by_input: int
    matrices: int
    """The address of each, (in, out)."""
    scratch: int
    """Space for (in + out + more, stride) numbers; `more` is what `more_rows` returns."""
    rows: int
    """(samples, out): the sums, which `forward` writes, or their error."""
    gradients: int
    """The address of each parameter's gradient, (in, out)."""
    dx: int
    """The error sent down, (samples, in)."""
    finite: int
    """`backward` writes here whether it found all results finite: 0 or 1."""


class _Layer:
    """What both kernels have in common."""

    def __init__(self, name: str, program: Program, target: Target, roots: list[Expr]):
        self.k = k = Kernel(name, target, SmallArgs)
        self.A = A = SmallArgs.places()
        self._program, self._by_x = program, frontier(roots, "input")
        self.samples, self.stride = k.number(A.samples), k.number(A.stride)
        self.inputs, self.outputs = k.number(A.inputs), k.number(A.outputs)
        self.rows = k.pointer(A.rows)
        self._tables = k.pointers(A.matrices, len(program.matrices))
        self.x = k.pointer(A.scratch)
        self.by_output = self._rows_after(self.x, self.inputs)
        self.sent = self._rows_after(self.by_output, self.outputs)
        one = ir.Constant(I64, 1)
        self._tables_of_x = [self._rows_after(self.sent, one)]
        for _ in self._by_x:
            self._tables_of_x.append(self._rows_after(self._tables_of_x[-1], one))
        transposed(
            k,
            rows=self.inputs,
            columns=self.samples,
            width=self.stride,
            source=k.pointer(A.x),
            source_by_row=k.number(A.x_by_input),
            source_by_column=k.number(A.x_by_sample),
            target=self.x,
            target_by_row=self.stride,
            repeats=True,  # no value that does not occur
        )

    def _rows_after(self, base: ir.Value, rows: ir.Value) -> ir.Value:
        k = self.k
        return k.at(base, k.v.scalar, k.times(rows, self.stride))

    def tabulate(self, i: ir.Value) -> ir.Value:
        """Compute what depends on x alone for all samples of input i. Returns the place of its x."""
        k = self.k
        row = k.times(i, self.stride)

        def each(vec: ir.Value, _: Values) -> None:
            first = k.times(vec, k.v.lanes)
            emit = Emitter(k.v, {symbol(INPUT): k.load(self.x, k.plus(row, first))})
            for value, table in zip(emit.evaluate(*self._by_x), self._tables_of_x, strict=False):
                k.store(value, table, first)

        if self._by_x:
            loop(k.v, k.vectors(self.samples), each)
        return row

    def values_of_x(self, row: ir.Value, first: ir.Value) -> dict[Expr, ir.Value]:
        """x and what depends on it alone, for a vector of samples of the input at `row`."""
        k = self.k
        known: dict[Expr, ir.Value] = {symbol(INPUT): k.load(self.x, k.plus(row, first))}
        tables = zip(self._by_x, self._tables_of_x, strict=False)
        return known | {part: k.load(table, first) for part, table in tables}

    def at(self, i: ir.Value, o: ir.Value, roots: list[Expr]) -> tuple[ir.Value, Emitter]:
        """The place of a connection in each matrix, and an emitter that knows its parameters."""
        k = self.k
        place = k.plus(k.times(i, self.outputs), o)
        known: dict[Expr, ir.Value] = {SILENT: k.v.const(0.0)}
        for name, table in zip(self._program.matrices, self._tables, strict=True):
            known[symbol(name)] = k.broadcast(table, place)
        return place, hoisted(Emitter(k.v, known), roots)

    def back(self, source: ir.Value, columns: ir.Value, target: ir.Value) -> None:
        """Transpose (columns, stride) into (samples, columns)."""
        transposed(
            self.k,
            rows=self.samples,
            columns=columns,
            width=columns,
            source=source,
            source_by_row=ir.Constant(I64, 1),
            source_by_column=self.stride,
            target=target,
            target_by_row=columns,
        )

    def clear(self, base: ir.Value, row: ir.Value) -> None:
        k = self.k
        zero = k.v.const(0.0)

        def each(vec: ir.Value, _: Values) -> None:
            k.store(zero, base, k.plus(row, k.times(vec, k.v.lanes)))

        loop(k.v, k.vectors(self.samples), each)


def more_rows(program: Program, *, backward: tuple[bool, bool] | None = None) -> int:
    """How many rows of scratch a kernel needs beside those for inputs and outputs.

    `backward` says whether gradients by x and by parameters are computed; None means the forward kernel.
    """
    if backward is None:
        return 1 + len(frontier([value_of(program)], "input"))
    by_x, by_parameters = backward
    return 1 + len(frontier(slopes_of(program, by_x, by_parameters).times_error, "input"))


def small_forward(program: Program, target: Target) -> str:
    """rows = F ⊙ x."""
    value = value_of(program)
    layer = _Layer("small forward", program, target, [value])
    k, total = layer.k, folded("add", SUM, value)
    loop(k.v, layer.outputs, lambda o, _: layer.clear(layer.by_output, k.times(o, layer.stride)))

    def each_input(i: ir.Value, _: Values) -> None:
        source = layer.tabulate(i)

        def each_output(o: ir.Value, _: Values) -> None:
            emit = layer.at(i, o, [value])[1]
            row = k.times(o, layer.stride)

            def each_vector(vec: ir.Value, _: Values) -> None:
                first = k.times(vec, k.v.lanes)
                place = k.plus(row, first)
                known = layer.values_of_x(source, first) | {SUM: k.load(layer.by_output, place)}
                k.store(emit.also(known).evaluate(total)[0], layer.by_output, place)

            loop(k.v, k.vectors(layer.samples), each_vector)

        loop(k.v, layer.outputs, each_output)

    loop(k.v, layer.inputs, each_input)
    layer.back(layer.by_output, layer.outputs, layer.rows)
    return k.finish()


def small_backward(program: Program, target: Target, *, by_x: bool, by_parameters: bool) -> str:
    """The gradients of Σ rows·(F ⊙ x) by x and every parameter."""
    slopes = slopes_of(program, by_x, by_parameters)
    inner, outer, down, parts = slopes.inner, slopes.outer, slopes.down, slopes.times_error
    layer = _Layer("small backward", program, target, parts)
    k, v, sent = layer.k, layer.k.v, layer.sent
    gradients = k.pointers(layer.A.gradients, len(inner))
    transposed(
        k,
        rows=layer.outputs,
        columns=layer.samples,
        width=layer.stride,
        source=layer.rows,
        source_by_row=ir.Constant(I64, 1),
        source_by_column=layer.outputs,
        target=layer.by_output,
        target_by_row=layer.stride,
    )
    zero, nothing = v.const(0.0), ir.Constant(I64, 0)

    def each_input(i: ir.Value, totals: Values) -> Values:
        source = layer.tabulate(i)
        if by_x:
            layer.clear(sent, nothing)

        def each_output(o: ir.Value, totals: Values) -> Values:
            (checked,) = totals
            place, emit = layer.at(i, o, [*inner, down, *outer, *parts])
            row = k.times(o, layer.stride)

            def each_vector(vec: ir.Value, sums: Values) -> Values:
                first = k.times(vec, v.lanes)
                symbols = [numbered_sum(n) for n in range(len(sums))]
                known: dict[Expr, ir.Value] = dict(zip(symbols, sums, strict=True))
                known |= layer.values_of_x(source, first)
                known[ERROR] = k.load(layer.by_output, k.plus(row, first))
                known[SUM] = k.load(sent, first) if by_x else zero
                totals = [plus(name, part) for name, part in zip((*symbols, SUM), parts, strict=True)]
                *new_sums, new_sent = emit.also(known).evaluate(*totals)
                if by_x:
                    k.store(new_sent, sent, first)
                return new_sums

            sums = loop(v, k.vectors(layer.samples), each_vector, [zero] * len(inner))
            for factor, total, table in zip(emit.evaluate(*outer), sums, gradients, strict=True):
                gradient = v.hsum(v.mul(total, factor))
                k.put_scalar(gradient, table, place)
                checked = v.add(checked, v.splat(gradient))
            return [checked]

        totals = loop(v, layer.outputs, each_output, totals)
        if not by_x:
            return totals

        def keep(vec: ir.Value, totals: Values) -> Values:
            first = k.times(vec, v.lanes)
            error = k.load(sent, first)  # takes the place of x, which is not needed any more
            k.store(error, layer.x, k.plus(source, first))
            return [v.add(totals[0], error)]

        return loop(v, k.vectors(layer.samples), keep, totals)

    (checked,) = loop(v, layer.inputs, each_input, [zero])
    # A sum that is finite has no term that is not.
    difference = k.builder.fsub(v.hsum(checked), v.hsum(checked))
    is_finite = k.builder.fcmp_ordered("==", difference, ir.Constant(v.scalar, 0.0))
    k.set_number(layer.A.finite, k.builder.zext(is_finite, I64))
    if by_x:
        layer.back(layer.x, layer.inputs, k.pointer(layer.A.dx))
    return k.finish()
