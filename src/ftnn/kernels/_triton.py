"""Triton kernels behind torch operators of their own: `backend="triton"`, asked for by name only.

`ftnn::triton_transfer` and its backward launch what `_triton_source` writes; second derivatives go through
the reference. On a GPU, Triton compiles the kernels; with `TRITON_INTERPRET=1` in the environment it
interprets them, on the CPU and slowly, which is how they are tested.
"""

from __future__ import annotations

import hashlib
import linecache
from collections.abc import Sequence
from contextlib import nullcontext
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ftnn.errors import DTypeError, FtnnError
from ftnn.formula._expr import INPUT
from ftnn.kernels import _reference
from ftnn.kernels import _triton_source as source
from ftnn.kernels._program import Program, program
from ftnn.kernels._triton_source import DType

try:
    import triton
    import triton.language as tl
except ImportError as error:
    raise FtnnError(
        f'backend="triton" needs Triton, which cannot be loaded ({error}): pip install "ftnn[triton]"'
    ) from error

BLOCK = {"BATCH": 32, "INS": 32, "OUTS": 64}
"""How many samples, inputs and outputs a program takes at once. No GPU has been measured with it."""

OPTIONS = {"enable_fp_fusion": True}
"""What Triton is told to do: its default has changed between versions, and no kernel minds fused products."""

_DTYPES: dict[torch.dtype, DType] = {torch.float32: "float32", torch.float64: "float64"}


def transfer(formula: str, constants: str, x: Tensor, matrices: Sequence[Tensor]) -> Tensor:
    """F ⊙ x.

    **Arguments:**

    - `formula`, `constants`: what `program` finds the function by.
    - `x`: (batch, in). `matrices`: each (in, out).

    Returns (batch, out).
    """
    if x.dtype not in _DTYPES:
        raise DTypeError(f'backend="triton" computes float32 and float64, not {x.dtype}')
    if x.device.type == "cpu" and not interpreted():
        raise FtnnError(
            'backend="triton" computes on a GPU, but the input is on the CPU. Move layer and input to a GPU, '
            'take backend="auto", or set TRITON_INTERPRET=1 before Triton is imported: it then interprets '
            "the kernels, slowly"
        )
    return torch.ops.ftnn.triton_transfer(x, list(matrices), formula, constants)


def interpreted() -> bool:
    """Whether kernels run in Triton's interpreter. It is decided when Triton is imported, for good."""
    return not isinstance(tl.zeros, triton.JITFunction)  # pyright: ignore[reportUnnecessaryIsInstance]


# --- text → kernel ---


def load(text: str) -> Any:
    """The function `kernel` of a source text, which Triton can look up line by line."""
    name = f"<ftnn triton {hashlib.sha256(text.encode()).hexdigest()[:16]}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    module = ModuleType(name)
    module.__file__ = name
    exec(compile(text, name, "exec"), module.__dict__)
    return module.__dict__["kernel"]


@lru_cache(maxsize=512)
def _forward_kernel(found: Program, dtype: DType) -> Any:
    return load(source.forward(found, dtype))


@lru_cache(maxsize=512)
def _input_kernel(found: Program, dtype: DType) -> Any:
    return load(source.by_input(found, dtype))


@lru_cache(maxsize=512)
def _matrices_kernel(found: Program, wanted: tuple[str, ...], dtype: DType) -> Any:
    return load(source.by_matrices(found, wanted, dtype))


def _launch(kernel: Any, programs: int, x: Tensor, *arguments: Any, **blocks: int) -> None:
    """Run it on the device of `x`. The interpreter's NumPy would warn of poles and overflows."""
    device = torch.cuda.device(x.device) if x.is_cuda else nullcontext()
    with device, np.errstate(all="ignore"):
        kernel[(programs,)](*arguments, **blocks, **OPTIONS)


