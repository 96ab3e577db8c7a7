"""Generated kernels of partial matrices on torch tensors: tiles of samples, ranges of outputs, threads.

Every output element is one sum over its connections in order, and every gradient one sum over the samples in
order: results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ftnn.formula._expr import INPUT
from ftnn.kernels.codegen.target import Target
from ftnn.kernels.cpu.compiler import host_of, kernel
from ftnn.kernels.cpu.threads import Call, run
from ftnn.kernels.cpu.tiling import SMALL
from ftnn.kernels.loops.partial import PartialArgs, by_parameters, by_x, forward
from ftnn.kernels.operands import Lists
from ftnn.kernels.program import Program

MOST_VECTORS = 4
"""Of samples in a tile: an output's sums and what a function needs fit the registers."""


def _vectors(samples: int, target: Target) -> int:
    """How many vectors a tile has: no more than the samples fill."""
    return next((n for n in (1, 2) if n >= target.vectors(samples)), MOST_VECTORS)


def _tiles(rows: Tensor, width: int, filling: Tensor) -> Tensor:
    """(samples, n) as (tiles, n, width); `filling`, (1, n), stands for samples that the last one lacks."""
    missing = -rows.shape[0] % width
    if missing:
        rows = torch.cat([rows, filling.expand(missing, -1)])
    return torch.stack([tile.t() for tile in rows.split(width)])  # quicker than one transposition of all


def _rows(tiles: Tensor, samples: int) -> Tensor:
    """(tiles, n, width) as (samples, n)."""
    return tiles.transpose(1, 2).reshape(-1, tiles.shape[1])[:samples].contiguous()


class _Layer:
    """A matrix and some samples, as addresses."""

    def __init__(self, x: Tensor, matrices: Sequence[Tensor], lists: Lists):
        self.target = host_of(x)
        self.vectors = _vectors(x.shape[0], self.target)
        self.width = self.vectors * self.target.lanes
        # A real sample fills the last tile: no function is asked for what the data do not ask.
        self.x = _tiles(x, self.width, x[-1:])
        self.matrices = [m.contiguous() for m in matrices]
        self.inputs, self.bounds = lists.inputs.contiguous(), lists.bounds.contiguous()
        self.outputs = lists.out_features
        self.table = torch.tensor([m.data_ptr() for m in self.matrices], dtype=torch.int64)
        self.parallel = x.shape[0] * len(lists.inputs) > SMALL

    def ranges(self, pieces: int) -> list[tuple[int, int]]:
        """The outputs in about so many ranges."""
        step = max(1, -(-self.outputs // pieces))
        return [(o, min(o + step, self.outputs)) for o in range(0, self.outputs, step)]

    def args(self, tile: int, outputs: tuple[int, int], sums: Tensor, targets: int) -> PartialArgs:
        first, last = outputs
        return PartialArgs(
            outputs=last - first,
            bounds=self.bounds.data_ptr() + 8 * first,
            inputs=self.inputs.data_ptr(),
            matrices=self.table.data_ptr(),
            x=self.x[tile].data_ptr(),
            sums=sums[tile, first].data_ptr(),
            targets=targets,
        )

    @property
    def pieces(self) -> int:
        return torch.get_num_threads() * 4 if self.parallel else 1


def transfer(program: Program, x: Tensor, matrices: Sequence[Tensor], lists: Lists) -> Tensor:
    """F ⊙ x, (batch, out), of x (batch, in) and matrices (connections,)."""
    batch, outputs = x.shape[0], lists.out_features
    if not batch or not len(lists.inputs):
        return x.new_zeros(batch, outputs)
    layer = _Layer(x, matrices, lists)
    code = kernel(forward, program, layer.target, layer.vectors)
    sums = x.new_empty(len(layer.x), outputs, layer.width)
    ranges = layer.ranges(-(-layer.pieces // len(layer.x)))
    tasks: list[list[Call]] = [
        [(code, layer.args(tile, part, sums, 0))] for tile in range(len(layer.x)) for part in ranges
    ]
    run(tasks, parallel=layer.parallel)
    return _rows(sums, batch)


def transfer_backward(
    program: Program,
    grad: Tensor,
    x: Tensor,
    matrices: Sequence[Tensor],
    names: tuple[str, ...],
    lists: Lists,
) -> list[Tensor]:
    """The gradients by each of `names`, in the order of x, then `program.parameters`."""
    results = {INPUT: torch.zeros_like(x)} if INPUT in names else {}
    if any(name != INPUT for name in names):
        results |= {name: torch.zeros_like(matrices[0]) for name in program.parameters}
    if x.shape[0] and len(lists.inputs):
        layer = _Layer(x, matrices, lists)
        errors = _tiles(grad, layer.width, grad.new_zeros(1, grad.shape[1]))
        tiles, everything = range(len(layer.x)), (0, layer.outputs)
        if INPUT in results:
            code = kernel(by_x, program, layer.target, layer.vectors)
            down = torch.zeros_like(layer.x)
            # Outputs add to the same errors, so that only tiles are independent of each other.
            run(
                [[(code, layer.args(t, everything, errors, down[t].data_ptr()))] for t in tiles],
                parallel=layer.parallel,
            )
            results[INPUT] = _rows(down, x.shape[0])
        if len(results) > (INPUT in results):
            code = kernel(by_parameters, program, layer.target, layer.vectors)
            targets = torch.tensor([results[n].data_ptr() for n in program.parameters], dtype=torch.int64)
            run(
                [
                    [(code, layer.args(t, part, errors, targets.data_ptr())) for t in tiles]
                    for part in layer.ranges(layer.pieces)
                ],
                parallel=layer.parallel,
            )
    return [results[name] for name in (INPUT, *program.parameters) if name in names]
