"""Runs kept on disk, so that one that was cut off goes on with the same result."""

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
"""2 has a digest, and says what the run is; 1, of ftnn 0.1, has neither."""
MOST_SHOWN = 5
"""Differences between two runs, in an error."""
SECONDS_BETWEEN = 5.0
"""Epochs can be short: a checkpoint is written at most this often, and at the end of each stage."""


class CheckpointError(FtnnError):
    """A checkpoint that cannot be read, written or used for this run."""


@dataclass
class Position:
    """How far a run is."""

    stage: int = 0
    epochs: int = 0
    """Done in this stage."""
    rate: float | None = None
    """Of the next epoch; None for the stage's first."""
    loss: float | None = None
    """Of this stage's last epoch that was kept; None before its first."""
    finished: bool = False


@dataclass
class State:
    """All that is needed to go on."""

    position: Position = field(default_factory=Position)
    history: History = field(default_factory=History)
    net: dict[str, Array] = field(default_factory=dict[str, Array])
    """The network's parameters as they were when the stage began, or at the end."""
    engine: dict[str, Array] = field(default_factory=dict[str, Array])
    """What the stage has changed since."""


def check_like(arrays: Mapping[str, Array], own: Mapping[str, Array]) -> None:
    """Refuse arrays of a checkpoint that are not like a run's own in name, shape or dtype."""
    for name in sorted({*arrays, *own}):
        kept, expected = (
            "missing" if array is None else f"{array.dtype} {array.shape}"
            for array in (arrays.get(name), own.get(name))
        )
        if kept != expected:
            raise CheckpointError(f"the checkpoint's array {name!r} is {kept}; expected {expected}")


class Keeper(Protocol):
    """Where a run is kept."""

    def load(self) -> State | None:
        """What was kept, or None."""
        ...

    def keep(self, state: State, *, now: bool) -> None:
        """Take the state of an epoch's end; `now`: of a stage's end, or of the run's."""
        ...

    def flush(self) -> None:
        """Let nothing be lost that was taken."""
        ...


class Checkpoint:
    """A file that a run is kept in.

    **Arguments:**

    - `path`: the file; None keeps nothing.
    - `identity`: everything that decides the run's result, as JSON. A run with another one is not resumed.
    - `identity_in_0_1`: what files of ftnn 0.1 have in its place, a hash that does not cover optimizers.
    """

    def __init__(
        self, path: Path | None, identity: Mapping[str, Any], identity_in_0_1: Callable[[], str] = lambda: ""
    ):
        self.path = path
        # As it comes back from a file: tuples are lists there.
        self._identity: dict[str, Any] = json.loads(json.dumps(identity))
        self._identity_in_0_1 = identity_in_0_1
        self._last = 0.0
        self._unwritten: State | None = None

    def load(self) -> State | None:
        """What was kept, or None. Raises where the file is damaged, or of another run."""
        if self.path is None or not self.path.exists():
            return None
        try:
            return self._load(self.path)
        except FtnnError as error:
            raise CheckpointError(f"{error}. Name another file, or remove it to start over.") from error

    def _load(self, path: Path) -> State:
        metadata, tensors = read(path, CheckpointError, "checkpoint")
        version = metadata.get("version", "")
        if metadata.get("format") != FORMAT or not re.fullmatch("[1-9][0-9]{0,8}", version):
            raise CheckpointError(f"{path} is not a checkpoint of ftnn")
        if int(version) > VERSION:
            raise CheckpointError(
                f"{path} was written by a newer ftnn; this one reads checkpoints of versions up to {VERSION}"
            )
        # Files of 0.1 have none; any other without one has lost it.
        has_digest = int(version) > 1 or "digest" in metadata
        if has_digest and metadata.get("digest") != _digest(metadata, tensors):
            raise CheckpointError(f"{path} is damaged: its digest does not fit its content")
        if int(version) == 1:
            self._compare_with_0_1(path, metadata.get("configuration", ""))
        else:
            self._compare(path, from_json(dict, metadata.get("identity", ""), f"the identity in {path}"))
        parts: dict[str, dict[str, Array]] = {"net": {}, "engine": {}}
        for name, tensor in tensors.items():
            kind, _, rest = name.partition("/")
            if kind not in parts:
                raise CheckpointError(f"{path} has a tensor {name!r}, which belongs to nothing")
            try:
                parts[kind][rest] = tensor.numpy()
            except TypeError as error:  # bfloat16, say
                raise CheckpointError(f"{path} has a tensor {name!r} of {tensor.dtype}: {error}") from error
        position = from_json(Position, metadata.get("position", ""), f"the position in {path}")
        history = from_json(History, metadata.get("history", ""), f"the history in {path}")
        return State(position, history, parts["net"], parts["engine"])

    def _compare(self, path: Path, identity: dict[str, Any]) -> None:
        different = list(differences(identity, self._identity))
        if different:
            rest = f"; and {len(different) - MOST_SHOWN} more" if len(different) > MOST_SHOWN else ""
            raise CheckpointError(
                f"{path} is the checkpoint of another run: {'; '.join(different[:MOST_SHOWN])}{rest}"
            )

    def _compare_with_0_1(self, path: Path, identity: str) -> None:
        if identity != self._identity_in_0_1():
            raise CheckpointError(
                f"{path} is the checkpoint of another run: its settings, network, data or first parameters "
                "differ. It is of ftnn 0.1, which did not record which of them"
            )
        if self._identity.get("engine") == "torch":
            now = self._identity.get("optimizer")
            warnings.warn(
                f"{path} is a checkpoint of ftnn 0.1, which did not record the optimizer. This run goes on "
                f"with {'plain SGD' if now is None else quoted(now)}: make sure that it is the same one",
                UserWarning,
                stacklevel=2,
            )

    def keep(self, state: State, *, now: bool) -> None:
        """Write the state, unless the last one is too recent and nothing asks for it now."""
        if self.path is None:
            return
        self._unwritten = state
        if now or time.monotonic() - self._last >= SECONDS_BETWEEN:
            self.flush()

    def flush(self) -> None:
        """Write what is still unwritten."""
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
    """Of all that a checkpoint holds, but for the digest itself."""
    text = json.dumps({name: value for name, value in metadata.items() if name != "digest"}, sort_keys=True)
    return digest(text, tensors)


def differences(before: Any, now: Any, name: str = "") -> Iterator[str]:
    """What differs between two JSON values, each with its name and both values."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in {**before, **now}:
            yield from differences(before.get(key), now.get(key), f"{name}.{key}" if name else key)
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for number, (old, new) in enumerate(zip(before, now, strict=True)):
            yield from differences(old, new, f"{name}[{number}]")
    elif before != now:
        yield f"{name} was {quoted(before)} and is now {quoted(now)}"
