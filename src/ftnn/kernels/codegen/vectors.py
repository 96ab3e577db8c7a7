"""Vector instructions, each distinct one emitted once.

`Vectors` is a thin layer over an `ir.IRBuilder`: an operation on operands it has met before gives back the
value it gave then. So a formula and all its derivatives can be written out naively, function by function, and
still share every subexpression, without waiting for LLVM to find that out.

No fast-math flag is ever set: an argument reduction relies on the order of its operations, and NaN and
infinity must arrive. A fused multiply-add happens only where `fma` asks for one.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from llvmlite import ir
from llvmlite.ir.instructions import LoadInstr

from ftnn.formula._numbers import round32
from ftnn.kernels.codegen.memo import Memo
from ftnn.kernels.codegen.target import DType, Target

T = TypeVar("T")


class _Splat(ir.Constant):
    """A constant written as LLVM's `splat (...)`: a text of sixteen equal numbers takes longer to read."""

    def __init__(self, kind: ir.Type, text: str, is_number: bool = False) -> None:
        self.type = kind
        self.constant = text
        self.is_number = is_number

    def _get_reference(self) -> str:
        return self.constant


class _VolatileLoad(LoadInstr):
    """A load whose result LLVM does not presume to know."""

    def descr(self, buf: list[str]) -> None:
        """Write it out, as llvmlite asks of its instructions."""
        (place,) = self.operands
        buf.append(f"load volatile {self.type}, {place.type} {place.get_reference()}\n")


