"""Networks as SymPy expressions, LaTeX, and NumPy code, with numbers for all parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np
from torch import nn

from ftnn.data._masked import unmasked
from ftnn.errors import FtnnError, ShapeError
from ftnn.formula._derive import lower
from ftnn.formula._expr import (
    INPUT,
    ZERO,
    Call,
    Expr,
    Number,
    Symbol,
    bottom_up,
    folded,
    number,
    plus,
    postorder,
    substitute,
    symbol,
)
from ftnn.formula._numpy import Array, Steps, run, schedule
from ftnn.formula._ops import OPS
from ftnn.inspect._layers import connection_list, describe, layers_of
from ftnn.inspect._prune import prune
from ftnn.nn import Network
from ftnn.nn._activations import activation_formula
from ftnn.nn._feed_forward import FeedForward

MAX_WRITTEN = 5_000
"""The limit on operations, numbers and names: more than a reader, or SymPy, can handle."""
MAX_SHARED = 200_000
"""The same, counting shared parts once."""

ROWS = 1024
"""Samples per block of a `NumpyNetwork`."""

Stage = FeedForward | nn.Linear | str


def sympy(net: nn.Module, digits: int | None = None) -> list[Any]:
    """A small network as formulas: for every output, a SymPy expression of `x0`, `x1`, …

    **Arguments:**

    - `net`: a `Transfer`, a `Network`, or an `nn.Sequential` of these, linear layers and activations.
    - `digits`: round parameters to this many significant digits; by default they are exact.

    Raises `FtnnError` for networks with more than 5,000 operations, numbers and names.
    """
    import sympy as library

    from ftnn.formula._sympy import to_sympy

    _, outputs = _expressions(net, digits, shared=False)
    exprs = [to_sympy(expr) for expr in outputs]
    if digits is None:
        return exprs
    # Also round numbers that SymPy computed, as in exp(x + 0.5) = 1.648…·exp(x).
    with library.evaluate(False):  # or SymPy would compute again
        return [
            expr.xreplace({f: library.Float(rounded(float(f), digits)) for f in expr.atoms(library.Float)})
            for expr in exprs
        ]


def latex(net: nn.Module, digits: int | None = 3) -> list[str]:
    """The same in LaTeX, one text per output. For the arguments, see [`ftnn.inspect.sympy`][]."""
    from ftnn.formula._sympy import to_latex

    return [to_latex(expr) for expr in sympy(net, digits)]


def numpy(net: nn.Module, digits: int | None = None) -> NumpyNetwork:
    """A network as a function of NumPy arrays, (…, in_features) → (…, out_features), in float64.

    It needs no torch; `.source` is its code, for use without ftnn. For the arguments, see
    [`ftnn.inspect.sympy`][]. The limit is 200,000 operations, since shared parts are computed only once.
    """
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


# --- networks as expressions ---


def _expressions(
    net: nn.Module, digits: int | None, *, shared: bool
) -> tuple[tuple[str, ...], tuple[Expr, ...]]:
    """The names of the inputs of `net`, and its outputs as expressions.

    **Arguments:**

    - `digits`: round parameters to this many significant digits; None keeps them exact.
    - `shared`: whether parts shared by several units count once towards the limit.
    """
    if digits is not None and not 1 <= digits <= 17:
        raise FtnnError(f"digits must be from 1 to 17, or None for all, not {digits!r}")
    layers_of(net)  # refuses networks with memory or without functions
    stages = _stages(prune(net))
    first = stages[0]
    assert not isinstance(first, str)
    size = _size(stages, first.in_features, shared)
    limit = MAX_SHARED if shared else MAX_WRITTEN
    if size > limit:
        about = f"{int(size):,}" if size < 1e12 else f"about {size:.0e}"
        raise FtnnError(
            f"as a formula, this {type(net).__name__} would have {about} operations, numbers and names; the "
            f"limit is {limit:,}: use fewer inputs, units or layers, or a function with a single x"
        )
    inputs = tuple(f"x{n}" for n in range(first.in_features))
    units = [symbol(name) for name in inputs]
    for stage in stages:
        units = _apply(stage, units, digits)
    return inputs, tuple(units)


_SIMPLE_STAGES: dict[type[nn.Module], list[Stage]] = {
    nn.Sigmoid: ["logistic"],
    nn.ReLU: ["relu"],
    nn.Tanh: ["tanh"],
    nn.Identity: [],
    nn.Flatten: [],
    nn.Dropout: [],
}


def _stages(module: nn.Module) -> list[Stage]:
    """The steps of a module."""
    if isinstance(module, FeedForward | nn.Linear):
        return [module]
    if isinstance(module, Network):
        hidden: list[Stage] = [
            stage
            for layer, activation in zip(module.layers, module.activations, strict=True)
            for stage in (layer, activation)
        ]
        return [*hidden, module.output]
    if isinstance(module, nn.Sequential):
        return [stage for child in module for stage in _stages(child)]
    if type(module) in _SIMPLE_STAGES:
        return _SIMPLE_STAGES[type(module)]
    supported = ("Transfer", "Partial", "Network", "Sequential", "Linear")
    supported += tuple(kind.__name__ for kind in _SIMPLE_STAGES)
    raise FtnnError(f"cannot convert a {type(module).__name__}; expected one of {', '.join(supported)}")


def _counts(expr: Expr) -> tuple[int, int]:
    """The numbers of x and of other parts in `expr` as a tree."""

    def counts(part: Expr, args: list[tuple[int, int]]) -> tuple[int, int]:
        if part is symbol(INPUT):
            return 1, 0
        return sum(inputs for inputs, _ in args), 1 + sum(others for _, others in args)

    return bottom_up(expr, counts)


def _size(stages: Sequence[Stage], in_features: int, shared: bool) -> float:
    """The number of parts of all outputs; unless shared, a unit counts each time it is used."""
    sizes, total = np.ones(in_features), 0.0
    for stage in stages:
        if isinstance(stage, str):
            x_count, other_count = _counts(activation_formula(stage).value)
            sizes = x_count * sizes + other_count
        elif isinstance(stage, nn.Linear):
            sizes = np.full(stage.out_features, float(np.sum(sizes + 3)))
        else:
            connections = connection_list(stage)
            inputs, outputs = connections.inputs.cpu().numpy(), connections.outputs.cpu().numpy()
            x_count, other_count = max(_counts(kind.expr) for kind in stage.kinds)
            weights = x_count * sizes[inputs] + other_count + 1
            sizes = np.bincount(outputs, weights=weights, minlength=stage.out_features) + 1
        if shared:
            total, sizes = total + float(sizes.sum()), np.ones(len(sizes))
    return total if shared else float(sizes.sum())


def _apply(stage: Stage, units: list[Expr], digits: int | None) -> list[Expr]:
    """The outputs of a stage for the inputs `units`."""
    if isinstance(stage, str):
        formula = activation_formula(stage).value
        return [substitute(formula, {INPUT: unit}) for unit in units]
    if isinstance(stage, nn.Linear):
        weights = stage.weight.detach().double().cpu().numpy()
        outputs = [
            _sum(folded("mul", _number(w, digits, stage), unit) for w, unit in zip(row, units, strict=True))
            for row in weights
        ]
    else:
        outputs = [_sum(terms) for terms in _transfer_terms(stage, units, digits)]
    if stage.bias is None:
        return outputs
    bias = stage.bias.detach().double().cpu().numpy()
    return [plus(output, _number(b, digits, stage)) for output, b in zip(outputs, bias, strict=True)]


def _transfer_terms(layer: FeedForward, units: list[Expr], digits: int | None) -> list[list[Expr]]:
    """For each output, the terms of its connections."""
    connections = connection_list(layer)
    matrices = {name: value.double().cpu().numpy() for name, value in connections.values.items()}
    terms: list[list[Expr]] = [[] for _ in range(layer.out_features)]
    pairs = zip(connections.inputs.tolist(), connections.outputs.tolist(), strict=True)
    for c, (i, o) in enumerate(pairs):
        values = {name: _number(matrix[c], digits, layer) for name, matrix in matrices.items()}
        terms[o].append(substitute(layer.function.expr, {**values, INPUT: units[i]}))
    return terms


def _sum(terms: Iterable[Expr]) -> Expr:
    return reduce(plus, terms, ZERO)


def rounded(value: float, digits: int | None) -> float:
    """`value` rounded to `digits` significant digits."""
    return value if digits is None else float(f"{value:.{digits - 1}e}")


def _number(value: Any, digits: int | None, layer: nn.Module) -> Expr:
    if not math.isfinite(value):
        name = describe(layer) if isinstance(layer, FeedForward) else type(layer).__name__
        raise FtnnError(f"a parameter of {name} is {float(value)}; expected finite numbers")
    return number(rounded(float(value), digits))
