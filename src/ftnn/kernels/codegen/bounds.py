"""How large the arguments of elementary functions can get, from how large x and the matrices are.

Found once for an input and a vector of outputs, it spares a test of every single argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

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
)
from ftnn.formula._ops import OPS
from ftnn.kernels.codegen.math.small import LIMITS
from ftnn.kernels.codegen.placeholders import LARGEST
from ftnn.kernels.codegen.rewriting import side

_BOUNDED = ("sin", "cos", "tanh", "logistic", "gauss", "erf", "sech", "sign", "step")
"""Operations whose value is at most 1 in size."""


def limits(roots: Sequence[Expr]) -> list[tuple[Expr, float]] | None:
    """Bounds, in `LARGEST` and the matrices, each with its limit: where all hold, `roots` are tame.

    None where nothing would be gained, or where some argument has no bound that is known.
    """
    limit_of: dict[Expr, float] = {}
    for part in postorder(*roots):
        limit = LIMITS.get(OPS[part.op].llvm) if isinstance(part, Call) else None
        # What depends on x alone or on matrices alone is computed elsewhere.
        if isinstance(part, Call) and limit is not None and side(part) == "both":
            bound = _bound(part.args[0])
            if bound is None:
                return None
            limit_of[bound] = min(limit, limit_of.get(bound, limit))
    return list(limit_of.items()) or None


def _bound(expr: Expr) -> Expr | None:
    """What |expr| does not exceed, but for rounding."""
    match expr:
        case Number(value):
            return number(abs(value))
        case Symbol(name):
            return LARGEST if name == INPUT else call("abs", expr)
        case Call(op, (argument,)) if op in _BOUNDED:
            # 1, but NaN where the argument may be NaN or infinite, so that no limit holds.
            bound = _bound(argument)
            return None if bound is None else plus(ONE, call("mul", ZERO, bound))
        case Call("neg" | "abs" | "rect" | "rect_ada", (argument,)):
            return _bound(argument)
        case Call("add" | "sub" | "min" | "max", args) | Call("where", (_, *args)):
            bounds = [_bound(arg) for arg in args]
            if any(bound is None for bound in bounds):
                return None
            return reduce(lambda a, b: folded("add", a, b), [b for b in bounds if b is not None])
        case Call("mul", (a, b)):
            one, other = _bound(a), _bound(b)
            return None if one is None or other is None else folded("mul", one, other)
        case Call("div", (a, Number(value))) if value != 0:
            bound = _bound(a)
            return None if bound is None else folded("mul", number(abs(1 / value)), bound)
        case Call("pow", (a, Number(int() as power))) if power > 0:
            bound = _bound(a)
            return None if bound is None else folded("pow", bound, number(power))
        case _:
            return None
