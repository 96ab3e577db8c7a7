"""Vector instructions, each distinct one emitted once.

`Vectors` is a thin layer over an `ir.IRBuilder` that remembers results: the same operation on the same
operands returns the value emitted before. So a formula and all its derivatives can be written out naively,
function by function, and still share every subexpression without relying on LLVM to find them.

Fast-math flags are never set: argument reductions rely on the order of their operations, and NaN and infinity
must be preserved. A fused multiply-add happens only where `fma` asks for one.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import reduce
from typing import Any, ClassVar, TypeVar

from llvmlite import ir
from llvmlite.ir.instructions import LoadInstr

from ftnn.formula._numbers import round32
from ftnn.kernels.codegen.memo import Memo
from ftnn.kernels.codegen.target import DType, Target

LONG = 8
"""The most coefficients of a polynomial that is evaluated in one chain. No float32 function has more."""

T = TypeVar("T")
_Unary = Callable[["Vectors", ir.Value], ir.Value]
_Binary = Callable[["Vectors", ir.Value, ir.Value], ir.Value]


def _instruction(op: str) -> Callable[..., ir.Value]:
    """A method that emits an instruction, by the builder's name for it."""

    def emit(v: Vectors, *operands: ir.Value) -> ir.Value:
        return v.once(op, operands, lambda: getattr(v.builder, op)(*operands))

    return emit


def _commuting(op: str) -> _Binary:
    """The same for an instruction whose operands may be swapped."""
    return lambda v, a, b: v.once(op, _ordered(a, b), lambda: getattr(v.builder, op)(a, b))


def _comparison(op: str) -> _Binary:
    """A method that compares, false where either operand is NaN."""
    return lambda v, a, b: v.once(f"fcmp {op}", (a, b), lambda: v.builder.fcmp_ordered(op, a, b))


def _float_intrinsic(name: str) -> Callable[..., ir.Value]:
    """A method that calls an LLVM intrinsic on vectors of floats."""

    def emit(v: Vectors, *operands: ir.Value) -> ir.Value:
        return v.intrinsic(f"llvm.{name}.v{v.lanes}f{v.bits}", v.type, *operands)

    return emit


def _ordered(a: ir.Value, b: ir.Value) -> tuple[ir.Value, ir.Value]:
    """For the key only: the instruction keeps the caller's order, so that equal kernels have equal texts."""
    return (a, b) if id(a) <= id(b) else (b, a)


class _Splat(ir.Constant):
    """A constant written as LLVM's `splat (...)`, which parses faster than sixteen equal numbers."""

    def __init__(self, kind: ir.Type, text: str, is_number: bool = False) -> None:
        self.type = kind
        self.constant = text
        self.is_number = is_number

    def _get_reference(self) -> str:
        return self.constant


class _VolatileLoad(LoadInstr):
    """A load whose result LLVM must not assume to know."""

    def descr(self, buf: list[str]) -> None:
        """Write the instruction's text, for llvmlite."""
        (place,) = self.operands
        buf.append(f"load volatile {self.type}, {place.type} {place.get_reference()}\n")


