"""The reference: broadcast and sum in plain torch. Slow, obviously right, and the oracle of every test.

Everything that is computed for a layer has one form, a *contraction*: an expression is evaluated for every
(batch, input, output) and summed over some of these axes.

    transfer            Σ_i     F(x_bi; p_io)                → (batch, out)
    error sent down     Σ_o     g_bo · ∂F/∂x                 → (batch, in)
    parameter gradient  Σ_b     g_bo · ∂F/∂p                 → (in, out)

The derivative of a contraction is again a contraction, of the symbolic derivative. So derivatives of any
order are right, decreed ones included, and no array over all three axes outlives a block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import product
from typing import Any

import torch
from torch import Tensor

from ftnn.formula._derive import gradient
from ftnn.formula._expr import INPUT, MEMORY, ZERO, Expr, plus, symbol, times
from ftnn.kernels._evaluate import evaluate, schedule
from ftnn.kernels._operands import Axes
from ftnn.kernels._operands import sizes as sizes_of
from ftnn.kernels._program import Program

BLOCK_BYTES = 128 * 2**20
"""What the intermediate arrays of one block may take; sums and masks come on top."""


@dataclass(frozen=True, slots=True)
class Contraction:
    """Expressions to evaluate over all axes, and the axes that each keeps; the others are summed over."""

    operands: tuple[tuple[str, Axes], ...]
    """Name and axes of each operand, in order."""
    results: tuple[tuple[Expr, Axes], ...]


_VIEW: dict[Axes, Callable[[Tensor], Tensor]] = {
    "bi": lambda t: t.unsqueeze(2),
    "io": lambda t: t.unsqueeze(0),
    "bo": lambda t: t.unsqueeze(1),
    "bio": lambda t: t,
}


def views(contraction: Contraction, tensors: Sequence[Tensor]) -> dict[str, Tensor]:
    """The operands by name, each a view that broadcasts over (batch, in, out)."""
    return {
        name: _VIEW[axes](tensor) for (name, axes), tensor in zip(contraction.operands, tensors, strict=True)
    }


def in_blocks(contraction: Contraction, tensors: Sequence[Tensor]) -> list[Tensor]:
    """The results, holding no more than one block's arrays at once."""
    sizes = sizes_of(contraction.operands, tensors)
    first = tensors[0]
    results = tuple(expr for expr, _ in contraction.results)
    totals = [first.new_zeros([sizes[axis] for axis in axes]) for _, axes in contraction.results]
    if 0 in sizes.values():
        return totals
    steps = _block_sizes(sizes, BLOCK_BYTES // (first.element_size() * (schedule(results).live + 1)))
    starts = (range(0, sizes[axis], steps[axis]) for axis in "bio")
    for corner in product(*starts):
        block = {
            axis: slice(start, min(start + steps[axis], sizes[axis]))
            for axis, start in zip("bio", corner, strict=True)
        }
        parts = (
            tensor[tuple(block[axis] for axis in axes)]
            for (_, axes), tensor in zip(contraction.operands, tensors, strict=True)
        )
        values = views(contraction, tuple(parts))
        shape = [part.stop - part.start for part in block.values()]
        found = evaluate(results, values)
        for total, (_, axes) in zip(totals, contraction.results, strict=True):
            # Taken out one by one: none may be left when the next block's come.
            part, value = total[tuple(block[axis] for axis in axes)], found.pop(0).expand(shape)
            if axes == "bio":  # nothing is summed, and 0 + -0 would be 0
                part.copy_(value)
            else:
                part += reduced(value, axes)
    return totals


def _block_sizes(sizes: dict[str, int], most: int) -> dict[str, int]:
    """How many of each axis make a block of at most `most` elements; outputs are divided first."""
    ins = max(1, min(sizes["i"], most))
    outs = max(1, min(sizes["o"], most // (ins * sizes["b"])))
    batch = max(1, min(sizes["b"], most // (ins * outs)))
    return {"b": batch, "i": ins, "o": outs}


def reduced(value: Tensor, axes: Axes) -> Tensor:
    """`value`, (batch, in, out), summed over all but `axes`."""
    over = [position for position, axis in enumerate("bio") if axis not in axes]
    return value.sum(over) if over else value


@lru_cache(maxsize=1024)
def backward_form(contraction: Contraction, wanted: tuple[int, ...]) -> Contraction:
    """The contraction that sends gradients of `contraction`'s results to its operands numbered `wanted`.

    Its operands are those of `contraction`, then one weight for each result.
    """
    taken = len(contraction.operands)
    weights = tuple((f"∂{taken + k}", axes) for k, (_, axes) in enumerate(contraction.results))
    total = ZERO
    for (name, _), (expr, _) in zip(weights, contraction.results, strict=True):
        total = plus(total, times(symbol(name), expr))
    names, axes = zip(*(contraction.operands[n] for n in wanted), strict=True) if wanted else ((), ())
    results = tuple(zip(gradient(total, names), axes, strict=True))
    return Contraction((*contraction.operands, *weights), results)


class _Contract(torch.autograd.Function):
    """Evaluates a contraction; differentiable to any order."""

    @staticmethod
    def forward(ctx: Any, contraction: Contraction, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.contraction = contraction
        ctx.save_for_backward(*tensors)
        return tuple(in_blocks(contraction, tensors))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        needed = ctx.needs_input_grad[1:]
        return None, *slopes_of(ctx.contraction, needed, ctx.saved_tensors, grads, contract)


def slopes_of(
    contraction: Contraction,
    needed: Sequence[bool],
    tensors: Sequence[Tensor],
    grads: Sequence[Tensor],
    compute: Callable[..., Sequence[Tensor]],
) -> list[Tensor | None]:
    """The gradient by each operand that needs one, and None for the others.

    **Arguments:**

    - `needed`, `tensors`: for each operand, whether, and its value.
    - `grads`: the gradient of each result.
    - `compute`: what computes a contraction.
    """
    wanted = tuple(n for n, need in enumerate(needed) if need)
    result: list[Tensor | None] = [None] * len(needed)
    for n, grad in zip(wanted, compute(backward_form(contraction, wanted), *tensors, *grads), strict=True):
        result[n] = grad
    return result


def contract(contraction: Contraction, *tensors: Tensor) -> tuple[Tensor, ...]:
    """The results of a contraction. Each tensor has the axes that the contraction states for it."""
    return _Contract.apply(contraction, *tensors)  # pyright: ignore[reportReturnType]


# --- what layers ask for ---


@cache
def transfer_form(program: Program) -> Contraction:
    """F ⊙ x."""
    return Contraction((("x", "bi"), *((name, "io") for name in program.matrices)), ((program.expr, "bo"),))


def check_transfer(
    program: Program, x: Tensor, matrices: Sequence[Tensor], grad: Tensor | None = None
) -> None:
    """Refuses tensors that do not fit `transfer`, or `transfer_backward`: every operator asks this first."""
    operands = transfer_form(program).operands
    if grad is None:
        sizes_of(operands, (x, *matrices))
    else:
        sizes_of((*operands, ("∂", "bo")), (x, *matrices, grad))


def transfer(program: Program, x: Tensor, matrices: Sequence[Tensor]) -> Tensor:
    """F ⊙ x.

    **Arguments:**

    - `x`: (batch, in).
    - `matrices`: each (in, out), in the order of `program.matrices`.

    Returns (batch, out).
    """
    return contract(transfer_form(program), x, *matrices)[0]


@lru_cache(maxsize=1024)
def _transfer_backward(program: Program, wanted: tuple[str, ...]) -> Contraction:
    forward = transfer_form(program)
    numbers = tuple(n for n, (name, _) in enumerate(forward.operands) if name in wanted)
    return backward_form(forward, numbers)


def transfer_backward(
    program: Program, grad: Tensor, x: Tensor, matrices: Sequence[Tensor], wanted: tuple[str, ...]
) -> tuple[Tensor, ...]:
    """The gradients of `Σ grad · (F ⊙ x)` by each of `wanted`, in the order of x, then `program.parameters`.

    `grad` is (batch, out); a gradient has the shape of what it is taken by.
    """
    return contract(_transfer_backward(program, wanted), x, *matrices, grad)


@lru_cache(maxsize=1024)
def backward_of_backward(program: Program, wanted: tuple[str, ...]) -> Contraction:
    """What differentiates `transfer_backward`: operands x, matrices, grad, a weight for each of `wanted`;
    results by x, each parameter, and grad."""
    first = _transfer_backward(program, wanted)
    parameters = range(1, 1 + len(program.parameters))
    return backward_form(first, (0, *parameters, len(first.operands) - 1))


@cache
def list_form(program: Program) -> Contraction:
    """F of each connection of a list: the connections are the inputs, and there is one output."""
    operands = ((INPUT, "bi"), *((name, "io") for name in program.matrices))
    return Contraction(operands, ((program.expr, "bi"),))


@cache
def memory_form(program: Program) -> Contraction:
    """The sums and the new cells of a memory function."""
    operands = ((INPUT, "bi"), (MEMORY, "bio"), *((name, "io") for name in program.matrices))
    return Contraction(operands, ((program.expr, "bo"), (program.expr, "bio")))


def memory_step(
    program: Program, x: Tensor, cell: Tensor, matrices: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """One time step of a memory function.

    **Arguments:**

    - `x`: (batch, in).
    - `cell`: every connection's previous value, (batch, in, out).
    - `matrices`: each (in, out).

    Returns the sums, (batch, out), and the new cell, (batch, in, out).
    """
    total, new = contract(memory_form(program), x, cell, *matrices)
    return total, new
