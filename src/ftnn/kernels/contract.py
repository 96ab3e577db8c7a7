"""`ftnn::contract`: a contraction as a torch operator, differentiable to any order.

It covers what no faster kernel does: memory functions, second derivatives, and code that torch compiles,
exports or transforms.

- Eager code evaluates it in blocks, so no array over (batch, in, out) outlives a block.
- `torch.compile` sees one operator that takes the contraction as text, so its implementation (SymPy, caches,
  locks) is never traced. AOTAutograd decomposes it and Inductor fuses the parts, so the array over
  (batch, in, out) is never stored.
- `torch.export` sees plain operations instead of a custom operator. An exported graph does hold arrays over
  (batch, in, out), unless its runtime fuses them.
- `torch.func` sees an `autograd.Function` with rules for `vmap`, reverse and forward mode, each of which is
  again a contraction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from ftnn.formula import Function
from ftnn.kernels.contraction import Contraction, contraction, gradients_of, tangents_of
from ftnn.kernels.eager.reference import in_blocks, whole
from ftnn.kernels.operands import sizes_of
from ftnn.kernels.program import program_of, signature
from ftnn.kernels.registration import below, recorded, register


def is_transformed() -> bool:
    """Whether torch is exporting or transforming the running code, which then needs plain operations."""
    return torch.compiler.is_exporting() or torch._C._are_functorch_transforms_active()


def is_traced() -> bool:
    """Whether the running code is being compiled, exported or transformed."""
    return torch.compiler.is_dynamo_compiling() or is_transformed()


def contract(path: str, function: Function, *tensors: Tensor) -> Sequence[Tensor]:
    """The results of `contraction(function, path)`. Each tensor has the axes that its operand states."""
    if is_transformed() and not torch.compiler.is_dynamo_compiling():
        return _plain(_form(*signature(function), path), *tensors)
    return _CONTRACT(list(tensors), *signature(function), path)


# --- the operator ---


def _form(formula: str, constants: str, path: str) -> Contraction:
    return contraction(program_of(formula, constants), path)


def _kernel(tensors: list[Tensor], *text: str) -> list[Tensor]:
    return in_blocks(_form(*text), tensors)


def _decomposition(tensors: list[Tensor], *text: str) -> list[Tensor]:
    return whole(_form(*text), tensors)


def _transformed(tensors: list[Tensor], *text: str) -> list[Tensor]:
    return list(_plain(_form(*text), *tensors))


def _fake(tensors: list[Tensor], *text: str) -> list[Tensor]:
    form = _form(*text)
    sizes = sizes_of(form.operands, tensors)
    return [tensors[0].new_empty([sizes[axis] for axis in axes]) for _, axes in form.results]


class _Recorded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, keys: Any, text: tuple[str, str, str], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.save_for_backward(*tensors)
        ctx.text = text
        return tuple(below(_CONTRACT, keys, list(tensors), *text))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        formula, constants, path = ctx.text
        numbers = [n for n, needed in enumerate(ctx.needs_input_grad[2:]) if needed]
        gradient_path = f"{path}/{','.join(map(str, numbers))}"
        slopes = _CONTRACT([*ctx.saved_tensors, *grads], formula, constants, gradient_path)
        return None, None, *_by_operand(slopes, numbers, len(ctx.saved_tensors))


def _by_operand(slopes: Sequence[Tensor], numbers: Sequence[int], count: int) -> list[Tensor | None]:
    """The gradient of each of `count` operands, None for those not in `numbers`."""
    by_number = dict(zip(numbers, slopes, strict=True))
    return [by_number.get(n) for n in range(count)]


def _autograd(keys: Any, tensors: list[Tensor], *text: str) -> list[Tensor]:
    if recorded(*tensors):
        return list(cast("tuple[Tensor, ...]", _Recorded.apply(keys, text, *tensors)))
    return below(_CONTRACT, keys, tensors, *text)


_CONTRACT = register(
    "contract(Tensor[] tensors, str formula, str constants, str path) -> Tensor[]",
    _kernel,
    _fake,
    _autograd,
    transformed=_transformed,
    decomposition=_decomposition,
)


# --- in plain operations ---


class _Plain(torch.autograd.Function):
    """A contraction for functorch, differentiable to any order in both modes."""

    generate_vmap_rule = True

    @staticmethod
    def forward(form: Contraction, *tensors: Tensor) -> tuple[Tensor, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return tuple(whole(form, tensors))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.form, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        numbers = tuple(n for n, needed in enumerate(ctx.needs_input_grad[1:]) if needed)
        slopes = _plain(gradients_of(ctx.form, numbers), *ctx.saved_tensors, *grads)
        return None, *_by_operand(slopes, numbers, len(ctx.saved_tensors))

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, ...]:
        moving = tuple(n for n, tangent in enumerate(tangents[1:]) if tangent is not None)
        return _plain(tangents_of(ctx.form, moving), *ctx.saved_tensors, *(tangents[1 + n] for n in moving))


def _plain(form: Contraction, *tensors: Tensor) -> tuple[Tensor, ...]:
    """The results of a contraction in plain operations, under any of torch's transforms."""
    if torch.compiler.is_exporting():
        return tuple(whole(form, tensors))  # an exported graph is not trained
    return cast("tuple[Tensor, ...]", _Plain.apply(form, *tensors))
