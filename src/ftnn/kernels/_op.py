"""The registered torch operators and their autograd: the only door from torch to the kernels.

`ftnn::transfer` takes the formula as text. Its backward is the operator `ftnn::transfer_backward`, whose own
backward is the reference's contraction, differentiable to any order.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor

from ftnn.errors import FtnnError
from ftnn.formula import Function
from ftnn.formula._expr import INPUT
from ftnn.kernels import _gemm, _reference
from ftnn.kernels._program import Program, program, signature

Backend = Literal["auto", "reference", "cpu", "triton"]
BACKENDS: tuple[Backend, ...] = ("auto", "reference", "cpu", "triton")


def transfer(function: Function, x: Tensor, matrices: Sequence[Tensor], backend: Backend = "auto") -> Tensor:
    """F ⊙ x, by the fastest right path.

    **Arguments:**

    - `function`: what stands on the connections.
    - `x`: (batch, in).
    - `matrices`: the parameters, then the constants, each (in, out), in the function's order.
    - `backend`: `"auto"`, or a path by name.

    Returns (batch, out).
    """
    formula, constants = signature(function)
    if backend == "reference":
        return _reference.transfer(program(formula, constants), x, matrices)
    if backend == "triton":
        return _triton().transfer(formula, constants, x, matrices)
    if backend == "cpu" and not (cpu_available() and _cpu().suits(x)):
        raise FtnnError(f'backend="cpu" computes float32 and float64 on the CPU, not {x.dtype} on {x.device}')
    return torch.ops.ftnn.transfer(x, list(matrices), formula, constants, backend)


@cache
def cpu_available() -> bool:
    """Whether generated kernels run here. Says so once where they do not."""
    try:
        _cpu()
    except (ImportError, OSError, RuntimeError) as error:
        warnings.warn(
            f"ftnn's CPU kernels cannot be loaded, plain torch serves instead: {error}", stacklevel=2
        )
        return False
    return True


@cache
def _cpu() -> Any:
    # Only now: it loads LLVM.
    from ftnn.kernels import _cpu as module

    return module


@cache
def _triton() -> Any:
    # Only now: it loads Triton, which is an extra.
    from ftnn.kernels import _triton as module

    return module


def _fused(x: Tensor) -> Any:
    """What evaluates each connection's function: generated code, or the reference."""
    return _cpu() if cpu_available() and _cpu().suits(x) else _reference


@torch.library.custom_op("ftnn::transfer", mutates_args=())
def _transfer_op(x: Tensor, matrices: list[Tensor], formula: str, constants: str, backend: str) -> Tensor:
    found = program(formula, constants)
    with torch.no_grad():
        if backend != "cpu" and _gemm.suits(found, x, matrices):
            out = _gemm.transfer(found, x, matrices)
            if found.plan.exact or bool(torch.isfinite(out).all()):
                return out
            return _reference.transfer(found, x, matrices)  # in the order in which the formula is written
        return _fused(x).transfer(found, x, matrices)


@_transfer_op.register_fake
def _(x: Tensor, matrices: list[Tensor], formula: str, constants: str, backend: str) -> Tensor:
    return x.new_empty(x.shape[0], matrices[0].shape[1])


@torch.library.custom_op("ftnn::transfer_backward", mutates_args=())
def _transfer_backward_op(
    grad: Tensor, x: Tensor, matrices: list[Tensor], formula: str, constants: str, backend: str, wanted: str
) -> list[Tensor]:
    found = program(formula, constants)
    names = tuple(wanted.split())
    with torch.no_grad():
        if backend != "cpu" and _gemm.suits(found, x, matrices):
            grads = _gemm.transfer_backward(found, grad, x, matrices, names)
            if found.plan.exact or all(bool(torch.isfinite(g).all()) for g in grads):
                return grads
            return list(_reference.transfer_backward(found, grad, x, matrices, names))
        return list(_fused(x).transfer_backward(found, grad, x, matrices, names))


@_transfer_backward_op.register_fake
def _(
    grad: Tensor, x: Tensor, matrices: list[Tensor], formula: str, constants: str, backend: str, wanted: str
) -> list[Tensor]:
    found, names = program(formula, constants), wanted.split()
    return [
        torch.empty_like(x) if n == INPUT else torch.empty_like(matrices[0]) for n in _ordered(found, names)
    ]


def _ordered(found: Program, wanted: Sequence[str]) -> list[str]:
    return [name for name in found.differentiable if name in wanted]


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, matrices, formula, constants, backend = inputs
    ctx.save_for_backward(x, *matrices)
    ctx.signature, ctx.backend = (formula, constants), backend


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, *matrices = ctx.saved_tensors
    found = program(*ctx.signature)
    needs_x, needs_matrices, *_ = ctx.needs_input_grad
    needed = {INPUT: needs_x, **dict(zip(found.matrices, needs_matrices, strict=True))}
    wanted = [name for name in found.differentiable if needed[name]]
    grads = torch.ops.ftnn.transfer_backward(grad, x, matrices, *ctx.signature, ctx.backend, " ".join(wanted))
    by_name = dict(zip(wanted, grads, strict=True))
    return by_name.get(INPUT), [by_name.get(name) for name in found.matrices], None, None, None


torch.library.register_autograd("ftnn::transfer", _backward, setup_context=_save)


def _save_backward(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    grad, x, matrices, formula, constants, _, wanted = inputs
    ctx.save_for_backward(grad, x, *matrices)
    ctx.signature = formula, constants
    ctx.wanted = wanted


def _backward_backward(ctx: Any, weights: list[Tensor]) -> tuple[Any, ...]:
    grad, x, *matrices = ctx.saved_tensors
    found = program(*ctx.signature)
    contraction = _reference.backward_of_backward(found, tuple(ctx.wanted.split()))
    grad_x, *rest = _reference.contract(contraction, x, *matrices, grad, *weights)
    *grad_parameters, grad_grad = rest
    constants = [None] * (len(matrices) - len(grad_parameters))
    return grad_grad, grad_x, [*grad_parameters, *constants], None, None, None, None


torch.library.register_autograd("ftnn::transfer_backward", _backward_backward, setup_context=_save_backward)
