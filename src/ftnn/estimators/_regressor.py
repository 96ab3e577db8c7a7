"""`FTNNRegressor`."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import validate_data

from ftnn.estimators._base import Estimator
from ftnn.estimators._samples import Array, Samples, checked_weights
from ftnn.training import Epoch


class FTNNRegressor(RegressorMixin, Estimator):
    """doc"""

    target_scaler_: StandardScaler
    _loss: Literal["softmax", "squared"] = "squared"
    _flat: bool
    """Whether targets were given as (samples,)."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        self._check_parameters()
        samples = self._checked(X, y, sample_weight, reset=True)
        whole = samples.in_order().expanded()  # so that weighted and repeated samples give the very same numbers
        self.target_scaler_ = StandardScaler().fit(whole.y, sample_weight=whole.weights)
        return self._learn(self._scaled(samples), samples.y.shape[1])

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        self._check_parameters()
        first = not hasattr(self, "network_")
        samples = self._checked(X, y, sample_weight, reset=first)
        if first:
            self.target_scaler_ = StandardScaler().fit(samples.y, sample_weight=samples.weights)
        outputs = self.target_scaler_.n_features_in_
        if samples.y.shape[1] != outputs:
            raise ValueError(f"y has {samples.y.shape[1]} targets, but the first call of partial_fit had {outputs}")
        return self._learn_more(self._scaled(samples), outputs)

    def _checked(self, X: Any, y: Any, sample_weight: Any, *, reset: bool) -> Samples:
        """Checked and without the samples that weigh nothing; y (samples, targets)."""
        x, y = validate_data(
            self, X, y, reset=reset, dtype=self.dtype, order="C", multi_output=True, y_numeric=True
        )
        self._flat = y.ndim == 1
        y = y.reshape(len(x), -1).astype(np.float64)
        weights = checked_weights(sample_weight, len(x))
        counts = weights > 0
        return Samples(x[counts], y[counts], weights[counts])

    def _scaled(self, samples: Samples) -> Samples:
        return Samples(samples.x, self.target_scaler_.transform(samples.y), samples.weights)

    def _validation_score(self, epoch: Epoch) -> float:
        # Targets have unit variance, and the loss is half the squared error, summed over them.
        assert epoch.test_loss is not None
        return 1 - 2 * epoch.test_loss / self.target_scaler_.n_features_in_

    def predict(self, X: Any) -> Array:
        outputs = self._outputs(X)
        found = self.target_scaler_.inverse_transform(outputs.astype(np.float64)).astype(outputs.dtype)
        return found[:, 0] if self._flat else found
