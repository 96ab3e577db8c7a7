"""Product units: a unit's connections are multiplied instead of summed."""

from __future__ import annotations

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
"""The standard deviation over the inputs that calibrated factors aim at."""
STEPS = 12
SAMPLES = 200
"""Of fitting parameters until factors are near 1: iterations, and samples."""
RIDGE = 1e-3


def check_reduce(reduce: str, kinds: tuple[Function, ...], backend: Backend) -> None:
    """Raise an error unless a layer can combine these functions in this way."""
    if reduce not in REDUCES:
        raise FtnnError(f"unknown reduce {reduce!r}; expected one of {', '.join(map(repr, REDUCES))}")
    if reduce == "sum":
        return
    if backend not in ("auto", "reference"):
        raise FtnnError(f'reduce="product" has no backend={backend!r}; use "auto"')
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


def near_one(function: Function, x: Tensor, parameters: dict[str, Tensor], others: dict[str, Tensor]) -> None:
    """Move parameters, in place, until each factor is 1 plus a part of the shape that it had.

    The target of every connection is what it sends now, with mean 1 and a standard deviation of
    `VARIATION` over the samples; a few damped Gauss-Newton steps, for all connections at once, come near it.

    **Arguments:**

    - `x`: the inputs of the connections, (samples, in, 1) for matrices or (samples, connections) for lists.
    - `parameters`, `others`: the trained ones and the constants, (in, out) or (connections,) each.
    """
    inputs = x[:SAMPLES].double()
    names, constants = list(parameters), {name: matrix.double() for name, matrix in others.items()}
    values = {name: parameters[name].detach().double().clone() for name in names}
    shape = (len(inputs), *next(iter(values.values())).shape)

    def factors() -> Tensor:
        (each,) = evaluate((function.expr,), {INPUT: inputs, **values, **constants})
        return each.expand(shape)

    first = factors()
    spread = first.std(0, correction=0)
    usable = torch.isfinite(spread) & (spread > 0)
    target = 1 + VARIATION * torch.where(usable, (first - first.mean(0)) / spread, 0.0)
    damping = torch.full(shape[1:], RIDGE, dtype=torch.float64, device=inputs.device)
    loss = (first - target).square().mean(0)
    for _ in range(STEPS):
        slopes = evaluate(
            tuple(function.slopes[name] for name in names), {INPUT: inputs, **values, **constants}
        )
        jacobian = torch.stack([slope.expand(shape) for slope in slopes], -1)  # (samples, …, parameters)
        gradient = (jacobian * (factors() - target)[..., None]).mean(0)
        matrix = torch.einsum("s...k,s...l->...kl", jacobian, jacobian) / len(inputs)
        scale = matrix.diagonal(dim1=-2, dim2=-1)
        matrix = matrix + torch.diag_embed(damping[..., None] * scale + 1e-12)
        step, failed = torch.linalg.solve_ex(matrix, gradient[..., None])
        before = dict(values)
        values.update({name: before[name] - step[..., n, 0] for n, name in enumerate(names)})
        new = (factors() - target).square().mean(0)
        better = torch.isfinite(new) & (new < loss) & (failed == 0)
        values.update({name: torch.where(better, values[name], before[name]) for name in names})
        loss, damping = torch.where(better, new, loss), damping * torch.where(better, 0.3, 10.0)
    for name in names:
        parameters[name].copy_(values[name])
