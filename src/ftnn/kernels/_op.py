"""The registered torch operators and their autograd: the only door from torch to the kernels.

`ftnn::transfer` takes the formula as text. Its backward is the operator `ftnn::transfer_backward`, whose own
backward is the reference's contraction, differentiable to any order.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any, Literal, cast

import torch
from torch import Tensor

from ftnn.errors import FtnnError
from ftnn.formula import Function
from ftnn.formula._expr import INPUT
from ftnn.kernels import _gemm, _reference, _traced
from ftnn.kernels._operators import below, recorded, register
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
    if _traced.looked_on() or (torch.compiler.is_dynamo_compiling() and _for_the_compiler(x, backend)):
        return _traced.compute("transfer", formula, constants, (x, *matrices))[0]
    if backend == "reference":
        return _reference.transfer(program(formula, constants), x, matrices)
    if backend == "triton":
        return _triton().transfer(formula, constants, x, matrices)
    if backend == "cpu" and not (cpu_available() and _cpu().suits(x)):
        raise FtnnError(f'backend="cpu" computes float32 and float64 on the CPU, not {x.dtype} on {x.device}')
    return torch.ops.ftnn.transfer.default(x, list(matrices), formula, constants, backend)


def _for_the_compiler(x: Tensor, backend: Backend) -> bool:
    """Whether compiled code had better be made of plain operations, where no kernel of ours waits for it."""
    return backend == "reference" or (backend == "auto" and x.device.type != "cpu")


def memory_step(
    function: Function, x: Tensor, cell: Tensor, matrices: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """One time step of a memory function.

    **Arguments:**

    - `function`: what stands on the connections.
    - `x`: (batch, in).
    - `cell`: every connection's previous value, (batch, in, out).
    - `matrices`: the parameters, then the constants, each (in, out), in the function's order.

    Returns the sums, (batch, out), and the new cell, (batch, in, out).
    """
    formula, constants = signature(function)
    if _traced.traced():
        total, new = _traced.compute("memory", formula, constants, (x, cell, *matrices))
        return total, new
    return _reference.memory_step(program(formula, constants), x, cell, matrices)


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


# --- the operators: what they take, what they compute, and what shapes come out ---


def _transfer(x: Tensor, matrices: list[Tensor], formula: str, constants: str, backend: str) -> Tensor:
    found = program(formula, constants)
    _reference.check_transfer(found, x, matrices)
    if backend != "cpu" and _gemm.suits(found, x, matrices):
        return _gemm.transfer(found, x, matrices)
    return _fused(x).transfer(found, x, matrices)


def _transfer_backward(
    grad: Tensor, x: Tensor, matrices: list[Tensor], formula: str, constants: str, backend: str, wanted: str
) -> list[Tensor]:
    found = program(formula, constants)
    _reference.check_transfer(found, x, matrices, grad)
    names = tuple(wanted.split())
    if backend != "cpu" and _gemm.suits(found, x, matrices):
        return _gemm.transfer_backward(found, grad, x, matrices, names)
    slopes = _fused(x).transfer_backward(found, grad, x, matrices, names)
    # Kernels leave factors for after the sums. Where these are extreme, only the reference is in range.
    if found.plan.exact or all(bool(slope.isfinite().all()) for slope in slopes):
        return list(slopes)
    return list(_reference.transfer_backward(found, grad, x, matrices, names))


def _fake_transfer(x: Tensor, matrices: list[Tensor], formula: str, constants: str, backend: str) -> Tensor:
    return x.new_empty(x.shape[0], matrices[0].shape[1])


def _fake_transfer_backward(
    grad: Tensor, x: Tensor, matrices: list[Tensor], formula: str, constants: str, backend: str, wanted: str
) -> list[Tensor]:
    names = _ordered(program(formula, constants), wanted.split())
    return [torch.empty_like(x) if n == INPUT else torch.empty_like(matrices[0]) for n in names]


def _ordered(found: Program, wanted: Sequence[str]) -> list[str]:
    return [name for name in found.differentiable if name in wanted]


# --- autograd ---


class _Transfer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, keys: Any, signature: tuple[str, str], backend: str, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors)
        ctx.signature, ctx.backend = signature, backend
        x, *matrices = tensors
        return below(torch.ops.ftnn.transfer.default, keys, x, matrices, *signature, backend)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        x, *matrices = ctx.saved_tensors
        found = program(*ctx.signature)
        needed = dict(zip((INPUT, *found.matrices), ctx.needs_input_grad[3:], strict=True))
        wanted = [name for name in found.differentiable if needed[name]]
        slopes = torch.ops.ftnn.transfer_backward.default(
            grads[0], x, matrices, *ctx.signature, ctx.backend, " ".join(wanted)
        )
        by_name = dict(zip(wanted, slopes, strict=True))
        return None, None, None, *(by_name.get(name) for name in needed)


class _TransferBackward(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, keys: Any, signature: tuple[str, str], backend: str, wanted: str, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.save_for_backward(*tensors)
        ctx.signature, ctx.wanted = signature, wanted
        grad, x, *matrices = tensors
        op = torch.ops.ftnn.transfer_backward.default
        return tuple(below(op, keys, grad, x, matrices, *signature, backend, wanted))

    @staticmethod
    def backward(ctx: Any, *weights: Tensor) -> tuple[Any, ...]:
        grad, x, *matrices = ctx.saved_tensors
        contraction = _reference.backward_of_backward(program(*ctx.signature), tuple(ctx.wanted.split()))
        grad_x, *rest = _reference.contract(contraction, x, *matrices, grad, *weights)
        *grad_parameters, grad_grad = rest
        constants = [None] * (len(matrices) - len(grad_parameters))
        return None, None, None, None, grad_grad, grad_x, *grad_parameters, *constants


def _autograd_transfer(
    keys: Any, x: Tensor, matrices: list[Tensor], formula: str, constants: str, backend: str
) -> Tensor:
    if recorded(x, *matrices):
        return cast(Tensor, _Transfer.apply(keys, (formula, constants), backend, x, *matrices))
    return below(torch.ops.ftnn.transfer.default, keys, x, matrices, formula, constants, backend)


def _autograd_transfer_backward(
    keys: Any,
    grad: Tensor,
    x: Tensor,
    matrices: list[Tensor],
    formula: str,
    constants: str,
    backend: str,
    wanted: str,
) -> list[Tensor]:
    if recorded(grad, x, *matrices):
        return list(
            _TransferBackward.apply(keys, (formula, constants), backend, wanted, grad, x, *matrices)  # pyright: ignore[reportArgumentType]
        )
    op = torch.ops.ftnn.transfer_backward.default
    return below(op, keys, grad, x, matrices, formula, constants, backend, wanted)


register(
    "transfer(Tensor x, Tensor[] matrices, str formula, str constants, str backend) -> Tensor",
    _transfer,
    _fake_transfer,
    _autograd_transfer,
)
register(
    "transfer_backward(Tensor grad, Tensor x, Tensor[] matrices, str formula, str constants, str backend, "
    "str wanted) -> Tensor[]",
    _transfer_backward,
    _fake_transfer_backward,
    _autograd_transfer_backward,
)
