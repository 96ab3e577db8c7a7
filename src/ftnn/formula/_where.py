"""Ranges in text: `p*sin(q*x + r) where q in [-10, 10] and r in [-pi, pi]`."""

from __future__ import annotations

import re

from ftnn.errors import FormulaError
from ftnn.formula._parse import constant, parse
from ftnn.formula._ranges import Range

_WHERE = re.compile(r"\s+where(?=\s|$)(?!\s*\()")
"""Not the operation `where(condition, a, b)`."""
_RANGE = re.compile(r"\s*([A-Za-z_]\w*)\s+in\s*\[([^,\[\]]+),([^,\[\]]+)\]\s*", re.ASCII)


def split_ranges(text: str) -> tuple[str, dict[str, Range]]:
    """The part before `where`, a formula or a name, and the ranges after it; none if there is no `where`.

    Bounds may be arithmetic, such as `-pi/2`. That they are finite and in order is checked with the formula.
    """
    match = _WHERE.search(text) if isinstance(text, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
    if match is None:
        return text, {}
    ranges: dict[str, Range] = {}
    start = match.end()
    for part in re.split(r"(\band\b)", text[start:]):
        end = start + len(part)
        if part != "and":
            name, bounds = _range(part, text, start, end)
            if name in ranges:
                raise FormulaError(f"the range of {name!r} is given twice", text=text, start=start, end=end)
            ranges[name] = bounds
        start = end
    return text[: match.start()], ranges


def _range(part: str, text: str, start: int, end: int) -> tuple[str, Range]:
    found = _RANGE.fullmatch(part)
    bounds = [] if found is None else [_bound(found[2]), _bound(found[3])]
    if found is None or None in bounds:
        message = f"{part.strip()!r} is not a range; write: FORMULA where q in [-10, 10] and r in [0, 1]"
        raise FormulaError(message, text=text, start=start, end=end)
    low, high = (bound for bound in bounds if bound is not None)
    return found[1], (low, high)


def _bound(text: str) -> float | None:
    try:
        return constant(parse(text))
    except FormulaError:
        return None
