"""Weighted samples made ready for mini-batches, so that weights mean what scikit-learn says they mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from ftnn.data._masked import unmasked
from ftnn.training._problem import as_array

Array = np.ndarray[Any, np.dtype[Any]]

MOST_VISITS = 5
"""Weights are scaled down to this mean: an epoch is never longer than about so many visits to each sample."""

ROUNDING = 1e-6
"""A weight that is above a whole number by no more than this was meant to be that number."""


@dataclass(frozen=True)
class Samples:
    """Inputs (samples, features), labels or targets (samples, …), and weights (samples,)."""

    x: Array
    y: Array
    weights: Array

    def __len__(self) -> int:
        return len(self.x)

    def take(self, rows: Array) -> Samples:
        """The samples of these numbers, or where a mask is true."""
        return Samples(self.x[rows], self.y[rows], self.weights[rows])

    def in_order(self) -> Samples:
        """Ordered by what they are, so that a result does not depend on the order they were given in."""
        parts = (self.x, self.y, self.weights)
        rows = [np.ascontiguousarray(part.reshape(len(self), -1)).view(np.uint8) for part in parts]
        joined = np.concatenate(rows, axis=1)
        return self.take(np.argsort(joined.view(np.dtype((np.void, joined.shape[1])))[:, 0], kind="stable"))

    def expanded(self) -> Samples:
        """Each of weight w as ⌈w⌉ samples, which share w.

        In mini-batches, a large weight on one sample would be one large step, and not the same as the sample
        repeated; this makes it the same.
        """
        visits = np.maximum(np.ceil(self.weights - ROUNDING), 1).astype(np.int64)
        rows = np.repeat(np.arange(len(self)), visits)
        return Samples(self.x[rows], self.y[rows], (self.weights / visits)[rows])

    def split(self, fraction: float, seed: int, *, by_class: bool) -> tuple[Samples, Samples]:
        """Most samples, and a random fraction to validate on: of each class, if it has enough."""
        count = min(max(round(fraction * len(self)), 1), len(self) - 1)
        if count < 1:
            raise ValueError("early_stopping=True needs at least 2 samples: one is kept for validation")
        stratify = self.y if by_class else None
        if by_class:
            sizes = np.unique(self.y, return_counts=True)[1]
            if sizes.min() < 2 or min(count, len(self) - count) < len(sizes):
                stratify = None
        rows = np.arange(len(self))
        rest, validation = train_test_split(rows, test_size=count, random_state=seed, stratify=stratify)
        return self.take(np.asarray(rest)), self.take(np.asarray(validation))


def checked(estimator: Any, *data: Any, reset: bool, dtype: str, **how: Any) -> Any:
    """Arrays from X, or from X and y, as scikit-learn's `validate_data` has it; it knows no types."""
    data = tuple(_readable(array, name) for name, array in zip(("X", "y"), data, strict=False))
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is an error, no warning
        return validate_data(estimator, *data, reset=reset, dtype=dtype, order="C", **how)


def _readable(data: Any, name: str) -> Any:
    """What scikit-learn would misread (it ignores masks), or leave to torch to fail at."""
    return as_array(data, name) if isinstance(data, torch.Tensor) else unmasked(data, name)


def checked_weights(sample_weight: Any, samples: int) -> Array:
    """The weights, or ones for None: scaled so that they can count visits."""
    if sample_weight is None:
        return np.ones(samples)
    weights = check_array(
        unmasked(sample_weight, "sample_weight"), ensure_2d=False, dtype="float64", input_name="sample_weight"
    )
    if weights.ndim != 1:
        raise ValueError(f"sample_weight must be one number for each sample, not of shape {weights.shape}")
    if len(weights) != samples:
        raise ValueError(f"sample_weight has {len(weights)} numbers for {samples} samples")
    if (weights < 0).any():
        raise ValueError(f"sample_weight must be 0 or more; it has {weights.min():g}")
    if not weights.any():
        raise ValueError("sample_weight is zero for all samples; at least one weight must be above zero")
    mean = weights[weights > 0].mean()
    # Weights of mean 1 and more count samples; smaller ones (probabilities, say) have no such meaning.
    return weights * (min(max(mean, 1.0), MOST_VISITS) / mean)
