"""Measures a network: its accuracy and loss, and a digest of its parameters."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from ftnn.errors import DataError
from ftnn.training._losses import LOGISTIC, SOFTMAX, loss_formula
from ftnn.training._problem import Array, Loss, Problem


def digest(module: nn.Module) -> str:
    """The SHA-256 of a module's parameters and constants."""
    total = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        array = tensor.detach().cpu().contiguous()
        total.update(f"{name} {array.dtype} {tuple(array.shape)} ".encode())
        total.update(array.flatten().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def at_chance(classes: int) -> float:
    """The accuracy up to which a network counts as untrained: 0.2 for ten classes, 0.56 for two."""
    chance = 1 / max(classes, 1)
    return chance + (1 - chance) / 9


MARGIN = 0.002
"""The share by which a network has to beat the trivial prediction, or it has learned nothing."""


def most_frequent(problem: Problem) -> tuple[float, float]:
    """The share of the most frequent class, and the loss of always predicting the classes' shares."""
    counts = np.bincount(problem.y, problem.weights, minlength=problem.outputs)
    shares = counts[counts > 0] / max(counts.sum(), 1e-300)
    if not len(shares):
        return 0.0, 0.0
    mean_weight = 1.0 if problem.weights is None else float(problem.weights.mean())
    return float(shares.max()), mean_weight * float(-(shares * np.log(shares)).sum())


def loss_of_the_mean(problem: Problem) -> float:
    """The loss of always predicting the targets' mean or, for the logistic loss, its log odds."""
    y = problem.y.astype(np.float64)
    if problem.loss == "squared" and problem.weights is None:
        return float(y.var(axis=0).sum() / 2)
    weights = np.ones(len(y)) if problem.weights is None else problem.weights.astype(np.float64)
    if not weights.any():
        return 0.0
    prediction = np.average(y, axis=0, weights=weights)
    if problem.loss == LOGISTIC:
        share = np.clip(prediction, 1e-12, 1 - 1e-12)
        prediction = np.log(share / (1 - share))
    outputs = torch.from_numpy(np.broadcast_to(prediction, y.shape).copy())
    losses = problem.formula.of_samples(outputs, torch.from_numpy(y)).numpy()
    return float(weights @ losses / len(y))


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
