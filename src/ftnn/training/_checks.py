"""Arguments checked by name: an error quotes what was given and says what was expected."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any

from ftnn.errors import FtnnError

MOST_LAYERS, MOST_UNITS = 10_000, 1_000_000
"""Of a network that is asked for by numbers: on the command line, or in a file."""

_short = reprlib.Repr()
_short.maxother = _short.maxstring = 80


def quoted(value: Any) -> str:
    """A value for an error message: on one line, and never long."""
    return " ".join(_short.repr(value).split())


def whole(name: str, value: Any, *, least: int) -> int:
    """A whole number: Python's or NumPy's, but neither a truth value nor a float."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise FtnnError(f"{name}={quoted(value)} must be a whole number of {least} or more")
    return int(value)


def real(
    name: str,
    value: Any,
    expected: str = "a finite number",
    allowed: Callable[[float], bool] = math.isfinite,
) -> float:
    """A number that is `allowed`, as a float; an int that a float holds exactly stays one."""
    try:
        fits = not isinstance(value, bool) and isinstance(value, Real) and allowed(float(value))
    except OverflowError:  # an int beyond every float
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
    except Exception:  # of a stranger's type, iterating may raise anything
        functions = (None,)
    if not all(map(callable, functions)):
        raise FtnnError(f"{name}={quoted(value)} must be a sequence of callables, such as [{name[:-1]}]")
    return functions


def check_sizes(layers: int, width: int) -> None:
    """Refuse numbers of hidden layers, and of units in each, that no machine could hold."""
    for what, value, most in (
        ("hidden layers", layers, MOST_LAYERS),
        ("units in a layer", width, MOST_UNITS),
    ):
        if not 1 <= value <= most:
            raise FtnnError(f"{value} {what}: expected 1 or more, and at most {most:,}")
