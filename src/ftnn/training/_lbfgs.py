"""L-BFGS with a line search for the strong Wolfe conditions: the algorithm alone, on a vector."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from scipy.optimize import line_search

Vector = np.ndarray[Any, np.dtype[np.float64]]

MEMORY = 20
"""The most steps that the approximation of the Hessian remembers."""
MOST_EVALUATIONS = 25
"""The most evaluations of the loss in a line search."""
RELATIVE_LOSS, SMALL_SLOPE = 1e-14, 1e-12
"""A minimum is reached when the loss changes by less than this share, or all slopes are as small."""


class Slopes(Protocol):
    """What is minimised, as a function of a vector."""

    def loss_and_gradient(self, theta: Vector) -> tuple[float, Vector]: ...


@dataclass(frozen=True)
class Descent:
    """Where a minimisation is."""

    theta: Vector
    loss: float = math.inf
    gradient: Vector | None = None
    steps: tuple[Vector, ...] = ()
    """The last steps, oldest first."""
    changes: tuple[Vector, ...] = ()
    """How the gradient changed in each of them."""
    converged: bool = False


def descend(objective: Slopes, descent: Descent) -> Descent:
    """One iteration: a step in the quasi-Newton direction."""
    theta, loss, gradient = descent.theta, descent.loss, descent.gradient
    if gradient is None:
        loss, gradient = objective.loss_and_gradient(theta)
        descent = replace(descent, loss=loss, gradient=gradient)
    if not math.isfinite(loss) or float(np.abs(gradient).max(initial=0.0)) <= SMALL_SLOPE:
        return replace(descent, converged=True)
    found = _search(objective, descent, _direction(descent, gradient), gradient)
    if found is None and descent.steps:  # the memory may be misleading: start it afresh
        descent = replace(descent, steps=(), changes=())
        found = _search(objective, descent, _direction(descent, gradient), gradient)
    if found is None:
        return replace(descent, converged=True)
    new, new_loss, new_gradient = found
    step, change = new - theta, new_gradient - gradient
    steps, changes = descent.steps, descent.changes
    if float(step @ change) > 1e-16 * float(change @ change):  # else the Hessian would not stay positive
        steps, changes = (*steps, step)[-MEMORY:], (*changes, change)[-MEMORY:]
    is_flat = loss - new_loss <= RELATIVE_LOSS * abs(loss)
    return Descent(new, new_loss, new_gradient, steps, changes, converged=is_flat)


def _direction(descent: Descent, gradient: Vector) -> Vector:
    """The gradient times the approximate inverse of the Hessian, downhill: the two-loop recursion."""
    if not descent.steps:
        return -gradient * min(1.0, 1 / float(np.abs(gradient).sum()))
    result = -gradient
    pairs = list(zip(descent.steps, descent.changes, strict=True))
    shares: list[float] = []
    for step, change in reversed(pairs):
        shares.append(float(step @ result) / float(step @ change))
        result = result - shares[-1] * change
    step, change = pairs[-1]
    result = result * (float(step @ change) / float(change @ change))
    for (step, change), share in zip(pairs, reversed(shares), strict=True):
        result = result + (share - float(change @ result) / float(step @ change)) * step
    return result


def _search(
    objective: Slopes, descent: Descent, direction: Vector, gradient: Vector
) -> tuple[Vector, float, Vector] | None:
    """A point along the direction that meets the strong Wolfe conditions, with its loss and gradient."""
    seen: dict[bytes, tuple[float, Vector]] = {}

    def at(theta: Vector) -> tuple[float, Vector]:
        key = theta.tobytes()
        if key not in seen:
            loss, slope = objective.loss_and_gradient(theta)
            seen[key] = (loss if math.isfinite(loss) else 1e300, slope)
        return seen[key]

    def loss_at(theta: Vector) -> float:
        return at(theta)[0]

    def gradient_at(theta: Vector) -> Vector:
        return at(theta)[1]

    if not np.isfinite(direction).all() or float(direction @ gradient) >= 0:
        return None
    with np.errstate(all="ignore"):
        found = line_search(
            loss_at,
            gradient_at,
            descent.theta,
            direction,
            gradient,
            descent.loss,
            maxiter=MOST_EVALUATIONS,
        )
    if found[0] is None:
        # The best point seen is still a step, if it is downhill.
        key, (loss, slope) = min(seen.items(), key=lambda item: item[1][0])
        new = np.frombuffer(key).copy()
        is_step = loss < descent.loss and np.isfinite(slope).all()
        return (new, loss, slope) if is_step else None
    new = descent.theta + found[0] * direction
    return new, *at(new)
