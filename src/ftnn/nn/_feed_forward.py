"""`FeedForward`, the base of layers without a state, and `Transfer`, for whole matrices."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ftnn.errors import FtnnError
from ftnn.formula import Function, name_of
from ftnn.formula._balance import scaled_ranges
from ftnn.kernels import Backend, connection_values, transfer
from ftnn.nn._connections import AnyFunction, Connections, size
from ftnn.nn._inputs import check_input, typical
from ftnn.nn._precision import precision
from ftnn.nn._reduce import Reduce, check_reduce, near_one, near_one_alike, product, typical_inputs


class FeedForward(Connections):
    """`scale·(F ⊙ x) + b`, for whole matrices or lists of connections. Arguments as for `Connections`."""

    def __init__(self, *arguments: Any, scale: bool, reduce: Reduce = "sum", **options: Any):
        self.reduce: Reduce = reduce
        super().__init__(*arguments, **options)
        check_reduce(reduce, self.kinds, self.backend)
        self.scale = nn.Parameter(self._first.new_ones(self.out_features)) if scale else None
        if self.function.has_memory:
            raise FtnnError(
                f"{self.function.formula!r} uses C, the connection's previous output; use ftnn.nn.Memory"
            )

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the parameters and constants again; set the bias to 0 and the scale to 1.

        Factors of product units are moved near 1 for inputs of unit variance.
        """
        super().reset_parameters(generator)
        if self.reduce == "product" and not self._first.is_meta and not self.function.has_memory:
            self._move_near_one(typical_inputs(self._first.device), self.kinds, near_one_alike)

    @torch.no_grad()
    def _draw(self, generator: torch.Generator | None) -> None:
        super()._draw(generator)
        scale = self._parameters.get("scale")  # not there yet when the constructor calls this
        if scale is not None:
            scale.fill_(1)

    def forward(self, x: Tensor) -> Tensor:
        """`scale·(F ⊙ x) + b`: (…, in_features) → (…, out_features)."""
        own = self._first.dtype
        check_input(self, x, own)
        rows = x if x.dim() == 2 else x.reshape(-1, self.in_features)
        matrices, bias = self.matrices(), self.bias
        dtypes = precision(x, own)
        if dtypes is not None:
            rows, matrices = rows.to(dtypes[0]), [matrix.to(dtypes[0]) for matrix in matrices]
        if dtypes is None and self.scale is None:
            out = self._sums(rows, matrices, bias)
        else:
            out = self._sums(rows, matrices, None)
            if self.scale is not None:
                out = out * self.scale
            if bias is not None:
                out = out + bias
            if dtypes is not None:
                out = out.to(dtypes[1])
        return out if x.dim() == 2 else out.reshape(*x.shape[:-1], self.out_features)

    @torch.no_grad()
    def calibrate(self, x: Tensor, generator: torch.Generator | None = None, *, layers: int = 1) -> None:
        """Choose initial ranges for these inputs, and draw all parameters again.

        Ranges that the function gives are kept; the others are chosen as balanced ranges (see the guide to
        initial ranges), and amplitudes are scaled until the sums have variance 1 over these inputs. The bias
        starts where it centres the sums on 0. Factors of product units are moved near 1 instead.

        **Arguments:**

        - `x`: typical inputs, (…, in_features); the first 1,000 samples are used.
        - `generator`: for the random numbers.
        - `layers`: how many such layers follow each other in the network.
        """
        x = typical(self, x, self._first.dtype)
        self._calibrate(x, self.kinds, generator, size("layers", layers))

    def _calibrate(
        self, x: Tensor, kinds: Sequence[Function], generator: torch.Generator | None, layers: int
    ) -> None:
        """`calibrate`, for the layer's own kinds or the same with other ranges."""
        seed = self._draw_for(x, kinds, generator, layers)
        if self.reduce == "product":
            self._move_near_one(self._inputs_of_connections(x), kinds, near_one)
            return
        deviation = float(self(x).double().var(0, correction=0).mean().sqrt())
        if not 0 < deviation < float("inf"):
            return
        self._ranges = tuple(
            scaled_ranges(kind, ranges, 1 / deviation)
            for kind, ranges in zip(kinds, self._ranges, strict=True)
        )
        self._draw_from(seed)
        if self.bias is not None:
            self.bias.copy_(-self(x).double().mean(0))
            self._drawn = self._fingerprint()

    def _move_near_one(self, x: Tensor, kinds: Sequence[Function], move: Callable[..., None]) -> None:
        """Move parameters, except those with given ranges, until factors are near 1 for these inputs."""
        kept = {name for kind in kinds if name_of(kind) is None for name in kind.init}
        free = {name: self.theta[name] for name in self.theta if name not in kept}
        others = {name: self.theta[name] for name in self.theta if name in kept}
        others |= {name: self.constants[name] for name in self.constants}
        count = max(1, self._first.numel() // self.out_features)
        move(self.function, x, free, others, count)
        self._drawn = self._fingerprint()

    def _inputs_of_connections(self, x: Tensor) -> Tensor:
        """The inputs, (samples, in), so that they broadcast with the layer's matrices."""
        return x[:, :, None]

    @abstractmethod
    def _sums(self, rows: Tensor, matrices: list[Tensor], bias: Tensor | None) -> Tensor:
        """`F ⊙ x + b`: (batch, in_features) → (batch, out_features)."""

    def extra_repr(self) -> str:
        scale = ", scale=True" if self.scale is not None else ""
        return super().extra_repr() + scale + (f", reduce={self.reduce!r}" if self.reduce != "sum" else "")


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
    - `scale`: whether to multiply each sum by a trainable number, which starts at 1: `scale·(F ⊙ x) + b`.
        [`ftnn.nn.folded`][] adds it where a normalisation cannot be folded into the function's parameters.
    - `reduce`: `"sum"`, or `"product"` for product units: `y_i = Π_j F_ij(x_j) + b_i`. Gradients are exact
        where factors are 0. Functions that are grounded are refused. Factors start near 1 for inputs of unit
        variance, or for the inputs given to `calibrate`; in ranges that the function gives, if it gives any,
        other than those of the catalogue. The values of all connections,
        (batch, in_features, out_features), are in memory at once.

    Shapes: the input is (…, in_features), the output (…, out_features). `state_dict` has `theta.<name>` and
    `constants.<name>`, each (in_features, out_features), and `bias` and `scale`, (out_features,), if present.

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
        scale: bool = False,
        reduce: Reduce = "sum",
    ):
        super().__init__(
            in_features,
            out_features,
            function,
            bias=bias,
            device=device,
            dtype=dtype,
            backend=backend,
            scale=scale,
            reduce=reduce,
        )

    def _sums(self, rows: Tensor, matrices: list[Tensor], bias: Tensor | None) -> Tensor:
        if self.reduce == "product":
            return product(connection_values(self.function, rows, matrices), bias)
        return transfer(self.function, rows, matrices, self.backend, bias=bias)


def used_entries(net: nn.Module) -> dict[int, Tensor]:
    """Which entries of functions' parameters are used by their connection's kind, by the tensor's `id`."""
    layers = [module for module in net.modules() if isinstance(module, FeedForward)]
    return {id(layer.theta[name]): layer.uses(name) for layer in layers for name in layer.theta}
