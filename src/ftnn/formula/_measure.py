"""Measurements over random parameters: zeros, poles, jumps, overflows, and whether a function is dead."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ftnn.formula._derive import apply_rule
from ftnn.formula._expr import INPUT, MEMORY, Call, Expr, Number, folded, names, postorder
from ftnn.formula._numpy import Array, evaluate, steps
from ftnn.formula._ops import OPS
from ftnn.formula._text import to_text

if TYPE_CHECKING:
    from ftnn.formula._function import Function, Range

DRAWS = 256
"""Random draws of the parameters."""
WORK = 400
"""Operations up to which all draws and corners are used. Longer formulas get fewer, so that they take no more
time than short ones."""

Draws = dict[str, Array]
"""Parameters, constants and memory, each (draws, 1)."""
MAX_WORK = 4_000
"""The limit on operations in places to check for poles and jumps; places beyond it are not checked."""
CORNERS = 20_000
FLOAT32_MAX = float(np.finfo(np.float32).max)

Kind = Literal["singular", "jump"]
"""Columns of the table of operations: where it is not finite, and where it is not continuous."""


def reduced(most: int, work: int) -> int:
    """How many of `most` draws or corners to use for `work` operations."""
    return max(most // 16, min(most, most * WORK // work))


def draw(function: Function, ranges: Mapping[str, Range], count: int) -> Draws:
    """`count` draws of the parameters from `ranges`, and of constants and memory, from a fixed seed."""
    random = np.random.default_rng(0)
    # Open intervals: a drawn p is never exactly 0, which would make any p*f(x) reach zero.
    drawn = {n: low + (high - low) * random.uniform(1e-9, 1, (count, 1)) for n, (low, high) in ranges.items()}
    drawn |= {n: random.choice(np.asarray(c), (count, 1)) for n, c in function.choices.items()}
    return drawn | {MEMORY: random.uniform(-1, 1, (count, 1))}


def values_at(expr: Expr, x: Array, draws: Draws) -> Array:
    """The values of `expr`, (draws, points), for x of shape (points,) or (draws, points)."""
    shape = (len(draws[MEMORY]), x.shape[-1])
    return np.broadcast_to(evaluate(expr, {INPUT: x, **draws}), shape)


def is_finite_at_zero(function: Function) -> bool:
    """Whether F(0), computed as written, is finite over the initial ranges of the parameters."""
    from ftnn.formula._balance import initial_ranges

    draws = draw(function, initial_ranges(function), DRAWS)
    return bool(np.isfinite(values_at(function.expr, np.zeros(1), draws)).all())


# --- zeros ---


def reaches_zero(expr: Expr, grid: Array, draws: Draws, values: Array) -> Any:
    """For each draw, whether F is zero somewhere: it is 0, crosses 0, or touches it."""
    return (values == 0).any(1) | _crosses(expr, grid, draws, values) | _touches(expr, grid, draws, values)


def _crosses(expr: Expr, grid: Array, draws: Draws, values: Array) -> Any:
    """For each draw, whether F changes sign through zero rather than across a pole or a jump."""
    sizes = np.where(np.isfinite(values), np.abs(values), np.inf)
    larger = np.maximum(sizes[:, 1:], sizes[:, :-1])
    sign = np.sign(values)
    changes = (sign[:, 1:] * sign[:, :-1] < 0) & np.isfinite(larger)
    larger = np.where(changes, larger, np.inf)
    interval = larger.argmin(1)  # where F is smallest: if any crossing is a zero, this one is
    low, _ = bisect(expr, grid, interval, draws)
    at_crossing = np.abs(values_at(expr, low, draws))[:, 0]
    return changes.any(1) & (at_crossing < 1e-6 * larger.min(1))


def bisect(expr: Expr, grid: Array, interval: Any, draws: Draws) -> tuple[Array, Array]:
    """The two sides of a sign change in [grid[interval], grid[interval + 1]], (draws, 1) each."""
    low, high = grid[interval][:, None], grid[interval + 1][:, None]
    below = values_at(expr, low, draws) < 0
    for _ in range(48):
        middle = (low + high) / 2
        same = (values_at(expr, middle, draws) < 0) == below
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    return low, high


def _touches(expr: Expr, grid: Array, draws: Draws, values: Array) -> Any:
    """For each draw, whether zooming in on the smallest |F| makes it vanish relative to its neighbours."""
    sizes = np.where(np.isfinite(values), np.abs(values), np.inf)
    centre = grid[sizes.argmin(1)][:, None]
    width = grid[1] - grid[0]
    neighbours = np.clip(centre + width * np.array([-1, 1]), grid[0], grid[-1])
    scale = largest(values_at(expr, neighbours, draws))
    smallest = scale
    for _ in range(6):
        near = np.clip(centre + width * np.linspace(-1, 1, 65), grid[0], grid[-1])
        sizes = np.abs(values_at(expr, near, draws))
        sizes = np.where(np.isfinite(sizes), sizes, np.inf)
        best = sizes.argmin(1)[:, None]
        smallest = np.take_along_axis(sizes, best, 1)[:, 0]
        centre = np.take_along_axis(near, best, 1)
        width /= 32
    return smallest < 1e-12 * scale


def largest(values: Array) -> Any:
    """The largest finite |value| in each row, or 0."""
    return np.where(np.isfinite(values), np.abs(values), 0.0).max(1)


def longest_run(mask: Any) -> Any:
    """The longest run of True in each row."""
    longest = np.zeros(mask.shape[0], dtype=int)
    run = np.zeros_like(longest)
    for column in mask.T:
        run = np.where(column, run + 1, 0)
        longest = np.maximum(longest, run)
    return longest


# --- death ---


def _wide(grid: Array) -> Array:
    """The grid, and inputs far outside its range."""
    return np.concatenate([grid, 1e3 * grid, [-1e3, 1e3]])


def is_dead(expr: Expr, grid: Array, draws: Draws) -> Any:
    """For each draw, whether F is zero for all inputs."""
    wide = _wide(grid)
    dead = (values_at(expr, wide[::128], draws) == 0).all(1)
    return (values_at(expr, wide, draws) == 0).all(1) if dead.any() else dead


def dead_example(
    function: Function, ranges: Mapping[str, Range], grid: Array, count: int
) -> tuple[str, bool]:
    """Parameters near the initial ones, of either sign, that make F dead; and whether training moves them."""
    reach = {name: max(abs(low), abs(high)) for name, (low, high) in ranges.items()}
    draws = draw(function, {name: (-most, most) for name, most in reach.items()}, count)
    dead = is_dead(function.expr, grid, draws)
    if not dead.any():
        return "", False
    first_dead = {name: values[dead][:1] for name, values in draws.items()}
    moves = any(
        np.any(values_at(function.slope(name), _wide(grid), first_dead) != 0) for name in function.parameters
    )
    names = (*function.parameters, *function.constants)
    return ", ".join(f"{name} = {first_dead[name][0, 0]:.3g}" for name in names), moves


# --- leaving the domain ---


def outside_domain(function: Function, grid: Array, draws: Draws, values: Array) -> tuple[float, float, str]:
    """(share of draws and inputs, share of draws, an example) for which F is NaN, and not by an overflow.

    The shares are 0 if only training may take it there.
    """
    outside = is_outside(function.expr, {INPUT: grid, **draws}, values)
    if not outside.any():
        reach = {n: 100 * np.abs(v) for n, v in draws.items() if n in function.parameters}
        random = np.random.default_rng(1)
        moved = draws | {n: v * random.uniform(-1, 1, v.shape) for n, v in reach.items()}
        sent = values_at(function.expr, grid, moved)
        beyond = is_outside(function.expr, {INPUT: grid, **moved}, sent)
        return 0.0, 0.0, _example(function, beyond, grid, moved)
    shares = float(outside.mean()), float(outside.any(1).mean())
    return *shares, _example(function, outside, grid, draws)


def is_outside(expr: Expr, arguments: Mapping[str, Any], values: Array) -> Any:
    """Whether F is NaN although no part of it overflows, of the shape of its `values`."""
    outside = np.isnan(values)
    if not outside.any():
        return outside
    for part in postorder(expr):
        if isinstance(part, Call) and part.op in _OVERFLOWING:
            outside = outside & ~np.isinf(evaluate(part, arguments))
    return outside


def _example(function: Function, where: Any, grid: Array, draws: Draws) -> str:
    """The first place in (draws, points); empty if there is none."""
    if not where.any():
        return ""
    draw_, point = np.unravel_index(where.argmax(), where.shape)
    places = {
        INPUT: grid[point],
        **{n: draws[n][draw_, 0] for n in (*function.parameters, *function.constants)},
    }
    return ", ".join(f"{name} = {value:.3g}" for name, value in places.items())


# --- poles, jumps and overflow ---


_OVERFLOWING = ("exp", "sinh", "cosh", "pow")


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
    beyond = [(wide_grid, draws), (wide_grid, wide_draws)]
    for place in places:
        reached = _reaches(function.expr, kind, place, grid, draws)
        if reached.any() or any(_reaches(function.expr, kind, place, *each).any() for each in beyond):
            yield _where_zero(place), float(reached.mean())


def _where_zero(place: Expr) -> str:
    match place:
        case Call("where", (condition, part, Number())):  # a power with a negative exponent
            return f"{to_text(part)} = 0 and {to_text(condition)}"
        case _:
            return f"{to_text(place)} = 0"


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


def overflow(
    function: Function, ranges: Mapping[str, Range], low: float, high: float
) -> tuple[str, float] | None:
    """(an example, the largest |value|) if F or a derivative leaves the range of float32.

    Tries only the corners of the box spanned by inputs and initial parameters.
    """
    axes: dict[str, tuple[float, ...]] = {
        INPUT: (low, high, 0.0),
        MEMORY: (-1.0, 1.0),
        **{n: (*bounds, sum(bounds) / 2) for n, bounds in ranges.items()},
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
            if part.op in _OVERFLOWING:
                overflowed |= np.isinf(at(part))
        sizes = np.where(np.isnan(sizes), np.where(overflowed, np.inf, 0.0), sizes)
    for place in dict.fromkeys(place for part in calls for place in _places(part, "singular")):
        sizes = np.where(np.abs(at(place)) > 1e-12, sizes, 0.0)  # a pole in any dtype
    return sizes
