"""Fake rows for stores: the test chooses the results of training."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from ftnn.data import paper_grid
from ftnn.experiments import Cell, PiCell, Store
from ftnn.experiments.grid.rows import Row
from ftnn.experiments.grid.task import AnyTask

FINISHED = "2026-01-02T03:04:05.678+00:00"


def row(
    task: AnyTask,
    ft: float | None,
    *,
    lwt: float | None = None,
    failed: str | None = None,
    seconds: float = 2.0,
    alone: float | None = 5.0,
    validation: float | None = None,
    versions: dict[str, str] | None = None,
) -> Row:
    versions = {"ftnn": "0.1.0"} if versions is None else versions
    return Row(
        task.key,
        task,
        lwt,
        ft,
        validation,
        None,
        None,
        failed,
        None,
        seconds,
        alone,
        "ab" * 32,
        versions,
        FINISHED,
    )


def cell(store: Store, function: str, activation: Any, layers: int, gamma: float, **values: Any) -> None:
    """Add a finished cell: `ft` and the other arguments of `row`; `seed`, `data`, `epochs` and `arrays`."""
    seed, data = values.pop("seed", 0), values.pop("data", Cell.data)
    arrays = values.pop("arrays", None)
    epochs = values.pop("epochs", None if arrays is None else [])  # parameters need epochs
    task = Cell(function, activation, layers, gamma, seed, data).task()
    blob = None if arrays is None else safetensors.numpy.save(arrays)
    store.add(row(task, **values), None if epochs is None else json.dumps(epochs), blob)


def curve(
    store: Store,
    hidden: int,
    pairs: int,
    accuracies: Sequence[float],
    seed: int = 0,
    keep_state: bool = False,
) -> None:
    """Add a curve of π."""
    passes = [{"epoch": n, "loss": 0.5, "accuracy": a, "seconds": 0.1} for n, a in enumerate(accuracies, 1)]
    task = PiCell(hidden, pairs, seed, keep_state=keep_state).task()
    store.add(row(task, accuracies[-1]), json.dumps(passes), None)


def epoch(number: int, accuracy: float, *, undone: bool = False) -> dict[str, Any]:
    return {
        "stage": "ft",
        "layer": 0,
        "epoch": number,
        "rate": 0.01,
        "loss": 0.1,
        "train_accuracy": 99.0,
        "test_accuracy": accuracy,
        "test_loss": 0.2,
        "seconds": 1.0,
        "undone": undone,
    }


def whole_grid(path: Path) -> None:
    """A store with all 1,080 cells, three seeds at one layer, 12 curves, and two custom functions."""
    rng = np.random.default_rng(3)
    with Store(path) as store:
        additions: list[tuple[Row, str | None, bytes | None]] = []
        for known in paper_grid():
            assert known.gamma is not None
            for seed in range(3 if known.hidden_layers == 1 else 1):
                activation: Any = known.activation
                task = Cell(known.function, activation, known.hidden_layers, float(known.gamma), seed).task()
                off = round(float(rng.normal(0, 0.5)), 2)  # of 10,000 images
                if known.ft_accuracy is None or known.lwt_accuracy is None:
                    new = row(task, None, failed="the loss was not finite in epoch 2 of layer 1")
                else:
                    new = row(task, min(known.ft_accuracy + off, 99.99), lwt=known.lwt_accuracy + off)
                additions.append((new, json.dumps([epoch(1, 90.0)]), None))
        for text in ("p*tan(q*x + r)", "p*sec(q*x + r) where q in [-10, 10] and r in [-10, 10]"):
            for gamma in range(-5, 1):
                task = Cell(text, "relu", 1, float(gamma)).task()
                reason = "the final accuracy, 9.80 %, is no better than chance" if gamma > -3 else None
                accuracy = 9.8 if reason else 90.0 + gamma
                additions.append((row(task, accuracy, lwt=accuracy, failed=reason), None, None))
        store.add_all(additions)
        for hidden in (128, 256, 512, 1024):
            for pairs in (200, 400, 800):
                top = 100 * min(1.0, hidden / pairs)
                right = np.round(pairs * top / 100 * (1 - np.exp(-np.arange(600) / 80)))
                curve(store, hidden, pairs, (100 * right / pairs).tolist())
