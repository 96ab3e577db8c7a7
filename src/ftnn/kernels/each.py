"""Expressions evaluated for every connection and sample, in generated code where there is any."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ftnn.formula._expr import INPUT, Expr
from ftnn.kernels.eager.evaluation import evaluate
from ftnn.kernels.generated import cpu_available


@dataclass(frozen=True, eq=False)
class EachConnection:
    """Expressions of x and some matrices, in float64, on the calling thread."""

    exprs: tuple[Expr, ...]
    matrices: tuple[str, ...]
    """The names of the matrices."""
    inputs: Tensor = field(repr=False)
    """The input of each connection, (connections,) int64."""

    @cached_property
    def _indices(self) -> Tensor:
        return self.inputs.contiguous()

    @cached_property
    def _code(self) -> Any:
        """The function and the number of samples that it needs at least; None if there is none."""
        if not cpu_available():
            return None
        from ftnn.kernels.cpu.compiler import host, kernel
        from ftnn.kernels.loops.connections import connections

        target = host("float64")
        return kernel(connections, self.exprs, self.matrices, target).function, target.lanes

    def __call__(self, x: Tensor, matrices: list[Tensor]) -> Tensor:
        """The values, (expressions, connections, samples).

        **Arguments:**

        - `x`: (in, samples).
        - `matrices`: the connections' entries in any shape, contiguous.
        """
        samples, count = x.shape[1], len(self.inputs)
        x = x if x.stride(1) == 1 else x.contiguous()
        code = self._code
        if code is None or samples < code[1] or not count:
            columns = {name: m.view(-1, 1) for name, m in zip(self.matrices, matrices, strict=True)}
            values = evaluate(self.exprs, {INPUT: x[self.inputs], **columns})
            return torch.stack([value.expand(count, samples) for value in values])
        from ftnn.kernels.loops.connections import ConnectionsArgs

        out = x.new_empty(len(self.exprs), count, samples)
        starts = self._indices * x.stride(0)
        first, size = out.data_ptr(), 8 * count * samples
        addresses = array("q", [m.data_ptr() for m in matrices] + [first + n * size for n in range(len(out))])
        place = addresses.buffer_info()[0]
        args = ConnectionsArgs(
            connections=count,
            samples=samples,
            x=x.data_ptr(),
            starts=starts.data_ptr(),
            matrices=place,
            targets=place + 8 * len(matrices),
        )
        block = array("q", args)
        code[0](block.buffer_info()[0])
        return out
