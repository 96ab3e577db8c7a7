"""The kernels as texts with holes: loops over inputs, vectors of outputs and samples around a function.

Every kernel is `void kernel(int64 *args)`; `args` holds sizes and addresses, in the order of the kernel's
`Args`. Samples come in tiles. For each input j a tile is a list: the samples whose x_j is not zero, then the
others. F(0) does not depend on the sample, so the others cost one evaluation together.

Layouts: matrices (in, out) with a row length of their own; lists (in, stride), where the stride is a number
of whole vectors; `u`, `g` (vectors, stride, lanes). What lies between two rows is neither read nor written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

from llvmlite import ir

from ftnn.formula._derive import differentiate
from ftnn.formula._expr import INPUT, MEMORY, ZERO, Expr, call, folded, number, symbol
from ftnn.kernels._emit import (
    I32,
    I64,
    POINTER,
    SILENT,
    Emitter,
    at_zero,
    frontier,
    kernel_form,
    loop,
    regrouped,
    split_product,
    when,
    without_cancellation,
)
from ftnn.kernels._program import Program
from ftnn.kernels._vector import DType, Vectors

TILE = 64
"""The most samples of one kernel call, unless the kernel is made for more."""
LEAST_INPUTS = 16
"""With fewer inputs than this zeros are not skipped: a sum of few F(x) may be far smaller than the F(0) that
skipping adds and takes away again, which would cost it its digits."""


class Kernel:
    """A module with one kernel in it, being written."""

    def __init__(self, name: str, dtype: DType, lanes: int):
        self.module = ir.Module(name)
        function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), [POINTER]), "kernel")
        self.builder: Any = ir.IRBuilder(function.append_basic_block("entry"))
        self.v = Vectors(self.builder, dtype, lanes)
        self.args = function.args[0]

    def number(self, field: IntEnum) -> ir.Value:
        return self.builder.load(self.at(self.args, I64, field), typ=I64, name=field.name)

    def pointer(self, field: IntEnum) -> ir.Value:
        return self.builder.load(self.at(self.args, I64, field), typ=POINTER, name=field.name)

    def pointers(self, field: IntEnum, count: int) -> list[ir.Value]:
        """`count` addresses, behind one."""
        table = self.pointer(field)
        return [self.builder.load(self.at(table, I64, k), typ=POINTER) for k in range(count)]

    def at(self, base: ir.Value, kind: ir.Type, index: ir.Value | int) -> ir.Value:
        place = ir.Constant(I64, int(index)) if isinstance(index, int) else index
        return self.builder.gep(base, [place], source_etype=kind)

    def load(self, base: ir.Value, index: ir.Value) -> ir.Value:
        """A vector, starting at any element."""
        v = self.v
        return self.builder.load(self.at(base, v.scalar, index), typ=v.type, align=v.bits // 8)

    def store(self, value: ir.Value, base: ir.Value, index: ir.Value) -> None:
        self.builder.store(value, self.at(base, self.v.scalar, index), align=self.v.bits // 8)

    def scalar(self, base: ir.Value, index: ir.Value) -> ir.Value:
        return self.builder.load(self.at(base, self.v.scalar, index), typ=self.v.scalar)

    def broadcast(self, base: ir.Value, index: ir.Value) -> ir.Value:
        return self.v.splat(self.scalar(base, index))

    def index_at(self, base: ir.Value, place: ir.Value) -> ir.Value:
        return self.builder.sext(self.builder.load(self.at(base, I32, place), typ=I32), I64)

    def room(self, elements: int) -> ir.Value:
        """Memory on the stack, for as long as the kernel runs."""
        with self.builder.goto_entry_block():
            return _untyped(self.builder.alloca(ir.ArrayType(self.v.scalar, elements)))

    def times(self, a: ir.Value, b: ir.Value | int) -> ir.Value:
        return self.builder.mul(a, ir.Constant(I64, b) if isinstance(b, int) else b)

    def plus(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.builder.add(a, b)

    def vectors(self, count: ir.Value) -> ir.Value:
        """How many vectors hold `count` numbers."""
        lanes = ir.Constant(I64, self.v.lanes)
        return self.builder.sdiv(self.plus(count, ir.Constant(I64, self.v.lanes - 1)), lanes)

    def finish(self) -> str:
        self.builder.ret_void()
        return str(self.module)


def _untyped(place: Any) -> ir.Value:
    """LLVM's pointers have no type any more; llvmlite still gives one to what is on the stack."""
    place.type = POINTER
    return place


