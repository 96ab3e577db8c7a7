"""Who computes a layer: the backends, and the choice between them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache
from typing import Literal, Protocol

import torch
from torch import Tensor

from ftnn.errors import DTypeError, FtnnError
from ftnn.kernels.eager import gemm, reference
from ftnn.kernels.operands import Lists
from ftnn.kernels.program import Program

Backend = Literal["auto", "reference", "cpu", "triton"]
BACKENDS: tuple[Backend, ...] = ("auto", "reference", "cpu", "triton")
"""What a layer's `backend` may be."""


class Computes(Protocol):
    """What a backend's module has. Tensors are checked before they get here."""

    def computes_as_written(self, program: Program, *, slopes: bool = False) -> bool:
        """Whether products, or those of the slopes, are multiplied in the formula's order: in another one, a
        factor may overflow that should not."""
        ...

    def transfer(
        self, program: Program, x: Tensor, matrices: Sequence[Tensor], lists: Lists | None = None
    ) -> Tensor:
        """F ⊙ x, (batch, out), of x (batch, in) and matrices (in, out), or (connections,) with `lists`."""
        ...

    def transfer_backward(
        self,
        program: Program,
        grad: Tensor,
        x: Tensor,
        matrices: Sequence[Tensor],
        names: tuple[str, ...],
        lists: Lists | None = None,
    ) -> list[Tensor]:
        """The gradients of `Σ grad · (F ⊙ x)` by each of `names`, in the order of x, then the parameters."""
        ...


def choose(
    backend: str, program: Program, x: Tensor, matrices: Sequence[Tensor], lists: Lists | None
) -> Computes:
    """The fastest backend that computes this exactly; or the one named, as far as it reaches."""
    if backend == "triton":
        return _triton()
    if backend == "auto" and lists is None and gemm.suits(program, x, matrices):
        return gemm
    if backend != "reference" and cpu_computes(x):
        cpu = _cpu()
        if cpu.in_range(program, x, matrices):
            return cpu
    return reference


def check_backend(backend: Backend, x: Tensor, *, lists: bool = False) -> None:
    """Refuses an input that the named backend cannot take."""
    if backend == "cpu" and not cpu_computes(x):
        raise FtnnError(f'backend="cpu" computes float32 and float64 on the CPU, not {x.dtype} on {x.device}')
    if backend == "triton":
        if lists:
            raise FtnnError('backend="triton" computes whole matrices; a Partial takes another backend')
        if x.dtype not in (torch.float32, torch.float64):
            raise DTypeError(f'backend="triton" computes float32 and float64, not {x.dtype}')
        if x.device.type == "cpu" and not _triton().interpreted():
            raise FtnnError(
                'backend="triton" computes on a GPU, but the input is on the CPU. Move layer and input to a '
                'GPU, use backend="auto", or set TRITON_INTERPRET=1 before Triton is imported, which '
                "interprets the kernels, slowly"
            )


def cpu_computes(x: Tensor) -> bool:
    """Whether generated CPU code takes this input."""
    return x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64) and cpu_available()


@cache
def cpu_available() -> bool:
    """Whether generated CPU code runs on this machine. Warns once where it does not."""
    try:
        _cpu()
    except (ImportError, OSError, RuntimeError) as error:
        warnings.warn(
            f"ftnn's CPU kernels cannot be loaded; using plain torch instead: {error}", stacklevel=2
        )
        return False
    return True


# Imported only when asked for: one loads LLVM, the other Triton, which is an extra.


@cache
def _cpu():
    from ftnn.kernels.cpu import backend

    return backend


@cache
def _triton():
    from ftnn.kernels.triton import launch

    return launch
