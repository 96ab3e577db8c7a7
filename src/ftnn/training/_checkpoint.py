"""Runs kept on disk, so that one that was cut off goes on with the same result."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import safetensors
import safetensors.numpy

from ftnn import _atomic
from ftnn.errors import FtnnError
from ftnn.training._history import History
from ftnn.training._problem import Array

VERSION = 1
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
    """A file that a run is kept in."""

    def __init__(self, path: Path | None, configuration: str):
        self.path = path
        self.configuration = configuration
        self._last = 0.0
        self._unwritten: State | None = None

    def load(self) -> State | None:
        """What was kept, or None. Raises where the file is of another run."""
        if self.path is None or not self.path.exists():
            return None
        try:
            with safetensors.safe_open(str(self.path), framework="np") as file:
                metadata: dict[str, str] = dict(file.metadata() or {})
                arrays = {name: np.asarray(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
        except Exception as error:  # safetensors raises kinds of its own
            raise CheckpointError(
                f"{self.path} is not a checkpoint that can be read ({error}); name another file, or remove it"
            ) from error
        if metadata.get("format") != "ftnn checkpoint":
            raise CheckpointError(f"{self.path} is not a checkpoint of ftnn; name another file")
        if int(metadata.get("version", "0")) > VERSION:
            raise CheckpointError(
                f"{self.path} was written by a newer ftnn; this one reads versions up to {VERSION}"
            )
        if metadata.get("configuration") != self.configuration:
            raise CheckpointError(
                f"{self.path} is the checkpoint of another run: its settings, network, data or first "
                "parameters differ. Name another file, or remove it to begin anew."
            )
        parts: dict[str, dict[str, Array]] = {"net": {}, "engine": {}}
        for name, array in arrays.items():
            kind, _, rest = name.partition("/")
            parts[kind][rest] = array
        position = Position(**json.loads(metadata["position"]))
        return State(position, History.from_json(metadata["history"]), parts["net"], parts["engine"])

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
        metadata: dict[str, Any] = {
            "format": "ftnn checkpoint",
            "version": str(VERSION),
            "configuration": self.configuration,
            "position": json.dumps(asdict(state.position)),
            "history": state.history.to_json(),
        }
        whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        content = safetensors.numpy.save(whole, metadata)
        _atomic.write_or_explain(self.path, content, CheckpointError, "the checkpoint ")
        self._last = time.monotonic()
