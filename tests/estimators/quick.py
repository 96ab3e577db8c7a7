# scikit-learn has no types, and what stubs there are refuse what it accepts.
# pyright: reportArgumentType=false
"""Estimators that learn quickly, and data for them."""

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_iris
from sklearn.preprocessing import StandardScaler

from ftnn import FTNNClassifier, FTNNRegressor

QUICK: dict[str, Any] = {
    "function": "F07",
    "hidden_layer_sizes": (12,),
    "epochs": 5,
    "fine_tuning_epochs": 2,
    "random_state": 0,
}


# Some tests use noise, on which a correct estimator is no better than chance and warns.
ignore_chance = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def classifier(**settings: Any) -> FTNNClassifier:
    return FTNNClassifier(**{**QUICK, "gamma": -1, **settings})


def regressor(**settings: Any) -> FTNNRegressor:
    return FTNNRegressor(**{**QUICK, "gamma": -4, **settings})


def iris() -> tuple[Any, Any]:
    x, y = load_iris(return_X_y=True)
    return StandardScaler().fit_transform(x), y


def diabetes() -> tuple[Any, Any]:
    x, y = load_diabetes(return_X_y=True)
    return StandardScaler().fit_transform(x), y


def parameters_of(estimator: Any) -> list[Any]:
    return [tensor.numpy().copy() for tensor in estimator.network_.state_dict().values()]


def are_equal(one: Any, other: Any) -> bool:
    return all(map(np.array_equal, parameters_of(one), parameters_of(other)))
