"""Generated kernels on torch tensors: those for data with many zeros, or those for all others.

Every output element is one sum over the inputs in order, and every gradient one sum over the samples in
order, whatever the blocks: results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ftnn.formula._derive import lower
from ftnn.formula._expr import INPUT, Expr, postorder
from ftnn.kernels.codegen.rewriting import kernel_form, sides
from ftnn.kernels.cpu import dense, partial, skipping
from ftnn.kernels.cpu.compiler import host_of
from ftnn.kernels.cpu.tiling import columns
from ftnn.kernels.eager.gemm import moderate
from ftnn.kernels.operands import Lists
from ftnn.kernels.program import Program

DENSE = 0.5
"""From this share of numbers that are not zero on, lists cost more than they save."""
LOOKED_AT = 16
"""Samples whose zeros are counted to find that share."""


def _many_zeros(x: Tensor) -> bool:
    """Whether skipping zeros pays: a look at some of the samples."""
    some = x[:: -(-len(x) // LOOKED_AT)]
    return int(torch.count_nonzero(some)) < DENSE * some.numel()


@lru_cache(maxsize=256)
def _reordered(program: Program) -> tuple[tuple[Expr, ...], int]:
    """What kernels multiply in another order than is written, and how many of these one product has.

    Each of them depends on x alone or on matrices alone.
    """
    reordered: dict[Expr, None] = {}
    degree = 0
    for part in postorder(lower(kernel_form(program), "llvm")):
        by = sides(part)
        alone = by["matrices"] + by["input"]
        if len(alone) + len(by["both"]) > 2:
            reordered |= dict.fromkeys(alone)
            degree = max(degree, len(alone))
    return tuple(reordered), degree


def computes_as_written(program: Program, *, slopes: bool = False) -> bool:
    """Whether kernels multiply in the formula's order. Those of slopes leave factors for after the sums."""
    return not slopes and not _reordered(program)[0]


def in_range(program: Program, x: Tensor, matrices: Sequence[Tensor]) -> bool:
    """Whether factors are so moderate that the order does not matter."""
    return moderate(program, *_reordered(program), x, matrices)


def transfer(program: Program, x: Tensor, matrices: Sequence[Tensor], lists: Lists | None = None) -> Tensor:
    """F ⊙ x, (batch, out), of x (batch, in) and matrices (in, out), or (connections,) with `lists`."""
    if lists is not None:
        return partial.transfer(program, x, matrices, lists)
    target, matrices = host_of(x), [m.contiguous() for m in matrices]
    out = x.new_empty(len(x), matrices[0].shape[1])
    if not out.numel() or not x.numel():
        return out.zero_()
    parts = columns(matrices, target)
    # Where a matrix is not finite, zeros are evaluated like all others.
    if not _many_zeros(x) or not skipping.forward(program, target, x, parts, out):
        dense.forward(program, target, x, parts, out)
    return out


def transfer_backward(
    program: Program,
    grad: Tensor,
    x: Tensor,
    matrices: Sequence[Tensor],
    names: tuple[str, ...],
    lists: Lists | None = None,
) -> list[Tensor]:
    """The gradients by each of `names`, in the order of x, then `program.parameters`."""
    if lists is not None:
        return partial.transfer_backward(program, grad, x, matrices, names, lists)
    target, matrices = host_of(x), [m.contiguous() for m in matrices]
    out, width = matrices[0].shape[1], target.lanes
    by_x, by_parameters = INPUT in names, any(name != INPUT for name in names)
    filled = bool(x.numel() and out)  # by the kernels: all of it
    fresh = torch.empty_like if filled else torch.zeros_like
    gradients = [fresh(matrices[0]) for _ in program.parameters] if by_parameters else []
    down = fresh(x, memory_format=torch.contiguous_format) if by_x else None
    if filled:
        many_zeros = _many_zeros(x)

        def backward(*args: Any) -> None:
            if not many_zeros or not skipping.backward(program, target, x, *args):
                dense.backward(program, target, x, *args)

        grad = grad.contiguous()
        for n, part in enumerate(columns(matrices, target)):
            if part.whole:
                backward(part, grad, gradients, down)
                continue
            errors = torch.nn.functional.pad(grad[:, out - part.outputs :], (0, width - part.outputs))
            strips = [x.new_empty(len(matrices[0]), width) for _ in gradients]
            # A strip adds to what whole vectors sent down.
            below = down if down is None or n == 0 else torch.empty_like(down)
            backward(part, errors, strips, below)
            for gradient, strip in zip(gradients, strips, strict=True):
                gradient[:, out - part.outputs :] = strip[:, : part.outputs]
            if down is not None and below is not None and below is not down:
                down += below
    results = {} if down is None else {INPUT: down}
    results |= dict(zip(program.parameters, gradients, strict=False))
    return [results[name] for name in (INPUT, *program.parameters) if name in names]
