"""`FTNNRegressor`."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.preprocessing import StandardScaler

from ftnn.estimators._base import Estimator
from ftnn.estimators._samples import Array, Samples, checked, checked_weights
from ftnn.estimators._scaling import fitted
from ftnn.training import Epoch


class FTNNRegressor(RegressorMixin, Estimator):
    """A regressor in which every connection is a trainable function instead of a weight.

    Its parameters are those of [`ftnn.estimators.Estimator`][]. Features and targets may have any scale.

    **Attributes** after fitting, in addition to those of `Estimator`:

    - `target_scaler_`: the `StandardScaler` of the targets. Outputs of `network_` and losses are
        standardised; `target_scaler_.inverse_transform` turns outputs into targets.
    - `validation_scores_`: R² relative to the mean and variance of the training targets; with another loss
        than the squared one, the negative loss.
    """

    target_scaler_: Any
    _has_classes = False
    _flat: bool
    """Whether the targets were (samples,)."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train a new network.

        **Arguments:**

        - `X`: (samples, features), finite numbers. `y`: (samples,) or (samples, targets).
        - `sample_weight`: (samples,), 0 or more. A weight of 2 counts as two samples, one of 0 as none.
        """
        self._check()
        samples = self._checked(X, y, sample_weight, reset=True)
        return self._learn(self._scaled(samples), samples.y.shape[1])

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train all layers together for one epoch, from the current parameters.

        `X`, `y` and `sample_weight` are as for `fit`. Inputs and targets are
        standardised as in the first call.
        """
        self._check()
        first = not hasattr(self, "network_")
        samples = self._checked(X, y, sample_weight, reset=first)
        outputs = self.target_scaler_.n_features_in_
        if samples.y.shape[1] != outputs:
            raise ValueError(f"y has {samples.y.shape[1]} targets per sample, but had {outputs} before")
        return self._learn_more(self._scaled(samples), outputs)

    def predict(self, X: Any) -> Array:
        """The targets of each sample, (samples,) or (samples, targets), as in training."""
        outputs = self._outputs(X).numpy()
        targets = self.target_scaler_.inverse_transform(outputs)
        return targets[:, 0] if self._flat else targets

    def _checked(self, X: Any, y: Any, sample_weight: Any, *, reset: bool) -> Samples:
        """Validate, and drop samples of weight 0; y becomes (samples, targets)."""
        x, y = checked(
            self, X, y, reset=reset, dtype=self._input_dtype(new=reset), multi_output=True, y_numeric=True
        )
        weights = checked_weights(sample_weight, len(x))
        targets = y.reshape(len(x), -1).astype(np.float64)
        samples = Samples(x, targets, weights).take(weights > 0)
        if reset:
            self._flat = y.ndim == 1
            self.target_scaler_ = fitted(StandardScaler(), samples.y, samples.weights)
        return samples

    def _scaled(self, samples: Samples) -> Samples:
        return Samples(samples.x, self.target_scaler_.transform(samples.y), samples.weights)

    def _validation_score(self, epoch: Epoch) -> float:
        assert epoch.test_loss is not None
        if not math.isfinite(epoch.test_loss):
            return -math.inf
        if self._loss != "squared":
            return -epoch.test_loss
        # Targets have unit variance, and the loss is half the squared error, summed over them.
        return 1 - 2 * epoch.test_loss / self.target_scaler_.n_features_in_
