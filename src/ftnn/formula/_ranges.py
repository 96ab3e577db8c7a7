"""Checking what a user gives as initial ranges, constants, and ranges of inputs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ftnn.errors import FormulaError
from ftnn.formula._expr import INPUT, MEMORY

Range = tuple[float, float]

DEFAULT_RANGE: Range = (-0.1, 0.1)
"""Where a parameter starts by default: the paper's range."""
_ROLES = {INPUT: "the connection's input", MEMORY: "the function's previous value"}


def error_at(name: str, formula: str, message: str) -> FormulaError:
    """An error that marks the first `name` in the formula, or the whole formula if it is not there."""
    match = re.search(rf"\b{re.escape(str(name))}\b", formula)
    start, end = match.span() if match else (0, len(formula))
    return FormulaError(message, text=formula, start=start, end=end)


def checked_constants(
    constants: Mapping[str, Iterable[float]], formula: str, names: tuple[str, ...]
) -> dict[str, tuple[float, ...]]:
    """The values that each constant is drawn from; `names` are those in the formula."""
    checked: dict[str, tuple[float, ...]] = {}
    for name, choices in constants.items():
        if name in _ROLES:
            raise error_at(name, formula, f"{name} cannot be a constant: it is {_ROLES[name]}")
        if name not in names:
            raise error_at(name, formula, f"the constant {name!r} does not occur in the formula")
        try:
            checked[name] = tuple(float(value) for value in choices)
        except (TypeError, ValueError, OverflowError):
            raise error_at(
                name,
                formula,
                f"the constant {name!r} needs the numbers it is drawn from, such as (-1, 1), not {choices!r}",
            ) from None
        if not checked[name] or not all(map(math.isfinite, checked[name])):
            raise error_at(
                name, formula, f"the constant {name!r} needs at least one number, all finite, not {choices!r}"
            )
    return checked


def checked_ranges(
    init: Mapping[str, Sequence[float]], formula: str, parameters: tuple[str, ...]
) -> dict[str, Range]:
    """The initial ranges that are not the default one."""
    checked: dict[str, Range] = {}
    for name, bounds in init.items():
        if name not in parameters:
            raise error_at(
                name,
                formula,
                f"init has {name!r}, which is not a parameter of this formula; its parameters are "
                f"{', '.join(parameters) or 'none'} (a name is a parameter or a constant, never both)",
            )
        try:
            low, high = (float(bound) for bound in bounds)
        except (TypeError, ValueError, OverflowError):
            raise error_at(
                name, formula, f"the initial range of {name!r} must be (low, high), not {bounds!r}"
            ) from None
        if not (math.isfinite(low) and math.isfinite(high) and low <= high):
            raise error_at(
                name, formula, f"the initial range of {name!r} must be finite and low ≤ high, not {bounds!r}"
            )
        if (low, high) != DEFAULT_RANGE:
            checked[name] = (low, high)
    return checked


def finite_interval(x: Any) -> Range | None:
    """`x` as (low, high), finite and low < high; None if it is not that."""
    try:
        low, high = (float(bound) for bound in x)
    except (TypeError, ValueError):
        return None
    return (low, high) if math.isfinite(low) and math.isfinite(high) and low < high else None
