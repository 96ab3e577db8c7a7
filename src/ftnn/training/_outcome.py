"""Measures a network: its accuracy and loss, and a digest of its parameters."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from ftnn.errors import DataError
from ftnn.training._losses import SOFTMAX, loss_formula
from ftnn.training._problem import Array, Loss


def digest(module: nn.Module) -> str:
    """The SHA-256 of a module's parameters and constants."""
    total = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        array = tensor.detach().cpu().contiguous()
        total.update(f"{name} {array.dtype} {tuple(array.shape)} ".encode())
        total.update(array.flatten().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


NO_CLASS = -1
"""The class of a sample whose outputs are not finite. It equals no label, so it is always wrong."""


def classes_of(outputs: Tensor) -> Tensor:
    """The class that each row of a network's outputs, (samples, classes), predicts, (samples,).

    This is the class of the largest output (the first one of a tie), or `NO_CLASS` if any output of the row
    is not finite. Compiled steps (`kernels/loops/losses.py`) follow the same rule.
    """
    return torch.where(outputs.isfinite().all(1), outputs.argmax(1), NO_CLASS)


def require_finite(outputs: Tensor, whose: str, cause: Callable[[], str | None] = lambda: None) -> Tensor:
    """A network's outputs, (samples, out); raises `DataError` if any of them are not finite.

    `cause` says what to try.
    """
    bad_rows = (~outputs.isfinite().all(1)).nonzero()[:, 0]
    if len(bad_rows):
        found = cause()
        raise DataError(
            f"{whose} gives outputs that are not finite for {len(bad_rows)} of {len(outputs)} rows "
            f"(the first is row {int(bad_rows[0])}, counted from 0), so it has no predictions for them"
            + ("" if found is None else f". Try {found}")
        )
    return outputs


def measure(outputs: Array, y: Array, loss: Loss) -> tuple[float | None, float]:
    """(accuracy in percent or None, mean loss) of a network's linear outputs, (samples, out).

    A row whose outputs are not finite counts as wrong, and makes the loss NaN.
    """
    if len(outputs) == 0:
        raise DataError("there are no samples to measure on")
    outputs = outputs.astype(np.float64)
    with np.errstate(all="ignore"):
        if loss != SOFTMAX:
            targets = torch.from_numpy(y.astype(np.float64))
            return None, float(loss_formula(loss).of_samples(torch.from_numpy(outputs), targets).mean())
        shifted = outputs - outputs.max(1, keepdims=True)
        losses = np.log(np.exp(shifted).sum(1)) - shifted[np.arange(len(y)), y]
    classes = classes_of(torch.from_numpy(outputs)).numpy()
    losses[classes == NO_CLASS] = np.nan
    return 100 * int((classes == y).sum()) / len(y), float(losses.mean())