class Vectors:
    """Emits operations on vectors of `lanes` numbers at the builder's position.

    A remembered value is usable only where its block dominates: code in the body of a loop or under a branch
    belongs in `with v.scope():`, at whose end all that was emitted inside is forgotten.
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
        """What is emitted inside is forgotten at the end, as it does not dominate what follows."""
        return self._memo.scope()

    @contextmanager
    def tamed(self) -> Generator[None]:
        """What is emitted inside takes the short forms of `math/small.py`: the caller has seen to the limits.

        Inside should be a loop and no more: constants are held in registers from before it on.
        """
        with self.scope():  # nothing of it may serve where nobody has
            self.tame, self._holding = True, self.builder.block
            try:
                yield
            finally:
                self.tame, self._holding = False, None
                self._held.clear()

    def double(self) -> Vectors:
        """The same lanes, builder and memory in float64."""
        return Vectors(self.builder, Target("float64", self.lanes), self._memo)

    def once(self, name: str, operands: tuple[ir.Value, ...], emit: Callable[[], T]) -> T:
        """What `emit` gave when `name` was asked of these operands before, else `emit()`.

        `name` tells apart all that is not an operand, such as the amount of a shift.
        """
        return self._memo.once((name, self.dtype), operands, emit)

    def intrinsic(self, name: str, result: ir.Type, *operands: ir.Value) -> ir.Value:
        """A call of an LLVM intrinsic without side effects, by its full name."""
        return self.once(name, operands, lambda: self._call(name, result, *operands))

    def external(self, name: str, result: ir.Type, *arguments: ir.Type) -> ir.Function:
        """The function of this name, declared in the module if it is not there yet."""
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

        LLVM, which cannot know that this loop is the one that counts, would rather load a constant again at
        each use, until loads are what the loop waits for. It may not do so to one that it does not know.
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
        """All lanes the integer `value`, of which only the lane's bits count."""
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

    def add(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self._commuting("fadd", a, b)

    def sub(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self._plain("fsub", a, b)

    def mul(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self._commuting("fmul", a, b)

    def div(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self._plain("fdiv", a, b)

    def neg(self, a: ir.Value) -> ir.Value:
        return self._plain("fneg", a)

    def fma(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        """a*b + c, rounded once."""
        name = f"llvm.fma.v{self.lanes}f{self.bits}"
        return self.once(name, (*_ordered(a, b), c), lambda: self._call(name, self.type, a, b, c))

    def horner(self, x: ir.Value, coefficients: Sequence[float]) -> ir.Value:
        """A polynomial in x, its coefficients in ascending order."""
        result = self.const(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            result = self.fma(result, x, self.const(c))
        return result

    def abs(self, a: ir.Value) -> ir.Value:
        return self._float_intrinsic("fabs", a)

    def sqrt(self, a: ir.Value) -> ir.Value:
        return self._float_intrinsic("sqrt", a)

    def floor(self, a: ir.Value) -> ir.Value:
        return self._float_intrinsic("floor", a)

    def copysign(self, magnitude: ir.Value, sign: ir.Value) -> ir.Value:
        return self._float_intrinsic("copysign", magnitude, sign)

    def minimum(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """The smaller one; NaN if either is NaN. One instruction if one of them is a constant."""
        return self._extremum(self.lt, a, b)

    def maximum(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """The greater one; NaN if either is NaN. One instruction if one of them is a constant."""
        return self._extremum(self.gt, a, b)

    def _extremum(
        self, before: Callable[[ir.Value, ir.Value], ir.Value], a: ir.Value, b: ir.Value
    ) -> ir.Value:
        if getattr(b, "is_number", False):
            a, b = b, a
        chosen = self.select(before(a, b), a, b)  # b where unordered: x86's min and max are just so
        known = getattr(a, "is_number", False)  # a constant
        return chosen if known else self.select(self.isnan(a), a, chosen)

    def clamp(self, a: ir.Value, limit: ir.Value) -> ir.Value:
        """`a` within ±`limit`, which is no NaN; NaN where `a` is. Two instructions, as `a` comes last."""
        low = self.neg(limit)
        below = self.select(self.lt(limit, a), limit, a)
        return self.select(self.gt(low, below), low, below)

    # Comparisons and masks

    def lt(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self._compare("<", a, b)

    def le(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self._compare("<=", a, b)

    def gt(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self._compare(">", a, b)

    def ge(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self._compare(">=", a, b)

    def eq(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self._compare("==", a, b)

    def ne(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """Not equal; true where either is NaN, unlike every other comparison."""
        return self.once("fcmp une", (a, b), lambda: self.builder.fcmp_unordered("!=", a, b))

    def isnan(self, a: ir.Value) -> ir.Value:
        return self.once("fcmp uno", (a,), lambda: self.builder.fcmp_unordered("uno", a, a))

    def _compare(self, op: str, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.once(f"fcmp {op}", (a, b), lambda: self.builder.fcmp_ordered(op, a, b))

    def select(self, mask: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
        """`a` where the mask is set, else `b`."""
        return self.once("select", (mask, a, b), lambda: self.builder.select(mask, a, b))

    def logical_and(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self._commuting("and_", a, b)

    def logical_or(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self._commuting("or_", a, b)

    def logical_not(self, a: ir.Value) -> ir.Value:
        text = "splat (i1 true)"
        return self._commuting("xor", a, self._memo.constant(text, lambda: _Splat(self.mask_type, text)))

    def any(self, mask: ir.Value) -> ir.Value:
        """A scalar i1: whether any lane of the mask is set."""
        return self.intrinsic(f"llvm.vector.reduce.or.v{self.lanes}i1", ir.IntType(1), mask)

    # Integers of the same width

    def to_bits(self, a: ir.Value) -> ir.Value:
        return self.cast("bitcast", a, self.int_type)

    def from_bits(self, a: ir.Value) -> ir.Value:
        return self.cast("bitcast", a, self.type)

    def to_float(self, a: ir.Value) -> ir.Value:
        return self.cast("sitofp", a, self.type)

    def iadd(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self._commuting("add", a, b)

    def isub(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self._plain("sub", a, b)

    def iand(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self._commuting("and_", a, b)

    def ixor(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self._commuting("xor", a, b)

    def shl(self, a: ir.Value, bits: int) -> ir.Value:
        return self._plain("shl", a, self.iconst(bits))

    def lshr(self, a: ir.Value, bits: int) -> ir.Value:
        """Shifts zeros in."""
        return self._plain("lshr", a, self.iconst(bits))

    def ashr(self, a: ir.Value, bits: int) -> ir.Value:
        """Shifts the sign in."""
        return self._plain("ashr", a, self.iconst(bits))

    def bits_set(self, a: ir.Value, bits: int) -> ir.Value:
        """A mask: where any of these bits of `a` is set."""
        masked = self.iand(a, self.iconst(bits))
        return self.once("icmp ne", (masked,), lambda: self.builder.icmp_signed("!=", masked, self.iconst(0)))

    # Across lanes

    def hsum(self, a: ir.Value) -> ir.Value:
        """The scalar sum of all lanes, always in the same order: halves onto each other, odd ones last."""

        def emit() -> ir.Value:
            rest: Any = a
            count, odd = self.lanes, list[Any]()
            while count > 1:
                half = count // 2
                if count % 2:
                    odd.append(self._lane(rest, count - 1))
                rest = self.builder.fadd(self._part(rest, 0, half), self._part(rest, half, half))
                count = half
            total: Any = self._lane(rest, 0)
            for one in odd:
                total = self.builder.fadd(total, one)
            return total

        return self.once("hsum", (a,), emit)

    def hsums(self, rows: Sequence[ir.Value]) -> ir.Value:
        """A vector of the sums of as many vectors as it has lanes, always in the same order.

        Halves of two vectors are added at a time, which takes a third of the work of so many `hsum`.
        """
        rows, half = list(rows), self.lanes // 2
        while half:
            # Each half of a pair of halves: of `a` into the lower one, of `b` into the upper one.
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
        """The scalar maximum of all lanes; NaN if one is."""
        return self.intrinsic(f"llvm.vector.reduce.fmaximum.v{self.lanes}f{self.bits}", self.scalar, a)

    def _lane(self, a: ir.Value, lane: int) -> ir.Value:
        return self.builder.extract_element(a, ir.Constant(ir.IntType(32), lane))

    def _part(self, a: ir.Value, start: int, count: int) -> ir.Value:
        order = ir.Constant(ir.VectorType(ir.IntType(32), count), list(range(start, start + count)))
        return self.builder.shuffle_vector(a, a, order)

    # How the above are emitted

    def _call(self, name: str, result: ir.Type, *operands: Any) -> ir.Value:
        return self.builder.call(self.external(name, result, *(a.type for a in operands)), operands)

    def _plain(self, op: str, *operands: ir.Value) -> ir.Value:
        return self.once(op, operands, lambda: getattr(self.builder, op)(*operands))

    def _commuting(self, op: str, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.once(op, _ordered(a, b), lambda: getattr(self.builder, op)(a, b))

    def cast(self, op: str, a: ir.Value, kind: ir.Type) -> ir.Value:
        """One of LLVM's casts, by its name."""
        return self.once(f"{op} {kind}", (a,), lambda: getattr(self.builder, op)(a, kind))

    def _float_intrinsic(self, name: str, *operands: ir.Value) -> ir.Value:
        return self.intrinsic(f"llvm.{name}.v{self.lanes}f{self.bits}", self.type, *operands)


def _ordered(a: ir.Value, b: ir.Value) -> tuple[ir.Value, ir.Value]:
    """For the key only: what is emitted keeps the caller's order, so that equal kernels are equal texts."""
    return (a, b) if id(a) <= id(b) else (b, a)
