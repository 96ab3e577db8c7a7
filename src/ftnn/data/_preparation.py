"""Converting raw data to a network's inputs and outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

from ftnn.errors import DataError, ModelFileError

Array = np.ndarray[Any, np.dtype[Any]]
Task = Literal["classification", "regression"]


@dataclass(frozen=True)
class Preparation:
    """How raw data become a network's inputs and outputs, and back. Saved in the model's file."""

    task: Task
    classes: tuple[str, ...] | None
    """The label of each output, as spelled in the data."""
    features: tuple[str, ...] | None
    """The columns of a table, in order; None for images."""
    target: str | None
    mean: tuple[float, ...] | None
    """Of each feature; None if features are used as they are."""
    scale: tuple[float, ...] | None

    def inputs(self, x: Array) -> Array:
        """Features as the network takes them: tables have mean 0 and standard deviation 1.

        Raises `DataError` if a value is then too large for float32, in which networks compute.
        """
        if self.mean is None or self.scale is None:
            return x
        with np.errstate(over="ignore"):
            scaled = (x - np.array(self.mean)) / np.array(self.scale)
            too_large = ~np.isfinite(scaled.astype(np.float32))
        if too_large.any():
            row, column = np.argwhere(too_large)[0].tolist()
            name = column if self.features is None else repr(self.features[column])
            raise DataError(
                f"column {name}, row {row + 1} is {x[row, column]:g}, too far from the training data, with "
                f"a mean of {self.mean[column]:g} and a standard deviation of {self.scale[column]:g}"
            )
        return scaled

    @classmethod
    def of(cls, notes: Mapping[str, Any], path: object) -> Preparation:
        """What `ftnn train` saved in a model's file, from its notes; errors quote `path`."""
        saved: Any = notes.get("preparation")
        if not isinstance(saved, Mapping) or {*saved} != {field.name for field in fields(cls)}:
            raise ModelFileError(f"{path} was not saved by `ftnn train`: it does not describe its inputs")
        for name, expected in _problems(saved):
            raise ModelFileError(f"{path} has {name}={saved[name]!r:.100}; expected {expected}")
        values: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in saved.items()}
        return cls(**values)


def _problems(saved: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(field, what was expected) for each invalid field."""
    task, classes, features = saved["task"], saved["classes"], saved["features"]
    count = len(features) if isinstance(features, list) else -1
    numbers = "null, as there are no features"
    if count >= 0:
        numbers = f"{count} finite numbers, one for each of the features"
    checks = [
        ("task", task in ("classification", "regression"), "classification or regression"),
        (
            "classes",
            _are_texts(classes) if task == "classification" else classes is None,
            "a list of texts for classification, null for regression",
        ),
        ("features", features is None or _are_texts(features), "null or a list of texts"),
        ("target", saved["target"] is None or isinstance(saved["target"], str), "null or a text"),
        ("mean", _are_numbers(saved["mean"], count), numbers),
        ("scale", _are_numbers(saved["scale"], count, above=0.0), numbers + ", above 0"),
    ]
    return [(name, expected) for name, is_valid, expected in checks if not is_valid]


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and len(values) > 0 and all(isinstance(value, str) for value in values)


def _are_numbers(values: Any, count: int, above: float = -math.inf) -> bool:
    if count < 0 or not isinstance(values, list):
        return count < 0 and values is None
    return len(values) == count and all(
        type(value) in (int, float) and math.isfinite(value) and value > above for value in values
    )
