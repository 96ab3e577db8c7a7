"""The loss of a network over all samples, as a function of its parameters, for second-order solvers.

Squared errors give Levenberg-Marquardt's system as it is. Robust losses are weighted squares, whose weights
follow the residuals (iteratively reweighted least squares). Other losses have their own curvature.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from ftnn.formula._derive import differentiate
from ftnn.formula._names import OUTPUT, TARGET
from ftnn.kernels import evaluate
from ftnn.training._jacobian import VectorForm
from ftnn.training._lbfgs import Vector
from ftnn.training._least_squares import System
from ftnn.training._losses import LossFormula
from ftnn.training._problem import Problem

CHUNK = 2**19
"""The most numbers of a Jacobian in memory at once."""
LEAST_ROWS = 256
TINY = 1e-6
"""Residuals smaller than this, relative to the targets' size, get the weight of one of this size."""
LEAST_CURVATURE = 1e-10


@dataclass(frozen=True)
class Curvature:
    """A quadratic model of the loss in the outputs: its slope and its curvature, (samples, outputs) each."""

    loss: LossFormula
    size: float
    """The size of the targets: their root mean square."""

    @cached_property
    def of_residuals(self) -> bool:
        """Whether the loss depends on y - t only, and is smallest at 0."""
        y = torch.linspace(-2.0, 2.0, 9, dtype=torch.float64)[:, None]
        at_zero = self.loss.of_samples(y, torch.zeros_like(y))
        moved = (self.loss.of_samples(y + move, torch.full_like(y, move)) for move in (0.5, -1.0))
        is_even_so = all(torch.allclose(at_zero, other, rtol=1e-9, atol=1e-12) for other in moved)
        return is_even_so and bool((at_zero >= at_zero[4]).all())

    def model(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The loss's slope, and a curvature that is at least 0: reweighting's, or the loss's own."""
        slope = self._evaluate(self.loss.slope, outputs, targets)
        if self.loss.text == "squared":
            return slope, torch.ones_like(outputs)
        if self.of_residuals:
            residuals = outputs - targets
            least = TINY * self.size + 1e-12
            safe = torch.where(residuals < 0, -1.0, 1.0) * residuals.abs().clamp(min=least)
            return slope, self._evaluate(self.loss.slope, safe, torch.zeros_like(safe)) / safe
        assert self.loss.slope is not None
        second = self._evaluate(differentiate(self.loss.slope, OUTPUT), outputs, targets)
        return slope, second.clamp(min=LEAST_CURVATURE)

    def _evaluate(self, expr: object, outputs: Tensor, targets: Tensor) -> Tensor:
        (value,) = evaluate((expr,), {OUTPUT: outputs, TARGET: targets})  # pyright: ignore[reportArgumentType]
        return value.expand_as(outputs)


class NetworkObjective:
    """The mean loss over all samples of a problem.

    **Arguments:**

    - `net`: a float64 network on the CPU; its trained parameters are what the vector holds.
    """

    def __init__(self, net: nn.Module, problem: Problem):
        self.form = VectorForm(net)
        self._x = torch.from_numpy(problem.x).double()
        y = torch.from_numpy(problem.y)
        self._y = y if problem.is_classification else y.double()
        self._weights = None if problem.weights is None else torch.from_numpy(problem.weights).double()
        self._loss = problem.formula
        size = 0.0 if problem.is_classification else float(self._y.square().mean().sqrt())
        self._curvature = Curvature(problem.formula, size)
        self._rows = max(LEAST_ROWS, CHUNK // max(1, self.form.size * problem.outputs))

    def _chunks(self) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        for first in range(0, len(self._x), self._rows):
            part = slice(first, first + self._rows)
            yield self._x[part], self._y[part], None if self._weights is None else self._weights[part]

    def loss(self, theta: Tensor) -> float:
        total = 0.0
        for x, y, weights in self._chunks():
            total += self._total(self.form.outputs(theta, x), y, weights)
        return total / len(self._x)

    def _total(self, outputs: Tensor, y: Tensor, weights: Tensor | None) -> float:
        if self._loss.text == "squared" and weights is None:
            errors = (outputs - y).flatten()
            return 0.5 * float(errors @ errors)
        losses = self._loss.of_samples(outputs, y)
        return float(losses.sum() if weights is None else losses @ weights)

    def system(self, theta: Tensor) -> System:
        """The quadratic model of the loss around a point."""
        size, samples, total = self.form.size, len(self._x), 0.0
        gradient, matrix = theta.new_zeros(size), theta.new_zeros(size, size)
        for x, y, weights in self._chunks():
            outputs, jacobian = self.form.jacobian(theta, x)
            total += self._total(outputs, y, weights)
            slope, factor = self._factored(outputs, jacobian, y, weights)
            gradient.addmv_(jacobian.flatten(0, 1).T, slope.flatten(), alpha=1 / samples)
            rows = factor.flatten(0, 1)
            matrix.addmm_(rows.T, rows, alpha=1 / samples)
        return System(total / samples, gradient, matrix)

    def _factored(
        self, outputs: Tensor, jacobian: Tensor, y: Tensor, weights: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The slope of the loss, (samples, outputs), and A, shaped like the Jacobian, with AᵀA its curvature.

        The softmax's curvature, diag(p) - p·pᵀ, is BᵀB with B = diag(√p)·(1 - 1·pᵀ).
        """
        if self._loss.value is None:
            shares = outputs.softmax(1)
            slope = shares - nn.functional.one_hot(y, outputs.shape[1])
            mean = torch.einsum("no,nop->np", shares, jacobian)
            factor = shares.sqrt()[..., None] * (jacobian - mean[:, None])
        else:
            slope, curvature = self._curvature.model(outputs, y)
            is_plain = self._loss.text == "squared"
            factor = jacobian if is_plain else curvature.sqrt()[..., None] * jacobian
        if weights is None:
            return slope, factor
        return slope * weights[:, None], factor * weights.sqrt()[:, None, None]

    def factor(self, theta: Tensor) -> tuple[Tensor, float]:
        """R, upper triangular, with RᵀR = Σ w·JᵀJ over all samples, and Σ w·residual²."""
        triangle, total = theta.new_zeros(0, self.form.size), 0.0
        for x, y, weights in self._chunks():
            outputs, jacobian = self.form.jacobian(theta, x)
            total += 2 * self._total(outputs, y, weights)
            if weights is not None:
                jacobian = jacobian * weights.sqrt()[:, None, None]
            triangle = torch.linalg.qr(torch.cat([triangle, jacobian.flatten(0, 1)]), mode="r").R
        return triangle, total


class NetworkSlopes:
    """The mean loss and its gradient by automatic differentiation, for any module.

    The module is in evaluation mode, so that the loss is the same function in every iteration.
    """

    def __init__(self, net: nn.Module, problem: Problem):
        self._net = copy.deepcopy(net).eval()
        self._parameters = [p for p in self._net.parameters() if p.requires_grad]
        self._problem = problem
        self._x = torch.from_numpy(problem.x).double()
        y = torch.from_numpy(problem.y)
        self._y = y if problem.is_classification else y.double()
        self._weights = None if problem.weights is None else torch.from_numpy(problem.weights).double()

    @property
    def start(self) -> Vector:
        return torch.cat([p.detach().flatten() for p in self._parameters]).numpy()

    @torch.no_grad()
    def load(self, theta: Vector) -> nn.Module:
        """The module with these parameters."""
        parts = torch.from_numpy(theta).split([p.numel() for p in self._parameters])
        for parameter, part in zip(self._parameters, parts, strict=True):
            parameter.copy_(part.view(parameter.shape))
        return self._net

    def loss_and_gradient(self, theta: Vector) -> tuple[float, Vector]:
        net, total, samples = self.load(theta), 0.0, len(self._x)
        gradients = [torch.zeros_like(p) for p in self._parameters]
        for first in range(0, samples, 4096):
            part = slice(first, first + 4096)
            losses = self._problem.formula.of_samples(net(self._x[part]), self._y[part])
            loss = losses.sum() if self._weights is None else losses @ self._weights[part]
            total += float(loss.detach())
            for gradient, more in zip(gradients, torch.autograd.grad(loss, self._parameters), strict=True):
                gradient += more
        return total / samples, torch.cat([g.flatten() for g in gradients]).numpy() / samples
