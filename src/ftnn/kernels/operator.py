"""`ftnn::transfer`: the transfer computation as a torch operator, with its autograd. Layers call it here.

The operator takes the formula as text, and lists of connections if the matrix is partial. Its backward is the
operator `ftnn::transfer_backward`. Second derivatives are contractions, differentiable to any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from ftnn.formula import Function
from ftnn.formula._expr import INPUT
from ftnn.kernels.backends import Backend, check_backend, compute, compute_backward
from ftnn.kernels.contract import contract, is_transformed
from ftnn.kernels.contraction import gradient_path
from ftnn.kernels.direct import direct_transfer, fits, is_plain
from ftnn.kernels.operands import Lists, Matrices, check_transfer
from ftnn.kernels.program import Program, program_of, signature
from ftnn.kernels.registration import below, recorded, register


def transfer(
    function: Function,
    x: Tensor,
    matrices: Matrices,
    backend: Backend = "auto",
    lists: Lists | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """F ⊙ x, (batch, out), plus a bias, (out,), if there is one.

    **Arguments:**

    - `function`: the function of every connection.
    - `x`: (batch, in).
    - `matrices`: the parameters, then the constants, in the function's order: each (in, out), or
        (connections,) with `lists`.
    - `backend`: `"auto"` for the fastest, or a backend's name.
    - `lists`: the connections that exist, if not all do. Traced code calls `traced_transfer` instead.
    """
    if is_transformed() or (torch.compiler.is_dynamo_compiling() and _is_fused(x, backend)):
        out = contract("transfer", function, x, *matrices)[0]
        return out if bias is None else out + bias
    check_backend(backend, x, lists=lists is not None)
    text = signature(function)
    if not torch.compiler.is_dynamo_compiling() and lists is None and backend in ("auto", "cpu"):
        program, biases = program_of(*text), () if bias is None else (bias,)
        if is_plain(x, *matrices, *biases) and fits(program, x, matrices, bias):
            return direct_transfer(program, x, matrices, backend, bias)
    places = [] if lists is None else [lists.inputs, lists.bounds]
    out = _TRANSFER(x, list(matrices), places, *text, backend)
    return out if bias is None else out + bias


def _is_fused(x: Tensor, backend: Backend) -> bool:
    """Whether torch's compiler should get plain operations to fuse: where no generated kernel is faster."""
    return backend == "reference" or (backend == "auto" and x.device.type != "cpu")


# --- the operators ---


def _lists(places: Sequence[Tensor]) -> Lists | None:
    return Lists(*places) if places else None


def _transfer(
    x: Tensor, matrices: list[Tensor], places: list[Tensor], formula: str, constants: str, backend: str
) -> Tensor:
    program, lists = program_of(formula, constants), _lists(places)
    check_transfer(program.matrices, x, matrices, lists)
    return compute(backend, program, x, matrices, lists)


def _transfer_backward(
    grad: Tensor,
    x: Tensor,
    matrices: list[Tensor],
    places: list[Tensor],
    formula: str,
    constants: str,
    backend: str,
    by: str,
) -> list[Tensor]:
    program, lists, names = program_of(formula, constants), _lists(places), tuple(by.split())
    check_transfer(program.matrices, x, matrices, lists, grad)
    return compute_backward(backend, program, grad, x, matrices, names, lists)


def _fake_transfer(x: Tensor, matrices: list[Tensor], places: list[Tensor], *_: str) -> Tensor:
    return x.new_empty(x.shape[0], places[1].shape[0] - 1 if places else matrices[0].shape[1])


def _fake_transfer_backward(
    grad: Tensor, x: Tensor, matrices: list[Tensor], places: list[Tensor], *text: str
) -> list[Tensor]:
    formula, constants, _, by = text
    names = [name for name in program_of(formula, constants).differentiable if name in by.split()]
    return [torch.empty_like(x if name == INPUT else matrices[0]) for name in names]


# --- autograd ---


