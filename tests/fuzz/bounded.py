"""Numbers in wide precision, each with a bound on its rounding error in the tested precision.

A running error analysis (Higham, Accuracy and Stability, section 3.3): every operation adds its own rounding
error to the propagated errors of its arguments. So the bound is that of evaluating the formula as written,
and an inherent loss of digits, as in `(x + 1e10) - 1e10`, is not reported as a bug.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

SAFETY = 16.0
"""Factor on all bounds: operations may be reordered, and functions may round worse."""
ROUNDINGS = 4.0
"""The error of an elementary function, in units of rounding."""

UNKNOWN = 1
"""Rounding decides the result: a branch, a sign, a pole, or whether it overflows."""
OVERFLOWED = 2
"""An intermediate value overflowed to infinity."""


@dataclass(frozen=True)
class Format:
    """A precision under test, and the wider one of the oracle."""

    name: str
    wide: Any
    share: float
    """The allowed error as a share of |F| + Σ|argument·∂F/∂argument|."""
    largest: float = 1.0
    smallest: float = 1.0
    """The largest and smallest incoming error, which a slope may be multiplied with first."""
    endless: bool = False
    """Whether overflow is ignored, to find the value of a formula despite intermediate overflow."""

    @cached_property
    def narrow(self) -> Any:
        return np.dtype(self.name).type

    @cached_property
    def unit(self) -> float:
        return float(np.finfo(self.narrow).eps) / 2

    @cached_property
    def tiny(self) -> Any:
        """The smallest normal number: below it, values have few digits or are flushed to zero."""
        return self.wide(np.finfo(self.narrow).tiny)

    @cached_property
    def least(self) -> Any:
        return self.wide(np.finfo(self.narrow).smallest_subnormal)

    @cached_property
    def most(self) -> Any:
        return self.wide(np.finfo(self.narrow).max)


FORMATS = {"float32": Format("float32", np.float64, 1e-5), "float64": Format("float64", np.longdouble, 1e-12)}


@dataclass(frozen=True)
class Bounded:
    """True values, and how far off a correct implementation may be."""

    form: Format
    value: Array
    error: Array
    """The rounding error of the evaluation (to first order)."""
    leaves: Array
    """Σ |argument · ∂value/∂argument| along every path: the effect of rounding the arguments."""
    flags: Array

    # --- arithmetic ---

    def __add__(self, other: Bounded) -> Bounded:
        return self._sum(other, self.value + other.value)

    def __sub__(self, other: Bounded) -> Bounded:
        return self._sum(other, self.value - other.value)

    def _sum(self, other: Bounded, value: Array) -> Bounded:
        error = self.error + other.error + self.form.unit * abs(value)  # a sum never underflows
        leaves, flags = self.leaves + other.leaves, self.flags | other.flags
        return bounded_result(self.form, value, error, leaves, flags, self, other)

    def __mul__(self, other: Bounded) -> Bounded:
        a, b = abs(self.value), abs(other.value)
        value = self.value * other.value
        zero = self.exactly_zero | other.exactly_zero
        error = a * other.error + b * self.error + self.error * other.error
        one = ((a == 1) & (self.error == 0)) | ((b == 1) & (other.error == 0))
        rounding = np.where(one, 0, self.form.unit * abs(value) + underflow(self.form, value))
        error = np.where(zero, 0, error + rounding)
        # Infinity times a value that may be zero or of either sign
        lost = (np.isinf(a) & other.sign_unknown) | (np.isinf(b) & self.sign_unknown)
        flags = self.flags | other.flags | lost * UNKNOWN
        return bounded_result(self.form, value, error, a * other.leaves + b * self.leaves, flags, self, other)

    def __truediv__(self, other: Bounded) -> Bounded:
        b = abs(other.value)
        value = self.value / other.value
        error = (self.error + abs(value) * other.error) / b
        error = error + ROUNDINGS * self.form.unit * abs(value) + underflow(self.form, value)
        error = np.where((self.exactly_zero & ~other.sign_unknown) | np.isinf(b), 0, error)
        near = SAFETY * other.error > 0.5 * b
        lost = near | ((b == 0) & self.sign_unknown)
        flags = self.flags | other.flags | lost * UNKNOWN
        leaves = (self.leaves + abs(value) * other.leaves) / b
        return bounded_result(self.form, value, error, leaves, flags, self, other)

    def __neg__(self) -> Bounded:
        return Bounded(self.form, -self.value, self.error, self.leaves, self.flags)

    def __abs__(self) -> Bounded:
        return Bounded(self.form, abs(self.value), self.error, self.leaves, self.flags)

    def times(self, factor: float) -> Bounded:
        return self * number(self.form, factor)

    # --- properties ---

    @property
    def exactly_zero(self) -> Array:
        return (self.value == 0) & (self.error == 0)

    @property
    def sign_unknown(self) -> Array:
        """Whether it might also be zero or have the other sign."""
        return (abs(self.value) <= SAFETY * self.error) & (self.error > 0)

    def met_by_an_error(self) -> Bounded:
        """A slope that may be multiplied with an incoming error first, which may overflow or underflow."""
        form, size = self.form, abs(self.value)
        tiny = form.tiny / form.smallest
        error = np.where((size > 0) & (size < 4 * tiny), self.error + tiny, self.error)
        over = np.isfinite(size) & (size > form.most / 16 / form.largest)
        return Bounded(form, self.value, error, self.leaves, self.flags | over * UNKNOWN)

    def unknown_where(self, mask: Array) -> Bounded:
        return Bounded(self.form, self.value, self.error, self.leaves, self.flags | mask * UNKNOWN)

    @property
    def allowed(self) -> Array:
        """How far off a correct implementation may be."""
        return self.form.share * (abs(self.value) + self.leaves) + SAFETY * self.error


def underflow(form: Format, value: Array) -> Array:
    return np.where(abs(value) < 4 * form.tiny, form.tiny, form.wide(0))


def leaf(form: Format, value: Array) -> Bounded:
    """An argument in the tested precision."""
    wide = np.asarray(value).astype(form.wide)
    finite = np.isfinite(wide)
    none = np.zeros_like(wide)
    return Bounded(form, wide, none, np.where(finite, abs(wide), 0), np.zeros(wide.shape, np.uint8))


def number(form: Format, value: float) -> Bounded:
    """A number in the formula's text: not an argument, and rounded only if the precision requires it."""
    wide, none = np.asarray(form.wide(value)), np.asarray(form.wide(0))
    with np.errstate(all="ignore"):
        error = abs(form.wide(form.narrow(value)) - wide)
    return Bounded(form, wide, error, none, np.asarray(0, np.uint8))


