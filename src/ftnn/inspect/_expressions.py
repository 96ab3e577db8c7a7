"""Networks as SymPy expressions and LaTeX, with numbers for all parameters."""

from __future__ import annotations

from typing import Any

from torch import nn

from ftnn.errors import FtnnError
from ftnn.formula._expr import Expr, symbol
from ftnn.inspect._layers import layers_of
from ftnn.inspect._prune import prune
from ftnn.inspect._stages import apply, check_digits, rounded, size_of, stages_of, width_of
from ftnn.nn import folded

MAX_WRITTEN = 5_000
"""The limit on operations, numbers and names: more than a reader, or SymPy, can handle."""


def sympy(net: nn.Module, digits: int | None = None) -> list[Any]:
    """A small network as formulas: for every output, a SymPy expression of `x0`, `x1`, …

    **Arguments:**

    - `net`: a `Transfer`, a `Network`, or an `nn.Sequential` of these, linear layers, normalisations and
        activations, in evaluation mode: `nn.BatchNorm1d` uses its running statistics.
    - `digits`: round every number of the result to this many significant digits; by default they are exact.

    Raises `FtnnError` for networks with more than 5,000 operations, numbers and names.
    """
    import sympy as library

    from ftnn.formula._sympy import to_sympy

    check_digits(digits)
    exprs = [to_sympy(expr) for expr in _expressions(net)]
    if digits is None:
        return exprs
    # Only now, when numbers are combined: rounding them first would add up their errors.
    with library.evaluate(False):  # or SymPy would combine them again
        return [expr.xreplace(_rounded_numbers(expr, digits)) for expr in exprs]


def _rounded_numbers(expr: Any, digits: int) -> dict[Any, Any]:
    """The numbers in a SymPy expression, except whole exponents, and what they are rounded to."""
    import sympy as library

    exponents = {power.exp for power in expr.atoms(library.Pow) if power.exp.is_Integer}
    numbers = {n: rounded(float(n), digits) for n in expr.atoms(library.Float, library.Integer) - exponents}
    return {
        n: library.Integer(int(value)) if value.is_integer() else library.Float(value)
        for n, value in numbers.items()
    }


def latex(net: nn.Module, digits: int | None = 3) -> list[str]:
    """The same in LaTeX, one text per output. For the arguments, see [`ftnn.inspect.sympy`][]."""
    from ftnn.formula._sympy import to_latex

    return [to_latex(expr) for expr in sympy(net, digits)]


def _expressions(net: nn.Module) -> list[Expr]:
    """The outputs of `net` as expressions of `x0`, `x1`, …"""
    layers_of(net)  # refuses networks with memory or without functions
    stages = stages_of(folded(prune(net).double()))  # in float64, so that folding loses no digits
    in_features = next(width for stage in stages if (width := width_of(stage)) is not None)
    size = size_of(stages, in_features)
    if size > MAX_WRITTEN:
        about = f"{int(size):,}" if size < 1e12 else f"about {size:.0e}"
        raise FtnnError(
            f"as a formula, this {type(net).__name__} would have {about} operations, numbers and names; the "
            f"limit is {MAX_WRITTEN:,}: use fewer inputs, units or layers, a function with a single x, or "
            "ftnn.inspect.numpy, which has no limit"
        )
    units: list[Expr] = [symbol(f"x{n}") for n in range(in_features)]
    for stage in stages:
        units = apply(stage, units)
    return units
