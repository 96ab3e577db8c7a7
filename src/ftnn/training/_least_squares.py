"""Levenberg-Marquardt: minimise a loss by steps between Gauss-Newton's and steepest descent's.

The algorithm alone. It sees a vector of parameters, and an objective that returns the loss, its gradient and
the Gauss-Newton matrix; how these are computed is `_objective.py`'s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

FIRST_DAMPING = 1e-2
SMALLEST_DAMPING, LARGEST_DAMPING = 1e-15, 1e15
MOST_TRIES = 12
"""The most rejected steps in an iteration."""
RELATIVE_LOSS, RELATIVE_STEP = 1e-13, 1e-12
"""A minimum is reached when a step would change the loss or the parameters by less than this share."""
KEPT = 0.9
"""The share of the promised decrease from which the model counts as good."""
LEAST_SCALE = 1e-6
"""The scale of a parameter that hardly matters, relative to that of the one that matters most."""


@dataclass(frozen=True)
class System:
    """A quadratic model of the loss around a point: `loss + gradient·δ + δᵀ·matrix·δ/2`."""

    loss: float
    gradient: Tensor
    """(parameters,)"""
    matrix: Tensor
    """The Gauss-Newton approximation of the Hessian, (parameters, parameters)."""


class Objective(Protocol):
    """What is minimised, as a function of a float64 vector."""

    def loss(self, theta: Tensor) -> float: ...
    def system(self, theta: Tensor) -> System: ...


@dataclass(frozen=True)
class Bounds:
    """The box in which the parameters stay, (parameters,) each; infinite where there is no bound."""

    low: Tensor
    high: Tensor

    def clamp(self, theta: Tensor) -> Tensor:
        return theta.clamp(self.low, self.high)

    def free(self, theta: Tensor, gradient: Tensor) -> Tensor:
        """Where a step downhill does not leave the box, (parameters,) bool."""
        leaves = ((theta <= self.low) & (gradient > 0)) | ((theta >= self.high) & (gradient < 0))
        return ~leaves


@dataclass(frozen=True)
class Search:
    """Where a minimisation is."""

    theta: Tensor
    loss: float = math.inf
    damping: float = FIRST_DAMPING
    growth: float = 2.0
    """The factor by which the damping grows if the next step is rejected."""
    scale: Tensor | None = None
    """The largest diagonal of the Gauss-Newton matrix so far: Marquardt's measure of each parameter."""
    promised: float = math.inf
    """What the model promised for the last step, if it kept the promise."""
    converged: bool = False


def step(objective: Objective, search: Search, bounds: Bounds | None = None) -> Search:
    """One iteration: the first step from here that decreases the loss.

    The damping follows Nielsen's rule. Without such a step, the search has converged, or is at a point where
    nothing is finite.
    """
    theta = search.theta if bounds is None else bounds.clamp(search.theta)
    system = objective.system(theta)
    if not math.isfinite(system.loss):
        return replace(search, theta=theta, loss=math.inf, converged=True)
    gradient, matrix, free = system.gradient, system.matrix, None
    if bounds is not None:
        free = bounds.free(theta, gradient)
        gradient, matrix = gradient[free], matrix[free][:, free]
    diagonal = system.matrix.diagonal()
    scale = diagonal if search.scale is None else torch.maximum(search.scale, diagonal)
    search = replace(search, theta=theta, loss=system.loss, scale=scale)
    metric = scale.clamp(min=max(LEAST_SCALE * float(scale.max()), 1e-300))
    metric = metric if free is None else metric[free]
    damping, growth = search.damping, search.growth
    for _ in range(MOST_TRIES):
        weights = damping * metric
        delta = _solve(matrix, weights, gradient)
        # What the damped equations make of -gradient·δ - δᵀ·matrix·δ/2.
        promised = math.nan if delta is None else 0.5 * float(delta @ (weights * delta - gradient))
        if delta is not None and math.isfinite(promised):
            change = delta if free is None else torch.zeros_like(theta).masked_scatter_(free, delta)
            new = theta + change if bounds is None else bounds.clamp(theta + change)
            if promised <= RELATIVE_LOSS * abs(system.loss) or _is_small(change, theta):
                # Rounding would decide whether the loss falls.
                loss = objective.loss(new)
                better = loss <= system.loss
                return replace(
                    search, theta=new if better else theta, loss=min(loss, system.loss), converged=True
                )
            loss = objective.loss(new)
            gain = (system.loss - loss) / promised if math.isfinite(loss) else -1.0
            if gain > 0:
                # While the model is good, promises shrink at least by the same factor from step to step, so
                # the next one is known.
                kept = promised if gain > KEPT and damping == search.damping else math.inf
                following = kept * (kept / search.promised) if search.promised < math.inf else math.inf
                damping = max(damping * max(1 / 3, 1 - (2 * gain - 1) ** 3), SMALLEST_DAMPING)
                return replace(
                    search,
                    theta=new,
                    loss=loss,
                    damping=damping,
                    growth=2.0,
                    promised=kept,
                    converged=following <= RELATIVE_LOSS * abs(loss),
                )
        damping, growth = damping * growth, growth * 2
        if damping > LARGEST_DAMPING:
            return replace(search, converged=True)
    return replace(search, damping=damping, growth=growth, promised=math.inf)


def _solve(matrix: Tensor, damping: Tensor, gradient: Tensor) -> Tensor | None:
    """The step that minimises the damped model; None if the matrix is not positive definite in float64."""
    damped = matrix.clone()
    damped.diagonal().add_(damping)
    factor, info = torch.linalg.cholesky_ex(damped)
    if int(info):
        return None
    return torch.cholesky_solve(-gradient[:, None], factor)[:, 0]


def _is_small(change: Tensor, theta: Tensor) -> bool:
    norm = torch.linalg.vector_norm
    return float(norm(change)) <= RELATIVE_STEP * (float(norm(theta)) + RELATIVE_STEP)
