"""Whether factors are moderate enough to be multiplied in any order."""

from __future__ import annotations

import math

import pytest
import torch

from ftnn.formula._parse import parse
from ftnn.kernels import ordering

FACTORS = tuple(map(parse, ("p**2", "p*exp(q)", "q")))


@pytest.mark.parametrize("special", [None, 0.0, -0.0, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("size", [1, 5, 16, 17, 1003])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_generated_code_finds_the_same_extremes_as_torch(
    dtype: torch.dtype, size: int, special: float | None
):
    random = torch.Generator().manual_seed(size)
    p, q = (torch.randn(size, generator=random, dtype=dtype) for _ in range(2))
    if special is not None:
        p[size // 2] = special
    in_torch = ordering.evaluate(FACTORS, {"p": p, "q": q})
    for found, value in zip(ordering._extremes(FACTORS, ("p", "q"), (p, q)), in_torch, strict=True):
        for one, other in zip(found, ordering._extremes_in_torch(value), strict=True):
            assert one == pytest.approx(other, rel=1e-6, nan_ok=True)
