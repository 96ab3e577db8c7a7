"""Brute force: every connection at every sample, in NumPy and float64."""

from typing import Any

import numpy as np

from ftnn.formula._expr import INPUT
from ftnn.formula._numpy import evaluate
from ftnn.nn._feed_forward import FeedForward

Array = np.ndarray[Any, np.dtype[Any]]


def values_of(layer: FeedForward) -> dict[str, Array]:
    """Each parameter and constant, (1, out, in); NaN where there is no connection."""
    names = (*layer.function.parameters, *layer.function.constants)
    return {name: layer.matrix(name).detach().double().numpy()[None] for name in names}


def cube(layer: FeedForward, expr: Any, x: Array) -> Array:
    """The values of an expression, (samples, outputs, inputs)."""
    values = evaluate(expr, {INPUT: x[:, None, :], **values_of(layer)})
    return np.broadcast_to(values, (len(x), layer.out_features, layer.in_features))


def sums(layer: FeedForward, x: Array) -> Array:
    """scale·(F ⊙ x) + b, (samples, out)."""
    bias = 0.0 if layer.bias is None else layer.bias.detach().double().numpy()
    scale = 1.0 if layer.scale is None else layer.scale.detach().double().numpy()
    return scale * np.nansum(cube(layer, layer.function.expr, x), 2) + bias


def asleep(layer: FeedForward, x: Array) -> tuple[Array, Array]:
    """For each connection, (out, in): whether its value is constant with zero slope by x on all samples; and
    whether any of its parameters has a slope on some sample."""
    function = layer.function
    value = cube(layer, function.expr, x)
    quiet = (value == value[:1]).all(0) & (cube(layer, function.slope(INPUT), x) == 0).all(0)
    moves = np.zeros_like(quiet)
    for name in function.parameters:
        moves |= (cube(layer, function.slope(name), x) != 0).any(0)
    return quiet, moves
