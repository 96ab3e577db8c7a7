"""`ftnn::memory`: a memory function over a whole sequence as a torch operator, with its autograd.

On the CPU, a call computes the whole sequence in generated code, and another one its gradients. Elsewhere, in
traced code and for second derivatives, each step is a contraction (`memory_step`).
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from ftnn.formula import Function
from ftnn.formula._expr import INPUT, MEMORY
from ftnn.kernels.backends import Backend
from ftnn.kernels.contract import contract, is_traced
from ftnn.kernels.generated import cpu_computes
from ftnn.kernels.operands import Matrices, all_finite, sizes_of
from ftnn.kernels.program import Program, program_of, signature
from ftnn.kernels.registration import below, recorded, register

States = tuple[Tensor, Tensor]
"""The sums of all steps, (time, batch, out), and the last cells, (batch, in, out)."""


def memory(
    function: Function, x: Tensor, cell: Tensor, matrices: Matrices, *, through_time: bool, backend: Backend
) -> States:
    """A memory function over a sequence.

    **Arguments:**

    - `function`: the function of every connection.
    - `x`: (time, batch, in).
    - `cell`: every connection's previous value, (batch, in, out).
    - `matrices`: the parameters, then the constants, in the function's order: each (in, out).
    - `through_time`: whether gradients reach earlier steps.
    - `backend`: `"auto"` or `"reference"`.
    """
    if backend == "reference" or is_traced() or not x.numel() or not cell.numel() or not cpu_computes(x):
        return _unrolled(function, x, cell, matrices, through_time)
    out, new_cell = _MEMORY(x, cell, list(matrices), *signature(function), through_time)
    return out, new_cell


def memory_step(function: Function, x: Tensor, cell: Tensor, matrices: Matrices) -> tuple[Tensor, Tensor]:
    """One time step of a memory function: the sums, (batch, out), and the new cell, (batch, in, out).

    `x` is (batch, in), and `cell` holds every connection's previous value, (batch, in, out).
    """
    total, new_cell = contract("memory", function, x, cell, *matrices)
    return total, new_cell


def _unrolled(function: Function, x: Tensor, cell: Tensor, matrices: Matrices, through_time: bool) -> States:
    """The reference: step by step."""
    outs: list[Tensor] = []
    for now in x:
        total, cell = memory_step(function, now, cell if through_time else cell.detach(), matrices)
        outs.append(total)
    return torch.stack(outs) if outs else x.new_zeros(0, x.shape[1], matrices[0].shape[1]), cell


# --- the operators ---


def _check(program: Program, x: Tensor, cell: Tensor, matrices: Matrices) -> None:
    """Raise if these tensors do not fit each other."""
    operands = ((INPUT, "bi"), (MEMORY, "bio"), *((name, "io") for name in program.matrices))
    for now in x[:1]:
        sizes_of(operands, (now, cell, *matrices))


def _memory(
    x: Tensor, cell: Tensor, matrices: list[Tensor], formula: str, constants: str, through_time: bool
) -> list[Tensor]:
    from ftnn.kernels.cpu import backend
    from ftnn.kernels.cpu import through_time as cpu

    program = program_of(formula, constants)
    _check(program, x, cell, matrices)
    if backend.in_range(program, x.flatten(0, 1), matrices):
        results = cpu.forward(program, x, cell, matrices)
        if backend.computes_as_written(program) or all_finite(results):
            return list(results)
    return list(_unrolled(program.function, x, cell, matrices, through_time))


def _memory_backward(
    grad: Tensor,
    grad_cell: Tensor,
    x: Tensor,
    cell: Tensor,
    matrices: list[Tensor],
    formula: str,
    constants: str,
    through_time: bool,
    by_x: bool,
) -> list[Tensor]:
    from ftnn.kernels.cpu import through_time as cpu

    program = program_of(formula, constants)
    _check(program, x, cell, matrices)
    down, before, slopes = cpu.backward(
        program, grad, grad_cell, x, cell, matrices, by_x=by_x, through_time=through_time
    )
    return [x.new_empty(0) if down is None else down, before, *slopes]


def _fake_memory(x: Tensor, cell: Tensor, matrices: list[Tensor], *_: Any) -> list[Tensor]:
    return [x.new_empty(*x.shape[:2], matrices[0].shape[1]), torch.empty_like(cell)]


def _fake_memory_backward(
    grad: Tensor, grad_cell: Tensor, x: Tensor, cell: Tensor, matrices: list[Tensor], *rest: Any
) -> list[Tensor]:
    formula, constants, _, by_x = rest
    count = len(program_of(formula, constants).parameters)
    down = torch.empty_like(x) if by_x else x.new_empty(0)
    return [down, torch.empty_like(cell), *(torch.empty_like(m) for m in matrices[:count])]


class _Memory(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, keys: Any, text: tuple[str, str, bool], x: Tensor, cell: Tensor, *matrices: Tensor
    ) -> States:
        ctx.save_for_backward(x, cell, *matrices)
        ctx.text = text
        out, new_cell = below(_MEMORY, keys, x, cell, list(matrices), *text)
        return out, new_cell

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        x, cell, *matrices = ctx.saved_tensors
        formula, constants, through_time = ctx.text
        program = program_of(formula, constants)
        needed = dict(zip((INPUT, MEMORY, *program.matrices), ctx.needs_input_grad[2:], strict=True))
        slopes: dict[str, Tensor | None] | None = None
        if not torch.is_grad_enabled():  # else this gradient will be differentiated too
            found = _MEMORY_BACKWARD(*grads, x, cell, matrices, *ctx.text, needed[INPUT])
            if all_finite(found):  # else products in another order than written may have overflowed
                slopes = dict(zip((INPUT, MEMORY, *program.parameters), found, strict=True))
                slopes |= {} if through_time else {MEMORY: None}
        if slopes is None:
            slopes = _unrolled_gradients(program, [x, cell, *matrices], grads, needed, through_time)
        return None, None, *(slopes.get(name) if needed[name] else None for name in needed)


def _unrolled_gradients(
    program: Program,
    tensors: list[Tensor],
    grads: tuple[Tensor, ...],
    needed: dict[str, bool],
    through_time: bool,
) -> dict[str, Tensor | None]:
    """The needed gradients, by autograd through all steps; differentiable if gradients are recorded."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        # Views, because the state may itself depend on x: only this sequence is differentiated.
        own = [t.view_as(t) if again else t.detach().requires_grad_() for t in tensors]
        x, cell, *matrices = own
        results = _unrolled(program.function, x, cell, matrices, through_time)
        by_name = {name: tensor for name, tensor in zip(needed, own, strict=True) if needed[name]}
        slopes = torch.autograd.grad(
            results, list(by_name.values()), grads, create_graph=again, allow_unused=True
        )
    return dict(zip(by_name, slopes, strict=True))


def _autograd_memory(keys: Any, x: Tensor, cell: Tensor, matrices: list[Tensor], *text: Any) -> list[Tensor]:
    if recorded(x, cell, *matrices):
        return list(cast("States", _Memory.apply(keys, text, x, cell, *matrices)))
    return below(_MEMORY, keys, x, cell, matrices, *text)


def _autograd_memory_backward(keys: Any, *arguments: Any) -> list[Tensor]:
    return below(_MEMORY_BACKWARD, keys, *arguments)  # recorded ones are unrolled instead


_ARGUMENTS = "Tensor x, Tensor cell, Tensor[] matrices, str formula, str constants, bool through_time"
_MEMORY = register(f"memory({_ARGUMENTS}) -> Tensor[]", _memory, _fake_memory, _autograd_memory)
_MEMORY_BACKWARD = register(
    f"memory_backward(Tensor grad, Tensor grad_cell, {_ARGUMENTS}, bool by_x) -> Tensor[]",
    _memory_backward,
    _fake_memory_backward,
    _autograd_memory_backward,
)
