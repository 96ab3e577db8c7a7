"""The backends, and which of them computes a layer."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Literal, Protocol, get_args

import torch
from torch import Tensor

from ftnn.errors import DTypeError, FtnnError
from ftnn.kernels.eager import gemm, reference
from ftnn.kernels.operands import Lists, Matrices, Names
from ftnn.kernels.program import Program

Backend = Literal["auto", "reference", "cpu", "triton"]
BACKENDS: tuple[Backend, ...] = get_args(Backend)
"""The values a layer's `backend` may have."""


class Computes(Protocol):
    """The functions a backend's module provides. Their tensors have been checked already."""

    def computes_as_written(self, program: Program, *, slopes: bool = False) -> bool:
        """Whether the function's products (or its slopes') keep the formula's order.

        In another order, an intermediate product may overflow.
        """
        ...

    def transfer(self, program: Program, x: Tensor, matrices: Matrices, lists: Lists | None = None) -> Tensor:
        """F ⊙ x, (batch, out), for x (batch, in)."""
        ...

    def transfer_backward(
        self, program: Program, grad: Tensor, x: Tensor, matrices: Matrices, names: Names, lists: Lists | None
    ) -> list[Tensor]:
        """The gradients of `Σ grad · (F ⊙ x)` by each of `names`: x first, then parameters in order.

        `grad` is (batch, out). Each gradient has the shape of its variable.
        """
        ...


def choose(backend: str, program: Program, x: Tensor, matrices: Matrices, lists: Lists | None) -> Computes:
    """The fastest backend that is exact for these tensors, or the named one where it applies."""
    if backend == "triton":
        return _triton()
    if backend == "auto" and lists is None and gemm.suits(program, x, matrices):
        return gemm
    if backend != "reference" and cpu_computes(x) and _cpu().in_range(program, x, matrices):
        return _cpu()
    return reference


def check_backend(backend: Backend, x: Tensor, *, lists: bool = False) -> None:
    """Raise if the named backend does not support this input."""
    if backend == "cpu" and not cpu_computes(x):
        raise FtnnError(f'backend="cpu" supports float32 and float64 on the CPU, not {x.dtype} on {x.device}')
    if backend == "triton":
        if lists:
            raise FtnnError(
                'backend="triton" supports full matrices only; choose another backend for Partial'
            )
        if x.dtype not in (torch.float32, torch.float64):
            raise DTypeError(f'backend="triton" supports float32 and float64, not {x.dtype}')
        if x.device.type == "cpu" and not _triton().interpreted():
            raise FtnnError(
                'backend="triton" runs on a GPU, but the input is on the CPU. Move the layer and its input '
                'to a GPU, use backend="auto", or set TRITON_INTERPRET=1 before importing Triton to '
                "interpret the kernels (slow)"
            )


def cpu_computes(x: Tensor) -> bool:
    """Whether generated CPU code supports this input."""
    return x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64) and cpu_available()


@cache
def cpu_available() -> bool:
    """Whether generated CPU code runs on this machine. Warns once if not."""
    try:
        _cpu()
    except (ImportError, OSError, RuntimeError) as error:
        warnings.warn(f"cannot load ftnn's CPU kernels; using plain torch instead: {error}", stacklevel=2)
        return False
    return True


# Imported on demand: the first loads LLVM, the second Triton, which is an optional dependency.


@cache
def _cpu():
    from ftnn.kernels.cpu import backend

    return backend


@cache
def _triton():
    from ftnn.kernels.triton import launch

    return launch