class Lists:
    """The samples of a tile by input: `x` and where each sample stands."""

    def __init__(
        self,
        k: Kernel,
        count: ir.Value,
        index: ir.Value,
        value: ir.Value,
        stride: ir.Value,
        samples: ir.Value,
    ):
        self.k = k
        self._count, self._index, self._value, self._stride, self.samples = (
            count,
            index,
            value,
            stride,
            samples,
        )

    def at(self, j: ir.Value) -> None:
        """Turn to input j."""
        k = self.k
        self.row = k.times(j, self._stride)
        self.listed = k.builder.sext(k.builder.load(k.at(self._count, I32, j), typ=I32), I64)
        self.some_are_zero = k.builder.icmp_signed("<", self.listed, self.samples)

    def sample(self, s: ir.Value) -> ir.Value:
        """Which sample stands at place s."""
        return self.k.index_at(self._index, self.k.plus(self.row, s))

    def x(self, s: ir.Value) -> ir.Value:
        return self.k.broadcast(self._value, self.k.plus(self.row, s))

    def tabulate(self, parts: Sequence[Expr], tables: Sequence[ir.Value]) -> None:
        """Write what depends on x alone into tables by place, a vector of samples at a time."""
        k = self.k
        if not parts:
            return

        def body(block: ir.Value, _: list[ir.Value]) -> None:
            first = k.times(block, k.v.lanes)
            x = k.load(self._value, k.plus(self.row, first))
            for value, table in zip(Emitter(k.v, {symbol(INPUT): x}).evaluate(*parts), tables, strict=True):
                k.store(value, table, first)

        loop(k.v, k.vectors(self.listed), body)


def _matrix_values(
    k: Kernel, program: Program, tables: Sequence[ir.Value], place: ir.Value
) -> dict[Expr, ir.Value]:
    values: dict[Expr, ir.Value] = {SILENT: k.v.const(0.0)}
    return values | {
        symbol(name): k.load(table, place) for name, table in zip(program.matrices, tables, strict=True)
    }


def _hoisted(emit: Emitter, roots: Sequence[Expr]) -> Emitter:
    """With what depends on matrices alone computed."""
    parts = frontier(roots, "matrices")
    return emit.also(dict(zip(parts, emit.evaluate(*parts), strict=True)))


class ForwardArgs(IntEnum):
    inputs = 0
    vectors = 1
    samples = 2
    stride = 3
    count = 4
    index = 5
    values = 6
    matrices = 7
    row_length = 8
    u = 9
    """Room for (vectors, stride, lanes) numbers."""
    out = 10
    out_row_length = 11
    lost = 12
    """Set to 1 where F(0) is not finite, so that the lists must hold all samples."""


