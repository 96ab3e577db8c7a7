"""Conversion between raw data and a network's inputs and outputs, saved with the model as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

from ftnn.errors import DataError, ModelFileError

Array = np.ndarray[Any, np.dtype[Any]]
Task = Literal["classification", "regression"]


@dataclass(frozen=True)
class Scaling:
    """What makes columns of numbers have mean 0 and variance 1."""

    mean: tuple[float, ...]
    scale: tuple[float, ...]
    """The standard deviation of each column, or 1 if its numbers are all equal."""
    limit: float | None = None
    """The largest size of a result; None: no limit."""


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers: one input, and another one that is 1 where the number is missing."""

    name: str | None
    """None: the column at this position, for models that were trained on an array."""
    median: float | None = None
    """What replaces a missing number; None: missing numbers are refused."""
    flag: bool = False
    """Whether there is the second input: only if training data had missing numbers."""


@dataclass(frozen=True)
class CategoryColumn:
    """A column of texts: an input for each category, 1 where a row belongs to it, otherwise 0.

    A text that is none of the categories is 0 for all of them.
    """

    name: str
    categories: tuple[str, ...]
    """The empty text, a missing value, is a category like any other."""


ColumnEncoding = NumberColumn | CategoryColumn


@dataclass(frozen=True)
class Preparation:
    """How raw data become a network's inputs, and its outputs predictions; saved in the model's file."""

    task: Task
    classes: tuple[str, ...] | None
    """The label of each output, as spelled in the data."""
    target: str | None = None
    """The column of a table that is predicted."""
    id: str | None = None
    """A column of a table that is no input, but is shown next to predictions."""
    columns: tuple[ColumnEncoding, ...] | None = None
    """How each column of a table is encoded; None for images."""
    inputs: Scaling | None = None
    """Of the encoded columns, or of images; None if they are not scaled."""
    targets: Scaling | None = None
    """Of the targets of a regression; None if they are not scaled."""

    @property
    def input_names(self) -> tuple[str, ...] | None:
        """What each input of the network is; None for images."""
        if self.columns is None:
            return None
        return tuple(name for number, column in enumerate(self.columns) for name in _names(column, number))

    def scaled(self, x: Array) -> Array:
        """Encoded columns, or images, as network inputs, (samples, inputs).

        Raises `DataError` if a result is too large for float32, in which networks compute.
        """
        if self.inputs is None:
            return x
        from ftnn.data._scaling import scaler_of  # scikit-learn takes a second to load

        with np.errstate(over="ignore"):
            scaled = scaler_of(self.inputs).transform(x)
            too_large = ~np.isfinite(scaled.astype(np.float32))
        if too_large.any():
            row, column = np.argwhere(too_large)[0].tolist()
            names = self.input_names
            raise DataError(
                f"column {column if names is None else repr(names[column])}, row {row + 1} is "
                f"{x[row, column]:g}, too far from the training data, with a mean of "
                f"{self.inputs.mean[column]:g} and a standard deviation of {self.inputs.scale[column]:g}"
            )
        return scaled

    def unscaled(self, outputs: Array) -> Array:
        """A regression's outputs, (samples, targets), in the units of the targets, float64."""
        outputs = outputs.astype(np.float64)
        if self.targets is None:
            return outputs
        return outputs * np.array(self.targets.scale) + np.array(self.targets.mean)

    @classmethod
    def of(cls, notes: Mapping[str, Any], path: object) -> Preparation:
        """The preparation in a model's notes, from `ftnn train` or an estimator; errors quote `path`."""
        saved: Any = notes.get("preparation")
        if isinstance(saved, Mapping) and {*saved} == {
            "task",
            "classes",
            "target",
            "features",
            "mean",
            "scale",
        }:
            saved = _from_0_1(saved)
        if not isinstance(saved, Mapping) or {*saved} != {field.name for field in fields(cls)}:
            raise ModelFileError(
                f"{path} does not describe its inputs: it was saved neither by `ftnn train` nor from an "
                "estimator"
            )
        for name, (is_valid, expected) in _checks(saved).items():
            if not is_valid:
                raise ModelFileError(f"{path} has {name}={saved[name]!r:.100}; expected {expected}")
        columns = saved["columns"]
        return cls(
            saved["task"],
            _tuple(saved["classes"]),
            saved["target"],
            saved["id"],
            None if columns is None else tuple(map(_column, columns)),
            _scaling(saved["inputs"]),
            _scaling(saved["targets"]),
        )