class Vectors:
    """Emits operations on vectors of `lanes` numbers at the builder's position.

    A remembered value is usable only where its block dominates: code in the body of a loop or under a branch
    belongs in `with v.scope():`, which forgets at its end what was emitted inside.
    """

    def __init__(self, builder: ir.IRBuilder, target: Target, memo: Memo | None = None) -> None:
        self.builder, self.target = builder, target
        self.dtype: DType = target.dtype
        self.lanes = lanes = target.lanes
        self.bits = 8 * target.size
        self.scalar: ir.Type = ir.DoubleType() if self.dtype == "float64" else ir.FloatType()
        self.type = ir.VectorType(self.scalar, lanes)
        self.int_type = ir.VectorType(ir.IntType(self.bits), lanes)
        self.mask_type = ir.VectorType(ir.IntType(1), lanes)
        self.sign_bit = 1 << (self.bits - 1)
        self.tame = False
        """Whether arguments of elementary functions are known to be within limits (see `math/small.py`)."""
        self._memo = memo or Memo()
        self._held: dict[str, ir.Value] = {}
        self._holding: ir.Block | None = None

    def scope(self) -> AbstractContextManager[None]:
        """Forget at the end what was emitted inside, because it does not dominate the code that follows."""
        return self._memo.scope()

    @contextmanager
    def tamed(self) -> Generator[None]:
        """Emit the short forms of `math/small.py` inside: the caller has checked the limits.

        The body should be a single loop, because constants are loaded into registers before it.
        """
        with self.scope():  # short forms must not be reused where nothing was checked
            self.tame, self._holding = True, self.builder.block
            try:
                yield
            finally:
                self.tame, self._holding = False, None
                self._held.clear()

    def double(self) -> Vectors:
        """The same lanes, builder and memo in float64."""
        return Vectors(self.builder, Target("float64", self.lanes), self._memo)

    def once(self, name: str, operands: tuple[ir.Value, ...], emit: Callable[[], T]) -> T:
        """The remembered result for `name` and these operands, else that of `emit()`.

        `name` must cover everything that is not an operand, such as the amount of a shift.
        """
        return self._memo.once((name, self.dtype), operands, emit)

    def intrinsic(self, name: str, result: ir.Type, *operands: ir.Value) -> ir.Value:
        """A call of an LLVM intrinsic without side effects, by its full name."""
        return self.once(name, operands, lambda: self._call(name, result, *operands))

    def external(self, name: str, result: ir.Type, *arguments: ir.Type) -> ir.Function:
        """The function of this name, declared in the module if it is new."""
        module = self.builder.module
        if name in module.globals:
            return module.globals[name]
        return ir.Function(module, ir.FunctionType(result, arguments), name)

    # Constants

    def const(self, value: float) -> ir.Value:
        """All lanes `value`, rounded to the type of the vectors."""
        if self.dtype == "float32":
            value = round32(value)
        bits = struct.unpack("Q", struct.pack("d", value))[0]  # LLVM writes float32 like this too
        text = f"splat ({self.scalar} 0x{bits:016X})"
        constant = self._memo.constant(text, lambda: _Splat(self.type, text, not math.isnan(value)))
        return constant if self._holding is None or value == 0 else self._hold(constant, value)

    def _hold(self, constant: Any, value: float) -> ir.Value:
        """The same in a register, loaded where `tamed` began.

        LLVM does not know that this loop is hot and would load a constant again at each use, until loads
        limit the loop. It cannot do so with a value it does not know.
        """
        b: Any = self.builder
        if constant.constant not in self._held:
            with b.goto_entry_block():
                cell = b.alloca(self.scalar)
                b.store(ir.Constant(self.scalar, value), cell)
            with b.goto_block(self._holding):
                loaded = _VolatileLoad(b.block, cell)
                b._insert(loaded)
                held: Any = self._spread(loaded)
            held.is_number = constant.is_number
            self._held[constant.constant] = held
        return self._held[constant.constant]

    def iconst(self, value: int) -> ir.Value:
        """All lanes the integer `value`, modulo the width of a lane."""
        value = (value + self.sign_bit) % (2 * self.sign_bit) - self.sign_bit
        text = f"splat (i{self.bits} {value})"
        return self._memo.constant(text, lambda: _Splat(self.int_type, text))

    def splat(self, scalar: Any) -> ir.Value:
        """All lanes a scalar value."""
        return self.once("splat", (scalar,), lambda: self._spread(scalar))

    def _spread(self, scalar: Any) -> ir.Value:
        kind = ir.VectorType(scalar.type, self.lanes)
        first = ir.Constant(ir.IntType(32), 0)
        one = self.builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, first)
        order = ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), None)
        return self.builder.shuffle_vector(one, one, order)

    # Arithmetic

    add: ClassVar[_Binary] = _commuting("fadd")
    sub: ClassVar[_Binary] = _instruction("fsub")
    mul: ClassVar[_Binary] = _commuting("fmul")
    div: ClassVar[_Binary] = _instruction("fdiv")
    neg: ClassVar[_Unary] = _instruction("fneg")
    abs: ClassVar[_Unary] = _float_intrinsic("fabs")
    sqrt: ClassVar[_Unary] = _float_intrinsic("sqrt")
    floor: ClassVar[_Unary] = _float_intrinsic("floor")
    copysign: ClassVar[_Binary] = _float_intrinsic("copysign")

    def fma(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        """a*b + c, rounded once."""
        name = f"llvm.fma.v{self.lanes}f{self.bits}"
        return self.once(name, (*_ordered(a, b), c), lambda: self._call(name, self.type, a, b, c))

    def horner(self, x: ir.Value, coefficients: Sequence[float]) -> ir.Value:
        """A polynomial in x, its coefficients in ascending order.

        Long ones are split into even and odd powers: half as many operations wait for each other.
        """
        if len(coefficients) > LONG:
            square = self.mul(x, x)
            even, odd = self.horner(square, coefficients[::2]), self.horner(square, coefficients[1::2])
            return self.fma(odd, x, even)
        result = self.const(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            result = self.fma(result, x, self.const(c))
        return result

    def minimum(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """The smaller operand; NaN if either is NaN. One instruction if one operand is a constant."""
        return self._extremum(Vectors.lt, a, b)

    def maximum(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """The greater operand; NaN if either is NaN. One instruction if one operand is a constant."""
        return self._extremum(Vectors.gt, a, b)

    def _extremum(self, before: _Binary, a: ir.Value, b: ir.Value) -> ir.Value:
        if getattr(b, "is_number", False):  # a constant
            a, b = b, a
        chosen = self.select(before(self, a, b), a, b)  # b if unordered, like x86's min and max
        return chosen if getattr(a, "is_number", False) else self.select(self.isnan(a), a, chosen)

    def clamp(self, a: ir.Value, limit: ir.Value) -> ir.Value:
        """`a` within ±`limit`, a number; NaN where `a` is. Two instructions, as `a` comes last."""
        low = self.neg(limit)
        below = self.select(self.lt(limit, a), limit, a)
        return self.select(self.gt(low, below), low, below)

    # Comparisons and masks

    lt: ClassVar[_Binary] = _comparison("<")
    le: ClassVar[_Binary] = _comparison("<=")
    gt: ClassVar[_Binary] = _comparison(">")
    ge: ClassVar[_Binary] = _comparison(">=")
    eq: ClassVar[_Binary] = _comparison("==")

    def ne(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """Not equal; true where either is NaN, unlike every other comparison."""
        return self.once("fcmp une", (a, b), lambda: self.builder.fcmp_unordered("!=", a, b))

    def isnan(self, a: ir.Value) -> ir.Value:
        return self.once("fcmp uno", (a,), lambda: self.builder.fcmp_unordered("uno", a, a))

    def select(self, mask: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
        """`a` where the mask is set, else `b`."""
        return self.once("select", (mask, a, b), lambda: self.builder.select(mask, a, b))

    logical_and: ClassVar[_Binary] = _commuting("and_")
    logical_or: ClassVar[_Binary] = _commuting("or_")

    def logical_not(self, a: ir.Value) -> ir.Value:
        text = "splat (i1 true)"
        return self.ixor(a, self._memo.constant(text, lambda: _Splat(self.mask_type, text)))

    def any(self, mask: ir.Value) -> ir.Value:
        """A scalar i1: whether any lane of the mask is set."""
        return self.intrinsic(f"llvm.vector.reduce.or.v{self.lanes}i1", ir.IntType(1), mask)

    # Integers of the same width

    def cast(self, op: str, a: ir.Value, kind: ir.Type) -> ir.Value:
        """One of LLVM's casts, by its name."""
        return self.once(f"{op} {kind}", (a,), lambda: getattr(self.builder, op)(a, kind))

    def to_bits(self, a: ir.Value) -> ir.Value:
        return self.cast("bitcast", a, self.int_type)

    def from_bits(self, a: ir.Value) -> ir.Value:
        return self.cast("bitcast", a, self.type)

    def to_float(self, a: ir.Value) -> ir.Value:
        return self.cast("sitofp", a, self.type)

    iadd: ClassVar[_Binary] = _commuting("add")
    isub: ClassVar[_Binary] = _instruction("sub")
    iand: ClassVar[_Binary] = _commuting("and_")
    ixor: ClassVar[_Binary] = _commuting("xor")

    def shl(self, a: ir.Value, bits: int) -> ir.Value:
        return _instruction("shl")(self, a, self.iconst(bits))

    def ashr(self, a: ir.Value, bits: int) -> ir.Value:
        """Shift right, copying the sign."""
        return _instruction("ashr")(self, a, self.iconst(bits))

    def bits_set(self, a: ir.Value, bits: int) -> ir.Value:
        """A mask: where any of these bits of `a` is set."""
        masked = self.iand(a, self.iconst(bits))
        return self.once("icmp ne", (masked,), lambda: self.builder.icmp_signed("!=", masked, self.iconst(0)))

    # Across lanes

    def hsum(self, a: ir.Value) -> ir.Value:
        """The scalar sum of all lanes, always in the same order: halves first, odd lanes last."""

        def emit() -> ir.Value:
            rest: Any = a
            add: Any = self.builder.fadd
            count, odd = self.lanes, list[Any]()
            while count > 1:
                half = count // 2
                if count % 2:
                    odd.append(self._lane(rest, count - 1))
                rest = add(self._part(rest, 0, half), self._part(rest, half, half))
                count = half
            return reduce(add, odd, self._lane(rest, 0))

        return self.once("hsum", (a,), emit)

    def hsums(self, rows: Sequence[ir.Value]) -> ir.Value:
        """The vector whose lanes are the sums of as many vectors, always in the same order.

        Adding halves of two vectors at a time takes a third of the work of calling `hsum` for each.
        """
        rows, half = list(rows), self.lanes // 2
        while half:
            # Of each pair of halves, `a` goes into the lower one and `b` into the upper one.
            first = [lane - half + self.lanes if lane & half else lane for lane in range(self.lanes)]
            kind = ir.VectorType(ir.IntType(32), self.lanes)
            one, other = (ir.Constant(kind, [lane + n for lane in first]) for n in (0, half))
            rows = [
                self.add(self.builder.shuffle_vector(a, b, one), self.builder.shuffle_vector(a, b, other))
                for a, b in zip(rows[: len(rows) // 2], rows[len(rows) // 2 :], strict=True)
            ]
            half //= 2
        return rows[0]

    def largest(self, a: ir.Value) -> ir.Value:
        """The scalar maximum of all lanes; NaN if any is NaN."""
        return self.intrinsic(f"llvm.vector.reduce.fmaximum.v{self.lanes}f{self.bits}", self.scalar, a)

    def _lane(self, a: ir.Value, lane: int) -> ir.Value:
        return self.builder.extract_element(a, ir.Constant(ir.IntType(32), lane))

    def _part(self, a: ir.Value, start: int, count: int) -> ir.Value:
        order = ir.Constant(ir.VectorType(ir.IntType(32), count), list(range(start, start + count)))
        return self.builder.shuffle_vector(a, a, order)

    def _call(self, name: str, result: ir.Type, *operands: Any) -> ir.Value:
        return self.builder.call(self.external(name, result, *(a.type for a in operands)), operands)
