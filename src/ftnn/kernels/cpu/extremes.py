"""Launch the kernel for the extremes of expressions."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ftnn.formula._expr import Expr
from ftnn.kernels.codegen.target import DType
from ftnn.kernels.cpu.compiler import host, kernel
from ftnn.kernels.cpu.tiling import address, addresses
from ftnn.kernels.loops.extremes import KINDS, ExtremesArgs, extremes

Extremes = tuple[float, float, float]
"""The smallest |value|, the smallest that is not 0, and the largest."""


def extremes_of(exprs: tuple[Expr, ...], names: tuple[str, ...], arrays: Sequence[Tensor]) -> list[Extremes]:
    """The extremes of expressions of arrays of one shape, which have these names."""
    arrays = [each.contiguous() for each in arrays]
    double = arrays[0].dtype == torch.float64
    results = array("d" if double else "f", bytes(KINDS * len(exprs) * (8 if double else 4)))
    sources = addresses(arrays)
    args = ExtremesArgs(numbers=arrays[0].numel(), sources=address(sources), results=results.buffer_info()[0])
    block = array("q", args)
    _function(exprs, names, "float64" if double else "float32")(address(block))
    return [(low, nonzero, high) for low, nonzero, high in zip(*[iter(results)] * KINDS, strict=True)]


@lru_cache(maxsize=512)
def _function(exprs: tuple[Expr, ...], names: tuple[str, ...], dtype: DType) -> Any:
    return kernel(extremes, exprs, names, host(dtype)).function
