"""Expressions → vector instructions, and the loops around them.

A kernel evaluates expressions for all (input, sample, output). What depends on parameters alone is computed
once for an input and a vector of outputs, what depends on x alone once for an input and a vector of samples,
and only what depends on both inside the innermost loop. `regrouped` orders products so that this finds the
most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Literal

from llvmlite import ir

from ftnn.formula._derive import at_zero as worked_out_at_zero
from ftnn.formula._derive import has_poles, is_bounded, lower
from ftnn.formula._expr import (
    INPUT,
    ONE,
    ZERO,
    Call,
    Expr,
    Number,
    Symbol,
    call,
    folded,
    number,
    plus,
    postorder,
    substitute,
    symbol,
)
from ftnn.formula._ops import OPS, is_native
from ftnn.kernels._math import FUNCTIONS
from ftnn.kernels._program import Program
from ftnn.kernels._trig import ALONE
from ftnn.kernels._vector import Vectors

Side = Literal["number", "matrices", "input", "both"]
"""What an expression depends on."""

I64, I32 = ir.IntType(64), ir.IntType(32)
POINTER = ir.PointerType()


def check_spellings() -> None:
    """Refuses a table that spells an operation in a way no vector function knows."""
    for op in OPS.values():
        if is_native(op.llvm) and op.llvm not in FUNCTIONS and op.llvm not in _BASIC:
            raise ValueError(f"operation {op.name!r} is spelled {op.llvm!r}, which no vector function knows")


def side(expr: Expr) -> Side:
    """What `expr` depends on: nothing, matrices alone, the input alone, or both (as does a memory cell)."""
    found = expr.names
    if not found:
        return "number"
    if INPUT not in found:
        return "both" if any(name in _PER_SAMPLE for name in found) else "matrices"
    return "input" if len(found) == 1 else "both"


ERROR = symbol("∂")
"""Stands for the error at an output; no parameter is called so."""
_PER_SAMPLE = ("C", "∂")


def kernel_form(program: Program) -> Expr:
    """The function as kernels evaluate it: separated where that is exact, products regrouped."""
    plan = program.plan
    if plan.kind != "gemm" or not plan.exact:
        return program.expr
    total = ZERO if plan.constant is None else plan.constant
    for g, h in plan.terms:
        total = plus(total, folded("mul", g, h))
    return total if plan.common is None else plus(total, plan.common)


def factors(expr: Expr) -> list[Expr]:
    """What `expr` is the product of."""
    if isinstance(expr, Call) and expr.op == "mul":
        return [f for arg in expr.args for f in factors(arg)]
    if isinstance(expr, Call) and expr.op == "neg":
        return [folded("neg", ONE), *factors(expr.args[0])]
    return [expr]


def product(parts: Iterable[Expr]) -> Expr:
    result = ONE
    for part in parts:
        result = folded("mul", result, part)
    return result


def regrouped(expr: Expr) -> Expr:
    """`expr` in vector operations, with the factors of each product ordered by what they depend on."""
    done: dict[Expr, Expr] = {}
    for part in postorder(lower(expr, "llvm")):
        new = folded(part.op, *(done[arg] for arg in part.args)) if isinstance(part, Call) else part
        if isinstance(new, Call) and new.op in ("mul", "neg"):
            fixed, rest = split_product(new)
            new = folded("mul", fixed, rest)
        done[part] = new
    return done[lower(expr, "llvm")]


def split_product(expr: Expr) -> tuple[Expr, Expr]:
    """(matrices alone, the rest): their product is `expr`."""
    by = sides(expr)
    return product(by["number"] + by["matrices"]), folded("mul", product(by["input"]), product(by["both"]))


def sides(expr: Expr) -> dict[Side, list[Expr]]:
    """The factors of `expr` by what they depend on."""
    by: dict[Side, list[Expr]] = {"number": [], "matrices": [], "input": [], "both": []}
    for part in factors(expr):
        by[side(part)].append(part)
    return by


def without_cancellation(*roots: Expr) -> list[Expr]:
    """`roots` with cosh(a) - 1 as 2·sinh(a/2)², which keeps its digits where a is small.

    Where that occurs, sinh(a) becomes 2·sinh(a/2)·cosh(a/2), to share its work.
    """
    arguments = {a for part in postorder(*roots) if (a := _cosh_less_one(part)) is not None}
    if not arguments:
        return list(roots)
    done: dict[Expr, Expr] = {}
    for part in postorder(*roots):
        new = folded(part.op, *(done[arg] for arg in part.args)) if isinstance(part, Call) else part
        a = _cosh_less_one(part)
        if a is not None:
            sinh = call("sinh", folded("mul", number(0.5), done[a]))
            new = folded("mul", number(2), folded("mul", sinh, sinh))
        elif isinstance(part, Call) and part.op == "sinh" and part.args[0] in arguments:
            half = folded("mul", number(0.5), done[part.args[0]])
            new = folded("mul", number(2), folded("mul", call("sinh", half), call("cosh", half)))
        done[part] = new
    return [done[root] for root in roots]


def _cosh_less_one(part: Expr) -> Expr | None:
    """a, if `part` is cosh(a) - 1."""
    if isinstance(part, Call) and part.op == "sub" and part.args[1] is ONE:
        first = part.args[0]
        if isinstance(first, Call) and first.op == "cosh":
            return first.args[0]
    return None


SILENT = symbol("0")
"""Stands for x = 0 where a formula must be computed there, and not worked out; no parameter is called so."""


@lru_cache(maxsize=1024)
def may_have_poles(expr: Expr) -> bool:
    """Whether a part of `expr` may have a pole. If not, it cannot tell -0 from 0, either."""
    return any(isinstance(part, Call) and has_poles(part) for part in postorder(expr))


def at_zero(expr: Expr, *, slope: bool = False) -> Expr:
    """`expr` where x is zero. What may have a pole is left to be computed, as 0·∞ is not 0.

    So is what may overflow, unless `expr` is a slope: where cosh(r) overflows, so does the function itself.
    """
    if may_have_poles(expr):
        return substitute(expr, {INPUT: SILENT})
    return worked_out_at_zero(expr, drops=lambda part: slope or is_bounded(part))


def frontier(roots: Sequence[Expr], wanted: Side) -> list[Expr]:
    """The largest parts that depend on `wanted` alone: what is computed outside of the innermost loop."""
    found: dict[Expr, None] = {}

    def take(part: Expr) -> None:
        if isinstance(part, Call) and side(part) == wanted:
            # A comparison gives a mask, which no table of numbers holds: it is made anew of what it compares.
            if wanted == "input" and OPS[part.op].is_comparison:
                for arg in part.args:
                    take(arg)
            else:
                found[part] = None

    for root in roots:
        take(root)
    for part in postorder(*roots):
        if isinstance(part, Call) and side(part) == "both":
            for arg in part.args:
                take(arg)
    return list(found)


class Emitter:
    """Evaluates expressions at the builder's position, in the values given for some of their parts."""

    def __init__(self, v: Vectors, given: dict[Expr, ir.Value]):
        self.v = v
        self.given = given

    def also(self, more: dict[Expr, ir.Value]) -> Emitter:
        """The same with more values given."""
        return Emitter(self.v, self.given | more)

    def evaluate(self, *roots: Expr) -> list[ir.Value]:
        """The values of `roots`, sharing what they share."""
        values = dict(self.given)
        order = list(_needed(roots, values))
        waves = {(_spelling(part), part.args[0]) for part in order if isinstance(part, Call)}

        def value(part: Expr) -> ir.Value:
            if part not in values:
                # Only products are put off, to become part of a fused multiply-add where one takes them up.
                assert isinstance(part, Call)
                values[part] = self.v.mul(value(part.args[0]), value(part.args[1]))
            return values[part]

        for part in order:
            match part:
                case Number(constant):
                    values[part] = self.v.const(float(constant))
                case Symbol(name):
                    raise AssertionError(f"no value was given for {name}")
                case Call("pow", (base, Number(int() as exponent))):
                    values[part] = FUNCTIONS["powi"](self.v, value(base), exponent)
                case Call(_, args):
                    spelling = _spelling(part)
                    if spelling in ("add", "sub"):
                        values[part] = self._sum(spelling == "sub", args[0], args[1], value, values)
                    elif spelling in ALONE and (_OTHER_WAVE[spelling], args[0]) not in waves:
                        values[part] = ALONE[spelling](self.v, value(args[0]))
                    elif spelling != "mul":
                        function = _BASIC.get(spelling) or FUNCTIONS[spelling]
                        values[part] = function(self.v, *map(value, args))
        return [value(root) for root in roots]

    def _sum(
        self,
        minus: bool,
        a: Expr,
        b: Expr,
        value: Callable[[Expr], ir.Value],
        values: dict[Expr, ir.Value],
    ) -> ir.Value:
        """a ± b, as a fused multiply-add where one of them is a product that is not there yet."""
        v = self.v
        if isinstance(b, Call) and b not in values:
            first = value(b.args[0])
            return v.fma(v.neg(first) if minus else first, value(b.args[1]), value(a))
        if isinstance(a, Call) and a not in values:
            return v.fma(value(a.args[0]), value(a.args[1]), v.neg(value(b)) if minus else value(b))
        return v.sub(value(a), value(b)) if minus else v.add(value(a), value(b))


