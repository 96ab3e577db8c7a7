"""Data by name, as commands take them: `mnist`, a folder of IDX files, or a table's file."""

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
"""The share of a table's rows that is kept for testing."""


def _are_images(name: str) -> bool:
    return name == "mnist" or Path(name).is_dir()


def _images(name: str) -> Images:
    return mnist() if name == "mnist" else idx_directory(name)


# --- to learn from ---


@dataclass(frozen=True)
class TrainingData:
    """Data ready to learn from: x is (samples, features), y labels or targets, (samples,)."""

    preparation: Preparation
    x: Array
    y: Array
    test_x: Array
    test_y: Array


def training_data(
    name: str, target: str | None, task: Task | None, seed: int, samples: int | None = None
) -> TrainingData:
    """Data to learn from.

    **Arguments:**

    - `target`: the column of a table to learn. `task`: found from it unless given.
    - `seed`: decides which rows of a table are kept for testing.
    - `samples`: learn from the first so many only; a table's rows are shuffled before.
    """
    if _are_images(name):
        images = _images(name)
        if task == "regression":
            raise DataError(f"{name} has labels, not numbers: its task is classification")
        count = int(max(images.train_labels.max(), images.test_labels.max())) + 1
        preparation = Preparation("classification", tuple(map(str, range(count))), None, None, None, None)
        first = slice(_limited(name, samples, len(images.train_labels)))
        x, y = images.train_images[first], images.train_labels[first]
        return TrainingData(preparation, x, y, images.test_images, images.test_labels)
    if target is None:
        raise DataError(f"{name} is a table: name the column to learn with --target")
    table = read_table(name, target, task=task)
    assert table.target is not None
    y, classes = table.target, None
    if y.dtype.kind == "f":
        _check_differences(name, (target,), y[:, None], y[:, None])
    else:
        labels, y = np.unique(y, return_inverse=True)
        classes = tuple(map(str, labels.tolist()))
        if len(classes) < 2:
            raise DataError(f"the column {target!r} has one class only: there is nothing to tell apart")
    if len(y) < 2:
        raise DataError(f"{name} has {len(y)} row; at least 2 are needed, to learn from and to test on")
    order = np.random.default_rng([seed, 7]).permutation(len(y))
    held_out = max(1, round(HELD_OUT * len(y)))
    test, train = order[:held_out], order[held_out:]
    train = train[: _limited(name, samples, len(train))]
    mean, scale = table.x[train].mean(0), table.x[train].std(0)
    # Rounding leaves equal numbers with a deviation just above 0.
    scale[(scale == 0) | (np.ptp(table.x[train], 0) == 0)] = 1.0
    chosen: Task = "regression" if classes is None else "classification"
    preparation = Preparation(
        chosen, classes, table.names, target, tuple(mean.tolist()), tuple(scale.tolist())
    )
    x = preparation.inputs(table.x)
    _check_differences(name, table.names, table.x[train], x[train])
    return TrainingData(preparation, x[train], y[train], x[test], y[test])


def _check_differences(name: str, columns: Sequence[str], raw: Array, prepared: Array) -> None:
    """Refuse columns whose numbers differ but are all one to a network, which computes in float32."""
    lost = (np.ptp(raw, 0) > 0) & (np.ptp(prepared.astype(np.float32), 0) == 0)
    if lost.any():
        column = int(np.argmax(lost))
        low, high = raw[:, column].min(), raw[:, column].max()
        raise DataError(
            f"{name}: column {columns[column]!r} goes from {float(low)!r} to {float(high)!r}, which "
            "is a single number in float32; rescale it, or subtract what its numbers have in common"
        )


def _limited(name: str, samples: int | None, available: int) -> int:
    """How many samples to learn from."""
    if samples is None:
        return available
    if not 1 <= samples <= available:
        raise DataError(f"--samples {samples}: expected 1 to {available}, as many as {name} has")
    return samples


# --- for a trained model ---


def model_inputs(
    name: str, preparation: Preparation | None, features: int | None, *, with_labels: bool = False
) -> tuple[Array, Array | None, str | None]:
    """Test images or a table's rows, (samples, features), as a model takes them.

    **Arguments:**

    - `preparation`: how the model's inputs are made; None: they are taken as they are.
    - `features`: how many the model has; None where any number will do.
    - `with_labels`: whether to read what a classifier should answer too, where the data have it.

    Returns the inputs; the labels, (samples,), or None; and what to know about these, or None.
    """
    labels = note = None
    if _are_images(name):
        if preparation is not None and preparation.features is not None:
            columns = ", ".join(preparation.features)
            raise DataError(f"this model takes a table with {columns}, not images: {name}")
        images = _images(name)
        x, labels = images.test_images, images.test_labels.astype(str)
    elif preparation is None:
        x = read_table(name).x
    elif preparation.features is None:
        raise DataError(f"this model takes images: name a folder of IDX files or mnist, not {name}")
    elif not with_labels or preparation.classes is None:
        x = preparation.inputs(read_table(name, None, preparation.features).x)
    else:
        table = read_to_predict(name, preparation.target, preparation.features)
        x = preparation.inputs(table.x)
        if table.target is not None:
            where = f"{name}: column {preparation.target!r}"
            labels, note = _spelled_as_learned(table.target.astype(str), preparation.classes, where)
    if features is not None and x.shape[1] != features:
        raise DataError(f"this model takes {features} features, but {name} has {x.shape[1]}")
    return x, labels, note


def _spelled_as_learned(labels: Array, classes: tuple[str, ...], where: str) -> tuple[Array, str | None]:
    """Labels in the spelling that was learned, and in words which of them were spelled otherwise."""
    read_as = {name: name for name in classes}
    for row, label in enumerate(labels.tolist(), 1):
        if label not in read_as:
            same = [name for name in classes if same_number(name, label)]
            if len(same) != 1:
                what = f"could be {listed(same)}" if same else f"is not one of {listed(classes)}"
                raise DataError(
                    f"{where}, row {row} has the label {label!r}, which {what}; spell it as it was learned, "
                    "or remove the column to predict without an accuracy"
                )
            read_as[label] = same[0]
    other = [f"{label!r} was read as the class {name!r}" for label, name in read_as.items() if label != name]
    note = f"{where} spells labels otherwise than the training data: {', '.join(other)}" if other else None
    return np.array([read_as[label] for label in labels.tolist()]), note
