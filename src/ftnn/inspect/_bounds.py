"""Between which values an expression stays for every finite input: interval arithmetic.

Trying out inputs can miss a narrow bump, or a rectifier that opens at x = 1e6; bounds miss nothing. They may
be too wide (x - x is not found to be 0), so what follows from them is true, but not all that is true follows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ftnn.formula._derive import rule
from ftnn.formula._expr import INPUT, Expr, Number, Symbol, postorder
from ftnn.formula._ops import ARGUMENTS, OPS

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Bounds:
    """lo ≤ value ≤ hi, elementwise; a comparison is 1 where it holds and 0 where not."""

    lo: Array
    hi: Array
    sure: Array
    """Whether the value is a finite number for every finite input, but for overflow: no pole, no NaN."""

    @property
    def constant(self) -> Array:
        """Where the value is one and the same for every input."""
        return self.sure & (self.lo == self.hi)

    @property
    def zero(self) -> Array:
        return self.constant & (self.lo == 0)


def between(lo: Any, hi: Any) -> Bounds:
    """Finite inputs from `lo` to `hi`."""
    lo, hi = np.asarray(lo, dtype=np.float64), np.asarray(hi, dtype=np.float64)
    return Bounds(lo, hi, np.ones(np.broadcast_shapes(lo.shape, hi.shape), dtype=bool))


ANY_INPUT = between(-np.inf, np.inf)


def bounds(expr: Expr, values: Mapping[str, Any], x: Bounds = ANY_INPUT) -> Bounds:
    """The bounds of `expr` over the inputs `x`, for parameters and constants given as arrays."""
    known = {name: _point(np.asarray(value, dtype=np.float64)) for name, value in values.items()}
    with np.errstate(all="ignore"):
        return _evaluate(expr, {INPUT: x, **known})


def _evaluate(expr: Expr, known: Mapping[str, Bounds]) -> Bounds:
    done: dict[Expr, Bounds] = {}
    for part in postorder(expr):
        match part:
            case Number(value):
                done[part] = _point(np.float64(value))
            case Symbol(name):
                done[part] = known[name]
            case _:
                args = [done[arg] for arg in part.args]
                own = RULES.get(part.op)
                if own is not None:
                    done[part] = _tidy(own(*args))
                else:  # spelled in other operations
                    given: dict[str, Bounds] = dict(zip(ARGUMENTS, args, strict=False))
                    done[part] = _evaluate(rule(OPS[part.op].numpy), given)
    return done[expr]


def _point(value: Any) -> Bounds:
    return _tidy(Bounds(value, value, np.isfinite(value)))


def _tidy(found: Bounds) -> Bounds:
    """What is not a number may be any; what is infinite on both sides is not finite."""
    lost = np.isnan(found.lo) | np.isnan(found.hi)
    endless = (found.lo == found.hi) & np.isinf(found.lo)
    return Bounds(
        np.where(lost, -np.inf, found.lo), np.where(lost, np.inf, found.hi), found.sure & ~lost & ~endless
    )


def _add(a: Bounds, b: Bounds) -> Bounds:
    return Bounds(a.lo + b.lo, a.hi + b.hi, a.sure & b.sure)


def _sub(a: Bounds, b: Bounds) -> Bounds:
    return _add(a, _neg(b))


def _neg(a: Bounds) -> Bounds:
    return Bounds(-a.hi, -a.lo, a.sure)


def _mul(a: Bounds, b: Bounds) -> Bounds:
    def times(x: Array, y: Array) -> Array:
        return np.where((x == 0) | (y == 0), 0.0, x * y)  # an infinite bound is never reached: 0·∞ is 0

    corners = [times(x, y) for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
    lo, hi = corners[0], corners[0]
    for corner in corners[1:]:
        lo, hi = np.minimum(lo, corner), np.maximum(hi, corner)
    return Bounds(lo, hi, a.sure & b.sure)


def _div(a: Bounds, b: Bounds) -> Bounds:
    pole = (b.lo <= 0) & (b.hi >= 0)
    inverse = Bounds(np.where(pole, -np.inf, 1 / b.hi), np.where(pole, np.inf, 1 / b.lo), b.sure & ~pole)
    return _mul(a, inverse)


def _pow(a: Bounds, b: Bounds) -> Bounds:
    """By a whole number, or of what is positive; of two points; else it may be anything."""
    n = b.lo
    fixed = b.constant
    whole, even = fixed & (n == np.floor(n)), np.fmod(n, 2) == 0
    pole = (n < 0) & (a.lo <= 0) & (a.hi >= 0)
    size = _size(a)
    base = Bounds(np.where(even, size.lo, a.lo), np.where(even, size.hi, a.hi), a.sure)
    ends = np.power(base.lo, n), np.power(base.hi, n)  # rising or falling, between the two
    good = (whole & ~pole) | (fixed & (a.lo >= 0) & ~pole) | (fixed & a.constant)
    return Bounds(
        np.where(good, np.minimum(*ends), -np.inf),
        np.where(good, np.maximum(*ends), np.inf),
        a.sure & b.sure & good,
    )


def _size(a: Bounds) -> Bounds:
    low, high = np.abs(a.lo), np.abs(a.hi)
    crosses = (a.lo <= 0) & (a.hi >= 0)
    return Bounds(np.where(crosses, 0.0, np.minimum(low, high)), np.maximum(low, high), a.sure)


def _rising(function: Callable[[Array], Array], above: float = -np.inf, *, reached: bool = True) -> Any:
    """A function that never falls, defined above a number (and there too, if that is reached)."""

    def apply(a: Bounds) -> Bounds:
        inside = a.lo >= above if reached else a.lo > above
        return Bounds(
            np.where(inside, function(a.lo), -np.inf),
            np.where(inside, function(a.hi), np.inf),
            a.sure & inside,
        )

    return apply


def _wave(function: Callable[[Array], Array]) -> Any:
    def apply(a: Bounds) -> Bounds:
        here = function(a.lo)
        return Bounds(np.where(a.constant, here, -1.0), np.where(a.constant, here, 1.0), a.sure)

    return apply


def _tan(a: Bounds) -> Bounds:
    here = np.tan(a.lo)
    return Bounds(
        np.where(a.constant, here, -np.inf), np.where(a.constant, here, np.inf), a.sure & a.constant
    )


def _truth(true: Array, false: Array, a: Bounds, b: Bounds) -> Bounds:
    return Bounds(np.where(true, 1.0, 0.0), np.where(false, 0.0, 1.0), a.sure & b.sure)


def _lt(a: Bounds, b: Bounds) -> Bounds:
    return _truth(a.hi < b.lo, a.lo >= b.hi, a, b)


def _le(a: Bounds, b: Bounds) -> Bounds:
    return _truth(a.hi <= b.lo, a.lo > b.hi, a, b)


def _gt(a: Bounds, b: Bounds) -> Bounds:
    return _lt(b, a)


def _ge(a: Bounds, b: Bounds) -> Bounds:
    return _le(b, a)


def _eq(a: Bounds, b: Bounds) -> Bounds:
    return _truth(a.constant & b.constant & (a.lo == b.lo), (a.hi < b.lo) | (a.lo > b.hi), a, b)


def _ne(a: Bounds, b: Bounds) -> Bounds:
    equal = _eq(a, b)
    return Bounds(1 - equal.hi, 1 - equal.lo, equal.sure)


def _where(condition: Bounds, a: Bounds, b: Bounds) -> Bounds:
    """A branch that is never taken does not count, whatever it is."""
    first, second = condition.sure & (condition.lo > 0), condition.sure & (condition.hi <= 0)

    def pick(one: Array, other: Array, both: Array) -> Array:
        return np.where(first, one, np.where(second, other, both))

    return Bounds(
        pick(a.lo, b.lo, np.minimum(a.lo, b.lo)),
        pick(a.hi, b.hi, np.maximum(a.hi, b.hi)),
        condition.sure & pick(a.sure, b.sure, a.sure & b.sure),
    )


def _min(a: Bounds, b: Bounds) -> Bounds:
    return Bounds(np.minimum(a.lo, b.lo), np.minimum(a.hi, b.hi), a.sure & b.sure)


def _max(a: Bounds, b: Bounds) -> Bounds:
    return Bounds(np.maximum(a.lo, b.lo), np.maximum(a.hi, b.hi), a.sure & b.sure)


def _special(name: str) -> Callable[[Array], Array]:
    def apply(a: Array) -> Array:
        from scipy import special  # only where a formula has it: it takes a while to load

        return getattr(special, name)(a)

    return apply


def _cosh(a: Bounds) -> Bounds:
    size = _size(a)
    return Bounds(np.cosh(size.lo), np.cosh(size.hi), a.sure)


_rect = _rising(lambda a: np.maximum(a, 0.0))

RULES: dict[str, Callable[..., Bounds]] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "neg": _neg,
    "pow": _pow,
    "lt": _lt,
    "le": _le,
    "gt": _gt,
    "ge": _ge,
    "eq": _eq,
    "ne": _ne,
    "where": _where,
    "exp": _rising(np.exp),
    "log": _rising(np.log, 0.0, reached=False),
    "log1p": _rising(np.log1p, -1.0, reached=False),
    "sqrt": _rising(np.sqrt, 0.0),
    "abs": _size,
    "sign": _rising(np.sign),
    "sin": _wave(np.sin),
    "cos": _wave(np.cos),
    "tan": _tan,
    "sinh": _rising(np.sinh),
    "cosh": _cosh,
    "tanh": _rising(np.tanh),
    "logistic": _rising(_special("expit")),
    "erf": _rising(_special("erf")),
    "rect": _rect,
    "rect_ada": _rect,
    "relu": _rect,
    "min": _min,
    "max": _max,
}
"""How each operation moves bounds. One that is missing is spelled in others, as NumPy has it."""
