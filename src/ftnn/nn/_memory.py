"""`Memory`: a layer whose connections remember their previous values."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ftnn.errors import DTypeError, FtnnError, ShapeError
from ftnn.formula import catalogue
from ftnn.kernels import Backend, memory
from ftnn.nn._connections import AnyFunction, Connections
from ftnn.nn._inputs import check_input, typical
from ftnn.nn._precision import precision

FORMULA = catalogue["memory"].formula
"""The paper's, without its ranges: from those it forgets at once."""


class Memory(Connections):
    """A functional transfer matrix of memory functions, `F(x_t; C_{t-1})` with `C_t = F(x_t; C_{t-1})`.

    Each connection keeps its own signal: in·out signals, where an `nn.RNN` of that size keeps out.

    **Arguments:**

    - `in_features`, `out_features`: the numbers of inputs and outputs.
    - `function`: a formula with `C`, a `Function`, a catalogue name, or a `Mixed` of these. Parameters
        without a range start where connections hold a signal: at least half of them keep a tenth of the
        difference between two states over 100 steps without input, if the formula can. `"memory"` has the
        paper's ranges, which forget at once.
    - `bias`: whether to add a trainable bias, which starts at 0.
    - `through_time`: False treats `C_{t-1}` as a constant (the paper's one-step derivative); True is
        back-propagation through time.
    - `device`, `dtype`: as for every torch module.
    - `backend`: `"auto"` (generated code for the whole sequence on the CPU, plain torch operations elsewhere)
        or `"reference"` (plain torch operations, step by step).
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        function: AnyFunction = FORMULA,
        bias: bool = True,
        through_time: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
        backend: Backend = "auto",
    ):
        if backend not in ("auto", "reference"):
            raise FtnnError(f"unknown backend {backend!r} of a Memory; expected 'auto' or 'reference'")
        super().__init__(
            in_features, out_features, function, bias=bias, device=device, dtype=dtype, backend=backend
        )
        if not self.function.has_memory:
            raise FtnnError(f"{self.function.formula!r} has no C, its previous value: use ftnn.nn.Transfer")
        self.through_time = through_time

    @torch.no_grad()
    def calibrate(self, x: Tensor, generator: torch.Generator | None = None) -> None:
        """Choose initial ranges that hold these inputs, and draw all parameters again.

        Ranges that the function gives are kept. The bias starts at 0.

        **Arguments:**

        - `x`: typical inputs, (…, in_features); the first 1,000 are used.
        - `generator`: for the random numbers.
        """
        self._draw_for(typical(self, x, self._first.dtype), self.kinds, generator)

    def reset(self, batch_size: int) -> Tensor:
        """The initial state: zeros, (batch_size, out_features, in_features)."""
        return self._first.new_zeros(batch_size, self.in_features, self.out_features).transpose(1, 2)

    @staticmethod
    def detach(state: Tensor) -> Tensor:
        """The state detached from the graph, so that gradients stop there."""
        return state.detach()

    def forward(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Run over a sequence.

        **Arguments:**

        - `x`: (time, batch, in_features).
        - `state`: the previous value of every connection, (batch, out_features, in_features); zeros by
            default.

        Returns the outputs, (time, batch, out_features), and the new state, which has the parameters' dtype
        even under autocast.
        """
        own = self._first.dtype
        check_input(self, x, own)
        if x.dim() != 3:
            raise ShapeError(f"Memory expects (time, batch, {self.in_features}), not shape {tuple(x.shape)}")
        cell, matrices = self._cell(x, state), self.matrices()
        dtypes = precision(x, own)
        if dtypes is not None:
            x, cell = x.to(dtypes[0]), cell.to(dtypes[0])
            matrices = [matrix.to(dtypes[0]) for matrix in matrices]
        out, cell = memory(
            self.function, x, cell, matrices, through_time=self.through_time, backend=self.backend
        )
        if self.bias is not None:
            out = out + self.bias
        if dtypes is not None:
            out, cell = out.to(dtypes[1]), cell.to(own)
        return out, cell.transpose(1, 2)

    def _cell(self, x: Tensor, state: Tensor | None) -> Tensor:
        """The state in the layout of kernels, (batch, in, out)."""
        expected = (x.shape[1], self.out_features, self.in_features)
        if state is None:
            state = self.reset(x.shape[1])
        if not isinstance(state, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DTypeError(f"the state must be a torch tensor, not {type(state).__name__}")
        if tuple(state.shape) != expected:
            raise ShapeError(
                f"the state has shape {tuple(state.shape)}; expected (batch, out, in) = {expected}"
            )
        own = self._first.dtype
        if state.dtype != own:
            raise DTypeError(f"the state is {state.dtype}, but this Memory has parameters of {own}")
        return state.transpose(1, 2)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, through_time={self.through_time}"
