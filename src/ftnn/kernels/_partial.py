"""Matrices of which only some connections are there: the registered operators, their autograd and reference.

Connections are lists, those of one output together: `inputs` says where each comes from, and output o has
those from `bounds[o]` to `bounds[o + 1]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor

from ftnn.errors import FtnnError
from ftnn.formula import Function
from ftnn.formula._expr import INPUT
from ftnn.kernels import _reference, _traced
from ftnn.kernels._op import Backend, cpu_available
from ftnn.kernels._operands import check_list, check_shape
from ftnn.kernels._operators import below, recorded, register
from ftnn.kernels._program import Program, program, signature
from ftnn.kernels._reference import list_form

CHUNK = 2**22
"""Values of the reference, over samples and connections, that are held at once."""


def partial_transfer(
    function: Function,
    x: Tensor,
    matrices: Sequence[Tensor],
    inputs: Tensor,
    bounds: Tensor,
    backend: Backend = "auto",
) -> Tensor:
    """F ⊙ x, where only some connections are there.

    **Arguments:**

    - `function`: what stands on the connections.
    - `x`: (batch, in).
    - `matrices`: the parameters, then the constants, each (connections,), in the function's order.
    - `inputs`: the input of each connection, (connections,) int32.
    - `bounds`: where each output's connections begin and the last one's end, (out + 1,) int64.
    - `backend`: as for `transfer`.

    Returns (batch, out).
    """
    if backend == "cpu" and not _compiled(x):
        raise FtnnError(f'backend="cpu" computes float32 and float64 on the CPU, not {x.dtype} on {x.device}')
    return torch.ops.ftnn.partial_transfer(x, list(matrices), inputs, bounds, *signature(function), backend)


def partial_transfer_plain(
    function: Function, x: Tensor, matrices: Sequence[Tensor], inputs: Tensor, outputs: Tensor, count: int
) -> Tensor:
    """The same for compiled, exported or transformed code; every connection's value is held at once.

    `outputs` is the output of each connection, (connections,), and `count` the number of outputs.
    """
    given = (x.index_select(1, inputs), *(matrix[:, None] for matrix in matrices))
    values = _traced.compute("list", *signature(function), given)[0]
    return x.new_zeros(x.shape[0], count).index_add(1, outputs, values)


def _compiled(x: Tensor) -> bool:
    return x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64) and cpu_available()


def _runs(found: Program, x: Tensor, matrices: Sequence[Tensor]) -> bool:
    """Whether generated code computes this rightly."""
    return _compiled(x) and _cpu().in_range(found, x, matrices)


@cache
def _cpu() -> Any:
    # Only now: it loads LLVM.
    from ftnn.kernels import _partial_cpu as module

    return module


# --- the operators ---


def _transfer(
    x: Tensor,
    matrices: list[Tensor],
    inputs: Tensor,
    bounds: Tensor,
    formula: str,
    constants: str,
    backend: str,
) -> Tensor:
    found = program(formula, constants)
    check_list(found.matrices, x, matrices, inputs, bounds)
    path = _cpu().transfer if backend != "reference" and _runs(found, x, matrices) else reference
    return path(found, x, matrices, inputs, bounds)


def _fake_transfer(x: Tensor, matrices: list[Tensor], inputs: Tensor, bounds: Tensor, *_: str) -> Tensor:
    return x.new_empty(x.shape[0], bounds.shape[0] - 1)


def _transfer_backward(
    grad: Tensor,
    x: Tensor,
    matrices: list[Tensor],
    inputs: Tensor,
    bounds: Tensor,
    formula: str,
    constants: str,
    backend: str,
    wanted: str,
) -> list[Tensor]:
    found = program(formula, constants)
    check_list(found.matrices, x, matrices, inputs, bounds)
    check_shape("the gradient", grad, x, (x.shape[0], len(bounds) - 1))
    compiled = backend != "reference" and _runs(found, x, matrices)
    path = _cpu().transfer_backward if compiled else reference_backward
    return path(found, grad, x, matrices, inputs, bounds, tuple(wanted.split()))


def _fake_transfer_backward(grad: Tensor, x: Tensor, matrices: list[Tensor], *rest: Any) -> list[Tensor]:
    *_, wanted = rest
    return [torch.empty_like(x if name == INPUT else matrices[0]) for name in wanted.split()]


class _Transfer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        keys: Any,
        signature: tuple[str, str],
        backend: str,
        inputs: Tensor,
        bounds: Tensor,
        *tensors: Tensor,
    ) -> Tensor:
        ctx.save_for_backward(inputs, bounds, *tensors)
        ctx.signature, ctx.backend = signature, backend
        x, *matrices = tensors
        op = torch.ops.ftnn.partial_transfer.default
        return below(op, keys, x, matrices, inputs, bounds, *signature, backend)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        inputs, bounds, x, *matrices = ctx.saved_tensors
        found = program(*ctx.signature)
        needed = dict(zip((INPUT, *found.matrices), ctx.needs_input_grad[5:], strict=True))
        wanted = tuple(name for name in found.differentiable if needed[name])
        if torch.is_grad_enabled():  # somebody wants derivatives of this one: the reference has them all
            slopes = reference_backward(found, grads[0], x, matrices, inputs, bounds, wanted)
        else:
            slopes = torch.ops.ftnn.partial_transfer_backward.default(
                grads[0], x, matrices, inputs, bounds, *ctx.signature, ctx.backend, " ".join(wanted)
            )
        by_name = dict(zip(wanted, slopes, strict=True))
        return None, None, None, None, None, *(by_name.get(name) for name in needed)


def _autograd_transfer(
    keys: Any,
    x: Tensor,
    matrices: list[Tensor],
    inputs: Tensor,
    bounds: Tensor,
    formula: str,
    constants: str,
    backend: str,
) -> Tensor:
    if recorded(x, *matrices):
        given = (keys, (formula, constants), backend, inputs, bounds, x, *matrices)
        return cast(Tensor, _Transfer.apply(*given))
    op = torch.ops.ftnn.partial_transfer.default
    return below(op, keys, x, matrices, inputs, bounds, formula, constants, backend)


register(
    "partial_transfer(Tensor x, Tensor[] matrices, Tensor inputs, Tensor bounds, str formula, str constants, "
    "str backend) -> Tensor",
    _transfer,
    _fake_transfer,
    _autograd_transfer,
)
register(
    "partial_transfer_backward(Tensor grad, Tensor x, Tensor[] matrices, Tensor inputs, Tensor bounds, "
    "str formula, str constants, str backend, str wanted) -> Tensor[]",
    _transfer_backward,
    _fake_transfer_backward,
)


# --- the reference: every connection's value, in plain torch ---


def outputs_of(bounds: Tensor) -> Tensor:
    """The output of each connection, (connections,) int64."""
    numbers = torch.arange(len(bounds) - 1, device=bounds.device)
    return numbers.repeat_interleave(bounds.diff())


def _chunks(batch: int, connections: int) -> Iterator[slice]:
    step = max(1, CHUNK // max(batch, 1))
    return (slice(first, min(first + step, connections)) for first in range(0, connections, step))


def reference(
    found: Program, x: Tensor, matrices: Sequence[Tensor], inputs: Tensor, bounds: Tensor
) -> Tensor:
    """F ⊙ x, (batch, out): slow and obviously right."""
    out, outputs = x.new_zeros(x.shape[0], len(bounds) - 1), outputs_of(bounds)
    for part in _chunks(x.shape[0], len(inputs)):
        values = _reference.contract(
            list_form(found), x[:, inputs[part]], *(m[part, None] for m in matrices)
        )[0]
        out = out.index_add(1, outputs[part], values)
    return out


def reference_backward(
    found: Program,
    grad: Tensor,
    x: Tensor,
    matrices: Sequence[Tensor],
    inputs: Tensor,
    bounds: Tensor,
    wanted: tuple[str, ...],
) -> list[Tensor]:
    """The gradients by each of `wanted`, in the order of x, then `program.parameters`; differentiable."""
    names = [name for name in found.differentiable if name in wanted]
    numbers = tuple(n for n, (name, _) in enumerate(list_form(found).operands) if name in wanted)
    contraction = _reference.backward_form(list_form(found), numbers)
    outputs, down = outputs_of(bounds), torch.zeros_like(x)
    lists: dict[str, list[Tensor]] = {name: [] for name in names if name != INPUT}
    for part in _chunks(x.shape[0], len(inputs)):
        given = (x[:, inputs[part]], *(m[part, None] for m in matrices), grad[:, outputs[part]])
        for name, gradient in zip(names, _reference.contract(contraction, *given), strict=True):
            if name == INPUT:
                down = down.index_add(1, inputs[part].long(), gradient)
            else:
                lists[name].append(gradient[:, 0])
    empty = matrices[0].new_zeros(0)
    return [down if name == INPUT else torch.cat(lists[name] or [empty]) for name in names]
