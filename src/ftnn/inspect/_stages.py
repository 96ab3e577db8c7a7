"""Networks as stages, and stages as expressions of their inputs, with numbers for all parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import numpy as np
from torch import Tensor, nn

from ftnn.errors import FtnnError
from ftnn.formula._expr import INPUT, ZERO, Expr, bottom_up, folded, number, plus, substitute, symbol
from ftnn.inspect._layers import Array, connection_list, describe
from ftnn.nn import Network
from ftnn.nn._activations import MODULES, activation_formula, formula_of
from ftnn.nn._feed_forward import FeedForward
from ftnn.nn._folding import affine_of

Stage = FeedForward | nn.Linear | nn.BatchNorm1d | nn.LayerNorm | str
"""A layer, a normalisation, or an activation by name or formula."""
_NOTHING = (nn.Identity, nn.Flatten, nn.Dropout)
"""Modules that do nothing to single samples in evaluation mode."""


def stages_of(module: nn.Module) -> list[Stage]:
    """The steps of a module in evaluation mode."""
    if isinstance(module, Network):
        hidden: list[Stage] = [
            stage
            for layer, activation in zip(module.layers, module.activations, strict=True)
            for stage in (layer, activation)
        ]
        return [*hidden, module.output]
    if isinstance(module, nn.Sequential):
        return [stage for child in module for stage in stages_of(child)]
    if isinstance(module, FeedForward | nn.Linear | nn.BatchNorm1d):
        return [module]
    if isinstance(module, nn.LayerNorm) and len(module.normalized_shape) == 1:
        return [module]
    if type(module) in _NOTHING:
        return []
    if (formula := formula_of(module)) is not None:
        return [formula]
    if isinstance(module, nn.LayerNorm):
        raise FtnnError(f"cannot convert a LayerNorm over {module.normalized_shape}; expected one size")
    supported = ("Transfer", "Partial", "Network", "Sequential", "Linear", "BatchNorm1d", "LayerNorm")
    supported += tuple(kind.__name__ for kind in (*_NOTHING, *MODULES))
    raise FtnnError(f"cannot convert a {type(module).__name__}; expected one of {', '.join(supported)}")


def width_of(stage: Stage) -> int | None:
    """The number of inputs of a stage; None if it takes any."""
    match stage:
        case FeedForward() | nn.Linear():
            return stage.in_features
        case nn.BatchNorm1d():
            return stage.num_features
        case nn.LayerNorm():
            return stage.normalized_shape[0]
        case _:
            return None


def check_width(stage: Stage, units: int) -> None:
    """Raise `FtnnError` for a normalisation that does not fit the units before it."""
    if isinstance(stage, nn.BatchNorm1d) and affine_of(stage, units) is None:
        raise FtnnError(
            f"cannot convert a BatchNorm1d with {stage.num_features} features after {units} units; expected "
            "running statistics, and as many features as units"
        )
    if isinstance(stage, nn.LayerNorm) and stage.normalized_shape[0] != units:
        raise FtnnError(f"a LayerNorm over {stage.normalized_shape[0]} units cannot follow {units}")


def check_digits(digits: int | None) -> None:
    if digits is not None and not 1 <= digits <= 17:
        raise FtnnError(f"digits must be from 1 to 17, or None for all, not {digits!r}")


# --- sizes ---


def size_of(stages: Sequence[Stage], in_features: int) -> float:
    """The number of parts of all outputs; a unit counts each time it is used."""
    sizes = np.ones(in_features)
    for stage in stages:
        sizes = _sizes(stage, sizes)
    return float(sizes.sum())


def _sizes(stage: Stage, sizes: Array) -> Array:
    """The numbers of parts of a stage's outputs, from those of its inputs."""
    match stage:
        case str():
            x_count, other_count = _counts(activation_formula(stage).value)
            return x_count * sizes + other_count
        case nn.Linear():
            return np.full(stage.out_features, float(np.sum(sizes + 3)))
        case nn.BatchNorm1d():
            return sizes + 4
        case nn.LayerNorm():
            centred = sizes + float(np.sum(sizes + 1)) + 2
            return centred + float(np.sum(centred + 3)) + 8
        case FeedForward():
            connections = connection_list(stage)
            inputs, outputs = connections.inputs.cpu().numpy(), connections.outputs.cpu().numpy()
            x_count, other_count = max(_counts(kind.expr) for kind in stage.kinds)
            weights = x_count * sizes[inputs] + other_count + 1
            sums = np.bincount(outputs, weights=weights, minlength=stage.out_features)
            return sums + (1 if stage.scale is None else 3)


