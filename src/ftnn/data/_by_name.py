"""Data by name, as on the command line: `mnist`, a folder of IDX files, or the file of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ftnn.data._idx import Images, idx_directory
from ftnn.data._mnist import mnist
from ftnn.data._preparation import Preparation, Task
from ftnn.data._tables import listed, read_table, read_to_predict, same_number
from ftnn.errors import DataError

Array = np.ndarray[Any, np.dtype[Any]]

HELD_OUT = 0.2
"""The share of a table's rows that is held out for testing."""


def _are_images(name: str) -> bool:
    return name == "mnist" or Path(name).is_dir()


def _images(name: str) -> Images:
    return mnist() if name == "mnist" else idx_directory(name)


@dataclass(frozen=True)
class TrainingData:
    """Data for training: x is (samples, features), y labels or targets, (samples,)."""

    preparation: Preparation
    x: Array
    y: Array
    test_x: Array
    test_y: Array


def training_data(
    name: str, target: str | None, task: Task | None, seed: int, samples: int | None = None
) -> TrainingData:
    """Data for training.

    **Arguments:**

    - `target`: the target column of a table. `task`: inferred from it by default.
    - `seed`: determines which rows of a table are held out for testing.
    - `samples`: use only this many training samples, from the start; the rows of a table are shuffled first.
    """
    if _are_images(name):
        images = _images(name)
        if task == "regression":
            raise DataError(f"{name} has labels, so its task is classification, not regression")
        count = int(max(images.train_labels.max(), images.test_labels.max())) + 1
        preparation = Preparation("classification", tuple(map(str, range(count))), None, None, None, None)
        first = slice(_limited(name, samples, len(images.train_labels)))
        x, y = images.train_images[first], images.train_labels[first]
        return TrainingData(preparation, x, y, images.test_images, images.test_labels)
    if target is None:
        raise DataError(f"{name} is a table: choose the target column with --target")
    table = read_table(name, target, task=task)
    assert table.target is not None
    y, classes = table.target, None
    if y.dtype.kind == "f":
        _check_differences(name, (target,), y[:, None], y[:, None])
    else:
        labels, y = np.unique(y, return_inverse=True)
        classes = tuple(map(str, labels.tolist()))
        if len(classes) < 2:
            raise DataError(f"column {target!r} has only one class; at least 2 are needed")
    if len(y) < 2:
        raise DataError(f"{name} has {len(y)} row; at least 2 are needed, for training and testing")
    order = np.random.default_rng([seed, 7]).permutation(len(y))
    held_out = max(1, round(HELD_OUT * len(y)))
    test, train = order[:held_out], order[held_out:]
    train = train[: _limited(name, samples, len(train))]
    mean, scale = table.x[train].mean(0), table.x[train].std(0)
    # By rounding, the deviation of equal numbers may be just above 0.
    scale[(scale == 0) | (np.ptp(table.x[train], 0) == 0)] = 1.0
    chosen: Task = "regression" if classes is None else "classification"
    preparation = Preparation(
        chosen, classes, table.names, target, tuple(mean.tolist()), tuple(scale.tolist())
    )
    x = preparation.inputs(table.x)
    _check_differences(name, table.names, table.x[train], x[train])
    return TrainingData(preparation, x[train], y[train], x[test], y[test])


def _check_differences(name: str, columns: Sequence[str], raw: Array, prepared: Array) -> None:
    """Refuse columns whose numbers differ, but are all equal in float32, in which networks compute."""
    lost = (np.ptp(raw, 0) > 0) & (np.ptp(prepared.astype(np.float32), 0) == 0)
    if lost.any():
        column = int(np.argmax(lost))
        low, high = raw[:, column].min(), raw[:, column].max()
        raise DataError(
            f"{name}: column {columns[column]!r} goes from {float(low)!r} to {float(high)!r}, which "
            "is a single number in float32; rescale it, or subtract a common offset"
        )


def _limited(name: str, samples: int | None, available: int) -> int:
    """The number of samples to train on."""
    if samples is None:
        return available
    if not 1 <= samples <= available:
        raise DataError(f"--samples {samples}: expected 1 to {available}, the number of samples in {name}")
    return samples


def model_inputs(
    name: str, preparation: Preparation | None, features: int | None, *, with_labels: bool = False
) -> tuple[Array, Array | None, str | None]:
    """Test images or the rows of a table as inputs of a model, (samples, features).

    **Arguments:**

    - `preparation`: how to prepare the inputs; None uses them as they are.
    - `features`: the number of inputs of the model; None for any number.
    - `with_labels`: whether to read the true labels too, if the data have them.

    Returns the inputs; the labels, (samples,), or None; and a note about the labels, or None.
    """
    labels = note = None
    if _are_images(name):
        if preparation is not None and preparation.features is not None:
            columns = ", ".join(preparation.features)
            raise DataError(f"this model expects a table with {columns}, not images: {name}")
        images = _images(name)
        x, labels = images.test_images, images.test_labels.astype(str)
    elif preparation is None:
        x = read_table(name).x
    elif preparation.features is None:
        raise DataError(f"this model expects images: mnist or a folder of IDX files, not {name}")
    elif not with_labels or preparation.classes is None:
        x = preparation.inputs(read_table(name, None, preparation.features).x)
    else:
        table = read_to_predict(name, preparation.target, preparation.features)
        x = preparation.inputs(table.x)
        if table.target is not None:
            where = f"{name}: column {preparation.target!r}"
            labels, note = _spelled_as_learned(table.target.astype(str), preparation.classes, where)
    if features is not None and x.shape[1] != features:
        raise DataError(f"this model expects {features} features, but {name} has {x.shape[1]}")
    return x, labels, note


def _spelled_as_learned(labels: Array, classes: tuple[str, ...], where: str) -> tuple[Array, str | None]:
    """Labels in the spelling of the training data, and a note about those that were spelled differently."""
    read_as = {name: name for name in classes}
    for row, label in enumerate(labels.tolist(), 1):
        if label not in read_as:
            same = [name for name in classes if same_number(name, label)]
            if len(same) != 1:
                what = f"could be {listed(same)}" if same else f"is not one of {listed(classes)}"
                raise DataError(
                    f"{where}, row {row} has the label {label!r}, which {what}; spell it as in the training "
                    "data, or remove the column to predict without an accuracy"
                )
            read_as[label] = same[0]
    other = [f"{label!r} was read as the class {name!r}" for label, name in read_as.items() if label != name]
    note = f"{where} spells labels differently from the training data: {', '.join(other)}" if other else None
    return np.array([read_as[label] for label in labels.tolist()]), note
