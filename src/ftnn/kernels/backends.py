"""The backends, and which of them computes a layer."""

from __future__ import annotations

from functools import cache
from typing import Literal, Protocol, get_args

import torch
from torch import Tensor

from ftnn.errors import DTypeError, FtnnError
from ftnn.kernels.eager import gemm, reference
from ftnn.kernels.generated import cpu_backend, cpu_computes
from ftnn.kernels.operands import Kept, Lists, Matrices, Names, all_finite
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

    def transfer(
        self, program: Program, x: Tensor, matrices: Matrices, lists: Lists | None, kept: Kept | None
    ) -> Tensor:
        """F ⊙ x, (batch, out), for x (batch, in). May fill `kept` for the backward pass."""
        ...

    def transfer_backward(
        self,
        program: Program,
        grad: Tensor,
        x: Tensor,
        matrices: Matrices,
        names: Names,
        lists: Lists | None,
        kept: Kept | None,
    ) -> list[Tensor]:
        """The gradients of `Σ grad · (F ⊙ x)` by each of `names`: x first, then parameters in order.

        `grad` is (batch, out). Each gradient has the shape of its variable. `kept` is what `transfer` filled,
        if it is known.
        """
        ...


# Matrix products and generated code multiply in another order than the formula. Factors of x alone or of
# matrices alone are checked beforehand (`choose`), those of both only by their result: where that is not
# finite, the reference computes it again.


def compute(
    backend: str,
    program: Program,
    x: Tensor,
    matrices: Matrices,
    lists: Lists | None = None,
    kept: Kept | None = None,
) -> Tensor:
    """F ⊙ x, (batch, out), by the backend that `choose` selects."""
    module = choose(backend, program, x, matrices, lists)
    if kept is not None:
        kept.module = module
    out = module.transfer(program, x, matrices, lists, kept)
    if module.computes_as_written(program) or all_finite([out]):
        return out
    return reference.transfer(program, x, matrices, lists)


def compute_backward(
    backend: str,
    program: Program,
    grad: Tensor,
    x: Tensor,
    matrices: Matrices,
    names: Names,
    lists: Lists | None = None,
    kept: Kept | None = None,
) -> list[Tensor]:
    """The gradients by each of `names`, by the backend of the forward pass, or one that `choose` selects."""
    chosen: Computes | None = None if kept is None else kept.module
    module = choose(backend, program, x, matrices, lists) if chosen is None else chosen
    slopes = module.transfer_backward(program, grad, x, matrices, names, lists, kept)
    if (
        (kept is not None and kept.finite)
        or module.computes_as_written(program, slopes=True)
        or all_finite(slopes)
    ):
        return slopes
    return reference.transfer_backward(program, grad, x, matrices, names, lists)


def choose(backend: str, program: Program, x: Tensor, matrices: Matrices, lists: Lists | None) -> Computes:
    """The fastest backend that is exact for these tensors, or the named one where it applies."""
    if backend == "triton":
        return _triton()
    if backend == "auto" and lists is None and gemm.suits(program, x, matrices):
        return cpu_backend() if _beats_products(program, x, matrices) else gemm
    if backend != "reference" and cpu_computes(x) and cpu_backend().in_range(program, x, matrices):
        return cpu_backend()
    return reference


def _beats_products(program: Program, x: Tensor, matrices: Matrices) -> bool:
    """Whether generated code is faster than matrix products."""
    return program.plan.exact and cpu_computes(x) and cpu_backend().beats_products(program, x, matrices)


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


@cache
def _triton():
    from ftnn.kernels.triton import launch  # an optional dependency

    return launch
