"""Checks of single values: cells and rows may come from files."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from ftnn.errors import DataError

Check = tuple[Callable[[Any], bool], str]
"""(whether a value is valid, what is expected)."""

_DIGEST = re.compile(r"[0-9a-fA-F]{64}")


def check(values: Mapping[str, Any], checks: Mapping[str, Check]) -> None:
    """Raise `DataError` for the first invalid value."""
    for name, (is_valid, expected) in checks.items():
        if not is_valid(values[name]):
            raise DataError(f"{name} is {values[name]!r:.100}; expected {expected}")


def or_null(check: Check) -> Check:
    is_valid, expected = check
    return lambda value: value is None or is_valid(value), f"null or {expected}"


def _is_number(value: Any) -> bool:
    return type(value) in (float, int)  # not bool, which is a subclass of int


def _is_text(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(value.encode())
    except UnicodeEncodeError:  # a lone surrogate
        return False


def _is_time(value: Any) -> bool:
    try:
        return _is_text(value) and bool(datetime.fromisoformat(value))
    except ValueError:
        return False


TEXT: Check = _is_text, "text"
NUMBER: Check = _is_number, "a number"
FINITE: Check = lambda v: _is_number(v) and math.isfinite(v), "a finite number"
WHOLE: Check = lambda v: type(v) is int, "a whole number"
COUNT: Check = lambda v: type(v) is int and v >= 0, "a whole number of 0 or more"
POSITIVE: Check = lambda v: type(v) is int and v >= 1, "a whole number of 1 or more"
SECONDS: Check = lambda v: _is_number(v) and 0 <= v < math.inf, "a finite number of 0 or more"
ACCURACY = or_null((lambda v: _is_number(v) and 0 <= v <= 100, "a number from 0 to 100"))
FLAG: Check = lambda v: type(v) is bool, "true or false"
TIME: Check = _is_time, "a date and time"
DIGEST: Check = lambda v: v == "" or (_is_text(v) and bool(_DIGEST.fullmatch(v))), "a SHA-256 digest"
VERSIONS: Check = (
    lambda v: isinstance(v, dict) and all(_is_text(text) for pair in v.items() for text in pair),
    "names and versions",
)
