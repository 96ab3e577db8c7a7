"""`Transfer`: a layer whose connections are functions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ftnn.kernels import Backend, transfer
from ftnn.nn._connections import AnyFunction
from ftnn.nn._feed_forward import FeedForward


class Transfer(FeedForward):
    """The transfer computation `F ⊙ x + b`, where `(F ⊙ x)_i = Σ_j F_ij(x_j)`.

    **Arguments:**

    - `in_features`, `out_features`: the numbers of inputs and outputs.
    - `function`: the function of every connection: a catalogue name (`"F12"`), a formula
        (`"p*sin(q*x + r)"`), a [`ftnn.Function`][], or [`ftnn.Mixed`][] for different functions.
    - `bias`: whether to add a trainable bias, which starts at 0.
    - `device`, `dtype`: as for every torch module.
    - `backend`: `"auto"` chooses the fastest accurate path; `"reference"` uses plain torch operations,
        `"cpu"` generated CPU code, and `"triton"` Triton kernels on a GPU, which need `ftnn[triton]`.

    Shapes: the input is (…, in_features), the output (…, out_features). `state_dict` has `theta.<name>` and
    `constants.<name>`, each (in_features, out_features), and `bias`.

    With bfloat16 or float16 parameters, and under `torch.autocast`, functions are evaluated and summed in
    float32. The output has the parameters' dtype; under autocast, the dtype that `nn.Linear` would return.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        function: AnyFunction,
        bias: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
        backend: Backend = "auto",
    ):
        super().__init__(
            in_features, out_features, function, bias=bias, device=device, dtype=dtype, backend=backend
        )

    def _sums(self, rows: Tensor, matrices: list[Tensor]) -> Tensor:
        return transfer(self.function, rows, matrices, self.backend)