class _Transfer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, keys: Any, places: list[Tensor], text: tuple[str, str, str], *tensors: Tensor
    ) -> Tensor:
        ctx.save_for_backward(*places, *tensors)
        ctx.places, ctx.text = len(places), text
        x, *matrices = tensors
        return below(_TRANSFER, keys, x, matrices, places, *text)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        places, (x, *matrices) = ctx.saved_tensors[: ctx.places], ctx.saved_tensors[ctx.places :]
        formula, constants, backend = ctx.text
        program = program_of(formula, constants)
        needed = dict(zip((INPUT, *program.matrices), ctx.needs_input_grad[3:], strict=True))
        names = [name for name in program.differentiable if needed[name]]
        if places and torch.is_grad_enabled():  # this gradient will be differentiated too
            slopes = _listed_backward(program, grads[0], x, matrices, Lists(*places), names)
        else:
            slopes = _TRANSFER_BACKWARD(
                grads[0], x, matrices, list(places), formula, constants, backend, " ".join(names)
            )
        by_name = dict(zip(names, slopes, strict=True))
        return None, None, None, *(by_name.get(name) for name in needed)


class _TransferBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, keys: Any, text: tuple[str, str, str, str], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.save_for_backward(*tensors)
        ctx.text = text
        grad, x, *matrices = tensors
        return tuple(below(_TRANSFER_BACKWARD, keys, grad, x, matrices, [], *text))

    @staticmethod
    def backward(ctx: Any, *weights: Tensor) -> tuple[Any, ...]:
        grad, x, *matrices = ctx.saved_tensors
        formula, constants, _, by = ctx.text
        program = program_of(formula, constants)
        path = gradient_path(program, "transfer", by.split())
        # Differentiate by x, the parameters and grad.
        operands = (0, *range(1, 1 + len(program.parameters)), 1 + len(matrices))
        path = f"{path}/{','.join(map(str, operands))}"
        grad_x, *rest = contract(path, program.function, x, *matrices, grad, *weights)
        *grad_parameters, grad_grad = rest
        no_constants = [None] * (len(matrices) - len(grad_parameters))
        return None, None, grad_grad, grad_x, *grad_parameters, *no_constants


def _autograd_transfer(
    keys: Any, x: Tensor, matrices: list[Tensor], places: list[Tensor], *text: str
) -> Tensor:
    if recorded(x, *matrices):
        return cast(Tensor, _Transfer.apply(keys, places, text, x, *matrices))
    return below(_TRANSFER, keys, x, matrices, places, *text)


def _autograd_transfer_backward(
    keys: Any, grad: Tensor, x: Tensor, matrices: list[Tensor], places: list[Tensor], *text: str
) -> list[Tensor]:
    if recorded(grad, x, *matrices) and not places:
        return list(_TransferBackward.apply(keys, text, grad, x, *matrices))  # pyright: ignore[reportArgumentType]
    return below(_TRANSFER_BACKWARD, keys, grad, x, matrices, places, *text)


_ARGUMENTS = "Tensor x, Tensor[] matrices, Tensor[] places, str formula, str constants, str backend"
_TRANSFER = register(f"transfer({_ARGUMENTS}) -> Tensor", _transfer, _fake_transfer, _autograd_transfer)
_TRANSFER_BACKWARD = register(
    f"transfer_backward(Tensor grad, {_ARGUMENTS}, str by) -> Tensor[]",
    _transfer_backward,
    _fake_transfer_backward,
    _autograd_transfer_backward,
)


# --- lists of connections, in operations torch can differentiate and trace ---


def traced_transfer(
    function: Function, x: Tensor, matrices: Matrices, inputs: Tensor, outputs: Tensor, count: int
) -> Tensor:
    """F ⊙ x over a list of connections, for compiled, exported or transformed code.

    Each matrix, `inputs` and `outputs` are (connections,); `count` is the number of outputs. The values of
    all connections are in memory at once.
    """
    columns = (x.index_select(1, inputs), *(matrix[:, None] for matrix in matrices))
    (values,) = contract("list", function, *columns)
    return x.new_zeros(x.shape[0], count).index_add(1, outputs, values)


def _listed_backward(
    program: Program, grad: Tensor, x: Tensor, matrices: Matrices, lists: Lists, names: Sequence[str]
) -> list[Tensor]:
    """The gradients by each of `names`: x first, then parameters in order."""
    columns = [x[:, lists.inputs], *(matrix[:, None] for matrix in matrices), grad[:, lists.outputs]]
    slopes = list(contract(gradient_path(program, "list", names), program.function, *columns))
    down = [torch.zeros_like(x).index_add(1, lists.inputs.long(), slopes.pop(0))] if INPUT in names else []
    return [*down, *(slope[:, 0] for slope in slopes)]
