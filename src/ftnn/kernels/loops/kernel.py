"""The building blocks of all templates: kernels, lists of samples and the values of matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from ftnn.formula._expr import INPUT, Call, Expr, postorder, symbol
from ftnn.kernels.codegen.control import I32, I64, POINTER, loop
from ftnn.kernels.codegen.emitting import Emitter
from ftnn.kernels.codegen.placeholders import SILENT
from ftnn.kernels.codegen.rewriting import frontier, side
from ftnn.kernels.codegen.target import Args, Target
from ftnn.kernels.codegen.vectors import Vectors
from ftnn.kernels.program import Program

TILE = 64
"""The most samples per kernel call, unless the kernel is generated for more."""


class Kernel:
    """Builds a module with one kernel."""

    def __init__(self, name: str, target: Target, args: type[Args]):
        self.module = ir.Module(name)
        function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), [POINTER]), "kernel")
        self.builder: Any = ir.IRBuilder(function.append_basic_block("entry"))
        self.v = Vectors(self.builder, target)
        self._args, self._names = function.args[0], args.names

    def number(self, place: int) -> ir.Value:
        """The argument at a place, as a number."""
        return self._argument(place, I64)

    def set_number(self, place: int, value: ir.Value) -> None:
        """Overwrite the argument at a place, for the caller to read."""
        self.builder.store(value, self.at(self._args, I64, place))

    def pointer(self, place: int) -> ir.Value:
        return self._argument(place, POINTER)

    def _argument(self, place: int, kind: ir.Type) -> ir.Value:
        return self.builder.load(self.at(self._args, I64, place), typ=kind, name=self._names[place])

    def pointers(self, place: int, count: int) -> list[ir.Value]:
        """`count` addresses, from the table that an argument points to."""
        table = self.pointer(place)
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

    def prefetch(self, base: ir.Value, index: ir.Value) -> None:
        """Fetch the cache line of an element that is read soon. It need not exist."""
        fetch = self.v.external("llvm.prefetch.p0", ir.VoidType(), POINTER, I32, I32, I32)
        read, all_levels, data = (ir.Constant(I32, n) for n in (0, 3, 1))
        self.builder.call(fetch, [self.at(base, self.v.scalar, index), read, all_levels, data])

    def scalar(self, base: ir.Value, index: ir.Value) -> ir.Value:
        return self.builder.load(self.at(base, self.v.scalar, index), typ=self.v.scalar)

    def broadcast(self, base: ir.Value, index: ir.Value) -> ir.Value:
        return self.v.splat(self.scalar(base, index))

    def index_at(self, base: ir.Value, place: ir.Value) -> ir.Value:
        """A 32-bit integer."""
        return self.builder.sext(self.builder.load(self.at(base, I32, place), typ=I32), I64)

    def put_index(self, value: ir.Value, base: ir.Value, place: ir.Value) -> None:
        self.builder.store(self.builder.trunc(value, I32), self.at(base, I32, place))

    def int64_at(self, base: ir.Value, place: ir.Value | int) -> ir.Value:
        """A 64-bit integer."""
        return self.builder.load(self.at(base, I64, place), typ=I64)

    def put_int64(self, value: ir.Value | int, base: ir.Value, place: ir.Value | int) -> None:
        number = ir.Constant(I64, value) if isinstance(value, int) else value
        self.builder.store(number, self.at(base, I64, place))

    def put_scalar(self, value: ir.Value, base: ir.Value, place: ir.Value) -> None:
        self.builder.store(value, self.at(base, self.v.scalar, place))

    def scratch(self, elements: int) -> ir.Value:
        """Memory on the stack, for as long as the kernel runs."""
        with self.builder.goto_entry_block():
            place: Any = self.builder.alloca(ir.ArrayType(self.v.scalar, elements))
        place.align = self.v.lanes * self.v.bits // 8  # else each vector would straddle two cache lines
        return untyped(place)

    def int64s_on_stack(self, count: int) -> ir.Value:
        """Space for `count` 64-bit integers on the stack."""
        with self.builder.goto_entry_block():
            return untyped(self.builder.alloca(ir.ArrayType(I64, count)))

    def vectors_on_stack(self, count: ir.Value) -> ir.Value:
        """Space for a number of vectors known only at run time. Do not use it inside loops."""
        return untyped(self.builder.alloca(self.v.type, size=count))

    def is_set(self, flag: ir.Value) -> ir.Value:
        return self.builder.icmp_signed("!=", flag, ir.Constant(I64, 0))

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


def untyped(place: Any) -> ir.Value:
    """LLVM's pointers are untyped now, but llvmlite still types those to the stack."""
    place.type = POINTER
    return place


class SampleLists:
    """The samples of a tile by input: their `x` and indices."""

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
        """Move to input j."""
        k = self.k
        self.row = k.times(j, self._stride)
        self.listed = k.builder.sext(k.builder.load(k.at(self._count, I32, j), typ=I32), I64)
        self.some_are_zero = k.builder.icmp_signed("<", self.listed, self.samples)

    def sample(self, s: ir.Value) -> ir.Value:
        """The index of the sample at place s."""
        return self.k.index_at(self._index, self.k.plus(self.row, s))

    def x(self, s: ir.Value) -> ir.Value:
        return self.k.broadcast(self._value, self.k.plus(self.row, s))

    def tabulate(self, parts: Sequence[Expr], tables: Sequence[ir.Value]) -> None:
        """Tabulate the parts that depend only on x, a vector of samples at a time."""
        k = self.k
        if not parts:
            return

        def body(block: ir.Value, _: list[ir.Value]) -> None:
            first = k.times(block, k.v.lanes)
            x = k.load(self._value, k.plus(self.row, first))
            for value, table in zip(Emitter(k.v, {symbol(INPUT): x}).evaluate(*parts), tables, strict=True):
                k.store(value, table, first)

        loop(k.v, k.vectors(self.listed), body)


def matrix_values(
    k: Kernel, program: Program, tables: Sequence[ir.Value], place: ir.Value
) -> dict[Expr, ir.Value]:
    values: dict[Expr, ir.Value] = {SILENT: k.v.const(0.0)}
    return values | {
        symbol(name): k.load(table, place) for name, table in zip(program.matrices, tables, strict=True)
    }


GROUP = 4
"""Vectors of outputs that share the work of going through a list of samples."""
CHEAP = 4
"""Operations per sample up to which that work counts."""


def over_vectors(
    v: Vectors, vectors: ir.Value, roots: Sequence[Expr], body: Callable[[list[ir.Value]], None]
) -> None:
    """Call `body` for all vectors of outputs: one by one, or in groups where a function is cheap."""
    b: Any = v.builder
    costs = {part for part in postorder(*roots) if isinstance(part, Call) and side(part) == "both"}
    start = None
    if len(costs) <= CHEAP:
        group = ir.Constant(I64, GROUP)
        groups = b.sdiv(vectors, group)

        def each_group(n: ir.Value, _: list[ir.Value]) -> None:
            first = b.mul(n, group)
            body([b.add(first, ir.Constant(I64, member)) for member in range(GROUP)])

        loop(v, groups, each_group)
        start = b.mul(groups, group)
    loop(v, vectors, lambda vec, _: body([vec]), start=start)


def hoisted(emit: Emitter, roots: Sequence[Expr]) -> Emitter:
    """An emitter with the parts that depend only on matrices already computed."""
    parts = frontier(roots, "matrices")
    return emit.also(dict(zip(parts, emit.evaluate(*parts), strict=True)))
