"""Networks for reading: SymPy, LaTeX, and NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from torch import nn

from ftnn.data._masked import unmasked
from ftnn.errors import ShapeError
from ftnn.formula._derive import lower
from ftnn.formula._expr import Call, Expr, Number, Symbol, postorder
from ftnn.formula._numpy import Array, _native
from ftnn.formula._ops import OPS
from ftnn.inspect._written import rounded, write

ROWS = 1024
"""Samples that a written-out network computes at once: every step is held meanwhile."""


def sympy(net: nn.Module, digits: int | None = None) -> list[Any]:
    """A small network written out: a SymPy expression of `x0`, `x1`, … for every output.

    **Arguments:**

    - `net`: a `Transfer`, a `Network`, or an `nn.Sequential` of these, linear layers and activations.
    - `digits`: rounds parameters to so many significant digits; by default they are exact.

    Refuses a network of more than 5,000 operations, numbers and names.
    """
    import sympy as library

    from ftnn.formula._sympy import to_sympy

    found = [to_sympy(expr) for expr in write(net, digits, shared=False).outputs]
    if digits is None:
        return found
    # SymPy computes with what it is given, exp(x + 0.5) = 1.648…·exp(x): those are rounded too.
    with library.evaluate(False):  # which would compute again
        return [
            expr.xreplace({f: library.Float(rounded(float(f), digits)) for f in expr.atoms(library.Float)})
            for expr in found
        ]


def latex(net: nn.Module, digits: int | None = 3) -> list[str]:
    """The same in LaTeX, one text for every output. For the arguments see [`ftnn.inspect.sympy`][]."""
    from ftnn.formula._sympy import to_latex

    return [to_latex(expr) for expr in sympy(net, digits)]


def numpy(net: nn.Module, digits: int | None = None) -> Written:
    """A network as a function of NumPy arrays, (…, in_features) → (…, out_features), in float64.

    It needs no torch; `.source` is its text, to be kept where ftnn is not installed. For the arguments see
    [`ftnn.inspect.sympy`][]; up to 200,000 operations are taken, as what units share is computed once.
    """
    found = write(net, digits, shared=True)
    return Written(found.inputs, tuple(lower(expr, "numpy") for expr in found.outputs))


@dataclass(frozen=True)
class Written:
    """A network written out for NumPy."""

    inputs: tuple[str, ...]
    outputs: tuple[Expr, ...]

    @cached_property
    def _steps(self) -> tuple[Expr, ...]:
        return tuple(postorder(*self.outputs))

    def __call__(self, x: Any) -> Array:
        """(…, in_features) → (…, out_features)."""
        x = np.asarray(unmasked(x, "x"), dtype=np.float64)
        if x.ndim == 0 or x.shape[-1] != len(self.inputs):
            raise ShapeError(f"x must have the shape (…, {len(self.inputs)}); it has {x.shape}")
        rows = x.reshape(-1, len(self.inputs))
        out = np.empty((len(rows), len(self.outputs)))
        for first in range(0, len(rows), ROWS):
            out[first : first + ROWS] = self._part(rows[first : first + ROWS])
        return out.reshape(*x.shape[:-1], len(self.outputs))

    def _part(self, rows: Array) -> Array:
        values = dict(zip(self.inputs, rows.T, strict=True))
        done: dict[Expr, Any] = {}
        with np.errstate(all="ignore"):
            for part in self._steps:
                match part:
                    case Number(value):
                        done[part] = np.float64(value)
                    case Symbol(name):
                        done[part] = values[name]
                    case Call(op, args):
                        done[part] = _native(OPS[op].numpy)(*(done[arg] for arg in args))
        return np.stack([np.broadcast_to(done[expr], len(rows)) for expr in self.outputs], 1)

    @property
    def source(self) -> str:
        """The function as Python, with NumPy (and SciPy for erf and the logistic function) alone."""
        texts: dict[Expr, str] = {}
        lines: list[str] = []
        for part in self._steps:
            match part:
                case Number(value):
                    texts[part] = repr(value)
                case Symbol(name):
                    texts[part] = f"x[..., {name.removeprefix('x')}]"
                case Call(op, args):
                    native = OPS[op].numpy
                    called = native if native.startswith("special.") else f"np.{native}"
                    lines.append(f"    t{len(lines)} = {called}({', '.join(texts[a] for a in args)})")
                    texts[part] = f"t{len(lines) - 1}"
        results = ", ".join(texts[expr] for expr in self.outputs)
        needs = "from scipy import special\n" if any("special." in line for line in lines) else ""
        head = f"import numpy as np\n{needs}\n\ndef network(x):\n"
        head += f'    """(…, {len(self.inputs)}) → (…, {len(self.outputs)})."""\n'
        body = "\n".join(["    x = np.asarray(x, dtype=np.float64)", *lines])
        last = f"[np.broadcast_to(y, x.shape[:-1]) for y in ({results},)]"  # one may be a mere number
        return f"{head}{body}\n    return np.stack({last}, -1)\n"
