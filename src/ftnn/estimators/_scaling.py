"""Scalers, fitted to weighted samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from ftnn.estimators._samples import Array, Samples


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
