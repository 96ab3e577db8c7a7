"""Symbols for values that only kernels know. No parameter can have these names."""

from __future__ import annotations

from ftnn.formula._expr import MEMORY, Expr, symbol

ERROR = symbol("∂")
"""The error at an output."""
SUM = symbol("∑")
"""A running sum."""
SILENT = symbol("0")
"""x = 0, in formulas that must be evaluated at zero rather than simplified."""
SILENT_VALUE = symbol("F(0)")
"""The function's value at x = 0."""
LARGEST = symbol("|x|")
"""The largest |x| of the current samples."""

PER_SAMPLE = (MEMORY, "∂")
"""Names of values other than x that differ between samples."""


def numbered_sum(number: int) -> Expr:
    """One of several running sums."""
    return symbol(f"∑{number}")
