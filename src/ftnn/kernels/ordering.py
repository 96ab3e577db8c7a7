"""Whether factors may be multiplied in any order: some orders overflow or underflow where others do not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from ftnn.formula._expr import INPUT, Expr, names
from ftnn.kernels.eager.evaluation import evaluate
from ftnn.kernels.generated import cpu_computes
from ftnn.kernels.operands import Matrices
from ftnn.kernels.program import Program

LARGE = 2**60
"""A power from which on only a factor of 1 is moderate; larger ones might not fit into a float."""
SMALL_GROWTH = math.log(2**10)
"""If factors together enlarge a product by no more, it is negligible where a part of it underflows."""
Products = tuple[tuple[tuple[Expr, int], ...], ...]
"""The factors of products, each with its power. Each factor depends on x alone or on matrices alone."""


def moderate(
    program: Program, products: Products, x: Tensor, matrices: Matrices, *, never_zero: Sequence[Expr] = ()
) -> bool:
    """Whether no product of these factors overflows or underflows in any order.

    A 0 is harmless, except in `never_zero`. So is an underflow on the way if nothing can enlarge the product
    again: parameters that fade in training, such as those of p**2*x, become arbitrarily small.
    """
    if not products or not x.numel() or not matrices[0].numel():
        return True
    most = -0.9 * math.log(torch.finfo(x.dtype).tiny)
    growth, decline = dict[Expr, float](), dict[Expr, float]()  # the most, as logarithms
    of_x, of_matrices = _factors(products)
    for factors, operands, arrays in ((of_x, (INPUT,), (x,)), (of_matrices, program.matrices, matrices)):
        if not factors:
            continue
        for factor, (low, nonzero, high) in zip(factors, _extremes(factors, operands, arrays), strict=True):
            if low == 0 and factor not in never_zero:
                low = min(nonzero, 1.0)
            if not (low > 0 and high < math.inf):  # also if NaN
                return False
            growth[factor], decline[factor] = max(math.log(max(low, high)), 0.0), max(-math.log(low), 0.0)
    for product in products:
        up, down = (sum(min(n, LARGE) * by[factor] for factor, n in product) for by in (growth, decline))
        if up > most or (down > most and up > SMALL_GROWTH):
            return False
    return True


@lru_cache(maxsize=512)
def _factors(products: Products) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """The factors that depend on x, and the others."""
    every = tuple(dict.fromkeys(factor for product in products for factor, _ in product))
    of_x = tuple(factor for factor in every if INPUT in names(factor))
    return of_x, tuple(factor for factor in every if factor not in of_x)


def _extremes(
    factors: tuple[Expr, ...], operands: tuple[str, ...], arrays: Sequence[Tensor]
) -> list[tuple[float, float, float]]:
    """The smallest size of each factor, the smallest that is not 0, and the largest."""
    if cpu_computes(arrays[0]):
        from ftnn.kernels.cpu.extremes import extremes_of

        return extremes_of(factors, operands, arrays)
    values = dict(zip(operands, arrays, strict=True))
    return [_extremes_in_torch(value) for value in evaluate(factors, values)]


def _extremes_in_torch(value: Tensor) -> tuple[float, float, float]:
    size = value.abs()
    low, high = map(float, size.aminmax())
    return low, float(torch.where(size == 0, math.inf, size).amin()), high
