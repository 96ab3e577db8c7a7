"""`FTNNClassifier`."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy.special import log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.preprocessing import LabelEncoder
from sklearn.utils.multiclass import check_classification_targets

from ftnn.estimators._base import Estimator
from ftnn.estimators._samples import Array, Samples, checked, checked_weights
from ftnn.training import Epoch
from ftnn.training._outcome import classes_of


class FTNNClassifier(ClassifierMixin, Estimator):
    """A classifier in which every connection is a trainable function instead of a weight.

    Its parameters are those of [`ftnn.estimators.Estimator`][]. Features may have any scale.

    ```python
    FTNNClassifier(function="p*sin(q*x + r)", random_state=0).fit(X, y).predict_proba(X)
    ```

    **Attributes** after fitting, in addition to those of `Estimator`:

    - `classes_`: the labels, sorted, (classes,).
    - `validation_scores_`: accuracies.
    """

    classes_: Array
    _has_classes = True

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train a new network.

        **Arguments:**

        - `X`: (samples, features), finite numbers. `y`: (samples,), labels of any kind.
        - `sample_weight`: (samples,), 0 or more. A weight of 2 counts as two samples, one of 0 as none.
        """
        self._check()
        samples = self._checked(X, y, sample_weight, reset=True)
        self._set_encoder(samples.y)
        return self._learn(self._encoded(samples), len(self.classes_))

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Train all layers together for one epoch, from the current parameters.

        **Arguments:**

        - `X`, `y`, `sample_weight`: as for `fit`; some classes may be missing. Inputs are standardised as in
            the first call.
        - `classes`: all labels that will ever occur; required in the first call.
        """
        self._check()
        first = not hasattr(self, "network_")
        if first and classes is None:
            raise ValueError(
                "the first call of partial_fit needs classes, with all labels that will ever occur"
            )
        samples = self._checked(X, y, sample_weight, reset=first)
        if first:
            self._set_encoder(classes)
        elif classes is not None and not np.array_equal(encoder_of(classes).classes_, self.classes_):
            raise ValueError(f"classes={classes!r} differ from those of the first call, {self.classes_}")
        return self._learn_more(self._encoded(samples), len(self.classes_))

    def predict(self, X: Any) -> Array:
        """The most probable label of each sample, (samples,)."""
        numbers = classes_of(self._outputs(X)).numpy()
        return self.classes_[numbers]

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class, (samples, classes), in the order of `classes_`."""
        return softmax(self._outputs(X).numpy(), axis=1)

    def predict_log_proba(self, X: Any) -> Array:
        """The logarithms of `predict_proba`: finite even for tiny probabilities."""
        return log_softmax(self._outputs(X).numpy(), axis=1)

    def decision_function(self, X: Any) -> Array:
        """The network's outputs, before the softmax.

        (samples, classes); for two classes (samples,), the second output minus the first.
        """
        outputs = self._outputs(X).numpy()
        return outputs[:, 1] - outputs[:, 0] if len(self.classes_) == 2 else outputs

    def _checked(self, X: Any, y: Any, sample_weight: Any, *, reset: bool) -> Samples:
        """Validate, and drop samples of weight 0."""
        x, y = checked(self, X, y, reset=reset, dtype=self._input_dtype(new=reset))
        check_classification_targets(y)
        weights = checked_weights(sample_weight, len(x))
        return Samples(x, y, weights).take(weights > 0)

    def _encoded(self, samples: Samples) -> Samples:
        return Samples(samples.x, self._encoder.transform(samples.y), samples.weights)

    def _set_encoder(self, labels: Any) -> None:
        self._encoder = encoder_of(labels)
        self.classes_ = self._encoder.classes_
        if len(self.classes_) < 2:
            raise ValueError(
                f"there is only one class, {self.classes_[0]!r} (samples of weight 0 do not count); "
                "a classifier needs at least 2 classes"
            )

    def _validation_score(self, epoch: Epoch) -> float:
        assert epoch.test_accuracy is not None
        return epoch.test_accuracy / 100


def encoder_of(labels: Any) -> Any:
    return LabelEncoder().fit(labels)
