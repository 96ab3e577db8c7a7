"""A table for training: which rows train and test, and how columns become inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ftnn.data._preparation import Array, Preparation, Task
from ftnn.data._table_files import Column, CsvFormat, read_columns
from ftnn.data._tables import ENOUGH_ROWS, is_number, listed, require_columns, same_number, target_in
from ftnn.errors import DataError

HELD_OUT = 0.2
"""The share of a table's rows that is held out for testing."""


@dataclass(frozen=True)
class TableOptions:
    """How to use a table; the names are those of the options of `ftnn train`."""

    target: str | None = None
    """The column to predict."""
    task: Task | None = None
    """Inferred from the target by default."""
    drop: tuple[str, ...] = ()
    """Columns to leave out."""
    id: str | None = None
    """A column to leave out, and to show next to predictions."""
    categorical: tuple[str, ...] = ()
    """Columns of texts, even if they look like numbers."""
    test: str | None = None
    """A table with the rows to test on."""
    test_size: float | None = None
    """Otherwise, the share of rows to test on, below 1, or their number."""
    separator: str | None = None
    decimal: Any = None

    @property
    def format(self) -> CsvFormat:
        return CsvFormat(self.separator, self.decimal)


@dataclass(frozen=True)
class TrainingData:
    """Data as networks see them: x is (samples, inputs), y labels or targets, (samples,)."""

    preparation: Preparation
    x: Array
    y: Array
    test_x: Array
    test_y: Array
    tested_on: str
    """Which samples the test samples are, for people."""
    notes: tuple[str, ...] = ()
    """Remarks about the data, for people."""


def table_for_training(path: Path, options: TableOptions, seed: int, samples: int | None) -> TrainingData:
    """The rows of a table, prepared by what the training rows are like.

    **Arguments:**

    - `seed`: determines which rows are held out for testing.
    - `samples`: use only this many of the other rows.
    """
    from ftnn.data._columns import learned, matrix, unknown  # scikit-learn takes a second to load

    columns = read_columns(path, options.format)
    target, names = _chosen(path, columns, options)
    y = target_in(columns[target], options.task)
    task: Task = "regression" if y.dtype.kind == "f" else "classification"
    train, test, tested_on = _split(path, len(y), options, seed)
    train = train[: limited(str(path), samples, len(train))]
    found = [learned(columns[name], train, name in options.categorical or None) for name in names]
    encodings = tuple(encoding for encoding, _ in found)
    notes = [note for _, some in found for note in some]
    raw = matrix(encodings, columns)
    test_path, test_raw, test_target = path, raw[test], y[test]
    if options.test is not None:
        test_path = Path(options.test)
        tested = read_columns(test_path, options.format)
        require_columns(test_path, tested, [target, *names])
        test_raw, test_target = matrix(encodings, tested), target_in(tested[target], task)
        notes += filter(None, (unknown(encoding, tested[str(encoding.name)]) for encoding in encodings))
    preparation, y, test_y, more = _scaled_targets(path, target, y, train, test_target, test_path)
    preparation = replace(preparation, target=target, id=options.id, columns=encodings)
    preparation = _with_scaled_inputs(preparation, path, raw[train])
    return TrainingData(
        preparation,
        preparation.scaled(raw[train]),
        y[train],
        preparation.scaled(test_raw),
        test_y,
        tested_on,
        (*notes, *more),
    )


def _chosen(path: Path, columns: Mapping[str, Column], options: TableOptions) -> tuple[str, list[str]]:
    """The target, and the columns to use as features."""
    target = options.target
    if target is None:
        raise DataError(
            f"{path} is a table: choose the target column with --target; it has {', '.join(columns)}"
        )
    left_out = {*options.drop, *([] if options.id is None else [options.id])}
    require_columns(path, columns, [target, *left_out, *options.categorical])
    names = [name for name in columns if name != target and name not in left_out]
    if twice := [name for name in (target, *options.categorical) if name in left_out]:
        raise DataError(f"column {twice[0]!r} is both used and left out (--drop or --id); choose one")
    if not names:
        raise DataError(f"{path} has no columns left except {target!r}; at least one feature is needed")
    return target, names


