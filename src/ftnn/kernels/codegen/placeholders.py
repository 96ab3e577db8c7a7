"""Symbols that stand in expressions for what a kernel has at hand. No parameter can have these names."""

from __future__ import annotations

from ftnn.formula._expr import MEMORY, Expr, symbol

ERROR = symbol("∂")
"""The error at an output."""
SUM = symbol("∑")
"""A sum so far."""
SILENT = symbol("0")
"""x = 0, where a formula must be evaluated there rather than simplified."""
SILENT_VALUE = symbol("F(0)")
"""The function's value at x = 0."""
LARGEST = symbol("|x|")
"""The largest |x| of the samples at hand."""

PER_SAMPLE = (MEMORY, "∂")
"""Names of what differs from sample to sample, besides x."""


def numbered_sum(number: int) -> Expr:
    """One of several sums so far."""
    return symbol(f"∑{number}")
