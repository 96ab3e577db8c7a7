"""A memory function over a whole sequence, and its derivative, one-step or through time.

The outer loops are over inputs and vectors of outputs, the inner ones over time and samples: parameters and
their gradients stay in registers. No cells are kept for the derivative. It computes them again, connection by
connection, which takes less time than to write and read all of them would.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from ftnn.formula._expr import INPUT, MEMORY, symbol
from ftnn.kernels.codegen.control import I64, loop
from ftnn.kernels.codegen.emitting import Emitter
from ftnn.kernels.codegen.rewriting import regrouped
from ftnn.kernels.codegen.target import Args, Target
from ftnn.kernels.loops.kernel import Kernel, hoisted, matrix_values
from ftnn.kernels.program import Program

Values = list[ir.Value]


class SequenceArgs(Args):
    inputs: int
    vectors: int
    steps: int
    samples: int
    x: int
    """(in, time, samples)."""
    matrices: int
    row_length: int
    cells: int
    """Every connection's value, (in, vectors, samples, lanes): the initial one, in the end the last one."""
    per_input: int
    """The distance to the next input's cells, in numbers."""
    u: int
    """The sums, or the error at them: (vectors, time, samples, lanes)."""
    gradients: int
    """Addresses of the parameters' gradients, laid out like the matrices."""
    carried: int
    """The error at the last cells, then at the initial ones: (in, vectors, samples, lanes)."""
    dx: int
    """The error passed down, (in, time, samples)."""
    history: int
    """Space for the cells of a connection before each step, (time, samples, lanes)."""
    partial: int
    """Space for the parts of `dx` by lane, (time, samples, lanes)."""


_ARGS = SequenceArgs.places()


def _discard(_: Values) -> None:
    """For loops that carry nothing on."""


class _Sequence:
    """What both kernels read, and the loops around them."""

    def __init__(self, name: str, program: Program, target: Target):
        k = self.k = Kernel(name, target, SequenceArgs)
        A, self._program = _ARGS, program
        self.steps, self.samples, self.vectors = k.number(A.steps), k.number(A.samples), k.number(A.vectors)
        self.cells, self.u, self._x = k.pointer(A.cells), k.pointer(A.u), k.pointer(A.x)
        self.per_step = k.times(self.samples, target.lanes)
        self._row_length, self._per_input = k.number(A.row_length), k.number(A.per_input)
        self._tables = k.pointers(A.matrices, len(program.matrices))
        self.numbers = k.times(self.steps, self.samples)
        """Pairs of a time step and a sample."""

    def connections(self, j: ir.Value, each: Callable[[ir.Value, ir.Value, ir.Value, Emitter], None]) -> None:
        """Call each(vector, its place in the matrices, that of its cells, emitter) for an input."""
        k = self.k

        def body(vec: ir.Value, _: Values) -> None:
            place = k.plus(k.times(j, self._row_length), k.times(vec, k.v.lanes))
            cells = k.plus(k.times(j, self._per_input), k.times(vec, self.per_step))
            each(vec, place, cells, Emitter(k.v, matrix_values(k, self._program, self._tables, place)))

        loop(k.v, self.vectors, body)

    def place(self, of: ir.Value, t: ir.Value, s: ir.Value) -> ir.Value:
        """The index of a step and a sample in an array (of, time, samples)."""
        return self.k.plus(self.k.times(self.k.plus(self.k.times(of, self.steps), t), self.samples), s)

    def known(self, emit: Emitter, j: ir.Value, t: ir.Value, s: ir.Value, cell: ir.Value) -> Emitter:
        """An emitter that knows x and the previous value."""
        x = self.k.broadcast(self._x, self.place(j, t, s))
        return emit.also({symbol(INPUT): x, symbol(MEMORY): cell})

    def over_steps(self, steps: ir.Value, each: Callable[[ir.Value, ir.Value], None]) -> None:
        """Call each(step, sample), all samples of a step before the next."""
        v = self.k.v
        loop(v, steps, lambda t, _: _discard(loop(v, self.samples, lambda s, _: each(t, s))))