_OTHER_WAVE = {"sin": "cos", "cos": "sin"}


def _spelling(part: Call) -> str:
    return OPS[part.op].llvm


def _needed(roots: Sequence[Expr], values: dict[Expr, ir.Value]) -> Iterable[Expr]:
    """What has to be computed for `roots`, arguments first."""
    seen = set(values)
    stack: list[tuple[Expr, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        part, ready = stack.pop()
        if part in seen:
            continue
        if ready or not isinstance(part, Call):
            seen.add(part)
            yield part
        else:
            stack.append((part, True))
            stack.extend((arg, False) for arg in reversed(part.args))


_BASIC: dict[str, Callable[..., ir.Value]] = {
    "add": Vectors.add,
    "sub": Vectors.sub,
    "mul": Vectors.mul,
    "div": Vectors.div,
    "neg": Vectors.neg,
    "abs": Vectors.abs,
    "sqrt": Vectors.sqrt,
    "minimum": Vectors.minimum,
    "maximum": Vectors.maximum,
    "where": Vectors.select,
    "lt": Vectors.lt,
    "le": Vectors.le,
    "gt": Vectors.gt,
    "ge": Vectors.ge,
    "eq": Vectors.eq,
    "ne": Vectors.ne,
}


# --- loops ---


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
    """`for i in range(start, stop, step)`: `body(i, carried)` gives what it carries on; the last comes back.

    One that carries nothing on may return nothing.
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
    """What `then()` gives where the scalar condition holds, else `otherwise`."""
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


check_spellings()
