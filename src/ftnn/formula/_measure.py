"""Measurements over random parameters: a function's values, its zeros, and whether it is dead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ftnn.formula._expr import INPUT, MEMORY, Expr
from ftnn.formula._numpy import Array, evaluate

if TYPE_CHECKING:
    from ftnn.formula._function import Function, Range

DRAWS = 256
"""Random draws of the parameters."""
WORK = 400
"""Operations up to which all draws and corners are used. Longer formulas get fewer, so that they take no more
time than short ones."""

Draws = dict[str, Array]
"""Parameters, constants and memory, each (draws, 1)."""


def reduced(most: int, work: int) -> int:
    """How many of `most` draws or corners to use for `work` operations."""
    return max(most // 16, min(most, most * WORK // work))


def draw(function: Function, ranges: dict[str, Range], count: int) -> Draws:
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
    draws = draw(function, function.init, DRAWS)
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


def dead_example(function: Function, grid: Array, count: int) -> tuple[str, bool]:
    """Parameters near the initial ones, of either sign, that make F dead; and whether training moves them."""
    reach = {name: max(abs(low), abs(high)) for name, (low, high) in function.init.items()}
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
