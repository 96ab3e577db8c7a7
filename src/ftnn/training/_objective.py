"""The loss of a network over all samples, as a function of its parameters, for second-order solvers.

Squared errors give Levenberg-Marquardt's system as it is. Robust losses are weighted squares, whose weights
follow the residuals (iteratively reweighted least squares). Other losses have their own curvature.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from ftnn.errors import FtnnError
from ftnn.formula._derive import differentiate
from ftnn.formula._names import OUTPUT, TARGET
from ftnn.kernels import evaluate
from ftnn.training._jacobian import Pass, VectorForm
from ftnn.training._lbfgs import Vector
from ftnn.training._least_squares import System
from ftnn.training._losses import LossFormula
from ftnn.training._problem import Problem

CHUNK = 2**19
"""The most numbers of a Jacobian in memory at once."""
LEAST_ROWS = 256
LARGEST = 4e9
"""The most bytes that a search may need."""
TINY = 1e-6
"""Residuals smaller than this, relative to the targets' size, get the weight of one of this size."""
LEAST_CURVATURE = 1e-10
NOTED = 1.01
"""The factor from which it is noted that rounding the parameters increases the loss."""


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


@dataclass(frozen=True)
class _Chunk:
    """Some of the samples; they are the last axis."""

    x: Tensor
    """(in, samples)"""
    y: Tensor
    """(outputs, samples), or (samples,) for classes."""
    weights: Tensor | None
    """(samples,)"""


def check_memory(net: nn.Module, problem: Problem) -> None:
    """Raise an error if a Levenberg-Marquardt search would need too much memory."""
    size, samples = sum(p.numel() for p in net.parameters() if p.requires_grad), len(problem.x)
    jacobian = size * problem.outputs * min(samples, _rows(size * problem.outputs))
    needed = 8 * (2 * jacobian + 3 * size**2)  # weighted as well; JᵀJ, damped, and factorised
    if needed > LARGEST:
        raise FtnnError(
            f'solver="lm" would need {needed / 1e9:,.0f} GB of memory for {size:,} parameters and '
            f'{samples:,} samples; the limit is {LARGEST / 1e9:.0f} GB. Use solver="lbfgs"'
        )


def _rows(numbers: int) -> int:
    """How many samples to compute the Jacobian of at once, from its numbers for each."""
    return max(LEAST_ROWS, CHUNK // max(1, numbers))


class NetworkObjective:
    """The mean loss over all samples of a problem.

    **Arguments:**

    - `net`: its trained parameters are what the vector holds.
    """

    def __init__(self, net: nn.Module, problem: Problem):
        self.form = VectorForm(net)
        self._loss, self._samples = problem.formula, len(problem.x)
        self._is_squared = self._loss.text == "squared"
        size = 0.0
        if not problem.is_classification and not self._is_squared:
            size = float(np.sqrt(np.square(problem.y, dtype=np.float64).mean()))
        self._curvature = Curvature(problem.formula, size)
        rows = _rows(self.form.size * problem.outputs)
        self._chunks = [_chunk(problem, first, rows) for first in range(0, self._samples, rows)]
        self._last: tuple[Pass, float] | None = None
        """The last pass and its loss, if all samples are in one chunk: most often, a step leads there."""

    def loss(self, theta: Tensor) -> float:
        return sum(self._pass(theta, chunk)[1] for chunk in self._chunks) / self._samples

    def _pass(self, theta: Tensor, chunk: _Chunk) -> tuple[Pass, float]:
        """The pass of a chunk's samples, and the sum of their losses."""
        if self._last is not None and torch.equal(self._last[0].theta, theta):
            return self._last
        done = self.form.forward(theta, chunk.x)
        result = done, self._total(done.outputs, chunk)
        if len(self._chunks) == 1:
            self._last = result
        return result

    def _total(self, outputs: Tensor, chunk: _Chunk) -> float:
        if self._is_squared and chunk.weights is None:
            errors = (outputs - chunk.y).flatten()
            return 0.5 * float(errors.dot(errors))
        losses = self._loss.of_samples(outputs.T, chunk.y.mT if chunk.y.dim() == 2 else chunk.y)
        return float(losses.sum() if chunk.weights is None else losses @ chunk.weights)

    def system(self, theta: Tensor) -> System:
        """The quadratic model of the loss around a point."""
        size, total = self.form.size, 0.0
        gradient, matrix = theta.new_zeros(size), theta.new_zeros(size, size)
        for chunk in self._chunks:
            done, loss = self._pass(theta, chunk)
            total += loss
            slope, jacobian, factor = self._factored(done.outputs, self.form.jacobian(done), chunk)
            gradient.addmv_(jacobian.flatten(1), slope.flatten(), alpha=1 / self._samples)
            factors = factor.flatten(1)
            matrix.addmm_(factors, factors.T, alpha=1 / self._samples)
        return System(total / self._samples, gradient, matrix)

    def _factored(self, outputs: Tensor, jacobian: Tensor, chunk: _Chunk) -> tuple[Tensor, Tensor, Tensor]:
        """The slope of the loss, (outputs, samples), the Jacobian, and A, shaped like it, with AAᵀ the
        loss's curvature.

        The softmax's curvature, diag(p) - p·pᵀ, is BᵀB with B = diag(√p)·(1 - 1·pᵀ).
        """
        if self._loss.value is None:
            shares = outputs.softmax(0)
            slope = shares - nn.functional.one_hot(chunk.y, len(outputs)).T
            mean = torch.einsum("on,pon->pn", shares, jacobian)
            factor = shares.sqrt() * (jacobian - mean[:, None])
        elif self._is_squared:
            slope, factor = outputs - chunk.y, jacobian
        else:
            slope, curvature = self._curvature.model(outputs, chunk.y)
            factor = curvature.sqrt() * jacobian
        if chunk.weights is None:
            return slope, jacobian, factor
        return slope * chunk.weights, jacobian, factor * chunk.weights.sqrt()

    def factor(self, theta: Tensor) -> Tensor:
        """R, upper triangular, with RᵀR = Σ w·JᵀJ over all samples, by orthogonal transformations."""
        triangle = theta.new_zeros(0, self.form.size)
        for chunk in self._chunks:
            jacobian = self.form.jacobian(self._pass(theta, chunk)[0])
            if chunk.weights is not None:
                jacobian = jacobian * chunk.weights.sqrt()
            triangle = torch.linalg.qr(torch.cat([triangle, jacobian.flatten(1).T]), mode="r").R
        return triangle


def _chunk(problem: Problem, first: int, rows: int) -> _Chunk:
    part = slice(first, first + rows)
    y = torch.from_numpy(problem.y[part])
    weights = None if problem.weights is None else torch.from_numpy(problem.weights[part]).double()
    return _Chunk(
        torch.from_numpy(problem.x[part]).double().T.contiguous(),
        y if problem.is_classification else y.double().T.contiguous(),
        weights,
    )


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


def rounding_of(net: nn.Module, problem: Problem, loss: float) -> str | None:
    """A note if the loss with the network's own parameters is larger than what was found in float64."""
    if problem.dtype == "float64":
        return None
    objective = NetworkSlopes(copy.deepcopy(net).cpu().double(), problem)
    rounded, _ = objective.loss_and_gradient(objective.start)
    if rounded <= NOTED * loss:
        return None
    return (
        f"parameters are stored in {problem.x.dtype}: with them, the loss is {rounded:.2g} "
        f"instead of {loss:.2g}. To keep all digits, use a network of dtype=torch.float64 (estimators: "
        "dtype='float64')"
    )
