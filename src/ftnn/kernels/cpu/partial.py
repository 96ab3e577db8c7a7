"""Launch the kernels of partial matrices: tiles of samples, ranges of outputs, threads.

Every output is one sum over its connections in order, and every gradient one sum over the samples in order:
results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ftnn.formula._expr import INPUT
from ftnn.kernels.codegen.target import Target
from ftnn.kernels.cpu.compiler import host_of, kernel
from ftnn.kernels.cpu.threads import run
from ftnn.kernels.cpu.tiling import address, addresses, spans, worth_threads
from ftnn.kernels.loops.partial import PartialArgs, by_parameters, by_x, forward
from ftnn.kernels.operands import Lists, Matrices, Names
from ftnn.kernels.program import Program

MOST_VECTORS = 4
"""Vectors of samples in a tile: an output's sums and a function's temporaries fit the registers."""


def _vectors(samples: int, target: Target) -> int:
    """The number of vectors of a tile: no more than the samples fill."""
    return next((n for n in (1, 2) if n >= target.vectors(samples)), MOST_VECTORS)


def _tiles(rows: Tensor, width: int, padding: Tensor) -> Tensor:
    """(samples, n) as (tiles, n, width); `padding`, (1, n), fills the last tile."""
    missing = -rows.shape[0] % width
    if missing:
        rows = torch.cat([rows, padding.expand(missing, -1)])
    return torch.stack([tile.t() for tile in rows.split(width)])  # faster than one transposition of all


def _rows(tiles: Tensor, samples: int) -> Tensor:
    """(tiles, n, width) as (samples, n)."""
    return tiles.transpose(1, 2).reshape(-1, tiles.shape[1])[:samples].contiguous()


class _Layer:
    """A partial matrix and some samples, as addresses."""

    def __init__(self, x: Tensor, matrices: Matrices, lists: Lists):
        self.target = host_of(x)
        self.vectors = _vectors(x.shape[0], self.target)
        self.width = self.vectors * self.target.lanes
        # Padded with a real sample, so that the function is evaluated at values from the data only.
        self.x = _tiles(x, self.width, x[-1:])
        self.matrices = [m.contiguous() for m in matrices]
        self.inputs, self.bounds = lists.inputs.contiguous(), lists.bounds.contiguous()
        self.outputs = lists.out_features
        self.table = addresses(self.matrices)
        self.parallel = worth_threads(x.shape[0], len(lists.inputs), 1)
        self.pieces = torch.get_num_threads() * 4 if self.parallel else 1

    def ranges(self, pieces: int) -> list[tuple[int, int]]:
        """The outputs in about this many ranges."""
        return spans(self.outputs, max(1, -(-self.outputs // pieces)))

    def args(self, tile: int, outputs: Sequence[int], sums: Tensor, targets: int) -> PartialArgs:
        first, last = outputs
        return PartialArgs(
            outputs=last - first,
            bounds=self.bounds.data_ptr() + 8 * first,
            inputs=self.inputs.data_ptr(),
            matrices=address(self.table),
            x=self.x[tile].data_ptr(),
            sums=sums[tile, first].data_ptr(),
            targets=targets,
        )


def transfer(program: Program, x: Tensor, matrices: Matrices, lists: Lists) -> Tensor:
    """F ⊙ x, (batch, out)."""
    batch, outputs = x.shape[0], lists.out_features
    if not batch or not len(lists.inputs):
        return x.new_zeros(batch, outputs)
    layer = _Layer(x, matrices, lists)
    code = kernel(forward, program, layer.target, layer.vectors)
    tiles, sums = range(len(layer.x)), x.new_empty(len(layer.x), outputs, layer.width)
    ranges = layer.ranges(-(-layer.pieces // len(tiles)))
    tasks = [[(code, layer.args(tile, part, sums, 0))] for tile in tiles for part in ranges]
    run(tasks, parallel=layer.parallel)
    return _rows(sums, batch)


def transfer_backward(
    program: Program, grad: Tensor, x: Tensor, matrices: Matrices, names: Names, lists: Lists
) -> list[Tensor]:
    """The gradients by each of `names`: x first, then parameters in order."""
    results = {INPUT: torch.zeros_like(x)} if INPUT in names else {}
    if any(name != INPUT for name in names):
        results |= {name: torch.zeros_like(matrices[0]) for name in program.parameters}
    if x.shape[0] and len(lists.inputs):
        layer = _Layer(x, matrices, lists)
        errors, tiles = _tiles(grad, layer.width, grad.new_zeros(1, grad.shape[1])), range(len(layer.x))
        if INPUT in results:
            code, down = kernel(by_x, program, layer.target, layer.vectors), torch.zeros_like(layer.x)
            # Outputs add to the same errors, so only tiles are independent of each other.
            everything = (0, layer.outputs)
            tasks = [[(code, layer.args(t, everything, errors, down[t].data_ptr()))] for t in tiles]
            run(tasks, parallel=layer.parallel)
            results[INPUT] = _rows(down, x.shape[0])
        if len(results) > (INPUT in results):
            code = kernel(by_parameters, program, layer.target, layer.vectors)
            targets = addresses([results[n] for n in program.parameters])
            ranges = layer.ranges(layer.pieces)
            tasks = [
                [(code, layer.args(t, part, errors, address(targets))) for t in tiles] for part in ranges
            ]
            run(tasks, parallel=layer.parallel)
    return [results[name] for name in (INPUT, *program.parameters) if name in names]
