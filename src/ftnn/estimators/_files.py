"""Fitted estimators as data: a network, and notes with the scaling, the classes and the parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted
from torch import nn

from ftnn.data._preparation import NumberColumn, Preparation
from ftnn.data._scaling import scaler_of, scaling_of
from ftnn.errors import FtnnError, ModelFileError
from ftnn.estimators._base import Estimator
from ftnn.estimators._classifier import FTNNClassifier, encoder_of
from ftnn.estimators._regressor import FTNNRegressor
from ftnn.nn import Network
from ftnn.training import History
from ftnn.training._rules import Rule

_KINDS: dict[str, type[FTNNClassifier] | type[FTNNRegressor]] = {
    "FTNNClassifier": FTNNClassifier,
    "FTNNRegressor": FTNNRegressor,
}
_KEYS = {"kind", "parameters", "classes", "flat", "seed", "history", "validation_scores"}


def described(model: Any) -> tuple[Network, dict[str, Any]]:
    """A fitted estimator's network, and notes from which `rebuilt` makes it again."""
    if type(model).__name__ not in _KINDS:
        raise ModelFileError(f"a {type(model).__name__} cannot be saved; expected {' or '.join(_KINDS)}")
    check_is_fitted(model, "network_")
    is_classifier = isinstance(model, FTNNClassifier)
    names = getattr(model, "feature_names_in_", [None] * model.n_features_in_)
    preparation = Preparation(
        "classification" if is_classifier else "regression",
        tuple(str(label) for label in model.classes_.tolist()) if is_classifier else None,
        columns=tuple(NumberColumn(None if name is None else str(name)) for name in names),
        inputs=None if model.scaler_ is None else scaling_of(model.scaler_),
        targets=None if is_classifier else scaling_of(model.target_scaler_),
    )
    estimator: dict[str, Any] = {
        "kind": type(model).__name__,
        "parameters": _saved_parameters(model),
        "classes": _saved_labels(model.classes_) if is_classifier else None,
        "flat": None if is_classifier else model._flat,
        "seed": model._seed,
        "history": model.history_.to_json(),
        "validation_scores": model.validation_scores_,
    }
    covariance = model.history_.covariance
    errors = {} if covariance is None else covariance.as_notes()
    return model.network_, {"preparation": asdict(preparation), "estimator": estimator, **errors}


def _saved_parameters(model: Estimator) -> dict[str, Any]:
    """The parameters that are data. Functions are in the network; other code is left out."""
    saved: dict[str, Any] = {}
    for name, value in model.get_params(deep=False).items():
        plain: Any = list(value) if isinstance(value, tuple | np.ndarray) else value
        plain = plain.item() if isinstance(plain, np.generic) else plain
        items = plain if isinstance(plain, list) else [plain]
        if isinstance(plain, Rule):
            saved[name] = {"rule": asdict(plain)}
        elif all(item is None or isinstance(item, bool | int | float | str) for item in items):
            saved[name] = plain
    return saved


def _saved_labels(labels: Any) -> dict[str, Any]:
    values = labels.tolist()
    kinds = {type(value) for value in values}
    if len(kinds) > 1 or not kinds <= {str, int, float, bool}:
        raise ModelFileError(
            f"labels such as {values[0]!r:.50} cannot be saved: expected texts, numbers or booleans"
        )
    return {"type": "object" if labels.dtype == object else labels.dtype.str, "values": values}


def rebuilt(module: nn.Module, notes: Mapping[str, Any], path: object) -> Estimator:
    """The estimator that `described` was given; errors quote `path`."""
    try:
        return _rebuilt(module, Preparation.of(notes, path), notes["estimator"])
    except ModelFileError:
        raise
    except (FtnnError, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise ModelFileError(f"{path} does not describe its estimator: {error}") from error


def _rebuilt(network: nn.Module, preparation: Preparation, saved: Any) -> Estimator:
    if not isinstance(network, Network) or {*saved} != _KEYS or preparation.columns is None:
        raise ValueError(f"expected a Network, its columns, and {', '.join(sorted(_KEYS))}")
    if len(preparation.columns) != network.in_features:
        raise ValueError(f"it has {len(preparation.columns)} features for {network.in_features} inputs")
    model: Any = _KINDS[saved["kind"]]()
    parameters = saved["parameters"]
    if isinstance(rule := parameters.get("optimizer"), dict):
        parameters = {**parameters, "optimizer": Rule(**rule["rule"])}
    if "function" not in parameters:
        parameters = {**parameters, "function": [layer.function for layer in network.layers]}
    model.set_params(**parameters)
    model._check()
    model.network_, model.n_features_in_ = network, network.in_features
    model.scaler_ = None if preparation.inputs is None else scaler_of(preparation.inputs)
    names = [column.name for column in preparation.columns]
    if all(name is not None for name in names):
        model.feature_names_in_ = np.array(names, dtype=object)
    model._seed = int(saved["seed"])
    model.history_ = History.from_json(saved["history"])
    scores = saved["validation_scores"]
    model.validation_scores_ = None if scores is None else [float(score) for score in scores]
    model.best_validation_score_ = max(model.validation_scores_ or (), default=None)
    if isinstance(model, FTNNClassifier):
        labels = saved["classes"]
        _set_classes(model, np.array(labels["values"], dtype=np.dtype(labels["type"])))
    else:
        if preparation.targets is None or len(preparation.targets.mean) != network.out_features:
            raise ValueError("expected a mean and a scale for each target")
        model.target_scaler_, model._flat = scaler_of(preparation.targets), bool(saved["flat"])
    return model._finish(failed=False)


def _set_classes(model: FTNNClassifier, labels: Any) -> None:
    if len(labels) != model.network_.out_features or len({*labels.tolist()}) != len(labels):
        raise ValueError(f"it has {len(labels)} classes for {model.network_.out_features} outputs")
    model._encoder = encoder_of(labels)
    model.classes_ = model._encoder.classes_
