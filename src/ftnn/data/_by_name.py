"""Data by name, as on the command line: `mnist`, a folder of IDX files, or the file of a table."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np

from ftnn.data._idx import Images, idx_directory
from ftnn.data._mnist import mnist
from ftnn.data._preparation import Array, Preparation
from ftnn.data._table_files import Column, CsvFormat, read_columns
from ftnn.data._tables import is_empty, is_gap, numbers_in, read_table, require_columns, target_in
from ftnn.data._training_table import (
    TableOptions,
    TrainingData,
    limited,
    spelled_as_learned,
    table_for_training,
)
from ftnn.errors import DataError

_FIRST = "mnist:"
"""With a number, MNIST's first training images."""


def are_images(name: str) -> bool:
    return name == "mnist" or name.startswith(_FIRST) or Path(name).is_dir()


def _images(name: str) -> Images:
    return mnist() if name == "mnist" else idx_directory(name)


def training_data(
    name: str, options: TableOptions | None = None, seed: int = 0, samples: int | None = None
) -> TrainingData:
    """Data for training.

    **Arguments:**

    - `options`: how to use a table.
    - `seed`: determines which rows of a table are held out for testing.
    - `samples`: use only this many training samples, from the start; the rows of a table are shuffled first.
    """
    options = options or TableOptions()
    if not are_images(name):
        return table_for_training(Path(name), options, seed, samples)
    if options.task == "regression":
        raise DataError(f"{name} has labels, so its task is classification, not regression")
    for field in fields(options):
        if field.name != "task" and getattr(options, field.name) != field.default:
            raise DataError(f"--{field.name.replace('_', '-')} is for tables, but {name} holds images")
    if name.startswith(_FIRST):
        if samples is not None:
            raise DataError(f"--data {name} and --samples {samples} mean the same; choose one")
        number = name.removeprefix(_FIRST)
        if not (number.isascii() and number.isdecimal() and len(number) < 10 and int(number) > 0):
            raise DataError(f"unknown data {name!r}; expected mnist, or mnist:N with N from 1 to 60000")
        name, samples = "mnist", int(number)
    images = _images(name)
    count = int(max(images.train_labels.max(), images.test_labels.max())) + 1
    first = slice(limited(name, samples, len(images.train_labels)))
    return TrainingData(
        Preparation("classification", tuple(map(str, range(count)))),
        images.train_images[first],
        images.train_labels[first],
        images.test_images,
        images.test_labels,
        f"the {len(images.test_labels):,} test images of {name}",
    )


@dataclass(frozen=True)
class ModelData:
    """Data for a model."""

    x: Array
    """(samples, inputs), as the network takes them."""
    truth: Array | None = None
    """Labels as text, or targets, of the rows that have one; None if none has."""
    known: Array | None = None
    """Which rows have one, (samples,) bool; None: all or none."""
    ids: list[str] | None = None
    """The id of each row."""
    notes: tuple[str, ...] = ()
    """Remarks about the data, for people."""

    def with_truth(self, predictions: Array) -> Array:
        """The predictions, (samples, …), for rows that have a truth."""
        return predictions if self.known is None else predictions[self.known]


def model_data(
    name: str,
    preparation: Preparation | None,
    inputs: int | None,
    *,
    id: str | None = None,
    how: CsvFormat | None = None,
) -> ModelData:
    """Test images or the rows of a table, as a model takes them.

    **Arguments:**

    - `preparation`: how to prepare the inputs; None uses them as they are.
    - `inputs`: the number of inputs of the model; None for any number.
    - `id`: a column of a table to return; by default the preparation's, if the table has it.
    - `how`: how to read a CSV file.
    """
    if are_images(name):
        data = _image_data(name, preparation, id)
    elif preparation is None:
        data = ModelData(read_table(name, how=how).x)
    else:
        data = _table_data(Path(name), preparation, id, how)
    if inputs is not None and data.x.shape[1] != inputs:
        raise DataError(f"this model expects {inputs} features, but {name} has {data.x.shape[1]}")
    return data


