"""What a network can do, and what it is, in numbers."""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from torch import nn

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


def loss_of_the_mean(problem: Problem) -> float:
    """The squared loss of an answer that is always the targets' mean."""
    y = problem.y.astype(np.float64)
    weights = np.ones(len(y)) if problem.weights is None else problem.weights.astype(np.float64)
    if not weights.any():
        return 0.0
    squares = (y - np.average(y, axis=0, weights=weights)) ** 2
    return float(0.5 * (weights @ squares).sum() / len(y))


def measure(outputs: Array, y: Array, loss: Loss) -> tuple[float | None, float]:
    """(accuracy in percent or None, mean loss) of a network's linear outputs, (samples, out)."""
    outputs = outputs.astype(np.float64)
    if loss == "squared":
        return None, float(0.5 * ((outputs - y) ** 2).sum(1).mean())
    with np.errstate(all="ignore"):
        shifted = outputs - outputs.max(1, keepdims=True)
        losses = np.log(np.exp(shifted).sum(1)) - shifted[np.arange(len(y)), y]
    return 100 * int((outputs.argmax(1) == y).sum()) / len(y), float(losses.mean())
