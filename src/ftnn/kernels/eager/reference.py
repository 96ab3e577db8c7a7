"""The reference: broadcast and sum in plain torch. Slow, obviously correct, and the oracle of every test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product

import torch
from torch import Tensor

from ftnn.formula._expr import INPUT
from ftnn.kernels.contraction import Axes, Contraction, contraction, gradient_path
from ftnn.kernels.eager.evaluation import evaluate, schedule
from ftnn.kernels.operands import Kept, Lists, Matrices, Names, sizes_of
from ftnn.kernels.program import Program

BLOCK_BYTES = 128 * 2**20
"""Memory for the intermediate arrays of one block, not counting sums and masks."""
CHUNK = 2**22
"""Values over samples and listed connections in memory at once."""

_VIEW: dict[Axes, Callable[[Tensor], Tensor]] = {
    "bi": lambda t: t.unsqueeze(2),
    "io": lambda t: t.unsqueeze(0),
    "bo": lambda t: t.unsqueeze(1),
    "bio": lambda t: t,
}


# --- contractions ---


def whole(form: Contraction, tensors: Sequence[Tensor]) -> list[Tensor]:
    """The results of a contraction over all of (batch, in, out) at once, each a new tensor."""
    sizes = sizes_of(form.operands, tensors)
    shape = [sizes[axis] for axis in "bio"]
    values = evaluate(tuple(expr for expr, _ in form.results), _views(form, tensors))
    # Cloned if nothing is summed: an operator's result must not share memory with its arguments.
    return [
        value.expand(shape).clone() if axes == "bio" else _summed(value.expand(shape), axes)
        for value, (_, axes) in zip(values, form.results, strict=True)
    ]


def in_blocks(form: Contraction, tensors: Sequence[Tensor]) -> list[Tensor]:
    """The results of a contraction, with the arrays of only one block in memory at once."""
    sizes = sizes_of(form.operands, tensors)
    first = tensors[0]
    results = tuple(expr for expr, _ in form.results)
    totals = [first.new_zeros([sizes[axis] for axis in axes]) for _, axes in form.results]
    if 0 in sizes.values():
        return totals
    steps = _block_sizes(sizes, BLOCK_BYTES // (first.element_size() * (schedule(results).live + 1)))
    starts = (range(0, sizes[axis], steps[axis]) for axis in "bio")
    for corner in product(*starts):
        block = {
            axis: slice(start, min(start + steps[axis], sizes[axis]))
            for axis, start in zip("bio", corner, strict=True)
        }
        parts = [
            tensor[tuple(block[axis] for axis in axes)]
            for (_, axes), tensor in zip(form.operands, tensors, strict=True)
        ]
        shape = [part.stop - part.start for part in block.values()]
        values = evaluate(results, _views(form, parts))
        for total, (_, axes) in zip(totals, form.results, strict=True):
            # Popped one by one, so that none is left when the next block is evaluated.
            part, value = total[tuple(block[axis] for axis in axes)], values.pop(0).expand(shape)
            if axes == "bio":  # copied, because 0 + -0 would be 0
                part.copy_(value)
            else:
                part += _summed(value, axes)
    return totals


def _views(form: Contraction, tensors: Sequence[Tensor]) -> dict[str, Tensor]:
    """The operands by name, as views that broadcast over (batch, in, out)."""
    return {name: _VIEW[axes](tensor) for (name, axes), tensor in zip(form.operands, tensors, strict=True)}


def _block_sizes(sizes: dict[str, int], most: int) -> dict[str, int]:
    """The size of each axis in a block of at most `most` elements; outputs are divided first."""
    ins = max(1, min(sizes["i"], most))
    outs = max(1, min(sizes["o"], most // (ins * sizes["b"])))
    batch = max(1, min(sizes["b"], most // (ins * outs)))
    return {"b": batch, "i": ins, "o": outs}


def _summed(value: Tensor, axes: Axes) -> Tensor:
    """`value`, (batch, in, out), summed over all but `axes`."""
    over = [position for position, axis in enumerate("bio") if axis not in axes]
    return value.sum(over) if over else value


# --- layers ---


def computes_as_written(program: Program, *, slopes: bool = False) -> bool:
    """Always."""
    return True


def transfer(
    program: Program, x: Tensor, matrices: Matrices, lists: Lists | None = None, kept: Kept | None = None
) -> Tensor:
    """F ⊙ x, (batch, out)."""
    if lists is None:
        return in_blocks(contraction(program, "transfer"), [x, *matrices])[0]
    out, outputs = x.new_zeros(x.shape[0], lists.out_features), lists.outputs
    for part in _chunks(x.shape[0], len(outputs)):
        columns = [x[:, lists.inputs[part]], *(m[part, None] for m in matrices)]
        (values,) = in_blocks(contraction(program, "list"), columns)
        out.index_add_(1, outputs[part], values)
    return out


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
    if lists is None:
        path = gradient_path(program, "transfer", names)
        return in_blocks(contraction(program, path), [x, *matrices, grad])
    path = gradient_path(program, "list", names)
    by_parameters = [name for name in program.parameters if name in names]
    gradients = {name: torch.empty_like(matrices[0]) for name in by_parameters}
    down, outputs = torch.zeros_like(x), lists.outputs
    for part in _chunks(x.shape[0], len(outputs)):
        columns = [x[:, lists.inputs[part]], *(m[part, None] for m in matrices), grad[:, outputs[part]]]
        slopes = in_blocks(contraction(program, path), columns)
        if INPUT in names:
            down.index_add_(1, lists.inputs[part].long(), slopes.pop(0))
        for name, slope in zip(by_parameters, slopes, strict=True):
            gradients[name][part] = slope[:, 0]
    return [*([down] if INPUT in names else []), *gradients.values()]


def _chunks(batch: int, connections: int) -> Iterator[slice]:
    step = max(1, CHUNK // max(batch, 1))
    return (slice(first, min(first + step, connections)) for first in range(0, connections, step))
