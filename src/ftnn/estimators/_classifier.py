"""`FTNNClassifier`."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from scipy.special import log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.preprocessing import LabelEncoder
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from ftnn.estimators._base import Estimator
from ftnn.estimators._samples import Array, Samples, checked_weights
from ftnn.training import Epoch


class FTNNClassifier(ClassifierMixin, Estimator):
    """doc"""

    classes_: Array
    _loss: Literal["softmax", "squared"] = "softmax"

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        self._check_parameters()
        x, y, weights = self._checked(X, y, sample_weight, reset=True)
        encoder = LabelEncoder().fit(y)
        self._set_classes(encoder.classes_)
        return self._learn(Samples(x, self._encoded(y), weights), len(self.classes_))

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        self._check_parameters()
        first = not hasattr(self, "network_")
        x, y, weights = self._checked(X, y, sample_weight, reset=first)
        if first:
            if classes is None:
                raise ValueError("classes must be given to the first call of partial_fit: all that will ever occur")
            self._set_classes(LabelEncoder().fit(classes).classes_)
        elif classes is not None and not np.array_equal(LabelEncoder().fit(classes).classes_, self.classes_):
            raise ValueError(f"classes={classes!r} differs from those of the first call: {self.classes_}")
        return self._learn_more(Samples(x, self._encoded(y), weights), len(self.classes_))

    def _checked(self, X: Any, y: Any, sample_weight: Any, *, reset: bool) -> tuple[Array, Array, Array]:
        """Checked and without the samples that weigh nothing."""
        x, y = validate_data(self, X, y, reset=reset, dtype=self.dtype, order="C")
        check_classification_targets(y)
        weights = checked_weights(sample_weight, len(x))
        counts = weights > 0
        return x[counts], y[counts], weights[counts]

    def _set_classes(self, classes: Array) -> None:
        if len(classes) < 2:
            raise ValueError(
                f"y has one class only, {classes[0]!r} (samples of weight 0 do not count); "
                "a classifier needs samples of at least 2 classes"
            )
        self.classes_ = classes

    def _encoded(self, y: Array) -> Array:
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise ValueError(f"y has labels that are not among the classes: {unknown}; known are {self.classes_}")
        return np.searchsorted(self.classes_, y)

    def _validation_score(self, epoch: Epoch) -> float:
        assert epoch.test_accuracy is not None
        return epoch.test_accuracy / 100

    def predict(self, X: Any) -> Array:
        outputs = self._outputs(X)
        return self.classes_[outputs.argmax(1)]

    def predict_proba(self, X: Any) -> Array:
        outputs = self._outputs(X)
        return softmax(outputs.astype(np.float64), axis=1).astype(outputs.dtype)

    def predict_log_proba(self, X: Any) -> Array:
        outputs = self._outputs(X)
        exact = log_softmax(outputs.astype(np.float64), axis=1).astype(outputs.dtype)
        # The logarithm of what predict_proba gives, but where that is too small to have one.
        rounded = np.exp(exact.astype(np.float64)).astype(outputs.dtype)
        return np.where(rounded < 0.5, exact, np.log(np.maximum(rounded, 0.5)))
