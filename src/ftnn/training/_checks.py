"""Argument checks: errors name the argument, quote its value and say what was expected."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any

from ftnn._printable import quoted as quoted
from ftnn.errors import FtnnError

MOST_LAYERS, MOST_UNITS = 10_000, 1_000_000
"""Limits for a network whose sizes come from the command line or a file."""


def whole(name: str, value: Any, *, least: int) -> int:
    """A whole number, Python's or NumPy's; booleans and floats are refused."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise FtnnError(f"{name}={quoted(value)} must be a whole number of {least} or more")
    return int(value)


def real(
    name: str,
    value: Any,
    expected: str = "a finite number",
    allowed: Callable[[float], bool] = math.isfinite,
) -> float:
    """A number that is `allowed`, as a float; an int that a float represents exactly stays an int."""
    try:
        fits = not isinstance(value, bool) and isinstance(value, Real) and allowed(float(value))
    except OverflowError:  # an int too large for a float
        fits = False
    if not fits:
        raise FtnnError(f"{name}={quoted(value)} must be {expected}")
    return value if type(value) is int and abs(value) <= 2**53 else float(value)


def one_of(name: str, value: Any, allowed: Sequence[str]) -> Any:
    if not isinstance(value, str) or value not in allowed:
        raise FtnnError(f"{name}={quoted(value)} is unknown; expected one of {', '.join(allowed)}")
    return str(value)


def callables(name: str, value: Any) -> tuple[Any, ...]:
    """A sequence of functions, as a tuple."""
    try:
        functions = tuple(value)
    except Exception:  # iterating over an unknown type may raise anything
        functions = (None,)
    if not all(map(callable, functions)):
        raise FtnnError(f"{name}={quoted(value)} must be a sequence of callables, such as [{name[:-1]}]")
    return functions


def check_sizes(layers: int, width: int) -> None:
    """Refuse absurd numbers of hidden layers, or of units per layer."""
    for name, value, most in (
        ("hidden layers", layers, MOST_LAYERS),
        ("units in a layer", width, MOST_UNITS),
    ):
        if not 1 <= value <= most:
            raise FtnnError(f"{value} {name}: expected 1 or more, and at most {most:,}")
