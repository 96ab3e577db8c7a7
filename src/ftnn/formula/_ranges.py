"""Checks of the initial ranges, constants and input ranges that users pass."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ftnn._printable import quoted
from ftnn.formula._expr import INPUT, MEMORY
from ftnn.formula._parse import error_in

Range = tuple[float, float]

PAPER_RANGE: Range = (-0.1, 0.1)
"""The initial range of a parameter in the paper, unless its table has another."""
_ROLES = {INPUT: "the connection's input", MEMORY: "the function's previous value"}


def checked_constants(
    constants: Mapping[str, Iterable[float]], formula: str, names: tuple[str, ...]
) -> dict[str, tuple[float, ...]]:
    """The values that each constant is drawn from; `names` are the names in the formula."""
    checked: dict[str, tuple[float, ...]] = {}
    for name, choices in constants.items():
        if name in _ROLES:
            raise error_in(formula, f"{name} cannot be a constant: it is {_ROLES[name]}", name)
        if name not in names:
            raise error_in(formula, f"the constant {name!r} does not occur in the formula")
        try:
            checked[name] = tuple(float(value) for value in choices)
        except (TypeError, ValueError, OverflowError):
            checked[name] = ()
        if not checked[name] or not all(map(math.isfinite, checked[name])):
            message = f"the constant {name!r} must be drawn from finite numbers, such as (-1, 1)"
            raise error_in(formula, f"{message}, not {quoted(choices)}", name)
    return checked


def checked_ranges(
    init: Mapping[str, Sequence[float]], formula: str, parameters: tuple[str, ...]
) -> dict[str, Range]:
    """The initial ranges, as pairs of numbers."""
    checked: dict[str, Range] = {}
    for name, bounds in init.items():
        if name not in parameters:
            message = f"there is a range for {name!r}, which is not a parameter; the parameters are "
            message += ", ".join(parameters) or "none"
            raise error_in(formula, message, str(name))
        interval = finite_interval(bounds, may_be_point=True)
        if interval is None:
            message = f"the initial range of {name!r} must be (low, high), finite and low ≤ high"
            raise error_in(formula, f"{message}, not {quoted(bounds)}", name)
        checked[name] = interval
    return checked


def finite_interval(x: Any, *, may_be_point: bool = False) -> Range | None:
    """`x` as (low, high), both finite and low < high (or equal, if it may be a point); else None."""
    try:
        low, high = (float(bound) for bound in x)
    except (TypeError, ValueError, OverflowError):
        return None
    is_ordered = low < high or (may_be_point and low == high)
    return (low, high) if is_ordered and math.isfinite(low) and math.isfinite(high) else None
