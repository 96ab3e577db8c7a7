"""Checks what layers receive: inputs to compute with, and typical ones to calibrate for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ftnn._printable import quoted
from ftnn.errors import DataError, DTypeError, FtnnError, ShapeError
from ftnn.kernels import check_layout
from ftnn.nn._precision import autocast_dtype

SAMPLES = 1000
"""The most samples that calibration looks at."""


def check_input(module: nn.Module, x: Tensor, dtype: torch.dtype) -> None:
    """Raise an error unless `x` is a tensor (…, in_features) of the module's dtype, or one for autocast."""
    name, in_features = type(module).__name__, module.in_features
    if not isinstance(x, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DTypeError(f"{name} expects a torch tensor, not {type(x).__name__}")
    check_layout("the input", x)
    if x.dim() == 0 or x.shape[-1] != in_features:
        raise ShapeError(
            f"{name} has in_features={in_features}, but its input has shape {tuple(x.shape)}: "
            f"the last dimension must be {in_features}"
        )
    if not x.is_floating_point():
        raise DTypeError(f"the input is {x.dtype}, not floating-point; convert it with x.to({dtype})")
    if x.dtype != dtype and autocast_dtype(x, dtype) is None:
        raise DTypeError(
            f"the input is {x.dtype}, but this {name} has parameters of {dtype}; "
            f"convert the input with x.to({dtype}) or the module with .to({x.dtype})"
        )


def typical(module: nn.Module, x: Tensor, dtype: torch.dtype) -> Tensor:
    """The first samples of inputs to calibrate for, (samples, in), which must be finite numbers."""
    check_input(module, x, dtype)
    if not x.numel():
        raise DataError(f"x has shape {tuple(x.shape)}; calibrate needs at least one sample")
    if not bool(x.isfinite().all()):
        place = tuple((~x.isfinite()).nonzero()[0].tolist())
        raise DataError(f"x[{', '.join(map(str, place))}] is {x[place]:g}; calibrate expects finite numbers")
    return x.detach().reshape(-1, x.shape[-1])[:SAMPLES]


def check_generator(generator: Any) -> None:
    """Raise an error unless `generator` can give random numbers; None stands for torch's own."""
    if generator is not None and not isinstance(generator, torch.Generator):
        raise FtnnError(
            f"generator must be a torch.Generator, such as torch.Generator().manual_seed(0), not "
            f"{quoted(generator)}"
        )