def sequence_forward(program: Program, target: Target) -> str:
    """At each step, cells = F(x[t]; cells), and u[t] = their sums over the inputs."""
    sequence = _Sequence("sequence forward", program, target)
    k, v, lanes = sequence.k, sequence.k.v, target.lanes
    value = regrouped(program.expr)
    count = k.times(sequence.vectors, sequence.numbers)
    loop(v, count, lambda n, _: k.store(v.const(0.0), sequence.u, k.times(n, lanes)))

    def each_input(j: ir.Value, _: Values) -> None:
        def each(vec: ir.Value, place: ir.Value, cells: ir.Value, emit: Emitter) -> None:
            emit = hoisted(emit, [value])

            def each_sample(t: ir.Value, s: ir.Value) -> None:
                cell, sums = k.plus(cells, k.times(s, lanes)), k.times(sequence.place(vec, t, s), lanes)
                new = sequence.known(emit, j, t, s, k.load(sequence.cells, cell)).evaluate(value)[0]
                k.store(new, sequence.cells, cell)
                k.store(v.add(k.load(sequence.u, sums), new), sequence.u, sums)

            sequence.over_steps(sequence.steps, each_sample)

        sequence.connections(j, each)

    loop(v, k.number(_ARGS.inputs), each_input)
    return k.finish()


def sequence_backward(program: Program, target: Target, *, by_x: bool, through_time: bool) -> str:
    """The gradients of Σ u·(sums) + Σ carried·(last cells) by x, by every parameter and by the initial cells.

    Without `through_time` the cells before each step are constants, and so is the initial state.
    """
    sequence = _Sequence("sequence backward", program, target)
    k, v, lanes, A = sequence.k, sequence.k.v, target.lanes, _ARGS
    names = (*program.parameters, *((MEMORY,) if through_time else ()), *((INPUT,) if by_x else ()))
    slopes = [regrouped(program.slopes[name]) for name in names]
    count, zero = len(program.parameters), v.const(0.0)
    gradients, carried = k.pointers(A.gradients, count), k.pointer(A.carried)
    dx, partial, history = k.pointer(A.dx), k.pointer(A.partial), k.pointer(A.history)
    value = regrouped(program.expr)
    last = k.builder.sub(sequence.steps, ir.Constant(I64, 1))

    def each_input(j: ir.Value, _: Values) -> None:
        if by_x:
            loop(v, sequence.numbers, lambda n, _: k.store(zero, partial, k.times(n, lanes)))

        def each(vec: ir.Value, place: ir.Value, cells: ir.Value, emit: Emitter) -> None:
            emit = hoisted(emit, [value, *slopes])

            def first(s: ir.Value, _: Values) -> None:
                here = k.times(s, lanes)
                k.store(k.load(sequence.cells, k.plus(cells, here)), history, here)

            def again(t: ir.Value, s: ir.Value) -> None:
                before = k.plus(k.times(t, sequence.per_step), k.times(s, lanes))
                new = sequence.known(emit, j, t, s, k.load(history, before)).evaluate(value)[0]
                k.store(new, history, k.plus(before, sequence.per_step))

            loop(v, sequence.samples, first)
            sequence.over_steps(last, again)

            def each_step(n: ir.Value, sums: Values) -> Values:
                t = k.builder.sub(last, n)
                row = k.times(t, sequence.per_step)

                def each_sample(s: ir.Value, sums: Values) -> Values:
                    here = k.times(s, lanes)
                    cell, later = k.plus(row, here), k.plus(cells, here)
                    values = sequence.known(emit, j, t, s, k.load(history, cell)).evaluate(*slopes)
                    own = k.load(sequence.u, k.times(sequence.place(vec, t, s), lanes))
                    error = v.add(own, k.load(carried, later))
                    k.store(v.mul(error, values[count]) if through_time else zero, carried, later)
                    if by_x:
                        k.store(v.fma(error, values[-1], k.load(partial, cell)), partial, cell)
                    return [v.fma(error, by, total) for by, total in zip(values, sums, strict=False)]

                return loop(v, sequence.samples, each_sample, sums)

            totals = loop(v, sequence.steps, each_step, [zero] * count)
            for total, table in zip(totals, gradients, strict=True):
                k.store(total, table, place)

        sequence.connections(j, each)
        if by_x:
            row = k.times(j, sequence.numbers)

            def add_up(n: ir.Value, _: Values) -> None:
                k.put_scalar(v.hsum(k.load(partial, k.times(n, lanes))), dx, k.plus(row, n))

            loop(v, sequence.numbers, add_up)

    loop(v, k.number(A.inputs), each_input)
    return k.finish()
