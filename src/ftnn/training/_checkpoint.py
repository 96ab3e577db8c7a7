"""Checkpoints: an interrupted run resumes from one with the same result."""

from __future__ import annotations

import json
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import safetensors.torch
import torch

from ftnn import _atomic
from ftnn.errors import FtnnError
from ftnn.nn._safetensors import digest, read
from ftnn.training._checks import quoted
from ftnn.training._history import History
from ftnn.training._json import from_json
from ftnn.training._problem import Array

FORMAT = "ftnn checkpoint"
VERSION = 2
"""Version 2 has a digest and the run's identity; version 1, from ftnn 0.1, has neither."""
MOST_SHOWN = 5
"""The most differences between two runs that an error lists."""
SECONDS_BETWEEN = 5.0
"""Epochs can be short: checkpoints are written at most this often, and at the end of each stage."""


class CheckpointError(FtnnError):
    """The checkpoint cannot be read, written or used for this run."""


@dataclass
class Position:
    """How far a run has got."""

    stage: int = 0
    epochs: int = 0
    """The number of epochs done in this stage."""
    rate: float | None = None
    """The learning rate of the next epoch; None for the stage's first."""
    loss: float | None = None
    """The loss of the stage's last epoch that was not undone; None before the first."""
    finished: bool = False


@dataclass
class State:
    """Everything needed to resume a run."""

    position: Position = field(default_factory=Position)
    history: History = field(default_factory=History)
    net: dict[str, Array] = field(default_factory=dict[str, Array])
    """The network's parameters when the stage began, or when the run ended."""
    engine: dict[str, Array] = field(default_factory=dict[str, Array])
    """The arrays that the stage has changed since."""


def check_like(arrays: Mapping[str, Array], own: Mapping[str, Array]) -> None:
    """Refuse a checkpoint's arrays unless their names, shapes and dtypes match the run's own."""
    for name in sorted({*arrays, *own}):
        saved, expected = (
            "missing" if array is None else f"{array.dtype} {array.shape}"
            for array in (arrays.get(name), own.get(name))
        )
        if saved != expected:
            raise CheckpointError(f"the checkpoint's array {name!r} is {saved}; expected {expected}")


class Keeper(Protocol):
    """Stores the state of a run."""

    def load(self) -> State | None:
        """The stored state, or None."""
        ...

    def keep(self, state: State, *, now: bool) -> None:
        """Store the state after an epoch. `now`: store it at once, as a stage or the run has ended."""
        ...

    def flush(self) -> None:
        """Store anything still pending."""
        ...


