"""Plots of learned functions."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ftnn.errors import FtnnError
from ftnn.formula._expr import INPUT, Expr, number, substitute
from ftnn.formula._text import to_text
from ftnn.inspect._layers import Array, Listed, described, listed
from ftnn.inspect._written import rounded
from ftnn.kernels._evaluate import evaluate
from ftnn.nn import Transfer

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = 6
"""Curves, unless connections are named."""
MOST = 24
"""More could not be told apart."""
POINTS = 401
COARSE, BLOCK = 65, 2**14
"""To find the most influential connections, each is computed at so many inputs, so many at once."""
# Okabe and Ito's colours, which most colour-blind people can tell apart; then again with other dashes.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4D4D4D", "#8C564B")
_DASHES = ("-", "--", ":")


def plot(
    layer: Transfer,
    connections: Iterable[tuple[int, int]] | None = None,
    x: tuple[float, float] = (-1.0, 1.0),
    ax: Axes | None = None,
) -> Figure:
    """Draw what connections learned: one curve for each, labelled with its formula and values.

    **Arguments:**

    - `layer`: a `Transfer` or `Partial`; of a network, one of `net.layers`.
    - `connections`: pairs (output, input), as the paper indexes them, up to 24. By default the six that move
        their output most over `x`.
    - `x`: the range of inputs, (low, high).
    - `ax`: Matplotlib axes to draw into; by default a figure of its own is made, which belongs to no window.

    Returns the figure; `figure.savefig("plot.png")` keeps it.
    """
    if not isinstance(layer, Transfer):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise FtnnError(
            f"plot takes one layer, a Transfer or Partial, not {type(layer).__name__}; "
            "of a network, take one of net.layers"
        )
    low, high = _range(x)
    places = listed(layer)
    chosen = (
        _influential(layer, places, low, high)
        if connections is None
        else _numbers(layer, places, connections)
    )
    grid = np.linspace(low, high, POINTS)
    curves = _curves(layer, places, chosen, grid).T
    if ax is None:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9, 4.6), layout="constrained")
        ax = figure.add_subplot()
    _draw(ax, layer, places, chosen, grid, curves)
    found: Any = ax.figure
    return found


def _range(x: Any) -> tuple[float, float]:
    try:
        low, high = (float(bound) for bound in x)
    except (TypeError, ValueError):
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise FtnnError(f"the range of inputs must be (low, high), finite and low < high, not {x!r}")
    return low, high


# --- which ---


def _numbers(layer: Transfer, places: Listed, connections: Iterable[tuple[int, int]]) -> list[int]:
    """Where the named connections stand in the list."""
    pairs = [_pair(given) for given in connections]
    if not 1 <= len(pairs) <= MOST:
        raise FtnnError(f"{len(pairs)} connections were named; allowed are 1 to {MOST}")
    found: list[int] = []
    for output, input_ in pairs:
        for name, given, size in (
            ("output", output, layer.out_features),
            ("input", input_, layer.in_features),
        ):
            if not 0 <= given < size:
                raise FtnnError(
                    f"connection {(output, input_)}: there is no {name} {given}; allowed are 0 to {size - 1}"
                )
        here = ((places.outputs == output) & (places.inputs == input_)).nonzero()
        if not len(here):
            raise FtnnError(f"connection {(output, input_)} is not there: this layer is partially connected")
        found.append(int(here[0]))
    return found


def _pair(given: Any) -> tuple[int, int]:
    try:
        output, input_ = map(operator.index, given)
    except (TypeError, ValueError):
        raise FtnnError(f"a connection is a pair (output, input) of whole numbers, not {given!r}") from None
    return output, input_


def _influential(layer: Transfer, places: Listed, low: float, high: float) -> list[int]:
    """Those whose value changes most over the range."""
    grid = np.linspace(low, high, COARSE)
    influence = np.zeros(len(places))
    for first in range(0, len(places), BLOCK):
        part = np.arange(first, min(first + BLOCK, len(places)))
        values = _curves(layer, places, part, grid)
        values = np.where(np.isfinite(values), values, 0.0)  # a pole is no influence
        influence[part] = values.max(0) - values.min(0)
    order = np.argsort(-influence, kind="stable")[:SHOWN]
    return [int(c) for c in order if influence[c] > 0] or [int(c) for c in order[:1]]


@torch.no_grad()
def _curves(layer: Transfer, places: Listed, which: Any, grid: Array) -> Array:
    """(points, connections) in float64."""
    rows = torch.as_tensor(np.asarray(which), device=places.inputs.device)
    values = {name: value.double() for name, value in places.pick(rows).items()}
    x = torch.from_numpy(grid)[:, None].to(places.inputs.device)
    found = evaluate((layer.function.expr,), {INPUT: x, **values})[0]
    return found.expand(len(grid), len(rows)).cpu().numpy()


# --- drawing ---


def _draw(ax: Axes, layer: Transfer, places: Listed, chosen: list[int], grid: Array, curves: Array) -> None:
    limits = _limits(curves)
    for n, (c, curve) in enumerate(zip(chosen, curves, strict=True)):
        ax.plot(
            grid,
            _broken(curve, limits),
            _DASHES[n // len(_COLOURS) % len(_DASHES)],
            color=_COLOURS[n % len(_COLOURS)],
            linewidth=3.2 - 1.9 * n / max(len(chosen) - 1, 1),  # one that lies on another lets it be seen
            label=_label(layer, places, c),
        )
    if limits is not None:
        ax.set_ylim(limits)
    ax.axhline(0, color="0.8", linewidth=0.8, zorder=0)
    ax.set_xlim(grid[0], grid[-1])
    ax.set_xlabel("input x")
    ax.set_ylabel("what the connection sends, F(x)")
    ax.set_title(
        described(layer) if len(described(layer)) <= 80 else described(layer)[:79] + "…", fontsize=11
    )
    ax.grid(color="0.93", linewidth=0.7)
    ax.spines[["top", "right"]].set_visible(False)
    if chosen:
        # Beside the axes: inside, it would lie on the curves.
        ax.legend(
            loc="center left",
            bbox_to_anchor=(1.01, 0.5),
            frameon=False,
            fontsize=9,
            title="output ← input",
            alignment="left",
        )


def _limits(curves: Array) -> tuple[float, float] | None:
    """What to show where a curve has a pole: it leaves the picture, so that the others can still be seen."""
    finite = curves[np.isfinite(curves)]
    if not finite.size:
        return None
    lo, hi = (float(bound) for bound in np.percentile(finite, [5, 95]))
    margin = 3 * max(hi - lo, 1e-12)
    if finite.max() <= hi + 3 * margin and finite.min() >= lo - 3 * margin:
        return None
    return lo - margin, hi + margin


def _broken(curve: Array, limits: tuple[float, float] | None) -> Array:
    """With a gap where it is not finite, and none of a line across a pole."""
    shown = np.where(np.isfinite(curve), curve, np.nan)
    if limits is not None:
        across = (np.abs(np.diff(shown)) > (limits[1] - limits[0]) / 3) & (shown[1:] * shown[:-1] < 0)
        shown[1:][across] = np.nan
    return shown


def _label(layer: Transfer, places: Listed, c: int) -> str:
    values = {
        n: number(rounded(float(v[c]), 3)) for n, v in places.values.items() if math.isfinite(float(v[c]))
    }
    expr = substitute(layer.function.expr, values)
    return f"{int(places.outputs[c])} ← {int(places.inputs[c])}:  {_typeset(expr)}"


def _typeset(expr: Expr) -> str:
    """As Matplotlib sets mathematics, where it can; else as text."""
    from matplotlib.mathtext import MathTextParser

    from ftnn.formula._sympy import to_sympy

    try:
        import sympy

        text = "$" + sympy.latex(to_sympy(expr), mul_symbol=r" \, ") + "$"
        MathTextParser("path").parse(text)
    except Exception:  # cases, say, which it does not know; or whatever SymPy makes of a strange formula
        text = to_text(expr).replace("$", r"\$")
    return text if len(text) <= 120 else to_text(expr)[:59] + "…"