def _names(column: ColumnEncoding, number: int) -> list[str]:
    if isinstance(column, CategoryColumn):
        return [f"{column.name} {f'= {text}' if text else 'is missing'}" for text in column.categories]
    name = f"column {number + 1}" if column.name is None else column.name
    return [name, f"{name} is missing"] if column.flag else [name]


# --- from JSON ---


def _from_0_1(saved: Mapping[str, Any]) -> dict[str, Any]:
    """The description of a model from ftnn 0.1: all columns are numbers, and targets are not scaled."""
    features, scaling = saved["features"], {"mean": saved["mean"], "scale": saved["scale"], "limit": None}
    columns = features
    if isinstance(features, list):
        columns = [{"name": name, "median": None, "flag": False} for name in features]
    return {
        **{name: saved[name] for name in ("task", "classes", "target")},
        "id": None,
        "columns": columns,
        "inputs": None if features is None else scaling,
        "targets": None,
    }


def _column(saved: Mapping[str, Any]) -> ColumnEncoding:
    if "categories" in saved:
        return CategoryColumn(saved["name"], tuple(saved["categories"]))
    return NumberColumn(**saved)


def _scaling(saved: Mapping[str, Any] | None) -> Scaling | None:
    return None if saved is None else Scaling(tuple(saved["mean"]), tuple(saved["scale"]), saved["limit"])


def _tuple(values: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(values)


def _checks(saved: Mapping[str, Any]) -> dict[str, tuple[bool, str]]:
    """For each field, whether it is valid, and what is expected."""
    task, classes, columns = saved["task"], saved["classes"], saved["columns"]
    has_classes = task == "classification"
    are_columns = columns is None or (
        isinstance(columns, list) and len(columns) > 0 and all(map(_is_column, columns))
    )
    count = None
    if are_columns and columns is not None:
        count = sum(len(_names(_column(column), 0)) for column in columns)
    numbers = "null, or a mean and a scale above 0" + (f" for each of {count} inputs" if count else "")
    return {
        "task": (task in ("classification", "regression"), "classification or regression"),
        "classes": (
            _are_texts(classes) if has_classes else classes is None,
            "a list of texts for classification, null for regression",
        ),
        "target": (saved["target"] is None or isinstance(saved["target"], str), "null or a text"),
        "id": (saved["id"] is None or isinstance(saved["id"], str), "null or a text"),
        "columns": (are_columns, "null, or for each column its name and its median and flag, or categories"),
        "inputs": (_is_scaling(saved["inputs"], count), numbers),
        "targets": (
            saved["targets"] is None or (not has_classes and _is_scaling(saved["targets"], None)),
            "null, or a mean and a scale above 0 for each target of a regression",
        ),
    }


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and len(values) > 0 and all(isinstance(value, str) for value in values)


def _is_column(saved: Any) -> bool:
    if not isinstance(saved, Mapping):
        return False
    name, keys = saved.get("name"), {*saved}
    if keys == {"name", "categories"}:
        return isinstance(name, str) and _are_texts(saved["categories"])
    if keys != {"name", "median", "flag"} or not (name is None or isinstance(name, str)):
        return False
    return (saved["median"] is None or _is_number(saved["median"])) and isinstance(saved["flag"], bool)


def _is_scaling(saved: Any, count: int | None) -> bool:
    """Whether it is None, or has `count` finite numbers of each kind; any number of them if None."""
    if saved is None:
        return True
    if not isinstance(saved, Mapping) or {*saved} != {"mean", "scale", "limit"}:
        return False
    mean, scale, limit = saved["mean"], saved["scale"], saved["limit"]
    if not (isinstance(mean, list) and isinstance(scale, list) and len(mean) == len(scale) > 0):
        return False
    if not all(map(_is_number, mean)) or not all(_is_number(value, above=0.0) for value in scale):
        return False
    return len(mean) == (count or len(mean)) and (limit is None or _is_number(limit, above=0.0))


def _is_number(value: Any, above: float = -math.inf) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value > above