def forward(program: Program, dtype: DType, lanes: int, tile: int = TILE) -> str:
    """out[s] = F ⊙ x[s], for the samples of a tile and whole vectors of outputs."""
    k = Kernel("forward", dtype, lanes)
    v, b, A = k.v, k.builder, ForwardArgs
    (form,) = without_cancellation(kernel_form(program))
    value = regrouped(form)
    silent = regrouped(at_zero(form))
    inputs, vectors, stride = k.number(A.inputs), k.number(A.vectors), k.number(A.stride)
    lists = Lists(k, k.pointer(A.count), k.pointer(A.index), k.pointer(A.values), stride, k.number(A.samples))
    tables, row_length = k.pointers(A.matrices, len(program.matrices)), k.number(A.row_length)
    u, out, out_row_length, lost = (
        k.pointer(A.u),
        k.pointer(A.out),
        k.number(A.out_row_length),
        k.pointer(A.lost),
    )
    by_x = frontier([value], "input")
    rooms = [k.room(tile + lanes) for _ in by_x]
    per_vector = k.times(stride, lanes)
    zero = v.const(0.0)
    sum_name, silent_name = symbol("∑"), symbol("F(0)")
    total = folded("add", sum_name if silent is ZERO else call("sub", sum_name, silent_name), value)
    base = _untyped(b.alloca(v.type, size=vectors)) if silent is not ZERO else None

    def clear(place: ir.Value, _: list[ir.Value]) -> None:
        k.store(zero, u, k.times(place, lanes))

    loop(v, k.times(vectors, stride), clear)
    if base is not None:
        loop(v, vectors, lambda vec, _: k.store(zero, base, k.times(vec, lanes)))

    def each_input(j: ir.Value, _: list[ir.Value]) -> None:
        lists.at(j)
        lists.tabulate(by_x, rooms)
        row = k.times(j, row_length)

        def each_vector(vec: ir.Value, _: list[ir.Value]) -> None:
            place = k.plus(row, k.times(vec, lanes))
            emit = _hoisted(Emitter(v, _matrix_values(k, program, tables, place)), [value, silent])
            given: dict[Expr, ir.Value] = {}
            if base is not None:
                cell_of_all = k.at(base, v.type, vec)

                def all_zeros_at_once() -> list[ir.Value]:
                    found = emit.evaluate(silent)[0]
                    b.store(v.add(b.load(cell_of_all, typ=v.type), found), cell_of_all)
                    return [found]

                given[silent_name] = when(v, lists.some_are_zero, all_zeros_at_once, [zero])[0]
            here = k.times(vec, per_vector)

            def each_sample(s: ir.Value, _: list[ir.Value]) -> None:
                cell = k.plus(here, k.times(lists.sample(s), lanes))
                more = {part: k.broadcast(room, s) for part, room in zip(by_x, rooms, strict=True)}
                more |= given | {symbol(INPUT): lists.x(s), sum_name: k.load(u, cell)}
                k.store(emit.also(more).evaluate(total)[0], u, cell)

            loop(v, lists.listed, each_sample)

        loop(v, vectors, each_vector)

    loop(v, inputs, each_input)

    def finish(vec: ir.Value, _: list[ir.Value]) -> None:
        shared = zero
        if base is not None:
            shared = b.load(k.at(base, v.type, vec), typ=v.type)
            vanishes = v.sub(shared, shared)  # NaN where it is not finite

            def is_lost() -> None:
                b.store(ir.Constant(I64, 1), lost)

            when(v, v.any(v.ne(vanishes, vanishes)), is_lost)

        def each_sample(s: ir.Value, _: list[ir.Value]) -> None:
            found = k.load(u, k.plus(k.times(vec, per_vector), k.times(s, lanes)))
            k.store(v.add(found, shared), out, k.plus(k.times(s, out_row_length), k.times(vec, lanes)))

        loop(v, lists.samples, each_sample)

    loop(v, vectors, finish)
    return k.finish()


class BackwardArgs(IntEnum):
    inputs = 0
    vectors = 1
    samples = 2
    stride = 3
    count = 4
    index = 5
    values = 6
    matrices = 7
    row_length = 8
    g = 9
    """The error at the sums, (vectors, stride, lanes)."""
    g_sum = 10
    """Its sum over the samples, (vectors, lanes)."""
    gradients = 11
    """For `update`, unused: the matrices themselves change."""
    gradient_row_length = 12
    accumulate = 13
    """Whether gradients are added to what is there."""
    dx = 14
    """The error sent down, (in, row)."""
    dx_row_length = 15
    dx_at_zero = 16
    """Whether it is wanted where x is zero."""
    settings = 17
    """For `update`: the rate and the clip, as numbers of the kernel's dtype."""


