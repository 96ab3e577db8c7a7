"""Product units: a unit's connections are multiplied instead of summed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import torch
from torch import Tensor

from ftnn.errors import FtnnError
from ftnn.formula import Function
from ftnn.formula._expr import INPUT
from ftnn.kernels import Backend, evaluate, is_traced

Reduce = Literal["sum", "product"]
REDUCES: tuple[Reduce, ...] = ("sum", "product")

VARIATION = 0.4
"""The largest standard deviation over the inputs that factors aim at."""
STEPS = 12
SAMPLES = 200
"""Of fitting parameters until factors are near 1: iterations, and samples."""
RIDGE = 1e-3
SHARES = (1.0, 0.5, 0.2, 0.05)
"""Where the first attempt fails, parameters start anew from these shares of the sizes that were drawn."""
PRIME = 7919
"""The distance of the connections whose parameters are tried elsewhere, so that they differ."""
DIFFERENT = 2000
"""The most connections with inputs alike that are fitted. In larger layers, the others start like these."""
MARGIN = 1.0
"""How far beyond the inputs factors stay finite if they were, relative to the range of the inputs."""


def check_reduce(reduce: str, kinds: tuple[Function, ...], backend: Backend) -> None:
    """Raise an error unless a layer can combine these functions in this way."""
    if reduce not in REDUCES:
        raise FtnnError(f"unknown reduce {reduce!r}; expected one of {', '.join(map(repr, REDUCES))}")
    if reduce == "sum":
        return
    if backend not in ("auto", "reference"):
        raise FtnnError(f'reduce="product" does not support backend={backend!r}; use "auto"')
    for kind in kinds:
        if kind.is_grounded:
            raise FtnnError(
                f"{kind.formula!r} is grounded, so as a factor it would make products 0 where x is 0; "
                "use the function as it was before grounded()"
            )


def products_of_others(factors: Tensor, dim: int = -2) -> Tensor:
    """For each factor, the product of all others of its unit; they follow each other along `dim`.

    From the products before and after it, without division, so it is exact where factors are 0.
    """
    count = factors.shape[dim]
    ones = torch.ones_like(factors.narrow(dim, 0, min(count, 1)))
    before = torch.cat([ones, factors.narrow(dim, 0, count - 1)], dim).cumprod(dim)
    after = torch.cat([ones, factors.narrow(dim, 1, count - 1).flip(dim)], dim).cumprod(dim).flip(dim)
    return before * after


class Product(torch.autograd.Function):
    """The product over the inputs: (batch, in, out) → (batch, out), differentiable to any order."""

    @staticmethod
    def forward(ctx: Any, factors: Tensor) -> Tensor:
        ctx.save_for_backward(factors)
        return factors.prod(-2)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (factors,) = ctx.saved_tensors
        return grads[0][..., None, :] * products_of_others(factors)


def product(factors: Tensor, bias: Tensor | None) -> Tensor:
    """The product over the inputs, plus the bias: (batch, in, out) → (batch, out)."""
    # In traced code torch's own product: the compiler and exporters know it.
    out = factors.prod(-2) if is_traced() else cast("Tensor", Product.apply(factors))
    return out if bias is None else out + bias


def typical_inputs(device: torch.device) -> Tensor:
    """Inputs of unit variance, (samples,): quantiles of the normal distribution."""
    return torch.special.ndtri((torch.arange(50, dtype=torch.float64, device=device) + 0.5) / 50)


def near_one_alike(
    function: Function, x: Tensor, parameters: dict[str, Tensor], others: dict[str, Tensor], count: int
) -> None:
    """`near_one`, for the same inputs everywhere, (samples,)."""
    shape = next((matrix.shape for matrix in parameters.values()), torch.Size())
    if len(shape) != 2 or shape.numel() <= DIFFERENT or others:
        near_one(function, x.view(-1, *[1] * len(shape)), parameters, others, count)
        return
    inputs, outputs = shape
    different = max(DIFFERENT, outputs)  # so that no two units start alike
    fitted = {name: matrix.detach().flatten()[:different].clone() for name, matrix in parameters.items()}
    near_one(function, x[:, None], fitted, {}, count)
    rows, columns = (torch.arange(size, device=x.device) for size in (inputs, outputs))
    picked = (rows[:, None] * PRIME + columns) % different
    for name, matrix in parameters.items():
        matrix.copy_(fitted[name][picked])


def near_one(
    function: Function, x: Tensor, parameters: dict[str, Tensor], others: dict[str, Tensor], count: int
) -> None:
    """Move parameters, in place, until each factor is 1 plus a part of the shape that it had.

    The target of every connection is what it sends now, with mean 1 and a small deviation over the samples. A
    function that cannot send this, such as a sine of several periods, whose mean is 0, gets a line as its
    target instead, from positive parameters: if two with different signs are multiplied, as in p*sin(r), the
    way to 1 would lead through 0. The last attempts start from the parameters of other connections.

    **Arguments:**

    - `x`: the inputs of the connections, (samples, in, 1) for matrices or (samples, connections) for lists.
    - `parameters`, `others`: those that may move and the others, (in, out) or (connections,) each.
    - `count`: the number of factors in a unit.
    """
    if not parameters or not len(x):
        return
    shape = next(iter(parameters.values())).shape

    def listed(matrices: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: matrix.detach().double().flatten() for name, matrix in matrices.items()}

    # Parameters must not move where, for inputs further out, a function is no longer finite.
    low, high = x.double().amin(0), x.double().amax(0)
    margin = MARGIN * (high - low)
    beyond = torch.stack([low - margin, low, high, high + margin])
    inputs, ends = (part.double().expand(len(part), *shape).flatten(1) for part in (x[:SAMPLES], beyond))
    drawn = listed(parameters)
    factors = _Factors(function, inputs, ends, listed(others))
    factors = replace(factors, needed=torch.isfinite(factors.of(drawn, ends)))
    variation = min(VARIATION, (2 ** (1 / count) - 1) ** 0.5)  # the product of all varies about as 1 does
    shapes = _standardised(factors.of(drawn))
    values, loss = factors.moved(drawn, 1 + variation * shapes)
    signs = torch.where((shapes * _standardised(inputs)).mean(0) < 0, -1.0, 1.0)
    for share in (*SHARES, None, None):
        is_far = loss > variation**2
        far, near = is_far.nonzero()[:, 0], (~is_far).nonzero()[:, 0]
        if not len(far) or (share is None and not len(near)):
            break
        some = factors.some(far)
        if share is not None:
            start = {name: share * value[far].abs() for name, value in drawn.items()}
            wanted = signs[far] * _standardised(some.inputs)
        else:  # what has worked elsewhere
            picked = near[torch.arange(len(far), device=near.device) * PRIME % len(near)]
            start = {name: value[picked] for name, value in values.items()}
            wanted = _standardised(some.of(start))
        new, new_loss = some.moved(start, 1 + variation * wanted)
        better = new_loss < loss[far]
        loss[far[better]] = new_loss[better]
        for name, value in values.items():
            value[far[better]] = new[name][better]
    for name, value in values.items():
        parameters[name].copy_(value.view(shape))


def _standardised(values: Tensor) -> Tensor:
    """With mean 0 and deviation 1 over the samples; 0 where that is not possible."""
    spread = values.std(0, correction=0)
    usable = torch.isfinite(spread) & (spread > 0)
    return torch.where(usable, (values - values.mean(0)) / spread, 0.0)


@dataclass(frozen=True)
class _Factors:
    """The factors of some connections as functions of their parameters, (connections,) each."""

    function: Function
    inputs: Tensor
    """(samples, connections)"""
    ends: Tensor
    """Further inputs, at which factors have to stay finite."""
    constants: dict[str, Tensor]
    needed: Tensor = field(default_factory=lambda: torch.tensor(False))
    """Where among `ends` they were finite."""

    def some(self, which: Tensor) -> _Factors:
        constants = {name: values[which] for name, values in self.constants.items()}
        inputs, ends, needed = (each[:, which] for each in (self.inputs, self.ends, self.needed))
        return _Factors(self.function, inputs, ends, constants, needed)

    def of(self, values: dict[str, Tensor], x: Tensor | None = None) -> Tensor:
        x = self.inputs if x is None else x
        return evaluate((self.function.expr,), {INPUT: x, **values, **self.constants})[0].expand_as(x)

    def error(self, values: dict[str, Tensor], target: Tensor) -> Tensor:
        """The mean square error; infinite where a factor is not finite, or no longer at the ends."""
        error = (self.of(values) - target).square().mean(0)
        stays = (torch.isfinite(self.of(values, self.ends)) | ~self.needed).all(0)
        return torch.where(torch.isfinite(error) & stays, error, torch.inf)

    def moved(self, start: dict[str, Tensor], target: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """The parameters after some damped Gauss-Newton steps towards a target, and the mean square error."""
        values = {name: value.clone() for name, value in start.items()}
        damping = torch.full_like(target[0], RIDGE)
        loss = self.error(values, target)
        for _ in range(STEPS):
            slopes = evaluate(
                tuple(self.function.slopes[name] for name in values),
                {INPUT: self.inputs, **values, **self.constants},
            )
            jacobian = torch.stack([slope.expand_as(target) for slope in slopes], -1)
            gradient = (jacobian * (self.of(values) - target)[..., None]).mean(0)
            matrix = torch.einsum("s...k,s...l->...kl", jacobian, jacobian) / len(target)
            scale = matrix.diagonal(dim1=-2, dim2=-1)
            matrix = matrix + torch.diag_embed(damping[..., None] * scale + 1e-12)
            step, failed = torch.linalg.solve_ex(matrix, gradient[..., None])
            new = {name: value - step[..., n, 0] for n, (name, value) in enumerate(values.items())}
            new_loss = self.error(new, target)
            better = (new_loss < loss) & (failed == 0)
            values = {name: torch.where(better, new[name], value) for name, value in values.items()}
            loss, damping = torch.where(better, new_loss, loss), damping * torch.where(better, 0.3, 10.0)
        return values, loss
