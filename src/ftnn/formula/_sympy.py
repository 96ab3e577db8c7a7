"""Expressions as SymPy's, for people: printing, LaTeX, and algebra of their own."""

from __future__ import annotations

import math
import operator
from typing import Any

import sympy

from ftnn.formula._derive import lower
from ftnn.formula._expr import Call, Expr, Number, Symbol, postorder
from ftnn.formula._ops import OPS

MAX_NESTED = 3
"""Functions within functions, up to which SymPy simplifies what it is given. Beyond, its questions about an
argument (is tanh(tanh(tanh(x))) real?) take time that doubles with every level."""


def to_sympy(expr: Expr) -> Any:
    """`expr` in SymPy's functions. Names become plain symbols, whatever they are called."""
    lowered = lower(expr, "sympy")
    with sympy.evaluate(_nesting(lowered) <= MAX_NESTED):
        done: dict[Expr, Any] = {}
        for part in postorder(lowered):
            match part:
                case Number(value):
                    done[part] = sympy.pi if value == math.pi else sympy.sympify(value)
                case Symbol(name):
                    done[part] = sympy.Symbol(name)
                case _:
                    done[part] = _apply(OPS[part.op].sympy, [done[arg] for arg in part.args])
        return done[lowered]


def _nesting(expr: Expr) -> int:
    """How many functions stand within each other, at most."""
    depth: dict[Expr, int] = {}
    for part in postorder(expr):
        inner = max((depth[arg] for arg in part.args), default=0) if isinstance(part, Call) else 0
        depth[part] = inner + (isinstance(part, Call) and OPS[part.op].is_callable)
    return depth[expr]


def _apply(native: str, args: list[Any]) -> Any:
    if native == "where":
        condition, a, b = args
        return sympy.Piecewise((a, condition), (b, True))
    module, _, name = native.rpartition(".")
    try:
        return getattr(operator if module else sympy, name)(*args)
    except TypeError:
        if name not in ("Lt", "Le", "Gt", "Ge"):
            raise
        return sympy.false  # a number that is not real or not finite, as NaN, compares as nothing