def backward(
    program: Program,
    dtype: DType,
    lanes: int,
    *,
    by_x: bool,
    by_parameters: bool,
    update: bool,
    tile: int = TILE,
) -> str:
    """Gradients of Σ g·(F ⊙ x) by x and every parameter in one pass; or the SGD update instead of these."""
    k = Kernel("update" if update else "backward", dtype, lanes)
    v, b, A = k.v, k.builder, BackwardArgs
    form = kernel_form(program)
    names = (*(program.parameters if by_parameters else ()), *((INPUT,) if by_x else ()))
    found = dict(
        zip(names, without_cancellation(*(differentiate(form, name) for name in names)), strict=True)
    )
    slopes = [regrouped(found[name]) for name in program.parameters] if by_parameters else []
    # A factor of matrices alone is left for after the sum over the samples.
    outer, inner = map(list, zip(*map(split_product, slopes), strict=True)) if slopes else ([], [])
    down = regrouped(found[INPUT]) if by_x else ZERO
    inner_at_zero = [regrouped(at_zero(part)) for part in inner]
    down_at_zero = regrouped(at_zero(down))
    shared = any(part is not ZERO for part in inner_at_zero)

    inputs, vectors, stride = k.number(A.inputs), k.number(A.vectors), k.number(A.stride)
    lists = Lists(k, k.pointer(A.count), k.pointer(A.index), k.pointer(A.values), stride, k.number(A.samples))
    tables, row_length = k.pointers(A.matrices, len(program.matrices)), k.number(A.row_length)
    g, g_sum = k.pointer(A.g), k.pointer(A.g_sum)
    gradients = k.pointers(A.gradients, len(program.parameters) if by_parameters and not update else 0)
    gradient_row_length = k.number(A.gradient_row_length)
    accumulate = b.icmp_signed("!=", k.number(A.accumulate), ir.Constant(I64, 0))
    dx, dx_row_length = k.pointer(A.dx), k.number(A.dx_row_length)
    dx_at_zero = b.icmp_signed("!=", k.number(A.dx_at_zero), ir.Constant(I64, 0))
    partial = k.room(tile * lanes if by_x else 0)
    zero = v.const(0.0)
    rate = clip = zero
    if update:
        rate, clip = (k.broadcast(k.pointer(A.settings), ir.Constant(I64, n)) for n in range(2))
    roots = [*inner, down]
    tabulated = frontier(roots, "input")
    rooms = [k.room(tile + lanes) for _ in tabulated]
    per_vector = k.times(stride, lanes)
    g_name, sum_name = symbol("∂"), symbol("∑")  # no parameter is called so

    def each_input(j: ir.Value, _: list[ir.Value]) -> None:
        lists.at(j)
        lists.tabulate(tabulated, rooms)
        if by_x:
            loop(v, lists.samples, lambda s, _: k.store(zero, partial, k.times(s, lanes)))
        row = k.times(j, row_length)

        def each_vector(vec: ir.Value, _: list[ir.Value]) -> None:
            place = k.plus(row, k.times(vec, lanes))
            values = _matrix_values(k, program, tables, place)
            emit = _hoisted(Emitter(v, values), [*roots, *outer, *inner_at_zero, down_at_zero])
            here = k.times(vec, per_vector)

            def error_at(s: ir.Value) -> ir.Value:
                return k.load(g, k.plus(here, k.times(lists.sample(s), lanes)))

            def send_down(s: ir.Value, error: ir.Value, emit: Emitter, slope: Expr) -> None:
                cell = k.times(s, lanes)
                more = {g_name: error, sum_name: k.load(partial, cell)}
                total = folded("add", sum_name, folded("mul", g_name, slope))
                k.store(emit.also(more).evaluate(total)[0], partial, cell)

            def each_sample(s: ir.Value, sums: list[ir.Value]) -> list[ir.Value]:
                error = error_at(s)
                more = {part: k.broadcast(room, s) for part, room in zip(tabulated, rooms, strict=True)}
                there = emit.also(more | {symbol(INPUT): lists.x(s)})
                *found, slope = there.evaluate(*inner, *([down] if by_x else [ZERO]))
                if by_x:
                    cell = k.times(s, lanes)
                    k.store(v.fma(error, slope, k.load(partial, cell)), partial, cell)
                added = [
                    v.add(total, error) if part is _ONE else v.fma(error, value, total)
                    for part, value, total in zip(inner, found, sums, strict=False)
                ]
                return [*added, v.add(sums[-1], error)] if shared else added

            starts = [zero] * (len(inner) + shared)
            sums = loop(v, lists.listed, each_sample, starts)
            if shared:

                def all_zeros_at_once() -> list[ir.Value]:
                    rest = v.sub(k.load(g_sum, k.times(vec, lanes)), sums[-1])
                    found = emit.evaluate(*inner_at_zero)
                    return [
                        total if part is ZERO else v.fma(rest, value, total)
                        for part, value, total in zip(inner_at_zero, found, sums, strict=False)
                    ]

                sums = when(v, lists.some_are_zero, all_zeros_at_once, sums[:-1])
            if by_x and down_at_zero is not ZERO:

                def zeros_too() -> None:
                    def each_zero(s: ir.Value, _: list[ir.Value]) -> None:
                        send_down(s, error_at(s), emit, down_at_zero)

                    loop(v, lists.samples, each_zero, start=lists.listed)

                when(v, b.and_(lists.some_are_zero, dx_at_zero), zeros_too)
            if by_parameters:
                totals = [
                    v.mul(total, factor) if part is not _ONE else total
                    for part, total, factor in zip(outer, sums, emit.evaluate(*outer), strict=True)
                ]
                for n, (name, total) in enumerate(zip(program.parameters, totals, strict=True)):
                    if update:
                        step = v.maximum(v.minimum(total, clip), v.neg(clip))
                        k.store(v.fma(v.neg(rate), step, values[symbol(name)]), tables[n], place)
                    else:
                        there = k.plus(k.times(j, gradient_row_length), k.times(vec, lanes))
                        table = gradients[n]
                        old = when(
                            v, accumulate, lambda table=table, there=there: [k.load(table, there)], [zero]
                        )[0]
                        k.store(v.add(old, total), table, there)

        loop(v, vectors, each_vector)
        if by_x:
            below = k.times(j, dx_row_length)

            def add_up(s: ir.Value, _: list[ir.Value]) -> None:
                total = v.hsum(k.load(partial, k.times(s, lanes)))
                b.store(total, k.at(dx, v.scalar, k.plus(below, lists.sample(s))))

            loop(v, lists.samples, add_up)

    loop(v, inputs, each_input)
    return k.finish()


