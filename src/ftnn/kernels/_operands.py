"""What an operator may be given. Checked at every call: generated code reads where it is told to."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ftnn.errors import DTypeError, FtnnError, ShapeError

Axes = str
"""Which of the axes (b)atch, (i)n, (o)ut an array has, in this order: "bi", "io", "bo" or "bio"."""
_WORDS = {"b": "batch", "i": "in", "o": "out", "c": "connections"}


def sizes(operands: Sequence[tuple[str, Axes]], tensors: Sequence[Tensor]) -> dict[str, int]:
    """How long each axis is.

    **Arguments:**

    - `operands`: the name and the axes of each tensor.
    - `tensors`: as many. They must agree in the length of each axis, in dtype and in device.
    """
    if len(operands) != len(tensors):
        names = ", ".join(name for name, _ in operands)
        raise FtnnError(f"expected {len(operands)} tensors ({names}), got {len(tensors)}")
    first = tensors[0]
    found: dict[str, int] = {}
    for (symbol, axes), tensor in zip(operands, tensors, strict=True):
        name = "the gradient" if symbol.startswith("∂") else symbol
        check_kind(name, tensor, first.dtype, first.device)
        shape = tensor.shape
        if len(shape) != len(axes) or any(
            found.setdefault(a, n) != n for a, n in zip(axes, shape, strict=True)
        ):
            expected = ", ".join(str(found.get(axis, _WORDS[axis])) for axis in axes)
            words = ", ".join(_WORDS[axis] for axis in axes)
            raise ShapeError(f"{name} has shape {tuple(shape)}; expected ({words}) = ({expected})")
    return found


def check_list(
    operands: Sequence[str], x: Tensor, matrices: Sequence[Tensor], inputs: Tensor, bounds: Tensor
) -> None:
    """The same for a list of connections, where whole numbers say what is read.

    **Arguments:**

    - `operands`: the name of each matrix.
    - `x`: (batch, in). `matrices`: each (connections,).
    - `inputs`: (connections,) int32, each from 0 to in - 1.
    - `bounds`: (out + 1,) int64, from 0 to connections, none smaller than the one before.
    """
    sizes((("x", "bi"),), (x,))
    sizes([(name, "c") for name in operands], matrices)
    check_kind(operands[0], matrices[0], x.dtype, x.device)
    check_kind("inputs", inputs, torch.int32, x.device)
    check_kind("bounds", bounds, torch.int64, x.device)
    count = len(matrices[0])
    if inputs.shape != (count,):
        raise ShapeError(f"inputs has shape {tuple(inputs.shape)}; expected ({count},), one per connection")
    if count and not (inputs.min() >= 0 and inputs.max() < x.shape[1]):
        raise ShapeError(
            f"inputs are {int(inputs.min())} to {int(inputs.max())}; expected 0 to {x.shape[1] - 1}"
        )
    if (
        bounds.dim() != 1
        or not len(bounds)
        or bounds[0] != 0
        or bounds[-1] != count
        or (bounds.diff() < 0).any()
    ):
        raise ShapeError(f"bounds must rise from 0 to the number of connections, {count}")


def check_layout(name: str, tensor: Tensor) -> None:
    """Refuses a sparse, nested or otherwise special tensor."""
    if tensor.is_nested or tensor.layout is not torch.strided:
        kind = "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.").strip("_")
        raise DTypeError(f"{name} is a {kind} tensor; expected a dense (strided) one")


def check_kind(name: str, tensor: Tensor, dtype: torch.dtype, device: torch.device) -> None:
    """Refuses a tensor of another dtype, device or layout."""
    check_layout(name, tensor)
    if tensor.dtype != dtype:
        raise DTypeError(f"{name} is {tensor.dtype}; expected {dtype}")
    if tensor.device != device:
        raise FtnnError(f"{name} is on {tensor.device}; expected {device}")


def check_shape(name: str, tensor: Tensor, like: Tensor, shape: tuple[int, ...]) -> None:
    """Refuses a tensor of another shape, or of another kind than `like`."""
    check_kind(name, tensor, like.dtype, like.device)
    if tensor.shape != shape:
        raise ShapeError(f"{name} has shape {tuple(tensor.shape)}; expected {shape}")
