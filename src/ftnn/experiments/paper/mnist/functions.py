"""Functions as the text that files hold."""

from __future__ import annotations

from functools import cache

from ftnn.formula import Function, as_function, catalogue
from ftnn.formula._catalogue import with_paper_ranges
from ftnn.formula._where import split_ranges

FUNCTIONS = tuple(name for name in catalogue if name != "memory")
"""The paper's functions."""


@cache
def given(text: str) -> Function:
    """Parse a function: `F12`, a formula, or `p*tan(q*x + r) where q in [-9, 9] and r in [0, 1]`."""
    return as_function(text)


def function_of(text: str) -> Function:
    """Parse a function as `given` does; parameters without a range start in ±0.1, as in the paper."""
    return with_paper_ranges(given(text))


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
    return split_ranges(text)[0]