_ONE = number(1)


class MemoryArgs(IntEnum):
    inputs = 0
    vectors = 1
    x = 2
    matrices = 3
    row_length = 4
    before = 5
    """Every connection's previous value, (in, row)."""
    after = 6
    """Its new value, (in, row)."""
    u = 7
    """The sums, or the error at them, (vectors, lanes)."""
    settings = 8


def memory_forward(program: Program, dtype: DType, lanes: int) -> str:
    """One step of a memory function for one sample: `after` = F(x; before), u = its sums."""
    k = Kernel("memory_forward", dtype, lanes)
    v = k.v
    value = regrouped(program.expr)
    sums, after = k.pointer(MemoryArgs.u), k.pointer(MemoryArgs.after)
    loop(v, k.number(MemoryArgs.vectors), lambda vec, _: k.store(v.const(0.0), sums, k.times(vec, lanes)))

    def each(vec: ir.Value, place: ir.Value, emit: Emitter, tables: Sequence[ir.Value]) -> None:
        found = emit.evaluate(value)[0]
        k.store(found, after, place)
        cell = k.times(vec, lanes)
        k.store(v.add(k.load(sums, cell), found), sums, cell)

    return _over_memory(k, program, each)


def memory_update(program: Program, dtype: DType, lanes: int) -> str:
    """The SGD update after one step, `before` taken as given: the paper's one-step derivative."""
    k = Kernel("memory_update", dtype, lanes)
    v = k.v
    slopes = [regrouped(program.slopes[name]) for name in program.parameters]
    errors = k.pointer(MemoryArgs.u)
    rate, clip = (k.broadcast(k.pointer(MemoryArgs.settings), ir.Constant(I64, n)) for n in range(2))

    def each(vec: ir.Value, place: ir.Value, emit: Emitter, tables: Sequence[ir.Value]) -> None:
        error = k.load(errors, k.times(vec, lanes))
        for name, slope, table in zip(program.parameters, emit.evaluate(*slopes), tables, strict=False):
            step = v.maximum(v.minimum(v.mul(error, slope), clip), v.neg(clip))
            k.store(v.fma(v.neg(rate), step, emit.given[symbol(name)]), table, place)

    return _over_memory(k, program, each)


def _over_memory(
    k: Kernel,
    program: Program,
    each: Callable[[ir.Value, ir.Value, Emitter, Sequence[ir.Value]], None],
) -> str:
    """The loops over inputs and vectors of outputs that both memory kernels have."""
    A = MemoryArgs
    vectors, x, before, row_length = (
        k.number(A.vectors),
        k.pointer(A.x),
        k.pointer(A.before),
        k.number(A.row_length),
    )
    tables = k.pointers(A.matrices, len(program.matrices))

    def each_input(j: ir.Value, _: list[ir.Value]) -> None:
        value = k.broadcast(x, j)

        def each_vector(vec: ir.Value, _: list[ir.Value]) -> None:
            place = k.plus(k.times(j, row_length), k.times(vec, k.v.lanes))
            given = _matrix_values(k, program, tables, place)
            emit = Emitter(k.v, given | {symbol(INPUT): value, symbol(MEMORY): k.load(before, place)})
            each(vec, place, emit, tables)

        loop(k.v, vectors, each_vector)

    loop(k.v, k.number(A.inputs), each_input)
    return k.finish()


class MapArgs(IntEnum):
    vectors = 0
    source = 1
    target = 2


