"""Expressions as SymPy's, for people: printing, LaTeX, and algebra of their own."""

from __future__ import annotations

import math
import operator
from typing import Any

import sympy

from ftnn.formula._derive import lower
from ftnn.formula._expr import Expr, Number, Symbol, postorder
from ftnn.formula._ops import OPS


def to_sympy(expr: Expr) -> Any:
    """`expr` in SymPy's functions. Names become plain symbols, whatever they are called."""
    done: dict[Expr, Any] = {}
    lowered = lower(expr, "sympy")
    for part in postorder(lowered):
        match part:
            case Number(value):
                done[part] = sympy.pi if value == math.pi else sympy.sympify(value)
            case Symbol(name):
                done[part] = sympy.Symbol(name)
            case _:
                done[part] = _apply(OPS[part.op].sympy, [done[arg] for arg in part.args])
    return done[lowered]


def _apply(native: str, args: list[Any]) -> Any:
    if native == "where":
        condition, a, b = args
        return sympy.Piecewise((a, condition), (b, True))
    module, _, name = native.rpartition(".")
    return getattr(operator if module else sympy, name)(*args)
