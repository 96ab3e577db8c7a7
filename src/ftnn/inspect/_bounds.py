"""Bounds of an expression over all finite inputs, by interval arithmetic.

Trying inputs can miss a narrow bump, or a rectifier that opens at x = 1e6; bounds miss nothing. They may be
too wide (those of x - x are not 0), so what they prove is true, but they do not prove everything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from ftnn.formula._derive import rule
from ftnn.formula._expr import INPUT, Call, Expr, Number, Symbol, bottom_up
from ftnn.formula._ops import ARGUMENTS, OPS

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Bounds:
    """lo ≤ value ≤ hi, elementwise; a comparison is 1 if it holds, else 0."""

    lo: Array
    hi: Array
    sure: Array
    """Whether the value is finite for every finite input, except for overflow: no pole, no NaN."""

    @property
    def constant(self) -> Array:
        """Where the value is the same for every input."""
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
    """The bounds of `expr` over the inputs `x`; `values` has the parameters and constants as arrays."""
    points = {name: _point(np.asarray(value, dtype=np.float64)) for name, value in values.items()}
    with np.errstate(all="ignore"):
        return _evaluate(expr, {INPUT: x, **points})


def _evaluate(expr: Expr, arguments: Mapping[str, Bounds]) -> Bounds:
    def evaluated(part: Expr, args: list[Bounds]) -> Bounds:
        match part:
            case Number(value):
                return _point(np.float64(value))
            case Symbol(name):
                return arguments[name]
            case Call(op) if op in RULES:
                return _tidy(RULES[op](*args))
            case Call(op):  # spelled in other operations
                return _evaluate(rule(OPS[op].numpy), dict(zip(ARGUMENTS, args, strict=False)))

    return bottom_up(expr, evaluated)


def _point(value: Any) -> Bounds:
    return _tidy(Bounds(value, value, np.isfinite(value)))


def _tidy(raw: Bounds) -> Bounds:
    """`raw` without NaN; where a bound is NaN or both are the same infinity, nothing is sure."""
    unknown = np.isnan(raw.lo) | np.isnan(raw.hi)
    infinite = (raw.lo == raw.hi) & np.isinf(raw.lo)
    return Bounds(
        np.where(unknown, -np.inf, raw.lo), np.where(unknown, np.inf, raw.hi), raw.sure & ~unknown & ~infinite
    )


def _add(a: Bounds, b: Bounds) -> Bounds:
    return Bounds(a.lo + b.lo, a.hi + b.hi, a.sure & b.sure)


def _neg(a: Bounds) -> Bounds:
    return Bounds(-a.hi, -a.lo, a.sure)


def _mul(a: Bounds, b: Bounds) -> Bounds:
    def times(x: Array, y: Array) -> Array:
        return np.where((x == 0) | (y == 0), 0.0, x * y)  # infinite bounds are never reached: 0·∞ is 0

    corners = [times(x, y) for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
    return Bounds(reduce(np.minimum, corners), reduce(np.maximum, corners), a.sure & b.sure)


def _div(a: Bounds, b: Bounds) -> Bounds:
    pole = (b.lo <= 0) & (b.hi >= 0)
    inverse = Bounds(np.where(pole, -np.inf, 1 / b.hi), np.where(pole, np.inf, 1 / b.lo), b.sure & ~pole)
    return _mul(a, inverse)


def _pow(a: Bounds, b: Bounds) -> Bounds:
    """Bounded for integer exponents, for bases ≥ 0, and for single points; otherwise unbounded."""
    n = b.lo
    is_fixed = b.constant
    is_integer, is_even = is_fixed & (n == np.floor(n)), np.fmod(n, 2) == 0
    has_pole = (n < 0) & (a.lo <= 0) & (a.hi >= 0)
    size = _abs(a)
    ends = np.power(np.where(is_even, size.lo, a.lo), n), np.power(np.where(is_even, size.hi, a.hi), n)
    is_bounded = ((is_integer | (is_fixed & (a.lo >= 0))) & ~has_pole) | (is_fixed & a.constant)
    return Bounds(
        np.where(is_bounded, np.minimum(*ends), -np.inf),  # monotonic between its ends
        np.where(is_bounded, np.maximum(*ends), np.inf),
        a.sure & b.sure & is_bounded,
    )


def _abs(a: Bounds) -> Bounds:
    low, high = np.abs(a.lo), np.abs(a.hi)
    crosses = (a.lo <= 0) & (a.hi >= 0)
    return Bounds(np.where(crosses, 0.0, np.minimum(low, high)), np.maximum(low, high), a.sure)


def _rising(function: Callable[[Array], Array], least: float = -np.inf, *, is_open: bool = False) -> Any:
    """A function that never falls, defined from `least` on (or above it, if the domain is open)."""

    def apply(a: Bounds) -> Bounds:
        inside = a.lo > least if is_open else a.lo >= least
        lo, hi = np.where(inside, function(a.lo), -np.inf), np.where(inside, function(a.hi), np.inf)
        return Bounds(lo, hi, a.sure & inside)

    return apply


def _periodic(function: Callable[[Array], Array], most: float, *, has_poles: bool = False) -> Any:
    """A function that is evaluated at single points, and otherwise bounded by ± `most`."""

    def apply(a: Bounds) -> Bounds:
        value = function(a.lo)
        sure = a.sure & a.constant if has_poles else a.sure
        return Bounds(np.where(a.constant, value, -most), np.where(a.constant, value, most), sure)

    return apply


def _comparison(always: Array, never: Array, a: Bounds, b: Bounds) -> Bounds:
    return Bounds(np.where(always, 1.0, 0.0), np.where(never, 0.0, 1.0), a.sure & b.sure)


def _equal(a: Bounds, b: Bounds) -> Bounds:
    return _comparison(a.constant & b.constant & (a.lo == b.lo), (a.hi < b.lo) | (a.lo > b.hi), a, b)


def _not(a: Bounds) -> Bounds:
    return Bounds(1 - a.hi, 1 - a.lo, a.sure)


def _where(condition: Bounds, a: Bounds, b: Bounds) -> Bounds:
    """A branch that is never taken is ignored."""
    always, never = condition.sure & (condition.lo > 0), condition.sure & (condition.hi <= 0)

    def pick(from_a: Array, from_b: Array, from_both: Array) -> Array:
        return np.where(always, from_a, np.where(never, from_b, from_both))

    return Bounds(
        pick(a.lo, b.lo, np.minimum(a.lo, b.lo)),
        pick(a.hi, b.hi, np.maximum(a.hi, b.hi)),
        condition.sure & pick(a.sure, b.sure, a.sure & b.sure),
    )


def _extremum(choose: Callable[[Array, Array], Array]) -> Callable[[Bounds, Bounds], Bounds]:
    return lambda a, b: Bounds(choose(a.lo, b.lo), choose(a.hi, b.hi), a.sure & b.sure)


def _special(name: str) -> Callable[[Array], Array]:
    def apply(a: Array) -> Array:
        from scipy import special  # slow to load, so only if a formula needs it

        return getattr(special, name)(a)

    return apply


_rect = _rising(lambda a: np.maximum(a, 0.0))

_UNARY: dict[str, Callable[[Bounds], Bounds]] = {
    "neg": _neg,
    "exp": _rising(np.exp),
    "log": _rising(np.log, 0.0, is_open=True),
    "log1p": _rising(np.log1p, -1.0, is_open=True),
    "sqrt": _rising(np.sqrt, 0.0),
    "abs": _abs,
    "sign": _rising(np.sign),
    "sin": _periodic(np.sin, 1.0),
    "cos": _periodic(np.cos, 1.0),
    "tan": _periodic(np.tan, np.inf, has_poles=True),
    "sinh": _rising(np.sinh),
    "cosh": lambda a: _rising(np.cosh)(_abs(a)),
    "tanh": _rising(np.tanh),
    "logistic": _rising(_special("expit")),
    "erf": _rising(_special("erf")),
    "rect": _rect,
    "rect_ada": _rect,
    "relu": _rect,
}
_BINARY: dict[str, Callable[[Bounds, Bounds], Bounds]] = {
    "add": _add,
    "sub": lambda a, b: _add(a, _neg(b)),
    "mul": _mul,
    "div": _div,
    "pow": _pow,
    "min": _extremum(np.minimum),
    "max": _extremum(np.maximum),
    "lt": lambda a, b: _comparison(a.hi < b.lo, a.lo >= b.hi, a, b),
    "le": lambda a, b: _comparison(a.hi <= b.lo, a.lo > b.hi, a, b),
    "gt": lambda a, b: _comparison(b.hi < a.lo, b.lo >= a.hi, a, b),
    "ge": lambda a, b: _comparison(b.hi <= a.lo, b.lo > a.hi, a, b),
    "eq": _equal,
    "ne": lambda a, b: _not(_equal(a, b)),
}
RULES: dict[str, Callable[..., Bounds]] = {**_UNARY, **_BINARY, "where": _where}
"""The bounds of each operation. Others are spelled in these, as for NumPy."""
