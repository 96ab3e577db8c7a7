"""Symbolic derivatives, and rewriting into what a backend has. Both read the table of operations."""

from __future__ import annotations

from functools import cache

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
    postorder,
    rebuild,
    substitute,
)
from ftnn.formula._ops import ARGUMENTS, OPS, is_native
from ftnn.formula._parse import parse


@cache
def rule(text: str) -> Expr:
    """A formula of the table, in the arguments a, b, c."""
    return simplify(parse(text, rule=True))


def simplify(expr: Expr) -> Expr:
    """`expr` with numbers, zeros and ones folded."""
    return rebuild(expr, lambda leaf: leaf)


def differentiate(expr: Expr, name: str) -> Expr:
    """∂expr/∂name.

    By a parameter, an operation's decreed derivative counts, where it has one; by the input `x` or the memory
    cell `C`, always the true one.
    """
    decreed = name not in (INPUT, MEMORY)
    slope: dict[Expr, Expr] = {}
    for part in postorder(expr):
        match part:
            case Number():
                slope[part] = ZERO
            case Symbol(found):
                slope[part] = ONE if found == name else ZERO
            case Call(op, args):
                total = ZERO
                given: dict[str, Expr] = dict(zip(ARGUMENTS, args, strict=False))
                for text, arg in zip(OPS[op].derivatives(by_parameter=decreed), args, strict=True):
                    if slope[arg] is not ZERO:
                        partial = substitute(rule(text), given)
                        total = folded("add", total, folded("mul", partial, slope[arg]))
                slope[part] = total
    return slope[expr]


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
