"""Networks as expressions of their inputs x0, x1, …, with numbers for all parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import numpy as np
from torch import nn

from ftnn.errors import FtnnError
from ftnn.formula._expr import INPUT, ZERO, Call, Expr, folded, number, plus, postorder, substitute, symbol
from ftnn.inspect._layers import connection_list, describe, layers_of
from ftnn.inspect._prune import prune
from ftnn.nn import Activation, Network
from ftnn.nn._feed_forward import FeedForward

MAX_WRITTEN = 5_000
"""The limit on operations, numbers and names: more than a reader, or SymPy, can handle."""
MAX_SHARED = 200_000
"""The same, counting shared parts once."""

Stage = FeedForward | nn.Linear | Activation


def network_expressions(
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
        hidden: list[Stage] = [stage for layer in module.layers for stage in (layer, module.activation)]
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
    counts: dict[Expr, tuple[int, int]] = {}
    for part in postorder(expr):
        if isinstance(part, Call):
            args = [counts[arg] for arg in part.args]
            counts[part] = sum(inputs for inputs, _ in args), 1 + sum(others for _, others in args)
        else:
            counts[part] = (1, 0) if part is symbol(INPUT) else (0, 1)
    return counts[expr]


def _size(stages: Sequence[Stage], in_features: int, shared: bool) -> float:
    """The number of parts of all outputs; unless shared, a unit counts each time it is used."""
    sizes, total = np.ones(in_features), 0.0
    for stage in stages:
        if isinstance(stage, str):
            sizes = sizes + 1
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
        return [folded(stage, unit) for unit in units]
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
