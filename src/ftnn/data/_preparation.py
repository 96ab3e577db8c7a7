"""Conversion between raw data and a network's inputs and outputs."""

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
    """How raw data become a network's inputs and outputs; saved in the model's file."""

    task: Task
    classes: tuple[str, ...] | None
    """The label of each output, as spelled in the data."""
    features: tuple[str, ...] | None
    """The columns of a table, in order; None for images."""
    target: str | None
    mean: tuple[float, ...] | None
    """The mean of each feature; None if features are not scaled."""
    scale: tuple[float, ...] | None
    """The standard deviation of each feature."""

    def inputs(self, x: Array) -> Array:
        """Features as network inputs: tables are scaled to mean 0 and standard deviation 1.

        Raises `DataError` if a scaled value is too large for float32, in which networks compute.
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
        """The preparation that `ftnn train` saved in a model's notes; errors quote `path`."""
        saved: Any = notes.get("preparation")
        if not isinstance(saved, Mapping) or {*saved} != {field.name for field in fields(cls)}:
            raise ModelFileError(f"{path} was not saved by `ftnn train`: it does not describe its inputs")
        for name, (is_valid, expected) in _checks(saved).items():
            if not is_valid:
                raise ModelFileError(f"{path} has {name}={saved[name]!r:.100}; expected {expected}")
        values: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in saved.items()}
        return cls(**values)


def _checks(saved: Mapping[str, Any]) -> dict[str, tuple[bool, str]]:
    """For each field, whether it is valid, and what is expected."""
    task, classes, features = saved["task"], saved["classes"], saved["features"]
    has_classes = task == "classification"
    count = len(features) if isinstance(features, list) else None
    numbers = "null, as there are no features"
    if count is not None:
        numbers = f"{count} finite numbers, one for each of the features"
    return {
        "task": (task in ("classification", "regression"), "classification or regression"),
        "classes": (
            _are_texts(classes) if has_classes else classes is None,
            "a list of texts for classification, null for regression",
        ),
        "features": (features is None or _are_texts(features), "null or a list of texts"),
        "target": (saved["target"] is None or isinstance(saved["target"], str), "null or a text"),
        "mean": (_are_numbers(saved["mean"], count), numbers),
        "scale": (_are_numbers(saved["scale"], count, above=0.0), numbers + ", above 0"),
    }


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and len(values) > 0 and all(isinstance(value, str) for value in values)


def _are_numbers(values: Any, count: int | None, above: float = -math.inf) -> bool:
    if count is None or not isinstance(values, list):
        return count is None and values is None
    is_number = (type(v) in (int, float) and math.isfinite(v) and v > above for v in values)
    return len(values) == count and all(is_number)
