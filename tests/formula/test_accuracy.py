"""Every unary operation is accurate over the whole range of its dtype, in kernels and reference."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

import mpmath
import numpy as np
import pytest
import torch

from ftnn.formula._ops import OPS
from ftnn.nn import Transfer

from .oracle import MEANING

UNARY = sorted(name for name, op in OPS.items() if op.arity == 1 and op.is_callable)
RANGE = {torch.float32: (-149, 127), torch.float64: (-1074, 1023)}


@cache
def inputs(dtype: torch.dtype) -> torch.Tensor:
    """Inputs of all magnitudes and both signs, dense where functions change most."""
    random = np.random.default_rng(0)
    sizes = 2.0 ** random.uniform(*RANGE[dtype], 60)
    powers = 10.0 ** np.arange(-18, 19)
    drawn = [sizes, powers, random.uniform(0, 3, 20), random.uniform(0, 40, 20), random.uniform(0, 800, 20)]
    positive = np.concatenate(drawn)
    return torch.tensor(np.concatenate([positive, -positive]), dtype=dtype)


@cache
def truth(op: str, x: float) -> Any:
    """The value and x times the slope, in mpmath; None where the operation is not real."""
    with mpmath.workprec(2300):  # the sine of 1e308 needs that many bits
        at = mpmath.mpf(x)
        value = MEANING[op](at)
        if isinstance(value, mpmath.mpc) or mpmath.isnan(value):
            return None
        step = abs(at) * mpmath.mpf(2) ** -1100
        return value, at * (MEANING[op](at + step) - value) / step


@pytest.mark.parametrize("dtype", RANGE, ids=str)
@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("op", UNARY)
def test_an_operation_is_accurate_over_the_whole_range(
    op: str, dtype: torch.dtype, backend: Literal["cpu", "reference"]
):
    layer = Transfer(1, 1, f"p*{op}(x)", bias=False, dtype=dtype, backend=backend)
    with torch.no_grad():
        layer.matrix("p").fill_(1.0)
    x = inputs(dtype)
    results = layer(x[:, None]).detach()[:, 0].double().tolist()
    limits = torch.finfo(dtype)
    compared = 0
    for at, got in zip(x.double().tolist(), results, strict=True):
        expected = truth(op, at)
        if expected is None:
            assert np.isnan(got), f"{op}({at!r}) = {got!r}"
            continue
        value, moved = expected
        if abs(value) > limits.max:
            assert got == np.copysign(np.inf, float(mpmath.sign(value))), f"{op}({at!r}) = {got!r}"
            continue
        # The reference calls torch, which may round arguments and flush denormals.
        size = abs(value) if backend == "cpu" else abs(value) + abs(moved)
        least = limits.smallest_normal * (limits.eps if backend == "cpu" else 1)
        assert abs(mpmath.mpf(got) - value) <= 4 * max(limits.eps * size, least), f"{op}({at!r}) = {got!r}"
        compared += 1
    assert compared > 40


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("dtype", RANGE, ids=str)
def test_the_sign_of_zero_is_zero(dtype: torch.dtype, backend: Literal["cpu", "reference"]):
    layer = Transfer(1, 1, "p/sign(x)", bias=False, dtype=dtype, backend=backend)
    with torch.no_grad():
        layer.matrix("p").fill_(1.0)
    zeros = torch.tensor([[0.0], [-0.0]], dtype=dtype)
    assert layer(zeros)[:, 0].tolist() == [np.inf, np.inf]
    assert layer.function(-0.0, p=1.0) == np.inf


@pytest.mark.parametrize("dtype", RANGE, ids=str)
@pytest.mark.parametrize(
    "formula",
    [
        "p*min(x, 1e39)",
        "p*max(-1e39, x)",
        "p*(x + 1e39)",
        "p*x*1e-60",
        "p*x**5e-50",
        "p*where(x < 1e39, x, 1)",
    ],
)
def test_numbers_beyond_the_dtype_are_rounded_to_it(formula: str, dtype: torch.dtype):
    x = torch.tensor([[1.0, -2.0, 3.0], [0.0, 1e30, -1e30], [0.0, 1.0, torch.inf]], dtype=dtype)
    results: list[torch.Tensor] = []
    for backend in ("cpu", "reference", "auto"):
        layer = Transfer(3, 1, formula, bias=False, dtype=dtype, backend=backend)
        with torch.no_grad():
            layer.matrix("p").fill_(0.5)
        x = x.detach().requires_grad_()
        results.append(layer(x))
        results[-1].sum().backward()
    with np.errstate(over="ignore"):
        limit = float(np.float32(1e39)) if dtype == torch.float32 else 1e39
    for other in results[1:]:
        torch.testing.assert_close(results[0], other, equal_nan=True)
    if formula == "p*(x + 1e39)":
        assert results[0][0, 0] == 1.5 * limit
