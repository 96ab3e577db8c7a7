"""Rewrite expressions into the form kernels evaluate.

A kernel evaluates expressions for all (input, sample, output). Parts that depend on parameters alone are
computed once per input and vector of outputs, parts that depend on x alone once per input and vector of
samples, and only the rest in the innermost loop. `regrouped` orders products to move as much as possible out
of that loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache, reduce
from typing import Literal

from ftnn.formula._derive import at_zero as worked_out_at_zero
from ftnn.formula._derive import has_poles, is_bounded, lower
from ftnn.formula._expr import INPUT, ONE, ZERO, Call, Expr, call, folded, number, plus, postorder, substitute
from ftnn.formula._ops import OPS
from ftnn.kernels.codegen.placeholders import PER_SAMPLE, SILENT
from ftnn.kernels.program import Program

Side = Literal["number", "matrices", "input", "both"]
"""What an expression depends on."""


def side(expr: Expr) -> Side:
    """What `expr` depends on: nothing, matrices alone, the input alone, or both (also for memory cells)."""
    names = expr.names
    if not names:
        return "number"
    if INPUT not in names:
        return "both" if any(name in PER_SAMPLE for name in names) else "matrices"
    return "input" if len(names) == 1 else "both"


def kernel_form(program: Program) -> Expr:
    """The function as kernels evaluate it: as a sum of products where that is exact."""
    plan = program.plan
    if plan.kind != "gemm" or not plan.exact:
        return program.expr
    total = ZERO if plan.constant is None else plan.constant
    for g, h in plan.terms:
        total = plus(total, folded("mul", g, h))
    return total if plan.common is None else plus(total, plan.common)


def factors(expr: Expr) -> list[Expr]:
    """The factors of `expr`."""
    if isinstance(expr, Call) and expr.op == "mul":
        return [f for arg in expr.args for f in factors(arg)]
    if isinstance(expr, Call) and expr.op == "neg":
        return [folded("neg", ONE), *factors(expr.args[0])]
    return [expr]


def product(parts: Iterable[Expr]) -> Expr:
    return reduce(lambda a, b: folded("mul", a, b), parts, ONE)


def regrouped(expr: Expr) -> Expr:
    """`expr` in vector operations, with the factors of each product ordered by what they depend on."""
    done: dict[Expr, Expr] = {}
    for part in postorder(lower(expr, "llvm")):
        new = _rebuilt(part, done)
        if isinstance(new, Call) and new.op in ("mul", "neg"):
            new = folded("mul", *split_product(new))
        done[part] = new
    return done[lower(expr, "llvm")]


def _rebuilt(part: Expr, done: dict[Expr, Expr]) -> Expr:
    """`part` with its arguments replaced."""
    return folded(part.op, *(done[arg] for arg in part.args)) if isinstance(part, Call) else part


def split_product(expr: Expr) -> tuple[Expr, Expr]:
    """`expr` as a product: the factors of matrices alone, and the rest."""
    by = sides(expr)
    return product(by["number"] + by["matrices"]), folded("mul", product(by["input"]), product(by["both"]))


def sides(expr: Expr) -> dict[Side, list[Expr]]:
    """The factors of `expr` by what they depend on."""
    by: dict[Side, list[Expr]] = {"number": [], "matrices": [], "input": [], "both": []}
    for part in factors(expr):
        by[side(part)].append(part)
    return by


def without_cancellation(*roots: Expr) -> list[Expr]:
    """`roots` with cosh(a) - 1 as 2·sinh(a/2)², which stays accurate for small a.

    sinh(a) of the same a becomes 2·sinh(a/2)·cosh(a/2), to share its work.
    """
    arguments = {a for part in postorder(*roots) if (a := _cosh_less_one(part)) is not None}
    if not arguments:
        return list(roots)
    done: dict[Expr, Expr] = {}
    for part in postorder(*roots):
        done[part] = _rebuilt(part, done)
        a = _cosh_less_one(part)
        if a is not None:
            sinh = call("sinh", folded("mul", number(0.5), done[a]))
            done[part] = folded("mul", number(2), folded("mul", sinh, sinh))
        elif isinstance(part, Call) and part.op == "sinh" and part.args[0] in arguments:
            half = folded("mul", number(0.5), done[part.args[0]])
            done[part] = folded("mul", number(2), folded("mul", call("sinh", half), call("cosh", half)))
    return [done[root] for root in roots]


def _cosh_less_one(part: Expr) -> Expr | None:
    """a, if `part` is cosh(a) - 1."""
    match part:
        case Call("sub", (Call("cosh", (a,)), one)) if one is ONE:
            return a
        case _:
            return None


@lru_cache(maxsize=1024)
def may_have_poles(expr: Expr) -> bool:
    """Whether any part of `expr` may have a pole. Without poles, -0 and 0 give the same value."""
    return any(isinstance(part, Call) and has_poles(part) for part in postorder(expr))


def at_zero(expr: Expr, *, slope: bool = False) -> Expr:
    """`expr` at x = 0. If it may have poles, it is left to be computed, because 0·∞ is not 0.

    So are parts that may overflow, unless `expr` is a slope: where cosh(r) overflows, so does the function.
    """
    if may_have_poles(expr):
        return substitute(expr, {INPUT: SILENT})
    return worked_out_at_zero(expr, drops=lambda part: slope or is_bounded(part))


def frontier(roots: Sequence[Expr], only: Side) -> list[Expr]:
    """The largest parts that depend on `only`, to be computed outside the innermost loop."""
    largest_parts: dict[Expr, None] = {}

    def take(part: Expr) -> None:
        if isinstance(part, Call) and side(part) == only:
            # A comparison yields a mask, which no table of numbers can hold: keep its operands instead.
            if only == "input" and OPS[part.op].is_comparison:
                for arg in part.args:
                    take(arg)
            else:
                largest_parts[part] = None

    for root in roots:
        take(root)
    for part in postorder(*roots):
        if isinstance(part, Call) and side(part) == "both":
            for arg in part.args:
                take(arg)
    return list(largest_parts)