def _split(path: Path, rows: int, options: TableOptions, seed: int) -> tuple[Array, Array, str]:
    """The numbers of the training rows and of the test rows, and what to say about the latter."""
    order = np.random.default_rng([seed, 7]).permutation(rows)
    if options.test is not None:
        if options.test_size is not None:
            raise DataError(f"--test-size {options.test_size:g} is not needed with --test: choose one")
        return order, order[:0], f"all rows of {options.test}"
    size = HELD_OUT if options.test_size is None else options.test_size
    if not (0 < size < 1 or (size >= 1 and size % 1 == 0)):
        raise DataError(f"--test-size {size:g}: expected a share of the rows, such as 0.2, or their number")
    count = max(1, round(size * rows)) if size < 1 else int(size)
    if count >= rows:
        raise DataError(
            f"{path} has {rows} row{'s'[: rows != 1]}; at least {count + 1} are needed, to train and to test "
            f"on {count} of them"
        )
    return order[count:], order[:count], f"{count:,} of {rows:,} rows, at random (--seed {seed}, --test-size)"


def _scaled_targets(
    path: Path, target: str, y: Array, train: Array, test_y: Array, test_path: Path
) -> tuple[Preparation, Array, Array, list[str]]:
    """Targets as networks see them: standardised numbers, or the numbers of classes."""
    if y.dtype.kind == "f":
        from ftnn.data._scaling import StandardScaler, scaling_of

        if (y[train] == y[train][0]).all():
            raise DataError(
                f"{path}: column {target!r} is {y[train][0]:g} in all training rows, so there is nothing to "
                "learn"
            )
        scaler: Any = StandardScaler().fit(y[train][:, None])
        y, scaled = (scaler.transform(values[:, None])[:, 0] for values in (y, test_y))
        return Preparation("regression", None, targets=scaling_of(scaler)), y, scaled, []
    labels, numbers = np.unique(y, return_inverse=True)
    classes = tuple(map(str, labels.tolist()))
    if len(classes) < 2:
        raise DataError(f"column {target!r} has only one class; at least 2 are needed")
    if len({*numbers[train].tolist()}) > max(ENOUGH_ROWS, len(train) / 2):
        raise DataError(
            f"{path}: column {target!r} has {len(classes)} different labels in {len(y)} rows, such as "
            f"{listed(classes, 3)}: too many to learn from so few examples of each"
            + ("; use --task regression to predict a number" if all(map(is_number, classes)) else "")
        )
    where = f"{test_path}: column {target!r}"
    spelled, note = spelled_as_learned(test_y.astype(str), classes, where, "leave the row out")
    number_of = {name: number for number, name in enumerate(classes)}
    test_numbers = np.array([number_of[label] for label in spelled.tolist()], np.int64)
    return Preparation("classification", classes), numbers, test_numbers, [] if note is None else [note]


def _with_scaled_inputs(preparation: Preparation, path: Path, raw: Array) -> Preparation:
    """The preparation with the scaling of these inputs, (rows, inputs)."""
    from ftnn.data._scaling import InputScaler, scaling_of

    preparation = replace(preparation, inputs=scaling_of(InputScaler().fit(raw)))
    # Refuse numbers that differ, but are all equal in float32, in which networks compute.
    lost = (np.ptp(raw, 0) > 0) & (np.ptp(preparation.scaled(raw).astype(np.float32), 0) == 0)
    if lost.any():
        column, names = int(np.argmax(lost)), preparation.input_names or ()
        low, high = raw[:, column].min(), raw[:, column].max()
        raise DataError(
            f"{path}: column {names[column]!r} goes from {float(low)!r} to {float(high)!r}, which "
            "is a single number in float32; rescale it, or subtract a common offset"
        )
    return preparation


def limited(name: str, samples: int | None, available: int) -> int:
    """The number of samples to train on."""
    if samples is None:
        return available
    if not 1 <= samples <= available:
        raise DataError(f"--samples {samples}: expected 1 to {available}, the number of samples in {name}")
    return samples


def spelled_as_learned(
    labels: Array, classes: Sequence[str], where: str, otherwise: str, rows: Array | None = None
) -> tuple[Array, str | None]:
    """Labels in the spelling of the training data, and a note about those that were spelled differently.

    `rows` are their numbers in the table, from 0; None: all of them. Errors end with what to do `otherwise`.
    """
    read_as = {name: name for name in classes}
    numbers = range(1, len(labels) + 1) if rows is None else (rows + 1).tolist()
    for row, label in zip(numbers, labels.tolist(), strict=True):
        if label not in read_as:
            same = [name for name in classes if same_number(name, label)]
            if len(same) != 1:
                what = f"could be {listed(same)}" if same else f"is not one of {listed(classes)}"
                raise DataError(
                    f"{where}, row {row} has the label {label!r}, which {what}; spell it as in the training "
                    f"data, or {otherwise}"
                )
            read_as[label] = same[0]
    other = [f"{label!r} was read as the class {name!r}" for label, name in read_as.items() if label != name]
    note = f"{where} spells labels differently from the training data: {', '.join(other)}" if other else None
    return np.array([read_as[label] for label in labels.tolist()]), note
