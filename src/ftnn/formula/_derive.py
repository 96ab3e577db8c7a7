"""Symbolic derivatives, and rewriting into what a backend has. Both read the table of operations."""

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
    Symbol,
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
"""Operations, numbers and names in an expression that is differentiated, and in all its derivatives together.
Equal ones count once. It is about a second's work."""


@cache
def rule(text: str) -> Expr:
    """A formula of the table, in the arguments a, b, c."""
    return simplify(parse(text, rule=True))


def simplify(expr: Expr) -> Expr:
    """`expr` with numbers computed and no-ops dropped: see `folded`."""
    return rebuild(expr, lambda leaf: leaf)


def differentiate(expr: Expr, name: str) -> Expr:
    """∂expr/∂name.

    By a parameter, an operation's decreed derivative counts, where it has one; by the input `x` or the memory
    cell `C`, always the true one.
    """
    decreed = name not in (INPUT, MEMORY)
    slope: dict[Expr, Expr] = {}
    for part in postorder(expr):
        if name not in part.names:
            slope[part] = ZERO
            continue
        match part:
            case Number():
                slope[part] = ZERO
            case Symbol(found):
                slope[part] = ONE if found == name else ZERO
            case Call(op, args):
                total = ZERO
                for text, arg in zip(OPS[op].derivatives(by_parameter=decreed), args, strict=True):
                    if slope[arg] is not ZERO:
                        total = plus(total, times(_partial(text, args), slope[arg]))
                slope[part] = total
    return slope[expr]


def gradient(expr: Expr, names: Iterable[str], most: int = MAX_DERIVED) -> list[Expr]:
    """∂expr/∂name for each of `names`. Raises `FtnnError` if all these are over `most` operations."""
    seen = set(postorder(expr))
    slopes: list[Expr] = []
    for name in names:
        if len(seen) <= most:
            slopes.append(differentiate(expr, name))
            seen.update(postorder(slopes[-1]))
        if len(seen) > most:
            raise FtnnError(
                f"the formula and its derivatives have over {most:,} operations, numbers and names, counting "
                "equal ones once; use fewer parameters, or nest them less deeply"
            )
    return slopes


@lru_cache(maxsize=10_000)  # derivatives by many names ask for the same again and again
def _partial(text: str, args: tuple[Expr, ...]) -> Expr:
    return substitute(rule(text), dict(zip(ARGUMENTS, args, strict=False)))


def at_zero(expr: Expr, drops: Callable[[Expr], bool]) -> Expr:
    """`expr` where x is 0, worked out: what x is multiplied by drops out, and so does a zero that is added.

    `drops` says of what is to drop out whether it is finite, as 0·∞ is not 0. The sign of a zero may change.
    """
    done: dict[Expr, Expr] = {}
    for part in postorder(expr):
        if not isinstance(part, Call):
            done[part] = ZERO if part is symbol(INPUT) else part
            continue
        args = [done[arg] for arg in part.args]
        match part.op, args:
            case "mul", [a, b] if (a is ZERO and drops(b)) or (b is ZERO and drops(a)):
                done[part] = ZERO
            case "div", [a, b] if a is ZERO and b is not ZERO and drops(folded("div", ONE, b)):
                done[part] = ZERO
            case "add", [a, b]:
                done[part] = plus(a, b)
            case "sub", [a, b] if a is ZERO:
                done[part] = folded("neg", b) if b is not ZERO else ZERO
            case "sub", [a, b] if a is b and drops(a):
                done[part] = ZERO
            case "neg", [a] if a is ZERO:
                done[part] = ZERO
            case op, _:
                done[part] = folded(op, *args)
    return done[expr]


def has_poles(part: Call) -> bool:
    """Whether an operation may give what is not finite, overflow aside."""
    match part:
        case Call("div", (_, Number(value))):
            return value == 0
        case Call("pow", (_, Number(int() as value))):
            return value < 0
        case Call(op):
            return op in ("pow", "sqrt") or bool(OPS[op].singular)


def is_bounded(expr: Expr) -> bool:
    """Whether `expr` is finite wherever its names are: it has no pole, and nothing that grows fast."""
    calls = [part for part in postorder(expr) if isinstance(part, Call)]
    return not any(part.op in ("exp", "sinh", "cosh") or has_poles(part) for part in calls)


def lower(expr: Expr, backend: str) -> Expr:
    """`expr` in operations that `backend` has by name."""
    done: dict[Expr, Expr] = {}
    for part in postorder(expr):
        if not isinstance(part, Call):
            done[part] = part
            continue
        args = tuple(done[arg] for arg in part.args)
        spelling = OPS[part.op].spelling(backend)
        if is_native(spelling):
            done[part] = folded(part.op, *args)
        else:
            arguments: dict[str, Expr] = dict(zip(ARGUMENTS, args, strict=False))
            done[part] = substitute(lower(rule(spelling), backend), arguments)
    return done[expr]
