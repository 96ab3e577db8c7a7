"""Numbers with mean 0 and variance 1, by scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

from ftnn.data._preparation import Array, Scaling

LIMIT = 5.0
"""How many standard deviations from the mean an input counts at most."""


class InputScaler(StandardScaler):
    """A `StandardScaler` whose results are limited to ±5.

    Outliers, such as a pixel that is hardly ever lit, would dominate functions that grow faster than a
    weight. Data without outliers are not affected.
    """

    limit_: float = LIMIT

    def transform(self, X: Any, copy: bool | None = None) -> Array:
        """Standardised and limited inputs, (samples, features)."""
        with np.errstate(over="ignore"):
            return np.clip(super().transform(X, copy=copy), -self.limit_, self.limit_)


def scaling_of(scaler: Any) -> Scaling:
    """A fitted scaler as data."""
    mean, scale = (tuple(map(float, numbers)) for numbers in (scaler.mean_, scaler.scale_))
    return Scaling(mean, scale, scaler.limit_ if isinstance(scaler, InputScaler) else None)


def scaler_of(scaling: Scaling) -> Any:
    """The fitted scaler that `scaling_of` was given."""
    scaler: Any = StandardScaler()
    if scaling.limit is not None:
        scaler = InputScaler()
        scaler.limit_ = scaling.limit
    scaler.mean_, scaler.scale_ = np.array(scaling.mean), np.array(scaling.scale)
    scaler.var_, scaler.n_features_in_ = scaler.scale_**2, len(scaling.mean)
    scaler.n_samples_seen_ = 1
    return scaler
