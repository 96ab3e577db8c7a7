"""`Partial`: a layer with only some of its connections."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ftnn.errors import ShapeError
from ftnn.kernels import Backend, Lists, is_traced, listed_values, traced_transfer, transfer
from ftnn.nn._connections import AnyFunction, size
from ftnn.nn._feed_forward import FeedForward
from ftnn.nn._reduce import Reduce, product


class Partial(FeedForward):
    """The transfer computation `F ⊙ x + b` over some of the pairs of an input and an output.

    **Arguments:**

    - `in_features`, `out_features`: the numbers of inputs and outputs.
    - `function`: the function of every connection, as for [`ftnn.nn.Transfer`][].
    - `connections`: the (output, input) of each, (connections, 2) integers in any order; or only their
        number, if `load_state_dict` will set them.
    - `bias`, `device`, `dtype`, `backend`, `scale`, `reduce`: as for [`ftnn.nn.Transfer`][].

    Shapes: the input is (…, in_features), the output (…, out_features). `state_dict` has `theta.<name>` and
    `constants.<name>`, each (connections,), ordered by output, then input; `inputs` and `outputs`, the ends
    of each connection, (connections,) int32; and, if present, `bias` and `scale`, (out_features,).
    """

    inputs: Tensor
    outputs: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        function: AnyFunction,
        connections: Any,
        bias: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
        backend: Backend = "auto",
        scale: bool = False,
        reduce: Reduce = "sum",
    ):
        in_features, pairs = size("in_features", in_features), _pairs(connections)
        order = (pairs[:, 0] * in_features + pairs[:, 1]).argsort()
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
            places=(pairs[order, 1], pairs[order, 0]),
        )
        self._checked: tuple[Tensor, Tensor, tuple[int, int], Tensor] | None = None
        if not isinstance(connections, int) and not self.inputs.is_meta:
            self.check()

    @property
    def connections(self) -> Tensor:
        """The (output, input) of each connection, (connections, 2) int64."""
        return torch.stack([self.outputs, self.inputs], 1).long()

    def check(self) -> Tensor:
        """Where each output's connections begin, (out + 1,) int64. Raises `ShapeError` for invalid ones.

        Compiled code relies on this check, which is repeated only after the tensors change.
        """
        versions = (self.inputs._version, self.outputs._version)
        if self._checked is not None:
            inputs, outputs, checked_versions, bounds = self._checked
            if inputs is self.inputs and outputs is self.outputs and checked_versions == versions:
                return bounds
        bounds = self._bounds()
        self._checked = (self.inputs, self.outputs, versions, bounds)
        return bounds

    def _bounds(self) -> Tensor:
        inputs, outputs = self.inputs.long(), self.outputs.long()
        for name, ends, count in (("in", inputs, self.in_features), ("out", outputs, self.out_features)):
            if len(ends) and not (ends.min() >= 0 and ends.max() < count):
                range_ = f"{name}puts {int(ends.min())} to {int(ends.max())}"
                raise ShapeError(f"connections have {range_}; expected 0 to {count - 1}")
        if not bool(((outputs * self.in_features + inputs).diff() > 0).all()):
            raise ShapeError("connections must be unique, and ordered by output, then input")
        return torch.searchsorted(outputs, torch.arange(self.out_features + 1, device=outputs.device))

    def _reset_kinds(self, generator: torch.Generator | None) -> Tensor | None:
        kinds = None if self._mixed is None else self._mixed.kinds(self.in_features, self.out_features)
        if kinds is None or self._kind_name is None:
            return super()._reset_kinds(generator)
        table = torch.from_numpy(kinds.copy()).to(self.outputs.device)
        kind = self.constants[self._kind_name]
        return kind.copy_(table[self.outputs.long(), self.inputs.long()])

    def matrix(self, name: str, kind: AnyFunction | int | None = None) -> Tensor:
        """A parameter or constant as the paper indexes it: a copy, (out, in), with NaN for no connection.

        For `kind`, see [`ftnn.nn.Transfer`][].
        """
        listed = self._stored(name)
        if kind is not None:
            listed = self._of_kind(listed, name, kind)
        whole = listed.new_full((self.out_features, self.in_features), torch.nan)
        return whole.index_put((self.outputs.long(), self.inputs.long()), listed)

    def _inputs_of_connections(self, x: Tensor) -> Tensor:
        return x[:, self.inputs.long()]

    def _sums(self, rows: Tensor, matrices: list[Tensor], bias: Tensor | None) -> Tensor:
        if self.reduce == "product":  # a connection that does not exist is a factor of 1
            self.check()
            factors = listed_values(self.function, rows, matrices, self.inputs)
            ones = rows.new_ones(len(rows), self.in_features, self.out_features)
            samples = torch.arange(len(rows), device=rows.device)[:, None]
            places = (samples, self.inputs.long(), self.outputs.long())
            return product(ones.index_put(places, factors), bias)
        if is_traced():
            places = (self.inputs, self.outputs.long())  # ONNX scatters by int64 only
            out = traced_transfer(self.function, rows, matrices, *places, self.out_features)
            return out if bias is None else out + bias
        return transfer(self.function, rows, matrices, self.backend, Lists(self.inputs, self.check()), bias)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, connections={len(self.inputs)}"


def _pairs(connections: Any) -> Tensor:
    """(connections, 2) int64; zeros if `connections` is a number."""
    if isinstance(connections, int) and connections >= 0:
        return torch.zeros(connections, 2, dtype=torch.int64)
    pairs = torch.as_tensor(connections)
    if pairs.numel() == 0:
        return torch.zeros(0, 2, dtype=torch.int64, device=pairs.device)
    if pairs.dim() != 2 or pairs.shape[1] != 2 or pairs.is_floating_point() or pairs.dtype == torch.bool:
        raise ShapeError(
            "connections must be integers of shape (connections, 2), an (output, input) for each, "
            f"not {pairs.dtype} of shape {tuple(pairs.shape)}"
        )
    return pairs.long()
