"""Matrix products for separable functions: Σ_k h_k(x) @ g_k(p)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from ftnn.formula._derive import differentiate
from ftnn.formula._expr import INPUT, ZERO, Expr
from ftnn.kernels.eager.evaluation import evaluate
from ftnn.kernels.operands import Lists, Matrices, Names
from ftnn.kernels.program import Program


class _Sides:
    """Evaluates the two kinds of factors: of x alone, (batch, in), and of matrices alone, (in, out)."""

    def __init__(self, program: Program, x: Tensor, matrices: Matrices):
        self.x, self.shape = x, matrices[0].shape
        self.matrices = dict(zip(program.matrices, matrices, strict=True))

    def h(self, expr: Expr) -> Tensor:
        return evaluate((expr,), {INPUT: self.x})[0].expand(self.x.shape)

    def g(self, expr: Expr) -> Tensor:
        return evaluate((expr,), self.matrices)[0].expand(self.shape)


_slope = cache(differentiate)


def suits(program: Program, x: Tensor, matrices: Matrices) -> bool:
    """Whether matrix products are accurate here: their factors stay in range, multiplied in any order."""
    plan = program.plan
    if plan.kind != "gemm" or plan.exact:
        return plan.kind == "gemm"
    return moderate(program, plan.factors, plan.degree, x, matrices) and moderate(
        program, plan.exponentials, plan.degree, x, matrices, may_be_zero=False
    )


def moderate(
    program: Program,
    factors: Sequence[Expr],
    degree: int,
    x: Tensor,
    matrices: Matrices,
    *,
    may_be_zero: bool = True,
) -> bool:
    """Whether no product of `degree` of these factors overflows or underflows in any order.

    Each factor depends on x alone or on matrices alone.
    """
    if not factors or not x.numel() or not matrices[0].numel():
        return True
    smallest = torch.finfo(x.dtype).tiny ** (0.9 / degree)
    sides = _Sides(program, x, matrices)
    for factor in factors:
        size = (sides.h(factor) if INPUT in factor.names else sides.g(factor)).abs()
        if may_be_zero:
            size = torch.where(size == 0, 1.0, size)
        low, high = size.aminmax()
        if not (smallest <= float(low) and float(high) <= 1 / smallest):  # also if NaN
            return False
    return True


def computes_as_written(program: Program, *, slopes: bool = False) -> bool:
    """Whether the plan keeps the formula's order of products."""
    return program.plan.exact


def transfer(program: Program, x: Tensor, matrices: Matrices, lists: Lists | None = None) -> Tensor:
    """F ⊙ x, (batch, out); lists are not supported."""
    plan, sides = program.plan, _Sides(program, x, matrices)
    out = x.new_zeros(x.shape[0], matrices[0].shape[1])
    for g, h in plan.terms:
        out.addmm_(sides.h(h), sides.g(g))
    if plan.constant is not None:
        out += sides.g(plan.constant).sum(0)
    if plan.common is not None:
        out += sides.h(plan.common).sum(1, keepdim=True)
    return out


def transfer_backward(
    program: Program, grad: Tensor, x: Tensor, matrices: Matrices, names: Names, lists: Lists | None = None
) -> list[Tensor]:
    """The gradients by each of `names`: x first, then parameters in order."""
    plan, sides = program.plan, _Sides(program, x, matrices)
    gradients: list[Tensor] = []
    if INPUT in names:
        total = torch.zeros_like(x)
        for g, h in plan.terms:
            if _slope(h, INPUT) is not ZERO:  # otherwise 0, whatever g is
                total += (grad @ sides.g(g).T) * sides.h(_slope(h, INPUT))
        if plan.common is not None:
            total += sides.h(_slope(plan.common, INPUT)) * grad.sum(1, keepdim=True)
        gradients.append(total)
    parameters = [name for name in program.parameters if name in names]
    if parameters:
        totals = {name: torch.zeros_like(matrices[0]) for name in parameters}
        # Every parameter's gradient is a sum over the errors of each g, (in, out).
        errors = [(g, sides.h(h).T @ grad) for g, h in plan.terms]
        if plan.constant is not None:
            errors.append((plan.constant, grad.sum(0).expand_as(matrices[0])))
        for g, error in errors:
            for name in parameters:
                if _slope(g, name) is not ZERO:
                    totals[name] += error * sides.g(_slope(g, name))
        gradients += totals.values()
    return gradients