def _image_data(name: str, preparation: Preparation | None, id: str | None) -> ModelData:
    columns = None if preparation is None else preparation.columns
    if columns is not None and any(column.name is not None for column in columns):
        listed = ", ".join(str(column.name) for column in columns)
        raise DataError(f"this model expects a table with {listed}, not images: {name}")
    if id is not None:
        raise DataError(f"--id {id} is for tables, but {name} holds images")
    if name.startswith(_FIRST):
        raise DataError(f"{name} stands for training images; models are used on the test images: mnist")
    images = _images(name)
    x = images.test_images
    if preparation is None:
        return ModelData(x, images.test_labels.astype(str))
    inputs = preparation.inputs
    if inputs is not None and len(inputs.mean) != x.shape[1]:
        raise DataError(f"this model expects {len(inputs.mean)} features, but {name} has {x.shape[1]}")
    return ModelData(preparation.scaled(x), images.test_labels.astype(str))


def _table_data(path: Path, preparation: Preparation, id: str | None, how: CsvFormat | None) -> ModelData:
    from ftnn.data._columns import matrix, unknown  # scikit-learn takes a second to load

    if preparation.columns is None:
        raise DataError(f"this model expects images: mnist or a folder of IDX files, not {path}")
    columns = read_columns(path, how)
    if id is not None:
        require_columns(path, columns, [id])
    shown = preparation.id if id is None else id
    ids = columns[shown].cells if shown is not None and shown in columns else None
    encodings = preparation.columns
    by_name = [column.name for column in encodings if column.name is not None]
    if by_name:
        require_columns(path, columns, by_name)
        used = {name: columns[name] for name in by_name}
    else:
        used = {name: column for name, column in columns.items() if name not in (shown, preparation.target)}
        if len(used) != len(encodings):
            raise DataError(f"this model expects {len(encodings)} features, but {path} has {len(used)}")
    truth, known, found = _truth(path, columns, preparation)
    notes = [unknown(encoding, used[str(encoding.name)]) for encoding in encodings if encoding.name in used]
    x = preparation.scaled(matrix(encodings, used))
    return ModelData(x, truth, known, ids, tuple(filter(None, (*notes, *found))))


def _truth(
    path: Path, columns: dict[str, Column], preparation: Preparation
) -> tuple[Array | None, Array | None, list[str | None]]:
    """The true labels or targets of the rows that have one, or None; which rows; and notes about them."""
    target = preparation.target
    column = None if target is None else columns.get(target)
    if column is None:
        return None, None, []
    is_missing = is_gap if preparation.classes is None else is_empty
    known = np.array([not is_missing(cell) for cell in column.cells])
    if not known.any():
        return None, None, []
    where, rows = f"{path}: column {target!r}", len(known)
    gaps = rows - int(known.sum())
    notes: list[str | None] = []
    if gaps:
        notes = [f"{where} is empty in {gaps} of {rows} rows, which are predicted but not measured"]
    if preparation.classes is None:
        hint = "correct it, or remove the column to predict without measuring errors"
        numbers = numbers_in(column, hint, gaps=True)
        return numbers[known], known, notes
    labels = [cell for cell, is_known in zip(column.cells, known, strict=True) if is_known]
    spelled = target_in(replace(column, cells=labels), "classification").astype(str)
    hint = "remove the column to predict without an accuracy"
    truth, note = spelled_as_learned(spelled, preparation.classes, where, hint, np.flatnonzero(known))
    return truth, known, [*notes, note]


def errors_of(predictions: Array, truth: Array) -> tuple[float, float | None]:
    """The root of the mean squared error, and R²; the latter is None if all true values are equal."""
    squares = float(np.mean((predictions - truth) ** 2))
    variance = float(np.var(truth))
    return squares**0.5, 1 - squares / variance if variance else None
