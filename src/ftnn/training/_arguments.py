"""Arguments checked by name: what a user gave is quoted, with what was expected."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any

from ftnn.errors import FtnnError

_shown = reprlib.Repr()
_shown.maxother = _shown.maxstring = 80


def quoted(given: Any) -> str:
    """A value for an error message: on one line, and never long."""
    return " ".join(_shown.repr(given).split())


def whole(name: str, given: Any, *, least: int) -> int:
    """A whole number: Python's or NumPy's, but neither a truth value nor a float."""
    if isinstance(given, bool) or not isinstance(given, Integral) or given < least:
        raise FtnnError(f"{name}={quoted(given)} must be a whole number of {least} or more")
    return int(given)


def real(
    name: str,
    given: Any,
    expected: str = "a finite number",
    allowed: Callable[[float], bool] = math.isfinite,
) -> float:
    """A number that is `allowed`, as a float; an int that a float holds exactly stays one."""
    try:
        fits = not isinstance(given, bool) and isinstance(given, Real) and allowed(float(given))
    except OverflowError:  # an int beyond every float
        fits = False
    if not fits:
        raise FtnnError(f"{name}={quoted(given)} must be {expected}")
    return given if type(given) is int and abs(given) <= 2**53 else float(given)


def one_of(name: str, given: Any, allowed: Sequence[str]) -> Any:
    if not isinstance(given, str) or given not in allowed:
        raise FtnnError(f"{name}={quoted(given)} is unknown; expected one of {', '.join(allowed)}")
    return str(given)


def callables(name: str, given: Any) -> tuple[Any, ...]:
    """A sequence of functions, as a tuple."""
    try:
        found = tuple(given)
    except Exception:  # of a stranger's type, iterating may raise anything
        found = (None,)
    if not all(map(callable, found)):
        raise FtnnError(f"{name}={quoted(given)} must be a sequence of callables, such as [{name[:-1]}]")
    return found


def learning_rate(gamma: float, shift: float = 0) -> float:
    """2^(γ - shift), if that is a number to learn with."""
    try:
        rate = 2.0 ** (gamma - shift)
    except OverflowError:
        rate = math.inf
    if not 0 < rate < math.inf:
        shifted = f" (and fine_tuning_shift={shift})" if shift else ""
        raise FtnnError(
            f"gamma={gamma}{shifted} gives a learning rate of 2^{gamma - shift:g}, "
            f"which is {'too large' if rate else 'too small'} for a floating-point number"
        )
    return rate
