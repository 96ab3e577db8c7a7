"""How raw inputs and outputs are turned into a network's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

from ftnn.errors import ModelFileError

Array = np.ndarray[Any, np.dtype[Any]]
Task = Literal["classification", "regression"]


@dataclass(frozen=True)
class Preparation:
    """How raw inputs and outputs are turned into a network's, and back. Kept in the model's file."""

    task: Task
    classes: tuple[str, ...] | None
    """What each output stands for."""
    features: tuple[str, ...] | None
    """The columns of a table, in order; None for images."""
    target: str | None
    mean: tuple[float, ...] | None
    """Of each feature; None where features are taken as they are."""
    scale: tuple[float, ...] | None

    def inputs(self, x: Array) -> Array:
        """Features as the network takes them: tables with mean 0 and standard deviation 1."""
        return x if self.mean is None else (x - np.array(self.mean)) / np.array(self.scale)

    @classmethod
    def of(cls, notes: Mapping[str, Any], path: object) -> Preparation:
        """What `ftnn train` noted in a model's file; `path` is for the error where it did not."""
        given: Any = notes.get("preparation")
        if not isinstance(given, Mapping) or {*given} != {field.name for field in fields(cls)}:
            raise ModelFileError(f"{path} was not saved by `ftnn train`: it does not say what its inputs are")
        known: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in given.items()}
        return cls(**known)
