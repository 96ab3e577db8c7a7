"""Functions as text, optionally with initial ranges."""

from __future__ import annotations

import re
from functools import cache

from ftnn.errors import FtnnError
from ftnn.formula import Function, as_function, catalogue
from ftnn.formula._catalogue import with_paper_ranges

FUNCTIONS = tuple(name for name in catalogue if name != "memory")
"""The paper's functions."""
_RANGE = re.compile(r"(\w+)\s+in\s+\[\s*([^,\]]+),\s*([^,\]]+)\]$")


def function_of(text: str) -> Function:
    """Parse a function as `given` does; parameters without a range start in ±0.1, as in the paper."""
    return with_paper_ranges(given(text))


@cache
def given(text: str) -> Function:
    """Parse a function: `F12`, a formula, or `p*tan(q*x + r) where q in [-9, 9] and r in [0, 1]`."""
    formula, where, ranges = text.partition(" where ")
    if not where:
        return as_function(text)
    init: dict[str, tuple[float, float]] = {}
    for part in ranges.split(" and "):
        match = _RANGE.match(part.strip())
        try:
            if match is None:
                raise ValueError
            init[match[1]] = (float(match[2]), float(match[3]))
        except ValueError:
            raise FtnnError(
                f"{part!r} in {text!r} is not a range; write: FORMULA where q in [-10, 10] and r in [0, 1]"
            ) from None
    if formula in catalogue:
        known = catalogue[formula]
        return Function(known.formula, init={**known.init, **init}, constants=known.choices)
    return Function(formula, init=init)


@cache
def with_ranges(text: str) -> str:
    """The one way to write a function in files: with the range of every parameter, in order of appearance.

    Catalogue functions with their own ranges are just their names.
    """
    function, formula = function_of(text), without_ranges(text)
    if formula in catalogue and function == catalogue[formula]:
        return formula
    ranges = [f"{name} in [{_number(low)}, {_number(high)}]" for name, (low, high) in function.init.items()]
    return f"{formula} where {' and '.join(ranges)}"


def _number(value: float) -> str:
    """As short as possible, but the same number when read again."""
    return f"{value:g}" if float(f"{value:g}") == value else repr(value)


def without_ranges(text: str) -> str:
    """The part before the ranges: `F12` for `F12 where q in [-9, 9]`."""
    return text.partition(" where ")[0]
