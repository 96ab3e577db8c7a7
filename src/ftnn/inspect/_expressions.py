"""Networks as SymPy expressions, LaTeX, and NumPy code, with numbers for all parameters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from torch import nn

from ftnn.data._masked import unmasked
from ftnn.errors import FtnnError, ShapeError
from ftnn.formula._derive import lower
from ftnn.formula._expr import Call, Expr, Number, Symbol, postorder, symbol
from ftnn.formula._numpy import Array, Steps, run, schedule
from ftnn.formula._ops import OPS
from ftnn.inspect._layers import layers_of
from ftnn.inspect._prune import prune
from ftnn.inspect._stages import apply, rounded, size_of, stages_of, width_of
from ftnn.nn import folded

MAX_WRITTEN = 5_000
"""The limit on operations, numbers and names: more than a reader, or SymPy, can handle."""
MAX_SHARED = 200_000
"""The same, counting shared parts once."""

ROWS = 1024
"""Samples per block of a `NumpyNetwork`."""


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

    _check_digits(digits)
    _, outputs = _expressions(net, None, shared=False)
    exprs = [to_sympy(expr) for expr in outputs]
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


def numpy(net: nn.Module, digits: int | None = None) -> NumpyNetwork:
    """A network as a function of NumPy arrays, (…, in_features) → (…, out_features), in float64.

    It needs no torch; `.source` is its code, for use without ftnn. For the arguments, see
    [`ftnn.inspect.sympy`][]. The limit is 200,000 operations, since shared parts are computed only once.
    """
    _check_digits(digits)
    inputs, outputs = _expressions(net, digits, shared=True)
    return NumpyNetwork(inputs, tuple(lower(expr, "numpy") for expr in outputs))


@dataclass(frozen=True)
class NumpyNetwork:
    """A network as NumPy operations."""

    inputs: tuple[str, ...]
    outputs: tuple[Expr, ...]

    @cached_property
    def _steps(self) -> Steps:
        return schedule(*self.outputs)

    def __call__(self, x: Any) -> Array:
        """(…, in_features) → (…, out_features)."""
        x = np.asarray(unmasked(x, "x"), dtype=np.float64)
        if x.ndim == 0 or x.shape[-1] != len(self.inputs):
            raise ShapeError(f"x must have shape (…, {len(self.inputs)}), not {x.shape}")
        rows = x.reshape(-1, len(self.inputs))
        y = np.empty((len(rows), len(self.outputs)))
        for first in range(0, len(rows), ROWS):
            block = rows[first : first + ROWS]
            values = run(self._steps, dict(zip(self.inputs, block.T, strict=True)))
            for column, expr in enumerate(self.outputs):
                y[first : first + ROWS, column] = values[expr]
        return y.reshape(*x.shape[:-1], len(self.outputs))

    @property
    def source(self) -> str:
        """Python code that needs only NumPy (and SciPy for erf and the logistic function)."""
        texts: dict[Expr, str] = {}
        lines: list[str] = []
        for part in postorder(*self.outputs):
            match part:
                case Number(value):
                    texts[part] = repr(value)
                case Symbol(name):
                    texts[part] = f"x[..., {name.removeprefix('x')}]"
                case Call(op, args):
                    native = OPS[op].numpy
                    function = native if native.startswith("special.") else f"np.{native}"
                    texts[part] = f"t{len(lines)}"
                    lines.append(f"    {texts[part]} = {function}({', '.join(texts[arg] for arg in args)})")
        results = ", ".join(texts[expr] for expr in self.outputs)
        scipy_import = "from scipy import special\n" if any("special." in line for line in lines) else ""
        head = f"import numpy as np\n{scipy_import}\n\ndef network(x):\n"
        head += f'    """(…, {len(self.inputs)}) → (…, {len(self.outputs)})."""\n'
        body = "\n".join(["    x = np.asarray(x, dtype=np.float64)", *lines])
        columns = f"[np.broadcast_to(y, x.shape[:-1]) for y in ({results},)]"  # an output may be a number
        return f"{head}{body}\n    return np.stack({columns}, -1)\n"


def _check_digits(digits: int | None) -> None:
    if digits is not None and not 1 <= digits <= 17:
        raise FtnnError(f"digits must be from 1 to 17, or None for all, not {digits!r}")


def _expressions(
    net: nn.Module, digits: int | None, *, shared: bool
) -> tuple[tuple[str, ...], tuple[Expr, ...]]:
    """The names of the inputs of `net`, and its outputs as expressions.

    **Arguments:**

    - `digits`: round parameters to this many significant digits; None keeps them exact.
    - `shared`: whether parts shared by several units count once towards the limit.
    """
    layers_of(net)  # refuses networks with memory or without functions
    stages = stages_of(folded(prune(net).double()))  # in float64, so that folding loses no digits
    in_features = next(width for stage in stages if (width := width_of(stage)) is not None)
    size = size_of(stages, in_features, shared)
    limit = MAX_SHARED if shared else MAX_WRITTEN
    if size > limit:
        about = f"{int(size):,}" if size < 1e12 else f"about {size:.0e}"
        raise FtnnError(
            f"as a formula, this {type(net).__name__} would have {about} operations, numbers and names; the "
            f"limit is {limit:,}: use fewer inputs, units or layers, or a function with a single x"
        )
    inputs = tuple(f"x{n}" for n in range(in_features))
    units = [symbol(name) for name in inputs]
    for stage in stages:
        units = apply(stage, units, digits)
    return inputs, tuple(units)
