"""What `ftnn train` and `ftnn predict` do: from the name of data to a network in a file, and to answers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ftnn import _atomic
from ftnn.data import Preparation, idx_directory, mnist, read_table
from ftnn.data._paper import paper_accuracies
from ftnn.data._preparation import Task
from ftnn.data._tables import listed, read_to_predict, same_number
from ftnn.errors import DataError, FtnnError, ModelFileError
from ftnn.nn import Network, load, notes_of, save
from ftnn.training._fit import fit
from ftnn.training._history import History
from ftnn.training._outcome import classes_of, digest, require_finite
from ftnn.training._problem import Array
from ftnn.training._settings import Settings
from ftnn.training._sizes import check_sizes
from ftnn.training._streams import initialise

HELD_OUT = 0.2
"""The share of a table's rows that is kept for testing."""


@dataclass(frozen=True)
class Prepared:
    """Data ready to learn from."""

    preparation: Preparation
    x: Array
    y: Array
    test_x: Array
    test_y: Array


def prepare(
    data: str, target: str | None, task: Task | None, seed: int, samples: int | None = None
) -> Prepared:
    """Data by name: `mnist`, a folder of IDX files, or a table with the column to learn.

    Of the samples to learn from, the first `samples` only; a table's rows are shuffled before.
    """
    if data == "mnist" or Path(data).is_dir():
        images = mnist() if data == "mnist" else idx_directory(data)
        if task == "regression":
            raise DataError(f"{data} has labels, not numbers: its task is classification")
        classes = tuple(
            str(n) for n in range(int(max(images.train_labels.max(), images.test_labels.max())) + 1)
        )
        found = Preparation("classification", classes, None, None, None, None)
        first = slice(_allowed(samples, len(images.train_labels)))
        x, y = images.train_images[first], images.train_labels[first]
        return Prepared(found, x, y, images.test_images, images.test_labels)
    if target is None:
        raise DataError(f"--data {data} is a table: say with --target which column is to be learned")
    table = read_table(data, target, task=task)
    assert table.target is not None
    y = table.target
    chosen: Task = "regression" if y.dtype.kind == "f" else "classification"
    classes = None
    if chosen == "classification":
        names, y = np.unique(y, return_inverse=True)
        classes = tuple(map(str, names.tolist()))
        if len(classes) < 2:
            raise DataError(f"the column {target!r} has one class only: there is nothing to tell apart")
    else:
        _still_differ(data, (target,), y[:, None], y[:, None])
    if len(y) < 2:
        raise DataError(f"{data} has {len(y)} row; at least 2 are needed, to learn from and to test on")
    order = np.random.default_rng([seed, 7]).permutation(len(y))
    held = max(1, round(HELD_OUT * len(y)))
    test, train = order[:held], order[held:]
    train = train[: _allowed(samples, len(train))]
    mean, scale = table.x[train].mean(0), table.x[train].std(0)
    # Rounding leaves equal numbers with a deviation just above 0.
    scale[(scale == 0) | (np.ptp(table.x[train], 0) == 0)] = 1.0
    found = Preparation(chosen, classes, table.names, target, tuple(mean.tolist()), tuple(scale.tolist()))
    x = found.inputs(table.x)
    _still_differ(data, table.names, table.x[train], x[train])
    return Prepared(found, x[train], y[train], x[test], y[test])


def _still_differ(data: str, names: Sequence[str], given: Array, made: Array) -> None:
    """Refuse columns whose numbers differ but are all one to a network, which computes in float32."""
    lost = (np.ptp(given, 0) > 0) & (np.ptp(made.astype(np.float32), 0) == 0)
    if lost.any():
        column = int(np.argmax(lost))
        low, high = given[:, column].min(), given[:, column].max()
        raise DataError(
            f"{data}: column {names[column]!r} goes from {float(low)!r} to {float(high)!r}, which "
            "is a single number in float32; rescale it, or subtract what its numbers have in common"
        )


def _allowed(samples: int | None, there: int) -> int:
    """How many samples to learn from."""
    if samples is None:
        return there
    if not 1 <= samples <= there:
        raise DataError(f"--samples {samples}: there are {there} to learn from; allowed are 1 to {there}")
    return samples


@dataclass(frozen=True)
class Result:
    """What `ftnn train --json` prints."""

    function: str
    activation: str
    hidden_layers: int
    gamma: float
    seed: int
    lwt_accuracy: float | None
    ft_accuracy: float | None
    seconds: float
    failed: str | None
    digest: str


@dataclass(frozen=True)
class Trained:
    """A run of `ftnn train`."""

    result: Result
    history: History
    paper: tuple[float | None, float | None] | None
    """The paper's accuracies after LWT and FT, where it has this cell."""
    model: Path | None


