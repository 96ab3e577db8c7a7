"""Tensors for a function, as a layer would hold them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ftnn import Function, catalogue
from ftnn.kernels import BACKENDS, Backend

HERE: tuple[Backend, ...] = tuple(backend for backend in BACKENDS if backend != "triton")
"""The backends that run in any process; Triton is tested separately."""

FEED_FORWARD = [name for name in catalogue if name != "memory"]


def function_of(formula: str) -> Function:
    return catalogue[formula] if formula in catalogue else Function(formula)


def tensors(
    function: Function,
    batch: int = 3,
    ins: int = 4,
    outs: int = 2,
    dtype: torch.dtype = torch.float64,
    low: float = -1.0,
    high: float = 1.0,
    seed: int = 0,
) -> tuple[Tensor, list[Tensor]]:
    """An input (batch, in), then parameters and constants (in, out); all but constants require gradients."""
    generator = torch.Generator().manual_seed(seed)

    def drawn(*shape: int) -> Tensor:
        return (low + (high - low) * torch.rand(*shape, generator=generator, dtype=torch.float64)).to(dtype)

    x = drawn(batch, ins).requires_grad_()
    parameters = [drawn(ins, outs).requires_grad_() for _ in function.parameters]
    return x, [*parameters, *(constant(function, name, ins, outs, dtype) for name in function.constants)]


def constant(function: Function, name: str, ins: int, outs: int, dtype: torch.dtype) -> Tensor:
    choices = function.choices[name]
    return torch.tensor(choices, dtype=dtype)[torch.arange(ins * outs).reshape(ins, outs) % len(choices)]


def oracle(function: Function, x: Tensor, matrices: list[Tensor]) -> Tensor:
    """Σ_i F(x_bi; p_io) by NumPy in float64."""
    names = (*function.parameters, *function.constants)
    values: dict[str, Any] = {n: m.detach().double().numpy() for n, m in zip(names, matrices, strict=True)}
    inputs = x.detach().double().numpy()[:, :, None]
    shape = (x.shape[0], *matrices[0].shape)
    with np.errstate(invalid="ignore"):  # inf - inf
        return torch.from_numpy(np.broadcast_to(function(inputs, **values), shape).sum(1))
