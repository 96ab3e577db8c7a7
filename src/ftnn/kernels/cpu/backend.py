"""The backend of generated CPU kernels: chooses those that skip zeros, those that do not, or those for lists
or small layers.

Every output is one sum over the inputs in order, and every gradient one sum over the samples in order,
however work is divided: results do not depend on the number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from ftnn.formula._derive import lower
from ftnn.formula._expr import INPUT, Expr, postorder
from ftnn.kernels.codegen.rewriting import kernel_form, sides
from ftnn.kernels.cpu import dense, partial, skipping, small
from ftnn.kernels.cpu.compiler import host_of
from ftnn.kernels.operands import Kept, Lists, Matrices, Names
from ftnn.kernels.ordering import moderate
from ftnn.kernels.program import Program

DENSE = 0.5
"""Share of nonzero numbers from which on lists cost more than they save."""
SPARSE = 0.3
"""The same where matrix products could be used,"""
LEAST_PRODUCTS = 128
"""and the least number of outputs, times terms of the function."""
KEPT = 2**19
"""The most numbers of x whose lists are kept from the forward pass to the backward pass; they take twice its
memory."""
COUNTED = 16
"""Samples whose zeros are counted to estimate that share."""


def _share_of_nonzeros(x: Tensor) -> float:
    """An estimate from some of the samples."""
    some = x[:: -(-x.shape[0] // COUNTED)]
    return int(torch.count_nonzero(some)) / max(1, some.numel())


def _has_many_zeros(x: Tensor) -> bool:
    """Whether skipping zeros pays off."""
    return _share_of_nonzeros(x) < DENSE


@lru_cache(maxsize=256)
def _reordered(program: Program) -> tuple[tuple[tuple[Expr, int], ...], ...]:
    """The factors, each with its power, of each product that kernels multiply in another order than written.

    Each depends on x alone or on matrices alone.
    """
    reordered: list[tuple[tuple[Expr, int], ...]] = []
    for part in postorder(lower(kernel_form(program), "llvm")):
        by = sides(part)
        alone = by["matrices"] + by["input"]
        if alone and len(alone) + len(by["both"]) > 2:
            reordered.append(tuple((factor, 1) for factor in alone))
    return tuple(reordered)


def computes_as_written(program: Program, *, slopes: bool = False) -> bool:
    """Whether kernels multiply in the formula's order. Slopes never do: some factors come after the sums."""
    return not slopes and not _reordered(program)


def in_range(program: Program, x: Tensor, matrices: Matrices) -> bool:
    """Whether the factors are moderate enough for their order not to matter."""
    return moderate(program, _reordered(program), x, matrices)


def beats_products(program: Program, x: Tensor, matrices: Matrices) -> bool:
    """Whether a layer is so small that one call is faster than some matrix products, or skipping zeros is."""
    if small.suits(host_of(x), x, matrices, small.MOST_SEPARABLE):
        return True
    products = len(program.plan.terms) * matrices[0].shape[1]
    return products >= LEAST_PRODUCTS and _share_of_nonzeros(x) < SPARSE


def transfer(
    program: Program, x: Tensor, matrices: Matrices, lists: Lists | None = None, kept: Kept | None = None
) -> Tensor:
    """F ⊙ x, (batch, out)."""
    if lists is not None:
        return partial.transfer(program, x, matrices, lists)
    target, matrices = host_of(x), [m.contiguous() for m in matrices]
    out = x.new_empty(len(x), matrices[0].shape[1])
    if not out.numel() or not x.numel():
        return out.zero_()
    if small.suits(target, x, matrices):
        small.forward(program, x, matrices, out)
        return out
    listed = None if kept is None or x.numel() > KEPT else skipping.Listed(zeros=x.requires_grad)
    skipped = _has_many_zeros(x) and skipping.forward(program, target, x, matrices, out, listed)
    if not skipped:
        dense.forward(program, target, x, matrices, out)
    if kept is not None:
        kept.notes = _Decision(skipped, zeros=x.requires_grad)
        kept.tensors = listed.chunks if skipped and listed is not None else ()
    return out


@dataclass(frozen=True, slots=True)
class _Decision:
    """What a forward pass found out about its input."""

    skips: bool
    """Whether zeros were skipped."""
    zeros: bool
    """Whether the lists that were kept, if any, include zeros."""


def transfer_backward(
    program: Program,
    grad: Tensor,
    x: Tensor,
    matrices: Matrices,
    names: Names,
    lists: Lists | None = None,
    kept: Kept | None = None,
) -> list[Tensor]:
    """The gradients by each of `names`: x first, then parameters in order."""
    if lists is not None:
        return partial.transfer_backward(program, grad, x, matrices, names, lists)
    matrices, grad = [m.contiguous() for m in matrices], grad.contiguous()
    by_x, by_parameters = INPUT in names, any(name != INPUT for name in names)
    is_empty = not x.numel() or not matrices[0].shape[1]
    new = torch.zeros_like if is_empty else torch.empty_like  # kernels fill the whole array
    gradients = [new(matrices[0]) for _ in program.parameters] if by_parameters else []
    down = new(x, memory_format=torch.contiguous_format) if by_x else None
    if small.suits(host_of(x), x, matrices):
        finite = small.backward(program, x, matrices, grad, gradients, down)
    else:
        finite = is_empty or _large_backward(program, grad, x, matrices, gradients, down, kept)
    if kept is not None:
        kept.finite = finite
    results = {} if down is None else {INPUT: down}
    results |= dict(zip(program.parameters, gradients, strict=False))
    return [results[name] for name in (INPUT, *program.parameters) if name in names]


def _large_backward(
    program: Program,
    grad: Tensor,
    x: Tensor,
    matrices: Matrices,
    gradients: list[Tensor],
    down: Tensor | None,
    kept: Kept | None,
) -> bool:
    """Fill the gradients; returns whether all are known to be finite."""
    target, decision = host_of(x), None if kept is None else kept.notes
    if decision.skips if isinstance(decision, _Decision) else _has_many_zeros(x):
        listed = None
        if kept is not None and kept.tensors and isinstance(decision, _Decision):
            listed = skipping.Listed(decision.zeros, list(kept.tensors))
        finite = skipping.backward(program, target, x, matrices, grad, gradients, down, listed)
        if finite is not None:
            return finite
    return dense.backward(program, target, x, matrices, grad, gradients, down)
