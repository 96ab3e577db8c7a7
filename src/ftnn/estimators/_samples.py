"""Weighted samples for mini-batches, with weights as scikit-learn defines them."""

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
"""The largest mean weight; larger weights are scaled down. Limits the mean visits per sample and epoch."""

ROUNDING = 1e-6
"""A weight that exceeds a whole number by no more than this counts as that number."""


@dataclass(frozen=True)
class Samples:
    """Inputs (samples, features), labels or targets (samples, …), and weights (samples,)."""

    x: Array
    y: Array
    weights: Array

    def __len__(self) -> int:
        return len(self.x)

    def take(self, rows: Array) -> Samples:
        """The samples at these indices, or where a mask is true."""
        return Samples(self.x[rows], self.y[rows], self.weights[rows])

    def in_order(self) -> Samples:
        """Sorted by content, so that results do not depend on the original order.

        Other units of the inputs, and so other rounding, change the order only of nearly equal numbers.
        """
        joined = np.concatenate([_sortable(part) for part in (self.x, self.y, self.weights)], axis=1)
        return self.take(np.argsort(joined.view(np.dtype((np.void, joined.shape[1])))[:, 0], kind="stable"))

    def expanded(self) -> Samples:
        """Each sample of weight w as ⌈w⌉ samples that share w.

        In a mini-batch, one sample with a large weight would cause one large step, unlike a repeated sample.
        """
        visits = np.maximum(np.ceil(self.weights - ROUNDING), 1).astype(np.int64)
        rows = np.repeat(np.arange(len(self)), visits)
        return Samples(self.x[rows], self.y[rows], (self.weights / visits)[rows])

    def split(self, fraction: float, seed: int, *, by_class: bool) -> tuple[Samples, Samples]:
        """Training samples, and a random fraction for validation: of each class, if it has enough samples."""
        count = min(max(round(fraction * len(self)), 1), len(self) - 1)
        if count < 1:
            raise ValueError("early_stopping=True needs at least 2 samples, one of them for validation")
        stratify = self.y if by_class else None
        if by_class:
            sizes = np.unique(self.y, return_counts=True)[1]
            if sizes.min() < 2 or min(count, len(self) - count) < len(sizes):
                stratify = None
        rows = np.arange(len(self))
        rest, validation = train_test_split(rows, test_size=count, random_state=seed, stratify=stratify)
        return self.take(np.asarray(rest)), self.take(np.asarray(validation))


def _sortable(numbers: Array) -> Array:
    """Bytes to sort rows by, (samples, …) → (samples, bytes): the most significant ones come first."""
    columns = numbers.reshape(len(numbers), -1).astype(">f8") + 0.0  # no negative zeros
    return np.ascontiguousarray(columns, ">f8").view(np.uint8)


def checked(estimator: Any, *data: Any, reset: bool, dtype: str, **how: Any) -> Any:
    """X, or X and y, as validated arrays: scikit-learn's `validate_data`, which is untyped."""
    data = tuple(_readable(array, name) for name, array in zip(("X", "y"), data, strict=False))
    with np.errstate(over="ignore", invalid="ignore"):  # non-finite values raise errors, not warnings
        return validate_data(estimator, *data, reset=reset, dtype=dtype, order="C", **how)


def _readable(data: Any, name: str) -> Any:
    """Convert tensors, and refuse masked arrays, whose masks scikit-learn would ignore."""
    return as_array(data, name) if isinstance(data, torch.Tensor) else unmasked(data, name)


def checked_weights(sample_weight: Any, samples: int) -> Array:
    """The weights, or ones for None, scaled to count visits."""
    if sample_weight is None:
        return np.ones(samples)
    weights = check_array(
        unmasked(sample_weight, "sample_weight"), ensure_2d=False, dtype="float64", input_name="sample_weight"
    )
    if weights.ndim != 1:
        raise ValueError(f"sample_weight must have one number per sample; its shape is {weights.shape}")
    if len(weights) != samples:
        raise ValueError(f"sample_weight has {len(weights)} numbers for {samples} samples")
    if (weights < 0).any():
        raise ValueError(f"sample_weight must be 0 or more; got {weights.min():g}")
    if not weights.any():
        raise ValueError("sample_weight is zero for all samples; at least one weight must be above zero")
    mean = weights[weights > 0].mean()
    # Weights with a mean of 1 or more count samples; smaller ones, such as probabilities, do not.
    return weights * (min(max(mean, 1.0), MOST_VISITS) / mean)
