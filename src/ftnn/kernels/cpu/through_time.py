"""Runs the kernels of memory functions over a whole sequence.

Every sum is over all inputs, outputs or samples in order, however work is divided: results do not depend on
the number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ftnn.kernels.codegen.target import Target
from ftnn.kernels.cpu.compiler import host_of, kernel
from ftnn.kernels.cpu.threads import Call, run
from ftnn.kernels.cpu.tiling import address, addresses, shares, spans, worth_threads
from ftnn.kernels.loops.through_time import SequenceArgs, sequence_backward, sequence_forward
from ftnn.kernels.operands import Matrices
from ftnn.kernels.program import Program


@dataclass(frozen=True)
class _Layout:
    """Sizes of a sequence, and how kernels want its arrays: outputs in whole vectors, (…, vectors, lanes)."""

    target: Target
    steps: int
    samples: int
    inputs: int
    outputs: int

    @classmethod
    def of(cls, x: Tensor, matrices: Matrices) -> _Layout:
        steps, samples, inputs = x.shape
        return cls(host_of(x), steps, samples, inputs, matrices[0].shape[1])

    @property
    def vectors(self) -> int:
        return self.target.vectors(self.outputs)

    @property
    def parallel(self) -> bool:
        return worth_threads(self.steps * self.samples, self.inputs, self.outputs)

    def filled(self, a: Tensor, copies: bool = True) -> Tensor:
        """(…, out) → (…, vectors · lanes), with copies of the last real output, or zeros."""
        rest = self.vectors * self.target.lanes - self.outputs
        if not rest:
            return a.contiguous()
        more = a[..., -1:].expand(*a.shape[:-1], rest)
        return torch.cat([a, more if copies else torch.zeros_like(more)], -1)

    def packed(self, a: Tensor, copies: bool = True) -> Tensor:
        """(samples, in, out) → (in, vectors, samples, lanes), always a copy: kernels write into it."""
        whole = self.filled(a, copies).view(self.samples, self.inputs, self.vectors, self.target.lanes)
        return whole.permute(1, 2, 0, 3).clone(memory_format=torch.contiguous_format)

    def unpacked(self, a: Tensor) -> Tensor:
        """(in, vectors, samples, lanes) → (samples, in, out)."""
        return a.permute(2, 0, 1, 3).reshape(self.samples, self.inputs, -1)[..., : self.outputs]

    def columns(self, x: Tensor) -> Tensor:
        """(time, samples, in) → (in, time, samples)."""
        return x.permute(2, 0, 1).contiguous()


def forward(program: Program, x: Tensor, cell: Tensor, matrices: Matrices) -> tuple[Tensor, Tensor]:
    """The sums, (time, batch, out), and the last cells, (batch, in, out)."""
    layout = _Layout.of(x, matrices)
    target, vectors = layout.target, layout.vectors
    cells, columns = layout.packed(cell), layout.columns(x)
    sums = x.new_empty(vectors, layout.steps, layout.samples, target.lanes)
    filled = [layout.filled(m) for m in matrices]
    code = kernel(sequence_forward, program, target)
    tables, tasks = list[object](), list[list[Call]]()
    at_once = -(-vectors // (torch.get_num_threads() if layout.parallel else 1))
    for first, stop in spans(vectors, at_once):
        table = addresses(filled, first * target.lanes * target.size)
        tables.append(table)
        args = SequenceArgs(
            inputs=layout.inputs, vectors=stop - first, steps=layout.steps, samples=layout.samples,
            x=columns.data_ptr(), matrices=address(table), row_length=vectors * target.lanes,
            cells=cells[0, first].data_ptr(), per_input=cells.stride(0), u=sums[first].data_ptr(),
            gradients=0, carried=0, dx=0, history=0, partial=0,
        )  # fmt: skip
        tasks.append([(code, args)])
    run(tasks, parallel=layout.parallel)
    out = sums.permute(1, 2, 0, 3).reshape(layout.steps, layout.samples, -1)[..., : layout.outputs]
    return out.contiguous(), layout.unpacked(cells)


def backward(
    program: Program,
    grad: Tensor,
    grad_cell: Tensor,
    x: Tensor,
    cell: Tensor,
    matrices: Matrices,
    *,
    by_x: bool,
    through_time: bool,
) -> tuple[Tensor | None, Tensor, list[Tensor]]:
    """The gradients by x, by the initial cells and by each parameter.

    `grad` is that of the sums, `grad_cell` that of the last cells.
    """
    layout = _Layout.of(x, matrices)
    target, vectors, lanes = layout.target, layout.vectors, layout.target.lanes
    errors = layout.filled(grad, copies=False).view(layout.steps, layout.samples, vectors, lanes)
    errors = errors.permute(2, 0, 1, 3).contiguous()
    cells, carried, columns = layout.packed(cell), layout.packed(grad_cell, copies=False), layout.columns(x)
    filled = [layout.filled(m) for m in matrices]
    gradients = [torch.empty_like(filled[0]) for _ in program.parameters]
    down = torch.empty_like(columns) if by_x else None
    code = kernel(sequence_backward, program, target, by_x=by_x, through_time=through_time)
    row_length = vectors * lanes
    alive, tasks = list[object](), list[list[Call]]()
    for first, stop in shares(layout.inputs, parallel=layout.parallel):
        tables = [addresses(each, first * row_length * target.size) for each in (filled, gradients)]
        history, partial = (x.new_empty(layout.steps * layout.samples * lanes) for _ in range(2))
        alive += (*tables, history, partial)
        args = SequenceArgs(
            inputs=stop - first, vectors=vectors, steps=layout.steps, samples=layout.samples,
            x=columns[first].data_ptr(), matrices=address(tables[0]), row_length=row_length,
            cells=cells[first].data_ptr(), per_input=cells.stride(0), u=errors.data_ptr(),
            gradients=address(tables[1]), carried=carried[first].data_ptr(),
            dx=0 if down is None else down[first].data_ptr(), history=history.data_ptr(),
            partial=partial.data_ptr(),
        )  # fmt: skip
        tasks.append([(code, args)])
    run(tasks, parallel=layout.parallel)
    slopes = [gradient[:, : layout.outputs].contiguous() for gradient in gradients]
    return None if down is None else down.permute(1, 2, 0), layout.unpacked(carried), slopes
