"""Saving and loading everything that ftnn trains: modules and estimators."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from torch import nn

from ftnn.errors import ModelFileError
from ftnn.nn import _files


def save(model: Any, path: str | os.PathLike[str], notes: Mapping[str, Any] | None = None) -> None:
    """Write a model to a file that `load` reads on any machine.

    **Arguments:**

    - `model`: an ftnn layer or network, an `nn.Sequential` (see `ftnn.nn.save`), or a fitted
        [`ftnn.FTNNClassifier`][] or [`ftnn.FTNNRegressor`][]: with its network, scaling, classes, parameters
        and history. Parameters that are code, such as a schedule that is a function, are not saved.
    - `path`: the file; an existing one is replaced atomically.
    - `notes`: a JSON-compatible mapping to store with the model; see `ftnn.nn.notes_of`.
    """
    if isinstance(model, nn.Module):
        _files.save(model, path, notes)
        return
    from ftnn.estimators import Estimator  # here because scikit-learn takes a second to load
    from ftnn.estimators._files import described

    if not isinstance(model, Estimator):
        ways = "use joblib or pickle, whose files are code"
        if hasattr(model, "steps"):
            ways = f"save its last step, and rebuild the others when you load it; or {ways}"
        raise ModelFileError(
            f"a {type(model).__name__} cannot be saved: expected a layer, a network, an nn.Sequential, an "
            f"FTNNClassifier or an FTNNRegressor; {ways}"
        )
    network, description = described(model)
    _files.save(network, path, {**(notes or {}), **description})


def load(path: str | os.PathLike[str]) -> Any:
    """The model in a file that `save` or `ftnn train` wrote, on the CPU: a module or an estimator.

    Raises `ModelFileError` for anything else. Runs no code from the file.
    """
    module, notes = _files.load(path), _files.notes_of(path)
    if "estimator" not in notes:
        return module
    from ftnn.estimators._files import rebuilt

    return rebuilt(module, notes, path)