def _blocks(size: int, kind: str) -> int:
    return -(-size // BLOCK[kind])


# --- what is computed ---


def _forward(found: Program, x: Tensor, matrices: Sequence[Tensor]) -> Tensor:
    (batch, ins), outs = x.shape, matrices[0].shape[1]
    out = x.new_zeros(batch, outs)
    if out.numel() and ins:
        programs = _blocks(batch, "BATCH") * _blocks(outs, "OUTS")
        given = [x.T.contiguous(), *(m.contiguous() for m in matrices), out, batch, ins, outs]
        kernel = _forward_kernel(found, _DTYPES[x.dtype])
        _launch(kernel, programs, x, *given, BATCH=BLOCK["BATCH"], OUTS=BLOCK["OUTS"])
    return out


def _gradients(
    found: Program, grad: Tensor, x: Tensor, matrices: Sequence[Tensor], wanted: Sequence[str]
) -> list[Tensor]:
    """The gradients of `Σ grad · (F ⊙ x)` by each of `wanted`, in that order."""
    (batch, ins), outs = x.shape, matrices[0].shape[1]
    results = {n: x.new_zeros((batch, ins) if n == INPUT else (ins, outs)) for n in wanted}
    dtype, sizes = _DTYPES[x.dtype], (batch, ins, outs)
    if 0 in sizes:
        return list(results.values())
    given = [grad.contiguous(), x.contiguous(), *(m.contiguous() for m in matrices)]
    if INPUT in results:
        programs, blocks = ins * _blocks(batch, "BATCH"), {n: BLOCK[n] for n in ("BATCH", "OUTS")}
        kernel = _input_kernel(found, dtype)
        _launch(kernel, programs, x, *given, results[INPUT], *sizes, **blocks)
    if parameters := tuple(name for name in wanted if name != INPUT):
        programs = _blocks(ins, "INS") * _blocks(outs, "OUTS")
        blocks = {n: BLOCK[n] for n in ("INS", "OUTS")}
        kernel = _matrices_kernel(found, parameters, dtype)
        _launch(kernel, programs, x, *given, *(results[n] for n in parameters), *sizes, **blocks)
    return list(results.values())


# --- the operators ---


@torch.library.custom_op("ftnn::triton_transfer", mutates_args=())
def _transfer_op(x: Tensor, matrices: list[Tensor], formula: str, constants: str) -> Tensor:
    found = program(formula, constants)
    _reference.check_transfer(found, x, matrices)
    return _forward(found, x, matrices)


@_transfer_op.register_fake
def _(x: Tensor, matrices: list[Tensor], formula: str, constants: str) -> Tensor:
    return x.new_empty(x.shape[0], matrices[0].shape[1])


@torch.library.custom_op("ftnn::triton_transfer_backward", mutates_args=())
def _backward_op(
    grad: Tensor, x: Tensor, matrices: list[Tensor], formula: str, constants: str, wanted: str
) -> list[Tensor]:
    found = program(formula, constants)
    _reference.check_transfer(found, x, matrices, grad)
    return _gradients(found, grad, x, matrices, wanted.split())


@_backward_op.register_fake
def _(
    grad: Tensor, x: Tensor, matrices: list[Tensor], formula: str, constants: str, wanted: str
) -> list[Tensor]:
    return [torch.empty_like(x if name == INPUT else matrices[0]) for name in wanted.split()]


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, matrices, *signature = inputs
    ctx.save_for_backward(x, *matrices)
    ctx.signature = signature


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, *matrices = ctx.saved_tensors
    found = program(*ctx.signature)
    needs_x, needs_matrices, *_ = ctx.needs_input_grad
    needed = {INPUT: needs_x, **dict(zip(found.matrices, needs_matrices, strict=True))}
    wanted = [name for name in found.differentiable if needed[name]]
    grads = torch.ops.ftnn.triton_transfer_backward(grad, x, matrices, *ctx.signature, " ".join(wanted))
    by_name = dict(zip(wanted, grads, strict=True))
    return by_name.get(INPUT), [by_name.get(name) for name in found.matrices], None, None


def _save_backward(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    grad, x, matrices, *ctx.signature, ctx.wanted = inputs
    ctx.save_for_backward(grad, x, *matrices)


def _backward_backward(ctx: Any, weights: list[Tensor]) -> tuple[Any, ...]:
    """By the reference's contraction, which is differentiable to any order."""
    grad, x, *matrices = ctx.saved_tensors
    contraction = _reference.backward_of_backward(program(*ctx.signature), tuple(ctx.wanted.split()))
    grad_x, *rest = _reference.contract(contraction, x, *matrices, grad, *weights)
    *grad_parameters, grad_grad = rest
    constants = [None] * (len(matrices) - len(grad_parameters))
    return grad_grad, grad_x, [*grad_parameters, *constants], None, None, None


torch.library.register_autograd("ftnn::triton_transfer", _backward, setup_context=_save)
torch.library.register_autograd(
    "ftnn::triton_transfer_backward", _backward_backward, setup_context=_save_backward
)
