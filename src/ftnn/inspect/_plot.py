"""Plots of learned functions."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ftnn._printable import quoted
from ftnn.errors import FtnnError, ShapeError
from ftnn.formula._expr import INPUT, Expr, folded, number, substitute
from ftnn.formula._ranges import finite_interval
from ftnn.formula._text import to_text
from ftnn.inspect._bands import Covariance, half_widths
from ftnn.inspect._layers import Array, ConnectionList, connection_list, describe
from ftnn.inspect._stages import rounded
from ftnn.kernels.eager.evaluation import evaluate
from ftnn.nn._feed_forward import FeedForward

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DEFAULT_CURVES = 6
MAX_CURVES = 24
"""More could not be distinguished."""
POINTS = 401
COARSE_POINTS, BLOCK = 65, 2**14
"""For finding the most influential connections: inputs, and connections at once."""
# Okabe and Ito's colours, which most colour-blind people can distinguish; repeated with other dashes.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4D4D4D", "#8C564B")
_DASHES = ("-", "--", ":")


def plot(
    layer: FeedForward,
    connections: Iterable[tuple[int, int | str]] | None = None,
    x: tuple[float, float] = (-1.0, 1.0),
    ax: Axes | None = None,
    features: Iterable[str] | None = None,
    covariance: Covariance | None = None,
) -> Figure:
    """Draw the learned functions of connections: one curve each, labelled with its formula and values.

    **Arguments:**

    - `layer`: a `Transfer` or `Partial`, such as one of a network's `net.layers`.
    - `connections`: up to 24 pairs (output, input), as the paper indexes them; by default, the six whose
        values change most over `x`.
    - `x`: the range of inputs, (low, high).
    - `ax`: Matplotlib axes to draw into; by default a new figure, without a window.
    - `features`: the names of the inputs, such as an estimator's `feature_names_in_`. They label the curves,
        and `connections` may use them: `(0, "age")`.
    - `covariance`: `history.covariance` of a fit with `solver="lm"`: shades the 95 % confidence band of each
        curve. It holds point by point, and if the fitted formula is right. A curve with a parameter that the
        data do not determine has no band.

    Returns the figure; save it with `figure.savefig("plot.png")`.
    """
    if not isinstance(layer, FeedForward):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise FtnnError(
            f"expected a layer, a Transfer or Partial, got {type(layer).__name__}; "
            "for a network, pass one of net.layers"
        )
    interval = finite_interval(x)
    if interval is None:
        raise FtnnError(f"the range of inputs must be (low, high), finite and low < high, not {quoted(x)}")
    names = _names(layer, features)
    all_connections = connection_list(layer)
    if connections is None:
        indices = _most_influential(layer, all_connections, interval)
    else:
        indices = _indices(layer, all_connections, connections, names)
    grid = np.linspace(*interval, POINTS)
    curves = _curves(layer, all_connections, indices, grid).T
    if ax is None:
        from matplotlib.figure import Figure

        ax = Figure(figsize=(9, 4.6), layout="constrained").add_subplot()
    labels = [_label(layer, all_connections, index, names) for index in indices]
    bands = None
    if covariance is not None:
        bands = half_widths(layer, covariance, all_connections, indices, grid).T
    _draw(ax, describe(layer), grid, curves, labels, bands)
    figure: Any = ax.figure
    return figure


# --- choosing connections ---


def _names(layer: FeedForward, features: Iterable[str] | None) -> list[str]:
    """The names of the inputs: their numbers, unless given."""
    if features is None:
        return [str(n) for n in range(layer.in_features)]
    is_list = isinstance(features, Iterable)  # pyright: ignore[reportUnnecessaryIsInstance]
    names = [str(name) for name in features] if is_list else []
    if isinstance(features, str) or len(names) != layer.in_features:
        message = f"features must name each of the layer's {layer.in_features} inputs"
        raise ShapeError(f"{message}, not {quoted(features)}")
    return names


def _indices(
    layer: FeedForward,
    all_connections: ConnectionList,
    pairs: Iterable[tuple[int, int | str]],
    names: list[str],
) -> list[int]:
    """The indices of (output, input) pairs in the list."""
    if not isinstance(pairs, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise FtnnError(f"connections must be a list of pairs (output, input), not {quoted(pairs)}")
    checked_pairs = [_checked_pair(pair, layer, names) for pair in pairs]
    if not 1 <= len(checked_pairs) <= MAX_CURVES:
        raise FtnnError(f"expected 1 to {MAX_CURVES} connections, got {len(checked_pairs)}")
    indices: list[int] = []
    for output, input_ in checked_pairs:
        matches = ((all_connections.outputs == output) & (all_connections.inputs == input_)).nonzero()
        if not len(matches):
            raise FtnnError(f"there is no connection {(output, input_)}: this layer is partially connected")
        indices.append(int(matches[0]))
    return indices


def _checked_pair(pair: Any, layer: FeedForward, names: list[str]) -> tuple[int, int]:
    try:
        output, input_ = pair
        input_ = names.index(input_) if isinstance(input_, str) else operator.index(input_)
        output = operator.index(output)
    except (TypeError, ValueError):
        message = f"a connection is a pair (output, input) of integers, not {quoted(pair)}"
        raise FtnnError(f"{message}; an input may be one of the names in features") from None
    for name, index, size in (("output", output, layer.out_features), ("input", input_, layer.in_features)):
        if not 0 <= index < size:
            raise FtnnError(f"connection {(output, input_)} has {name} {index}; expected 0 to {size - 1}")
    return output, input_


def _most_influential(
    layer: FeedForward, all_connections: ConnectionList, interval: tuple[float, float]
) -> list[int]:
    """The connections whose value changes most over the range."""
    grid = np.linspace(*interval, COARSE_POINTS)
    influence = np.zeros(len(all_connections))
    for first in range(0, len(all_connections), BLOCK):
        block = np.arange(first, min(first + BLOCK, len(all_connections)))
        values = _curves(layer, all_connections, block, grid)
        values = np.where(np.isfinite(values), values, 0.0)  # ignore poles
        influence[block] = values.max(0) - values.min(0)
    order = np.argsort(-influence, kind="stable")[:DEFAULT_CURVES].tolist()
    return [index for index in order if influence[index] > 0] or order[:1]


@torch.no_grad()
def _curves(layer: FeedForward, all_connections: ConnectionList, indices: Any, grid: Array) -> Array:
    """(points, connections) in float64."""
    device = all_connections.inputs.device
    on_device = torch.as_tensor(np.asarray(indices), device=device)
    values = {name: value.double() for name, value in all_connections.pick(on_device).items()}
    x = torch.from_numpy(grid)[:, None].to(device)
    (curves,) = evaluate((layer.function.expr,), {INPUT: x, **values})
    if layer.scale is not None:
        curves = curves * layer.scale.double()[all_connections.outputs[on_device]]
    return curves.expand(len(grid), len(on_device)).cpu().numpy()


# --- drawing ---


def _draw(ax: Axes, title: str, grid: Array, curves: Array, labels: list[str], bands: Array | None) -> None:
    limits = _limits(curves)
    for n, (curve, width) in enumerate(zip(curves, [] if bands is None else bands, strict=False)):
        colour = _COLOURS[n % len(_COLOURS)]
        middle = _with_gaps(curve, limits)
        ax.fill_between(grid, middle - width, middle + width, color=colour, alpha=0.2, linewidth=0)
    for n, (curve, label) in enumerate(zip(curves, labels, strict=True)):
        ax.plot(
            grid,
            _with_gaps(curve, limits),
            _DASHES[n // len(_COLOURS) % len(_DASHES)],
            color=_COLOURS[n % len(_COLOURS)],
            linewidth=3.2 - 1.9 * n / max(len(curves) - 1, 1),  # so that coinciding curves stay visible
            label=label,
        )
    if limits is not None:
        ax.set_ylim(limits)
    ax.axhline(0, color="0.8", linewidth=0.8, zorder=0)
    ax.set_xlim(grid[0], grid[-1])
    ax.set_xlabel("input x")
    ax.set_ylabel("output of the connection, F(x)")
    ax.set_title(title if len(title) <= 80 else title[:79] + "…", fontsize=11)
    ax.grid(color="0.93", linewidth=0.7)
    ax.spines[["top", "right"]].set_visible(False)
    if labels:
        # Outside the axes, so that it does not cover the curves.
        ax.legend(
            loc="center left",
            bbox_to_anchor=(1.01, 0.5),
            frameon=False,
            fontsize=9,
            title="output ← input",
            alignment="left",
        )


def _limits(curves: Array) -> tuple[float, float] | None:
    """Limits of y that keep other curves visible if a curve has a pole; else None."""
    finite = curves[np.isfinite(curves)]
    if not finite.size:
        return None
    lo, hi = (float(bound) for bound in np.percentile(finite, [5, 95]))
    margin = 3 * max(hi - lo, 1e-12)
    if finite.max() <= hi + 3 * margin and finite.min() >= lo - 3 * margin:
        return None
    return lo - margin, hi + margin


def _with_gaps(curve: Array, limits: tuple[float, float] | None) -> Array:
    """The curve with gaps where it is not finite, and at poles."""
    y = np.where(np.isfinite(curve), curve, np.nan)
    if limits is not None:
        crosses_pole = (np.abs(np.diff(y)) > (limits[1] - limits[0]) / 3) & (y[1:] * y[:-1] < 0)
        y[1:][crosses_pole] = np.nan
    return y


def _label(layer: FeedForward, all_connections: ConnectionList, index: int, names: list[str]) -> str:
    values = {name: float(value) for name, value in all_connections.pick(index).items()}
    numbers = {name: number(rounded(value, 3)) for name, value in values.items() if math.isfinite(value)}
    expr, output = substitute(layer.function.expr, numbers), int(all_connections.outputs[index])
    if layer.scale is not None and math.isfinite(scale := float(layer.scale.detach()[output])):
        expr = folded("mul", number(rounded(scale, 3)), expr)
    formula = _typeset(expr)
    feature = names[int(all_connections.inputs[index])].replace("$", r"\$")
    return f"{output} ← {feature}:  {formula}"


def _typeset(expr: Expr) -> str:
    """In Matplotlib's math notation if possible, else as plain text."""
    from matplotlib.mathtext import MathTextParser

    from ftnn.formula._sympy import to_sympy

    try:
        import sympy

        text = "$" + sympy.latex(to_sympy(expr), mul_symbol=r" \, ") + "$"
        MathTextParser("path").parse(text)
    except Exception:  # Matplotlib lacks cases, for example, and SymPy may raise anything
        text = to_text(expr).replace("$", r"\$")
    return text if len(text) <= 120 else to_text(expr)[:59] + "…"
