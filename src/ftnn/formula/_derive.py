"""Derivatives, values at 0, and rewriting for a target, all from the table of operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, lru_cache

from ftnn.errors import FtnnError
from ftnn.formula._expr import (
    INPUT,
    MEMORY,
    ONE,
    ZERO,
    Call,
    Expr,
    Number,
    bottom_up,
    folded,
    plus,
    postorder,
    rebuild,
    substitute,
    symbol,
    times,
)
from ftnn.formula._ops import ARGUMENTS, OPS, is_native
from ftnn.formula._parse import parse

MAX_DERIVED = 10_000
"""The limit on operations, numbers and names in an expression and all its derivatives, counting equal ones
once: about a second of work."""


def simplify(expr: Expr) -> Expr:
    """`expr` with numbers computed and no-ops dropped; see `folded`."""
    return rebuild(expr, lambda leaf: leaf)


@cache
def rule(text: str) -> Expr:
    """A formula from the table, in the arguments a, b, c."""
    return simplify(parse(text, rule=True))


@lru_cache(maxsize=10_000)  # derivatives by different names need many of the same
def apply_rule(text: str, args: tuple[Expr, ...]) -> Expr:
    """A formula from the table with `args` in place of a, b, c."""
    return substitute(rule(text), dict(zip(ARGUMENTS, args, strict=False)))


def differentiate(expr: Expr, name: str) -> Expr:
    """∂expr/∂name.

    For a parameter, an operation's surrogate gradient is used if it has one; for the input `x` or the memory
    cell `C`, always the true derivative.
    """
    by_parameter = name not in (INPUT, MEMORY)

    def slope(part: Expr, arg_slopes: list[Expr]) -> Expr:
        if name not in part.names:
            return ZERO
        if not isinstance(part, Call):
            return ONE
        total = ZERO
        rules = OPS[part.op].derivatives(by_parameter=by_parameter)
        for text, arg_slope in zip(rules, arg_slopes, strict=True):
            if arg_slope is not ZERO:
                total = plus(total, times(apply_rule(text, part.args), arg_slope))
        return total

    return bottom_up(expr, slope)


def gradient(expr: Expr, names: Iterable[str], most: int = MAX_DERIVED) -> list[Expr]:
    """∂expr/∂name for each of `names`. Raises `FtnnError` if there are more than `most` operations in all."""
    seen = set(postorder(expr))
    slopes: list[Expr] = []
    for name in names:
        if len(seen) <= most:
            slopes.append(differentiate(expr, name))
            seen.update(postorder(slopes[-1]))
        if len(seen) > most:
            raise FtnnError(
                f"the formula and its derivatives have more than {most:,} operations, numbers and names, "
                "counting equal ones once; use fewer parameters, or nest them less deeply"
            )
    return slopes


def at_zero(expr: Expr, drops: Callable[[Expr], bool]) -> Expr:
    """`expr` at x = 0, simplified: factors of x and added zeros drop out.

    `drops` says whether a factor is finite, so that its product with 0 may drop out (0·∞ is not 0). The sign
    of a zero may change.
    """

    def at(part: Expr, args: list[Expr]) -> Expr:
        if not isinstance(part, Call):
            return ZERO if part is symbol(INPUT) else part
        match part.op, args:
            case "mul", [a, b] if (a is ZERO and drops(b)) or (b is ZERO and drops(a)):
                return ZERO
            case "div", [a, b] if a is ZERO and b is not ZERO and drops(folded("div", ONE, b)):
                return ZERO
            case "add", [a, b]:
                return plus(a, b)
            case "sub", [a, b] if a is ZERO:
                return folded("neg", b) if b is not ZERO else ZERO
            case "sub", [a, b] if a is b and drops(a):
                return ZERO
            case "neg", [a] if a is ZERO:
                return ZERO
            case op, _:
                return folded(op, *args)

    return bottom_up(expr, at)


def has_poles(part: Call) -> bool:
    """Whether an operation can give inf or NaN other than by overflow."""
    match part:
        case Call("div", (_, Number(value))):
            return value == 0
        case Call("pow", (_, Number(int() as value))):
            return value < 0
        case Call(op):
            return op in ("pow", "sqrt") or bool(OPS[op].singular)


def is_bounded(expr: Expr) -> bool:
    """Whether `expr` is finite for finite arguments: it has no poles and no exponential growth."""
    calls = [part for part in postorder(expr) if isinstance(part, Call)]
    return not any(part.op in ("exp", "sinh", "cosh") or has_poles(part) for part in calls)


def lower(expr: Expr, target: str) -> Expr:
    """`expr` rewritten in operations that `target` has natively."""

    def lowered(part: Expr, args: list[Expr]) -> Expr:
        if not isinstance(part, Call):
            return part
        spelling = OPS[part.op].spelling(target)
        if is_native(spelling):
            return folded(part.op, *args)
        return substitute(lower(rule(spelling), target), dict(zip(ARGUMENTS, args, strict=False)))

    return bottom_up(expr, lowered)
