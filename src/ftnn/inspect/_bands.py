"""Confidence bands of learned functions, from the covariance of their parameters."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch

from ftnn._printable import quoted
from ftnn.errors import FtnnError
from ftnn.formula._expr import INPUT
from ftnn.inspect._layers import Array, ConnectionList
from ftnn.kernels.eager.evaluation import evaluate
from ftnn.nn._feed_forward import FeedForward

NORMAL_95 = 1.959964
"""95 % of a normal distribution are within this many standard deviations of its mean."""


class Covariance(Protocol):
    """What a band needs of `ftnn.training.Covariance`."""

    @property
    def matrix(self) -> Array: ...
    @property
    def shapes(self) -> dict[str, tuple[int, ...]]: ...


@torch.no_grad()
def half_widths(
    layer: FeedForward, covariance: Covariance, connections: ConnectionList, indices: list[int], grid: Array
) -> Array:
    """Half the width of each connection's 95 % band, (points, connections).

    NaN where the data do not determine a parameter. Parameters at a bound and frozen ones count as known.
    """
    prefix, starts = _prefix(layer, covariance), _starts(covariance)
    widths: list[Array] = []
    for index in indices:
        values = {name: value.double() for name, value in connections.pick(index).items()}
        names = [name for name in layer.function.parameters if f"{prefix}theta.{name}" in starts]
        exprs = (layer.function.expr, *(layer.function.slopes[name] for name in names))
        x = torch.from_numpy(grid).to(connections.inputs.device)
        value, *slopes = (
            each.expand(len(grid)).cpu().numpy() for each in evaluate(exprs, {INPUT: x, **values})
        )
        places = [starts[f"{prefix}theta.{name}"] + index for name in names]
        if layer.scale is not None:
            output = int(connections.outputs[index])
            slopes = [slope * float(layer.scale[output]) for slope in slopes]
            if f"{prefix}scale" in starts:
                slopes, places = [*slopes, value], [*places, starts[f"{prefix}scale"] + output]
        widths.append(NORMAL_95 * _deviations(covariance.matrix[np.ix_(places, places)], slopes, len(grid)))
    return np.stack(widths, 1)


def _deviations(matrix: Array, slopes: list[Array], points: int) -> Array:
    """The standard deviation of a value with these slopes, (points,)."""
    variances = np.diag(matrix)
    if np.isinf(variances).any():
        return np.full(points, np.nan)
    known = np.isnan(variances)
    matrix = np.where(known[:, None] | known, 0.0, matrix)
    jacobian = np.stack(slopes, 1) if slopes else np.zeros((points, 0))
    with np.errstate(all="ignore"):
        return np.sqrt(np.maximum(((jacobian @ matrix) * jacobian).sum(1), 0.0))


def _starts(covariance: Covariance) -> dict[str, int]:
    """Where each tensor's entries begin in the covariance."""
    sizes = [int(np.prod(shape)) for shape in covariance.shapes.values()]
    return dict(zip(covariance.shapes, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True))


def _prefix(layer: FeedForward, covariance: Any) -> str:
    """What the layer's parameters are called in front of `theta`, as in `"0."`; found by their shapes."""
    shapes = getattr(covariance, "shapes", None)
    if not isinstance(shapes, dict):
        raise FtnnError(f"covariance={quoted(covariance)} must be a history's covariance")
    own = {f"theta.{name}": tuple(layer.theta[name].shape) for name in layer.theta}
    first = next(iter(own))
    found = [name.removesuffix(first) for name in shapes if f".{name}".endswith(f".{first}")]
    found = [p for p in found if {n: s for n, s in shapes.items() if n.startswith(f"{p}theta.")} ==
             {f"{p}{n}": s for n, s in own.items()}]  # fmt: skip
    if len(found) != 1:
        count = "no layer" if not found else f"{len(found)} layers"
        raise FtnnError(
            f"the covariance is of {count} with this layer's parameters, so there is no band to draw; "
            "expected the covariance of a network in which no other layer has these names and shapes"
        )
    return found[0]
