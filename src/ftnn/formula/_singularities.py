"""Poles, jumps and overflows of a function: candidates from the table of operations, then measured."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ftnn.formula._derive import apply_rule
from ftnn.formula._expr import INPUT, MEMORY, Call, Expr, Number, folded, names, postorder
from ftnn.formula._measure import Draws, bisect, largest, reaches_zero, reduced, values_at
from ftnn.formula._numpy import Array, evaluate, steps
from ftnn.formula._ops import OPS
from ftnn.formula._text import to_text

if TYPE_CHECKING:
    from ftnn.formula._function import Function

MAX_WORK = 4_000
"""The limit on operations in places to check for poles and jumps; places beyond it are not checked."""
CORNERS = 20_000
FLOAT32_MAX = float(np.finfo(np.float32).max)

Kind = Literal["singular", "jump"]
"""Columns of the table of operations: where it is not finite, and where it is not continuous."""


def _places(part: Expr, kind: Kind) -> Iterator[Expr]:
    """The expressions at whose zeros `part` is singular or jumps."""
    if not isinstance(part, Call):
        return
    rule_text = OPS[part.op].singular if kind == "singular" else OPS[part.op].jump
    if rule_text:
        place = apply_rule(rule_text, part.args)
        if not isinstance(place, Number) or place.value == 0:
            yield place
    if kind == "jump" and part.op == "where" and isinstance(part.args[0], Call):
        left, right = part.args[0].args
        yield folded("sub", left, right)


def possible_breaks(expr: Expr) -> tuple[dict[Kind, list[Expr]], int]:
    """The places where F may have a pole or jump, up to `MAX_WORK`, and the number of those left out."""
    places: dict[Kind, list[Expr]] = {"singular": [], "jump": []}
    work = unchecked = 0
    for kind in places:
        for place in dict.fromkeys(place for part in postorder(expr) for place in _places(part, kind)):
            work += len(steps(place)) + (len(steps(expr)) if kind == "jump" else 0)
            if work <= MAX_WORK:
                places[kind].append(place)
            else:
                unchecked += 1
    return places, unchecked


def breaks(
    function: Function, kind: Kind, places: list[Expr], grid: Array, draws: Draws
) -> Iterator[tuple[str, float]]:
    """(place, share of the draws) of the poles or jumps of F.

    The share is 0 for places outside the range of inputs and initial parameters, which training may reach.
    """
    wide_grid = 100 * grid
    wide_draws = {n: v if n in function.constants else 100 * v for n, v in draws.items()}
    for place in places:
        reached = _reaches(function.expr, kind, place, grid, draws)
        if reached.any() or _reaches(function.expr, kind, place, wide_grid, wide_draws).any():
            yield f"{to_text(place)} = 0", float(reached.mean())


def _reaches(expr: Expr, kind: Kind, place: Expr, grid: Array, draws: Draws) -> Any:
    """For each draw, whether `place` is zero somewhere; for a jump, whether F differs on its two sides."""
    if kind == "jump":
        return _jumps_at(expr, place, grid, draws)
    return reaches_zero(place, grid, draws, values_at(place, grid, draws))


def _jumps_at(expr: Expr, place: Expr, grid: Array, draws: Draws) -> Any:
    """For each draw, whether F differs on the two sides of the first zero of `place`."""
    below = values_at(place, grid, draws) < 0
    changes = below[:, 1:] != below[:, :-1]
    if not changes.any():
        return changes.any(1)
    low, high = bisect(place, grid, changes.argmax(1), draws)

    def difference(step: float) -> Any:
        """The difference of F between the two sides, at this step from the place itself."""
        offsets = step * (grid[-1] - grid[0]) * np.array([-1, 1])
        sides = values_at(expr, np.concatenate([low, high], 1) + offsets, draws)
        with np.errstate(all="ignore"):
            return np.abs(sides[:, 1] - sides[:, 0])

    near, far = difference(1e-9), difference(1e-6)
    # At a steep slope, such as that of a root, the difference shrinks with the step; at a jump it does not.
    return changes.any(1) & (near > 1e-6 * largest(values_at(expr, grid, draws))) & (near > 0.9 * far)


def overflow(function: Function, low: float, high: float) -> tuple[str, float] | None:
    """(an example, the largest |value|) if F or a derivative leaves the range of float32.

    Tries only the corners of the box spanned by inputs and initial parameters.
    """
    axes: dict[str, tuple[float, ...]] = {
        INPUT: (low, high, 0.0),
        MEMORY: (-1.0, 1.0),
        **{n: (*bounds, sum(bounds) / 2) for n, bounds in function.init.items()},
        **function.choices,
    }
    axes = {n: values for n, values in axes.items() if n == INPUT or n in names(function.expr)}
    exprs = [function.expr, *(function.slope(name) for name in (INPUT, *function.parameters))]
    most = reduced(CORNERS, sum(len(steps(expr)) for expr in exprs))
    if math.prod(len(values) for values in axes.values()) > most:  # too many: a random sample
        random = np.random.default_rng(0)
        points = {n: random.choice(np.asarray(values), most) for n, values in axes.items()}
    else:
        corners = np.meshgrid(*(np.asarray(values) for values in axes.values()), indexing="ij")
        points = {n: corner.ravel() for n, corner in zip(axes, corners, strict=True)}
    part_values: dict[Expr, Array] = {}
    worst: tuple[str, float] | None = None
    for expr in exprs:
        sizes = _sizes(expr, points, part_values)
        at = int(sizes.argmax())
        if sizes[at] > FLOAT32_MAX and (worst is None or sizes[at] > worst[1]):
            worst = ", ".join(f"{n} = {v[at]:g}" for n, v in points.items()), float(sizes[at])
    return worst


def _sizes(expr: Expr, points: dict[str, Array], part_values: dict[Expr, Array]) -> Array:
    """|expr| at each point; infinite where it overflows, 0 where it is infinite or NaN for another reason.

    `part_values` caches the values of parts shared by several expressions.
    """

    def at(part: Expr) -> Array:
        if part not in part_values:
            part_values[part] = evaluate(part, points)
        return part_values[part]

    sizes = np.abs(np.broadcast_to(evaluate(expr, points), points[INPUT].shape))
    calls = [part for part in postorder(expr) if isinstance(part, Call)]
    if np.isnan(sizes).any():  # inf - inf is an overflow, log(-1) is not
        overflowed = np.zeros(sizes.shape, dtype=bool)
        for part in calls:
            if part.op in ("exp", "sinh", "cosh", "pow"):
                overflowed |= np.isinf(at(part))
        sizes = np.where(np.isnan(sizes), np.where(overflowed, np.inf, 0.0), sizes)
    for place in dict.fromkeys(place for part in calls for place in _places(part, "singular")):
        sizes = np.where(np.abs(at(place)) > 1e-12, sizes, 0.0)  # a pole in any dtype
    return sizes
