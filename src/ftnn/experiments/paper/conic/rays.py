"""Checks along rays from a unit's centre whether its region is bounded, in any number of dimensions.

A unit's sum at q + t·d is t²·Σ u_j p_j² d_j² + b. With b < 0 the centre is inside (the sum is negative). If
Σ u_j p_j² d_j² is positive, the ray leaves once, at t = √(-b / Σ u_j p_j² d_j²); otherwise it never does. The
layer's results are compared with this before and after the crossing, and far away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ftnn.experiments.paper.conic.problems import Array, Problem

RAYS = 500
"""Per unit."""
_BEFORE = (0.01, 0.5, 1 - 1e-6)  # times the distance of the crossing: inside
_AFTER = (1 + 1e-6, 2.0, 1e3, 1e6)  # outside
_FAR = (0.01, 1.0, 1e2, 1e4, 1e6)  # distances at which rays that never leave are checked


@dataclass(frozen=True)
class Units:
    """The units to check: parameters (dimension, units), biases (units,)."""

    p: Array
    q: Array
    u: Array
    bias: Array


@dataclass(frozen=True)
class RayCheck:
    """The result of a check."""

    dimension: int
    units: int
    rays: int
    leaving: int
    """Rays that leave their region once."""
    staying: int
    """Rays that stay in it at all distances checked."""
    as_derived: int
    """Rays on which every sign that the layer computes is as derived."""
    farthest: float | None
    """The largest distance at which a ray leaves, relative to √-b / min|p|: closed regions end at 1."""

    def fault(self, closed: bool) -> str | None:
        """Why the paper's claim does not hold; None if it does."""
        if self.as_derived < self.rays:
            return f"{self.rays - self.as_derived} of {self.rays} rays differ from the derivation"
        if closed and (self.staying or (self.farthest or 0) > 1 + 1e-9):
            return f"{self.staying} of {self.rays} rays never leave the region"
        if not closed and not (self.staying and self.leaving):
            return f"all {self.rays} rays " + ("leave" if self.leaving else "stay in") + " the region"
        return None


def draw_units(problem: Problem, rng: np.random.Generator) -> Units:
    """Random units with p ≠ 0 and a negative bias."""
    shape = problem.dimension, problem.units
    return Units(
        p=rng.uniform(0.3, 2.0, shape) * rng.choice([-1.0, 1.0], shape),
        q=rng.uniform(-2.0, 2.0, shape),
        u=np.repeat(np.array(problem.signs)[:, None], problem.units, axis=1),
        bias=rng.uniform(-4.0, -0.5, problem.units),
    )


def check_rays(
    units: Units, sums: Callable[[Array], Array], rng: np.random.Generator, rays: int = RAYS
) -> RayCheck:
    """Follow rays from the centres of units.

    **Arguments:**

    - `units`: the parameters, for the derived result.
    - `sums`: the layer: (points, dimension) → (points, units).
    - `rng`: for the directions. `rays`: the number of rays per unit.
    """
    dimension, count = units.p.shape
    leaving = right = 0
    farthest: float | None = None
    for unit in range(count):
        directions = rng.normal(size=(rays, dimension))
        # Along the axes too, where a single sign decides.
        directions[: 2 * dimension] = np.concatenate([np.eye(dimension), -np.eye(dimension)])
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        growth = directions**2 @ (units.u[:, unit] * units.p[:, unit] ** 2)
        leaves = growth > 0
        crossing = np.sqrt(-units.bias[unit] / np.where(leaves, growth, 1.0))
        ok = np.ones(rays, dtype=bool)
        for share in (*_BEFORE, *_AFTER):
            ok &= ~leaves | (_outside(units, unit, sums, directions, share * crossing) == (share > 1))
        for distance in _FAR:
            ok &= leaves | ~_outside(units, unit, sums, directions, np.full(rays, distance))
        leaving, right = leaving + int(leaves.sum()), right + int(ok.sum())
        if leaves.any():
            share = crossing[leaves].max() * np.abs(units.p[:, unit]).min() / np.sqrt(-units.bias[unit])
            farthest = max(farthest or 0.0, float(share))
    total = count * rays
    return RayCheck(dimension, count, total, leaving, total - leaving, right, farthest)


def _outside(
    units: Units, unit: int, sums: Callable[[Array], Array], directions: Array, distance: Array
) -> Array:
    points = units.q[:, unit] + distance[:, None] * directions
    return sums(points)[:, unit] >= 0