class Checkpoint:
    """A file that stores the state of a run.

    **Arguments:**

    - `path`: the file; None to store nothing.
    - `identity`: everything that determines the run's result, as JSON. Only a run with the same identity
        can resume from the file.
    - `identity_in_0_1`: the hash that files from ftnn 0.1 have instead; it does not cover optimizers.
    """

    def __init__(
        self, path: Path | None, identity: Mapping[str, Any], identity_in_0_1: Callable[[], str] = lambda: ""
    ):
        self.path = path
        # As read back from a file: tuples become lists.
        self._identity: dict[str, Any] = json.loads(json.dumps(identity))
        self._identity_in_0_1 = identity_in_0_1
        self._last = 0.0
        self._unwritten: State | None = None

    def load(self) -> State | None:
        """The stored state, or None. Raises if the file is damaged or belongs to another run."""
        if self.path is None or not self.path.exists():
            return None
        try:
            return self._load(self.path)
        except FtnnError as error:
            raise CheckpointError(f"{error}. Choose another file, or remove it to start over.") from error

    def _load(self, path: Path) -> State:
        metadata, tensors = read(path, CheckpointError, "checkpoint")
        version = metadata.get("version", "")
        if metadata.get("format") != FORMAT or not re.fullmatch("[1-9][0-9]{0,8}", version):
            raise CheckpointError(f"{path} is not an ftnn checkpoint")
        if int(version) > VERSION:
            raise CheckpointError(
                f"{path} was written by a newer ftnn; this ftnn reads checkpoints up to version {VERSION}"
            )
        # Files from 0.1 have no digest; in any other file, a missing digest means damage.
        has_digest = int(version) > 1 or "digest" in metadata
        if has_digest and metadata.get("digest") != _digest(metadata, tensors):
            raise CheckpointError(f"{path} is damaged: its digest does not match its content")
        if int(version) == 1:
            self._compare_with_0_1(path, metadata.get("configuration", ""))
        else:
            self._compare(path, from_json(dict, metadata.get("identity", ""), f"the identity in {path}"))
        parts: dict[str, dict[str, Array]] = {"net": {}, "engine": {}}
        for name, tensor in tensors.items():
            kind, _, rest = name.partition("/")
            if kind not in parts:
                raise CheckpointError(f"{path} has an unexpected tensor {name!r}")
            try:
                parts[kind][rest] = tensor.numpy()
            except TypeError as error:  # such as bfloat16
                raise CheckpointError(
                    f"{path} has a tensor {name!r} of type {tensor.dtype}: {error}"
                ) from error
        position = from_json(Position, metadata.get("position", ""), f"the position in {path}")
        history = from_json(History, metadata.get("history", ""), f"the history in {path}")
        return State(position, history, parts["net"], parts["engine"])

    def _compare(self, path: Path, identity: dict[str, Any]) -> None:
        different = list(differences(identity, self._identity))
        if different:
            rest = f"; and {len(different) - MOST_SHOWN} more" if len(different) > MOST_SHOWN else ""
            raise CheckpointError(f"{path} belongs to another run: {'; '.join(different[:MOST_SHOWN])}{rest}")

    def _compare_with_0_1(self, path: Path, identity: str) -> None:
        if identity != self._identity_in_0_1():
            raise CheckpointError(
                f"{path} belongs to another run: its settings, network, data or initial "
                "parameters differ. ftnn 0.1 wrote it and did not record them separately"
            )
        if self._identity.get("engine") == "torch":
            now = self._identity.get("optimizer")
            warnings.warn(
                f"{path} was written by ftnn 0.1, which did not record the optimizer. This run continues "
                f"with {'plain SGD' if now is None else quoted(now)}: make sure that this is the same one",
                UserWarning,
                stacklevel=2,
            )

    def keep(self, state: State, *, now: bool) -> None:
        """Write the state if `now`, or if the last write is long enough ago; else leave it pending."""
        if self.path is None:
            return
        self._unwritten = state
        if now or time.monotonic() - self._last >= SECONDS_BETWEEN:
            self.flush()

    def flush(self) -> None:
        """Write the pending state, if any."""
        if self.path is None or self._unwritten is None:
            return
        state, self._unwritten = self._unwritten, None
        arrays = {f"net/{name}": array for name, array in state.net.items()}
        arrays |= {f"engine/{name}": array for name, array in state.engine.items()}
        tensors = {name: torch.from_numpy(np.asarray(array, order="C")) for name, array in arrays.items()}
        metadata = {
            "format": FORMAT,
            "version": str(VERSION),
            "identity": json.dumps(self._identity),
            "position": json.dumps(asdict(state.position)),
            "history": state.history.to_json(),
        }
        metadata["digest"] = _digest(metadata, tensors)
        content = safetensors.torch.save(tensors, metadata)
        _atomic.write_or_explain(self.path, content, CheckpointError, "the checkpoint ")
        self._last = time.monotonic()


def _digest(metadata: Mapping[str, str], tensors: Mapping[str, torch.Tensor]) -> str:
    """The digest of everything in a checkpoint except the digest itself."""
    text = json.dumps({name: value for name, value in metadata.items() if name != "digest"}, sort_keys=True)
    return digest(text, tensors)


def differences(before: Any, now: Any, name: str = "") -> Iterator[str]:
    """The differences between two JSON values, each with its name and both values."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in {**before, **now}:
            yield from differences(before.get(key), now.get(key), f"{name}.{key}" if name else key)
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for number, (old, new) in enumerate(zip(before, now, strict=True)):
            yield from differences(old, new, f"{name}[{number}]")
    elif before != now:
        yield f"{name} was {quoted(before)} and is now {quoted(now)}"
