"""Bounds on the arguments of elementary functions, from the sizes of x and of the matrices.

Checked once per input and vector of outputs, a bound replaces a check of every single argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from ftnn.formula._expr import INPUT, Call, Expr, Number, Symbol, call, folded, number, plus, postorder
from ftnn.formula._ops import OPS
from ftnn.kernels.codegen.math.small import LIMITS
from ftnn.kernels.codegen.placeholders import LARGEST
from ftnn.kernels.codegen.rewriting import side

_BOUNDED = ("sin", "cos", "tanh", "logistic", "gauss", "erf", "sech", "sign", "step")
"""Operations whose values lie within ±1."""


class _UnboundedError(Exception):
    """No bound is known."""


def limits(roots: Sequence[Expr]) -> list[tuple[Expr, float]] | None:
    """Bounds over `LARGEST` and the matrices, each with the limit below which short forms apply.

    None if no function in `roots` has a short form, or if some argument has no known bound.
    """
    limit_of: dict[Expr, float] = {}
    for part in postorder(*roots):
        # Parts that depend on x alone or on matrices alone are computed elsewhere.
        if isinstance(part, Call) and OPS[part.op].llvm in LIMITS and side(part) == "both":
            limit = LIMITS[OPS[part.op].llvm]
            try:
                bound = _bound(part.args[0])
            except _UnboundedError:
                return None
            limit_of[bound] = min(limit, limit_of.get(bound, limit))
    return list(limit_of.items()) or None


def _bound(expr: Expr) -> Expr:
    """An upper bound of |expr|, up to rounding."""
    match expr:
        case Number(value):
            return number(abs(value))
        case Symbol(name):
            return LARGEST if name == INPUT else call("abs", expr)
        case Call(op, (argument,)) if op in _BOUNDED:
            # 1, but NaN if the argument may be NaN or infinite, so that no limit holds.
            return plus(number(1), call("mul", number(0), _bound(argument)))
        case Call("neg" | "abs" | "rect" | "rect_ada", (argument,)):
            return _bound(argument)
        case Call("add" | "sub" | "min" | "max", args) | Call("where", (_, *args)):
            return reduce(lambda a, b: folded("add", a, b), map(_bound, args))
        case Call("mul", (a, b)):
            return folded("mul", _bound(a), _bound(b))
        case Call("div", (a, Number(value))) if value != 0:
            return folded("mul", number(abs(1 / value)), _bound(a))
        case Call("pow", (a, Number(int() as power))) if power > 0:
            return folded("pow", _bound(a), number(power))
        case _:
            raise _UnboundedError