def train(
    *,
    function: str,
    activation: Any = "logistic",
    layers: int = 1,
    width: int = 128,
    gamma: float = 0,
    data: str = "mnist",
    target: str | None = None,
    task: Task | None = None,
    samples: int | None = None,
    seed: int = 0,
    out: Path | None = None,
    progress: bool = False,
    **settings: Any,
) -> Trained:
    """Train a network on data by name; with `out`, keep the model, the history and a checkpoint there."""
    start = time.perf_counter()
    Settings(gamma=gamma, seed=seed)  # refuses what is out of range before any data are read
    check_sizes(layers, width)
    if out is not None:
        _make_folder(out)
    found = prepare(data, target, task, seed, samples)
    outputs = 1 if found.preparation.classes is None else len(found.preparation.classes)
    net = Network(found.x.shape[1], [width] * layers, outputs, function=function, activation=activation)
    initialise(net, seed)
    history = fit(
        net,
        found.x,
        found.y,
        gamma=gamma,
        seed=seed,
        test=(found.test_x, found.test_y),
        loss="squared" if found.preparation.classes is None else "softmax",
        checkpoint=None if out is None else out / "checkpoint.safetensors",
        progress=progress,
        **settings,
    )
    result = Result(
        function,
        activation,
        layers,
        gamma,
        seed,
        history.lwt_accuracy,
        history.ft_accuracy,
        time.perf_counter() - start,
        history.failed,
        digest(net),
    )
    model = None
    if out is not None:
        model = out / "model.safetensors"
        save(net, model, notes={"preparation": asdict(found.preparation), "result": asdict(result)})
        _atomic.write_or_explain(out / "history.json", history.to_json().encode(), FtnnError)
    made = replace(Settings(**{n: v for n, v in settings.items() if n != "engine"}), gamma=gamma, seed=seed)
    as_in_paper = data == "mnist" and samples is None and width == 128
    is_papers = as_in_paper and made == Settings(gamma=gamma, seed=seed)
    paper = paper_accuracies(function, activation, layers, gamma) if is_papers else None
    return Trained(result, history, paper, model)


def _make_folder(out: Path) -> None:
    """Find out before training whether results can be kept."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / ".probe"
        _atomic.write(probe, b"", durable=False)
        probe.unlink()
    except OSError as error:
        raise FtnnError(
            f"cannot write into --out {out}: {error.strerror or error}; name a folder that can be written"
        ) from error


@dataclass(frozen=True)
class Predictions:
    """What a model says of data."""

    answers: list[str] | list[float]
    """A class for each row, or a number (a list of numbers, where there are several outputs)."""
    probabilities: Array | None
    """(rows, classes)."""
    classes: tuple[str, ...] | None
    accuracy: float | None
    """In percent, where the data have the right answers too."""
    note: str | None = None
    """What to know about the accuracy."""


def predict(model: Path, data: str) -> Predictions:
    """The answers of a model that `train` saved: for a table, or for a folder's test images.

    Raises `DataError` where the model's outputs are not finite: there is no answer in them.
    """
    path = model / "model.safetensors" if model.is_dir() else model
    net, found = load(path), Preparation.of(notes_of(path), path)
    if not isinstance(net, Network):
        raise ModelFileError(f"{path} holds a {type(net).__name__}, not a Network")
    if found.classes is not None and len(found.classes) != net.out_features:
        raise ModelFileError(
            f"{path} notes {len(found.classes)} classes, but its network has {net.out_features} outputs"
        )
    right: Array | None = None
    note = None
    if found.features is None:
        if data != "mnist" and not Path(data).is_dir():
            raise DataError(f"this model takes images: name a folder of IDX files or mnist, not {data}")
        images = mnist() if data == "mnist" else idx_directory(data)
        x, right = images.test_images, images.test_labels.astype(str)
    elif found.classes is None:
        x = found.inputs(read_table(data, None, found.features).x)
    else:
        table = read_to_predict(data, found.target, found.features)
        x = found.inputs(table.x)
        if table.target is not None:
            right, note = _as_classes(
                table.target.astype(str), found.classes, f"{data}: column {found.target!r}"
            )
    if x.shape[1] != net.in_features:
        raise DataError(f"this model takes {net.in_features} features, but {data} has {x.shape[1]}")
    with torch.no_grad():
        out = require_finite(net(torch.as_tensor(x, dtype=net.output.weight.dtype)), f"the model {path}")
    if found.classes is None:
        return Predictions([float(value) for value in out[:, 0]], None, None, None)
    answers = [found.classes[int(n)] for n in classes_of(out)]
    accuracy = None if right is None else 100 * float(np.mean(np.array(answers) == right))
    return Predictions(answers, torch.softmax(out.double(), 1).numpy(), found.classes, accuracy, note)


def _as_classes(labels: Array, classes: tuple[str, ...], where: str) -> tuple[Array, str | None]:
    """Labels in the spelling that was learned, and in words which of them were spelled otherwise."""
    read_as = {name: name for name in classes}
    for row, label in enumerate(labels.tolist(), 1):
        if label not in read_as:
            same = [name for name in classes if same_number(name, label)]
            if len(same) != 1:
                what = (
                    f"could be {listed(same)}"
                    if same
                    else f"is none of the classes learned, {listed(classes)}"
                )
                raise DataError(
                    f"{where}, row {row} has the label {label!r}, which {what}; spell it as it was learned, "
                    "or remove the column to predict without an accuracy"
                )
            read_as[label] = same[0]
    other = [f"{label!r} was read as the class {name!r}" for label, name in read_as.items() if label != name]
    note = f"{where} spells labels otherwise than the training data: {', '.join(other)}" if other else None
    return np.array([read_as[label] for label in labels.tolist()]), note
