"""How raw inputs and outputs are turned into a network's."""

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
    """How raw inputs and outputs are turned into a network's, and back. Kept in the model's file."""

    task: Task
    classes: tuple[str, ...] | None
    """What each output stands for, as it is spelled in the data."""
    features: tuple[str, ...] | None
    """The columns of a table, in order; None for images."""
    target: str | None
    mean: tuple[float, ...] | None
    """Of each feature; None where features are taken as they are."""
    scale: tuple[float, ...] | None

    def inputs(self, x: Array) -> Array:
        """Features as the network takes them: tables with mean 0 and standard deviation 1.

        Raises `DataError` where one of them is then too large for float32, in which networks compute.
        """
        if self.mean is None or self.scale is None:
            return x
        with np.errstate(over="ignore"):
            made = (x - np.array(self.mean)) / np.array(self.scale)
            too_large = ~np.isfinite(made.astype(np.float32))
        if too_large.any():
            row, column = np.argwhere(too_large)[0].tolist()
            name = column if self.features is None else repr(self.features[column])
            raise DataError(
                f"column {name}, row {row + 1} is {x[row, column]:g}, too far from what was learned, with "
                f"a mean of {self.mean[column]:g} and a standard deviation of {self.scale[column]:g}"
            )
        return made

    @classmethod
    def of(cls, notes: Mapping[str, Any], path: object) -> Preparation:
        """What `ftnn train` noted in a model's file; `path` is for the error where it did not."""
        given: Any = notes.get("preparation")
        if not isinstance(given, Mapping) or {*given} != {field.name for field in fields(cls)}:
            raise ModelFileError(f"{path} was not saved by `ftnn train`: it does not say what its inputs are")
        for name, expected in _wrong(given):
            raise ModelFileError(f"{path} notes {name}={given[name]!r:.100}; expected {expected}")
        known: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in given.items()}
        return cls(**known)


def _wrong(given: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(field, what was expected) of all that makes no sense."""
    task, classes, features = given["task"], given["classes"], given["features"]
    count = len(features) if isinstance(features, list) else -1
    numbers = (
        f"{count} finite numbers, as there are features" if count >= 0 else "null, as there are no features"
    )
    checks = [
        ("task", task in ("classification", "regression"), "classification or regression"),
        (
            "classes",
            _are_texts(classes) if task == "classification" else classes is None,
            "a list of texts for classification, null for regression",
        ),
        ("features", features is None or _are_texts(features), "null or a list of texts"),
        ("target", given["target"] is None or isinstance(given["target"], str), "null or a text"),
        ("mean", _are_numbers(given["mean"], count), numbers),
        ("scale", _are_numbers(given["scale"], count, above=0.0), numbers + ", above 0"),
    ]
    return [(name, expected) for name, right, expected in checks if not right]


def _are_texts(given: Any) -> bool:
    return isinstance(given, list) and len(given) > 0 and all(isinstance(each, str) for each in given)


def _are_numbers(given: Any, count: int, above: float = -math.inf) -> bool:
    if count < 0 or not isinstance(given, list):
        return count < 0 and given is None
    known = [each for each in given if type(each) in (int, float) and math.isfinite(each) and each > above]
    return len(known) == len(given) == count