def bounded_result(
    form: Format, value: Array, error: Array, leaves: Array, flags: Array, *args: Bounded
) -> Bounded:
    """A result, with values too large for the tested precision replaced by infinity."""
    finite = np.ones(np.shape(value), np.bool_)
    for arg in args:
        finite = finite & np.isfinite(arg.value)
    large = abs(value)
    if form.endless:
        keep = np.isfinite(value)
        flags = flags | (~np.isfinite(error) & keep) * UNKNOWN
        return Bounded(
            form, value, np.where(keep, error, 0), np.where(keep, leaves, 0), flags.astype(np.uint8)
        )
    at_a_pole = np.isinf(large) & finite & _at_a_pole(args)
    over = (large > 16 * form.most) & finite & ~at_a_pole
    value = np.where(over, np.copysign(form.wide(np.inf), value), value)
    finite = np.isfinite(value)
    vague = finite & (~np.isfinite(error) | ~np.isfinite(leaves) | (large > form.most / 16))
    vague = vague | (over & ~(SAFETY * error < large))
    flags = (flags | vague * UNKNOWN | over * OVERFLOWED).astype(np.uint8)
    keep = finite & ~vague
    return Bounded(form, value, np.where(keep, error, 0), np.where(keep, leaves, 0), flags)


def _at_a_pole(args: tuple[Bounded, ...]) -> Array:
    """Whether an argument is exactly zero, so that infinity comes from a pole, not from overflow."""
    at_pole = np.asarray(False)
    for arg in args:
        at_pole = at_pole | arg.exactly_zero
    return at_pole


def choose(condition: Array, a: Bounded, b: Bounded) -> Bounded:
    """One of two values with its bounds; the other has no influence."""
    fields = ((a.value, b.value), (a.error, b.error), (a.leaves, b.leaves), (a.flags, b.flags))
    return Bounded(a.form, *(np.where(condition, one, other) for one, other in fields))


@dataclass(frozen=True)
class Elementary:
    """A function of one argument in wide precision, with its slope, and where a first-order bound holds."""

    of: Callable[[Array], Array]
    slope: Callable[[Array], Array]
    reach: Callable[[Array], Array] | None = None
    """The error of its argument beyond which the value is unknown; None if the slope is bounded."""
    steepest: float = 1.0
    """The largest slope, if there is one."""

    def __call__(self, a: Bounded) -> Bounded:
        form, value = a.form, self.of(a.value)
        slope = abs(self.slope(a.value))
        flags = a.flags
        if self.reach is None:
            error = np.minimum(slope * a.error + SAFETY * a.error**2, self.steepest * a.error)
        else:
            error = slope * a.error
            reach = self.reach(a.value)
            flags = flags | ((SAFETY * a.error > 0.5 * reach) & (a.error > 0)) * UNKNOWN
        error = np.where(a.error == 0, 0, error)
        exact = (a.exactly_zero & (value == 0)) | np.isinf(a.value)
        rounding = ROUNDINGS * form.unit * abs(value) + underflow(form, value)
        leaves = np.where(a.leaves == 0, 0, slope * a.leaves)
        return bounded_result(form, value, np.where(exact, 0, error + rounding), leaves, flags, a)
