"""Expression → text that parses back to it."""

from __future__ import annotations

import math

from ftnn.formula._expr import Expr, Number, Symbol, bottom_up
from ftnn.formula._ops import OPS

# How tightly each operation binds, as in Python.
_BINDS = {"add": 2, "sub": 2, "mul": 3, "div": 3, "neg": 4, "pow": 5}
_COMPARISON, _ATOM = 1, 9


def to_text(expr: Expr) -> str:
    """`expr` as a formula, with no more parentheses than needed."""
    return bottom_up(expr, _part_text)[0]


def _part_text(expr: Expr, args: list[tuple[str, int]]) -> tuple[str, int]:
    """The text of a part and how tightly it binds, from those of its arguments."""
    if isinstance(expr, Number):
        text = "pi" if expr.value == math.pi else repr(expr.value)
        return text, _BINDS["neg"] if text.startswith("-") else _ATOM
    if isinstance(expr, Symbol):
        return expr.name, _ATOM
    row = OPS[expr.op]
    if row.is_callable:
        return f"{expr.op}({', '.join(text for text, _ in args)})", _ATOM
    binds = _COMPARISON if row.is_comparison else _BINDS[expr.op]
    if expr.op == "neg":
        return "-" + _parenthesised(args[0], binds), binds
    left, right = args
    # The right side of - and / and the left side of ** bind one tighter: a - (b - c), (a**b)**c.
    first = _parenthesised(left, binds + (expr.op == "pow"))
    second = _parenthesised(right, binds + (expr.op in ("sub", "div", "add", "mul")))
    space = "" if expr.op in ("mul", "div", "pow") else " "
    return f"{first}{space}{row.symbol}{space}{second}", binds


def _parenthesised(part: tuple[str, int], binds: int) -> str:
    text, own_binds = part
    return text if own_binds >= binds else f"({text})"