def _counts(expr: Expr) -> tuple[int, int]:
    """The numbers of x and of other parts in `expr` as a tree."""

    def counts(part: Expr, args: list[tuple[int, int]]) -> tuple[int, int]:
        if part is symbol(INPUT):
            return 1, 0
        return sum(inputs for inputs, _ in args), 1 + sum(others for _, others in args)

    return bottom_up(expr, counts)


# --- expressions ---


def apply(stage: Stage, units: list[Expr]) -> list[Expr]:
    """The outputs of a stage for the inputs `units`."""
    check_width(stage, len(units))
    match stage:
        case str():
            formula = activation_formula(stage).value
            return [substitute(formula, {INPUT: unit}) for unit in units]
        case nn.Linear():
            rows = stage.weight.detach().double().cpu().numpy()
            terms = [
                [folded("mul", _number(w, stage), unit) for w, unit in zip(row, units, strict=True)]
                for row in rows
            ]
            return _affine([_sum(row) for row in terms], None, stage.bias, stage)
        case nn.BatchNorm1d():
            affine = affine_of(stage, len(units))
            assert affine is not None  # checked
            return _affine(units, *affine, stage)
        case nn.LayerNorm():
            return _affine(_normalised(units, stage.eps), stage.weight, stage.bias, stage)
        case FeedForward():
            sums = [_sum(terms) for terms in _transfer_terms(stage, units)]
            return _affine(sums, stage.scale, stage.bias, stage)


def _affine(units: list[Expr], scale: Tensor | None, shift: Tensor | None, stage: nn.Module) -> list[Expr]:
    """`scale·units + shift`; each is (units,), or None if there is none."""
    if scale is not None:
        factors = scale.detach().double().cpu().numpy()
        units = [folded("mul", _number(f, stage), unit) for f, unit in zip(factors, units, strict=True)]
    if shift is not None:
        terms = shift.detach().double().cpu().numpy()
        units = [plus(unit, _number(t, stage)) for t, unit in zip(terms, units, strict=True)]
    return units


def _normalised(units: list[Expr], eps: float) -> list[Expr]:
    """The units less their mean, divided by their standard deviation."""
    count = number(len(units))
    mean = folded("div", _sum(units), count)
    centred = [folded("sub", unit, mean) for unit in units]
    variance = folded("div", _sum(folded("pow", unit, number(2)) for unit in centred), count)
    deviation = folded("sqrt", plus(variance, number(eps)))
    return [folded("div", unit, deviation) for unit in centred]


def _transfer_terms(layer: FeedForward, units: list[Expr]) -> list[list[Expr]]:
    """For each output, the terms of its connections."""
    connections = connection_list(layer)
    matrices = {name: value.double().cpu().numpy() for name, value in connections.values.items()}
    terms: list[list[Expr]] = [[] for _ in range(layer.out_features)]
    pairs = zip(connections.inputs.tolist(), connections.outputs.tolist(), strict=True)
    for c, (i, o) in enumerate(pairs):
        values = {name: _number(matrix[c], layer) for name, matrix in matrices.items()}
        terms[o].append(substitute(layer.function.expr, {**values, INPUT: units[i]}))
    return terms


def _sum(terms: Iterable[Expr]) -> Expr:
    return reduce(plus, terms, ZERO)


def rounded(value: float, digits: int | None) -> float:
    """`value` rounded to `digits` significant digits."""
    return value if digits is None else float(f"{value:.{digits - 1}e}")


def _number(value: Any, layer: nn.Module) -> Expr:
    if not math.isfinite(value):
        name = describe(layer) if isinstance(layer, FeedForward) else type(layer).__name__
        raise FtnnError(f"a parameter of {name} is {float(value)}; expected finite numbers")
    return number(float(value))
