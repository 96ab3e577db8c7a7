"""Inputs and targets with mean 0 and variance 1."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

from ftnn.estimators._samples import Array, Samples


def scaler_of(values: Array, weights: Array) -> Any:
    """A `StandardScaler` for inputs or targets, (samples, columns) float64, with weights, (samples,).

    In order and expanded, so that weighted and repeated samples give exactly the same numbers.
    """
    expanded = Samples(values, weights, weights).in_order().expanded()
    with np.errstate(over="ignore", invalid="ignore"):
        scaler = StandardScaler().fit(expanded.x, sample_weight=expanded.weights)
    if not all(np.isfinite(numbers).all() for numbers in (scaler.mean_, scaler.scale_)):
        raise ValueError(
            f"numbers as large as {np.abs(values).max():g} cannot be standardised: "
            "their mean or variance is not finite"
        )
    return scaler


def standardised(x: Array, scaler: Any, dtype: str) -> Array:
    """Inputs as a network sees them, (samples, features). Raises `ValueError` if they are too large."""
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.ascontiguousarray(scaler.transform(x), dtype)
    if not np.isfinite(scaled).all():
        raise ValueError(f"Input X is, after standardising, too large for dtype('{dtype}')")
    return scaled
