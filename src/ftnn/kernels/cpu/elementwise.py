"""Launch elementwise kernels: the factors of separable functions, and the gradients of their parameters."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ftnn.formula._derive import lower
from ftnn.formula._expr import Call, Expr, Number, postorder
from ftnn.formula._ops import OPS
from ftnn.kernels.codegen.math.table import FUNCTIONS
from ftnn.kernels.cpu import threads
from ftnn.kernels.cpu.compiler import host_of, kernel
from ftnn.kernels.cpu.tiling import address, shares
from ftnn.kernels.loops.elementwise import ElementwiseArgs, elementwise

SMALL = 1_000_000
"""Operations below which threads cost more than they gain."""
_VECTORS_ONLY = ("powi", "rect", "sign")
"""The functions that float64 does not take from the C library."""


@dataclass(frozen=True, eq=False)
class Elementwise:
    """Expressions of some arrays, evaluated together in one pass."""

    exprs: tuple[Expr, ...]
    names: tuple[str, ...]
    """The names of the arrays."""

    @cached_property
    def _calls(self) -> list[Call]:
        return [p for p in postorder(*(lower(e, "llvm") for e in self.exprs)) if isinstance(p, Call)]

    @cached_property
    def _needs_libm(self) -> bool:
        return any(
            _spelling(part) in FUNCTIONS and _spelling(part) not in _VECTORS_ONLY for part in self._calls
        )

    def suits(self, x: Tensor) -> bool:
        """Whether this is faster than torch, which has float64 functions in vectors."""
        return x.dtype == torch.float32 or not self._needs_libm

    def __call__(self, sources: Sequence[Tensor], out: Sequence[Tensor]) -> None:
        """Evaluate into `out`.

        All arrays are contiguous, (rows, columns); a source may also be one row, the same for all. An array
        of `out` may be one of the sources.
        """
        rows, columns = out[0].shape
        lengths = [columns if len(source) == rows else 0 for source in sources]
        target = host_of(out[0])
        code = kernel(elementwise, self.exprs, self.names, target)
        parallel = rows * columns * len(self._calls) > SMALL
        by_row = array("q", lengths)
        begins, ends = [s.data_ptr() for s in sources], [t.data_ptr() for t in out]
        alive: list[array[int]] = []
        tasks: list[list[threads.Call]] = []
        for start, stop in shares(rows, parallel=parallel):
            # Rows without gaps are one long row.
            count, length = (1, (stop - start) * columns) if all(lengths) else (stop - start, columns)
            sources_at = array(
                "q", [b + start * n * target.size for b, n in zip(begins, lengths, strict=True)]
            )
            targets_at = array("q", [end + start * columns * target.size for end in ends])
            alive += (sources_at, targets_at)
            args = ElementwiseArgs(
                rows=count,
                columns=length,
                sources=address(sources_at),
                source_row_lengths=address(by_row),
                targets=address(targets_at),
                target_row_length=columns,
            )
            tasks.append([(code, args)])
        threads.run(tasks, parallel=parallel)


def _spelling(part: Call) -> str:
    is_integer_power = (
        part.op == "pow" and isinstance(part.args[1], Number) and isinstance(part.args[1].value, int)
    )
    return "powi" if is_integer_power else OPS[part.op].llvm
