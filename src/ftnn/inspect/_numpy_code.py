"""Expressions as NumPy code."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from ftnn.formula._derive import lower
from ftnn.formula._expr import Call, Expr, Symbol, call, postorder, symbol
from ftnn.formula._ops import FUNCTIONS, OPS
from ftnn.formula._text import to_text

_TAKEN = ("np", "special", "A")
"""Names with a meaning in the code."""


def function_code(name: str, expr: Expr, arguments: Sequence[str]) -> list[str]:
    """The lines of a Python function that computes `expr` from arrays, elementwise.

    Parts that are used more than once are computed once.
    """
    lowered = lower(expr, "numpy")
    parts = list(postorder(lowered))
    uses = Counter(arg for part in parts if isinstance(part, Call) for arg in part.args)
    used = {*arguments, *_TAKEN, *FUNCTIONS}
    texts: dict[Expr, Expr] = {}
    lines = [f"def {name}({', '.join(map(_safe, arguments))}):"]
    for part in parts:
        if isinstance(part, Symbol):
            texts[part] = symbol(_safe(part.name))
        elif isinstance(part, Call):
            texts[part] = call(part.op, *(texts.get(arg, arg) for arg in part.args))
            if uses[part] > 1 and not OPS[part.op].is_comparison:
                fresh = next(f"t{n}" for n in range(len(used) + 1) if f"t{n}" not in used)
                used.add(fresh)
                lines.append(f"    {fresh} = {_code(texts[part])}")
                texts[part] = symbol(fresh)
    return [*lines, f"    return {_code(texts.get(lowered, lowered))}"]


def _safe(name: str) -> str:
    """A parameter's name as an argument."""
    return name + "_" if name in _TAKEN else name


def _code(expr: Expr) -> str:
    """A lowered expression as Python."""
    text = re.sub(r"\b([A-Za-z_]\w*)\(", lambda match: f"{_native(match[1])}(", to_text(expr))
    return re.sub(r"(?<![\w.])(pi|inf|nan)\b", r"np.\1", text)


def _native(op: str) -> str:
    spelling = OPS[op].numpy
    return spelling if "." in spelling else f"np.{spelling}"
