"""Checks of the tensors an operator receives, at every call: generated code does not check its addresses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ftnn.errors import DTypeError, FtnnError, ShapeError
from ftnn.kernels.contraction import WEIGHT, Axes

Matrices = Sequence[Tensor]
"""A layer's parameters, then its constants, in the function's order: each (in, out), or (connections,)
with `Lists`."""
Names = tuple[str, ...]
"""What to differentiate by: `x` and parameters."""

_WORDS = {"b": "batch", "i": "in", "o": "out", "c": "connections"}


def sizes_of(operands: Sequence[tuple[str, Axes]], tensors: Sequence[Tensor]) -> dict[str, int]:
    """The length of each axis.

    **Arguments:**

    - `operands`: the name and the axes of each tensor.
    - `tensors`: one per operand. They must agree in the length of each axis, in dtype and in device.
    """
    if len(operands) != len(tensors):
        names = ", ".join(name for name, _ in operands)
        raise FtnnError(f"expected {len(operands)} tensors ({names}), got {len(tensors)}")
    first = tensors[0]
    lengths: dict[str, int] = {}
    for (symbol, axes), tensor in zip(operands, tensors, strict=True):
        name = "the gradient" if symbol.startswith(WEIGHT) else symbol
        _check_kind(name, tensor, first.dtype, first.device)
        shape = tensor.shape
        if len(shape) != len(axes) or any(
            lengths.setdefault(a, n) != n for a, n in zip(axes, shape, strict=True)
        ):
            expected = ", ".join(str(lengths.get(axis, _WORDS[axis])) for axis in axes)
            words = ", ".join(_WORDS[axis] for axis in axes)
            raise ShapeError(f"{name} has shape {tuple(shape)}; expected ({words}) = ({expected})")
    return lengths


@dataclass(frozen=True)
class Lists:
    """The connections of a partial matrix, grouped by output."""

    inputs: Tensor
    """The input of each connection, (connections,) int32."""
    bounds: Tensor
    """Output o has connections bounds[o] to bounds[o + 1], (out + 1,) int64."""

    @property
    def out_features(self) -> int:
        return len(self.bounds) - 1

    @property
    def outputs(self) -> Tensor:
        """The output of each connection, (connections,) int64."""
        numbers = torch.arange(self.out_features, device=self.bounds.device)
        return numbers.repeat_interleave(self.bounds.diff())


@dataclass(slots=True)
class Kept:
    """What a forward pass leaves for the backward pass on the same tensors, to save work."""

    module: Any = None
    """The backend that computed it."""
    tensors: Sequence[Tensor] = ()
    notes: Any = None
    """Whatever else the backend needs to read them."""
    finite: bool = False
    """Set by the backward pass if it knows that all gradients are finite."""


def check_transfer(
    names: Names, x: Tensor, matrices: Matrices, lists: Lists | None = None, grad: Tensor | None = None
) -> None:
    """Raise if these tensors do not fit a transfer computation.

    `names` are those of the matrices. `x` is (batch, in), `grad` (batch, out).
    """
    operands = [("x", "bi"), *((name, "io" if lists is None else "c") for name in names)]
    sizes = sizes_of(operands, (x, *matrices))
    if lists is not None:
        _check_lists(lists, x, sizes["c"])
        sizes["o"] = lists.out_features
    if grad is not None:
        _check_kind("the gradient", grad, x.dtype, x.device)
        if grad.shape != (shape := (sizes["b"], sizes["o"])):
            raise ShapeError(f"the gradient has shape {tuple(grad.shape)}; expected {shape}")


def _check_lists(lists: Lists, x: Tensor, count: int) -> None:
    """Raise if the lists refer to anything outside the arrays."""
    inputs, bounds = lists.inputs, lists.bounds
    _check_kind("inputs", inputs, torch.int32, x.device)
    _check_kind("bounds", bounds, torch.int64, x.device)
    if inputs.shape != (count,):
        raise ShapeError(f"inputs has shape {tuple(inputs.shape)}; expected ({count},), one per connection")
    if count and not (inputs.min() >= 0 and inputs.max() < x.shape[1]):
        raise ShapeError(
            f"inputs range from {int(inputs.min())} to {int(inputs.max())}; expected 0 to {x.shape[1] - 1}"
        )
    spans = bounds.dim() == 1 and len(bounds) > 0 and bounds[0] == 0 and bounds[-1] == count
    if not spans or (bounds.diff() < 0).any():
        raise ShapeError(f"bounds must rise from 0 to the number of connections, {count}")


def check_layout(name: str, tensor: Tensor) -> None:
    """Raise if the tensor is sparse, nested or otherwise not strided."""
    if tensor.is_nested or tensor.layout is not torch.strided:
        kind = "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.").strip("_")
        raise DTypeError(f"{name} is a {kind} tensor; expected a dense (strided) one")


def _check_kind(name: str, tensor: Tensor, dtype: torch.dtype, device: torch.device) -> None:
    check_layout(name, tensor)
    if tensor.dtype != dtype:
        raise DTypeError(f"{name} is {tensor.dtype}; expected {dtype}")
    if tensor.device != device:
        raise FtnnError(f"{name} is on {tensor.device}; expected {device}")


def all_finite(tensors: Sequence[Tensor]) -> bool:
    """Whether the tensors contain neither NaN nor infinity."""
    # A sum takes a third of the time, and rarely overflows when all numbers are finite.
    sums = [t.sum() for t in tensors]
    if not sums or bool(sum(sums[1:], sums[0]).isfinite()):
        return True
    return all(bool(t.isfinite().all()) for t in tensors)
