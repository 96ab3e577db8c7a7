"""Inputs and targets with mean 0 and variance 1."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

from ftnn.estimators._samples import Array, Samples

LIMIT = 5.0
"""How many standard deviations from the mean an input counts at most."""


class InputScaler(StandardScaler):
    """A `StandardScaler` whose results are limited to ±5.

    Outliers, such as a pixel that is hardly ever lit, would dominate functions that grow faster than a
    weight. Data without outliers are not affected.
    """

    def transform(self, X: Any, copy: bool | None = None) -> Array:
        """Standardised and limited inputs, (samples, features)."""
        with np.errstate(over="ignore"):
            return np.clip(super().transform(X, copy=copy), -LIMIT, LIMIT)


def fitted(scaler: Any, values: Array, weights: Array) -> Any:
    """The scaler, fitted to inputs or targets, (samples, columns) float64, with weights, (samples,).

    In order and expanded, so that weighted and repeated samples give exactly the same numbers.
    """
    expanded = Samples(values, weights, weights).in_order().expanded()
    with np.errstate(over="ignore", invalid="ignore"):
        scaler.fit(expanded.x, sample_weight=expanded.weights)
    if not all(np.isfinite(numbers).all() for numbers in (scaler.mean_, scaler.var_)):
        raise ValueError(
            f"numbers as large as {np.abs(values).max():g} cannot be standardised: "
            "their mean or variance is not finite"
        )
    return scaler