def elementwise(expr: Expr, dtype: DType, lanes: int) -> str:
    """target = expr(source), over whole vectors."""
    k = Kernel("map", dtype, lanes)
    source, target = k.pointer(MapArgs.source), k.pointer(MapArgs.target)

    def each(vec: ir.Value, _: list[ir.Value]) -> None:
        place = k.times(vec, lanes)
        x = k.load(source, place)
        k.store(Emitter(k.v, {symbol(INPUT): x}).evaluate(regrouped(expr))[0], target, place)

    loop(k.v, k.number(MapArgs.vectors), each)
    return k.finish()


class CollectArgs(IntEnum):
    inputs = 0
    samples = 1
    stride = 2
    x = 3
    """(in, row): the first of this tile's samples."""
    row_length = 4
    count = 5
    index = 6
    values = 7
    least = 8
    """Fewer zeros than this are not worth a list of their own."""
    zeros = 9
    """Whether the zeros are listed too, after the others: only an error sent down needs them."""


def collect(dtype: DType, lanes: int) -> str:
    """The lists of a tile from x, (in, samples)."""
    k = Kernel("collect", dtype, lanes)
    b, A = k.builder, CollectArgs
    samples, stride, x, row_length = (
        k.number(A.samples),
        k.number(A.stride),
        k.pointer(A.x),
        k.number(A.row_length),
    )
    count, index, value, least = (
        k.pointer(A.count),
        k.pointer(A.index),
        k.pointer(A.values),
        k.number(A.least),
    )
    scalar, nothing, one = k.v.scalar, ir.Constant(I64, 0), ir.Constant(I64, 1)
    zero = ir.Constant(scalar, 0.0)

    zeros = b.icmp_signed("!=", k.number(A.zeros), nothing)

    def each_input(j: ir.Value, _: list[ir.Value]) -> None:
        source, target = k.times(j, row_length), k.times(j, stride)

        def put(place: ir.Value, s: ir.Value, found: ir.Value) -> None:
            there = k.plus(target, place)
            b.store(b.trunc(s, I32), k.at(index, I32, there))
            b.store(found, k.at(value, scalar, there))

        def at(s: ir.Value) -> ir.Value:
            return k.scalar(x, k.plus(source, s))

        def first_pass(s: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            found = at(s)
            put(carried[0], s, found)  # without a branch: a zero is written over by the next
            return [k.plus(carried[0], b.zext(b.fcmp_unordered("!=", found, zero), I64))]

        listed = loop(k.v, samples, first_pass, [nothing])[0]
        few = b.icmp_signed("<", b.sub(samples, listed), least)

        def all_in_order() -> list[ir.Value]:
            loop(k.v, samples, lambda s, _: put(s, s, at(s)))
            return [samples]

        kept = when(k.v, few, all_in_order, [listed])[0]

        def zeros_last() -> None:
            def second_pass(s: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
                found = at(s)
                is_zero = b.fcmp_ordered("==", found, zero)
                when(k.v, is_zero, lambda: put(carried[0], s, found))
                return [b.select(is_zero, k.plus(carried[0], one), carried[0])]

            loop(k.v, samples, second_pass, [listed])

        when(k.v, b.and_(b.not_(few), zeros), zeros_last)
        b.store(b.trunc(kept, I32), k.at(count, I32, j))

    loop(k.v, k.number(A.inputs), each_input)
    return k.finish()


class PackArgs(IntEnum):
    vectors = 0
    samples = 1
    stride = 2
    source = 3
    """(samples, row)."""
    row_length = 4
    g = 5
    g_sum = 6


def pack(dtype: DType, lanes: int) -> str:
    """g, (vectors, stride, lanes), and its sum over the samples, from rows."""
    k = Kernel("pack", dtype, lanes)
    A = PackArgs
    stride, source, row_length = k.number(A.stride), k.pointer(A.source), k.number(A.row_length)
    g, g_sum, samples = k.pointer(A.g), k.pointer(A.g_sum), k.number(A.samples)

    def each_vector(vec: ir.Value, _: list[ir.Value]) -> None:
        def each_sample(s: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            found = k.load(source, k.plus(k.times(s, row_length), k.times(vec, lanes)))
            k.store(found, g, k.times(k.plus(k.times(vec, stride), s), lanes))
            return [k.v.add(carried[0], found)]

        total = loop(k.v, samples, each_sample, [k.v.const(0.0)])[0]
        k.store(total, g_sum, k.times(vec, lanes))

    loop(k.v, k.number(A.vectors), each_vector)
    return k.finish()
