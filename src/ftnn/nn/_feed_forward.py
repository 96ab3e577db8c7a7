"""The base of `Transfer` and `Partial`: sums of functions of the inputs, without a state."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from torch import Tensor

from ftnn.errors import FtnnError
from ftnn.nn._connections import Connections, check_input
from ftnn.nn._precision import precision


class FeedForward(Connections):
    """`F ⊙ x + b`, for whole matrices or lists of connections. Arguments as for `Connections`."""

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        if self.function.has_memory:
            raise FtnnError(f"{self.function.formula!r} uses C, its previous value: use ftnn.nn.Memory")

    def forward(self, x: Tensor) -> Tensor:
        """`F ⊙ x + b`: (…, in_features) → (…, out_features)."""
        own = self._first.dtype
        check_input(self, x, own)
        rows, matrices, bias = x.reshape(-1, self.in_features), self.matrices(), self.bias
        dtypes = precision(x, own)
        if dtypes is not None:
            rows, matrices = rows.to(dtypes[0]), [matrix.to(dtypes[0]) for matrix in matrices]
        out = self._sums(rows, matrices)
        if bias is not None:
            out = out + bias
        if dtypes is not None:
            out = out.to(dtypes[1])
        return out.reshape(*x.shape[:-1], self.out_features)

    @abstractmethod
    def _sums(self, rows: Tensor, matrices: list[Tensor]) -> Tensor:
        """`F ⊙ x`: (batch, in_features) → (batch, out_features)."""
