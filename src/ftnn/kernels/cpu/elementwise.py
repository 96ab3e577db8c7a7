"""Launch elementwise kernels: the factors of separable functions, and the gradients of their parameters."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ftnn.formula._derive import lower
from ftnn.formula._expr import Call, Expr, Number, postorder
from ftnn.formula._ops import OPS
from ftnn.kernels.codegen.math.table import FUNCTIONS
from ftnn.kernels.cpu import threads
from ftnn.kernels.cpu.compiler import Code, host, kernel
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

    _functions: dict[torch.dtype, Any] = field(default_factory=dict[torch.dtype, Any], init=False, repr=False)

    @cached_property
    def _operations(self) -> int:
        return len(self._calls)

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
        first = out[0]
        rows, columns = first.shape
        lengths = [columns if source.shape[0] == rows else 0 for source in sources]
        begins, ends = [s.data_ptr() for s in sources], [t.data_ptr() for t in out]
        if first.numel() * self._operations <= SMALL:
            # Rows without gaps are one long row.
            count, length = (1, first.numel()) if all(lengths) else (rows, columns)
            tables = array("q", (*begins, *lengths, *ends))
            args = array("q", self._args(count, length, columns, tables))
            self._function(first.dtype)(address(args))
            return
        code, size = self._code(first.dtype), first.element_size()
        alive: list[array[int]] = []
        tasks: list[list[threads.Call]] = []
        for start, stop in shares(rows, parallel=True):
            sources_at = [begin + start * n * size for begin, n in zip(begins, lengths, strict=True)]
            tables = array("q", (*sources_at, *lengths, *(end + start * columns * size for end in ends)))
            alive.append(tables)
            tasks.append([(code, self._args(stop - start, columns, columns, tables))])
        threads.run(tasks)

    def _args(self, rows: int, columns: int, row_length: int, tables: array[int]) -> ElementwiseArgs:
        """`tables`: the sources' addresses and row lengths, then the targets' addresses."""
        place, sources = address(tables), 8 * len(self.names)
        return ElementwiseArgs(
            rows=rows,
            columns=columns,
            sources=place,
            source_row_lengths=place + sources,
            targets=place + 2 * sources,
            target_row_length=row_length,
        )

    def _code(self, dtype: torch.dtype) -> Code:
        return kernel(
            elementwise, self.exprs, self.names, host("float64" if dtype == torch.float64 else "float32")
        )

    def _function(self, dtype: torch.dtype) -> Any:
        function = self._functions.get(dtype)
        if function is None:
            function = self._functions[dtype] = self._code(dtype).function
        return function


def _spelling(part: Call) -> str:
    is_integer_power = (
        part.op == "pow" and isinstance(part.args[1], Number) and isinstance(part.args[1].value, int)
    )
    return "powi" if is_integer_power else OPS[part.op].llvm
