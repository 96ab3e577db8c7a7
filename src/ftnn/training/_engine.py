"""Engines train the layers of a stage: one in compiled code, one by autograd, with the same results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Protocol

from ftnn.training._problem import Array, Problem

EngineName = Literal["auto", "compiled", "torch"]
Snapshot = dict[str, Array]


class Steps(Protocol):
    """The outcome of some mini-batches."""

    @property
    def losses(self) -> Array: ...
    @property
    def right(self) -> int: ...
    @property
    def finite(self) -> bool: ...


class Engine(Protocol):
    """Trains some hidden layers, and the linear layer above them, on a problem."""

    def epoch(self, order: Array, rates: Array, data: Problem | None = None) -> Iterator[Steps]:
        """Train on samples in this order, with a learning rate for each mini-batch.

        Yields chunks of a fraction of a second. The samples are those of `data`, or of the problem if None.
        """
        ...

    def outputs(self, x: Array) -> Array:
        """The outputs of the linear layer, (samples, out)."""
        ...

    def hidden(self, x: Array) -> Array:
        """The outputs of the last hidden layer after its activation, (samples, width)."""
        ...

    def snapshot(self) -> Snapshot:
        """A copy of everything that an epoch changes."""
        ...

    def restore(self, snapshot: Snapshot) -> None: ...

    def write_back(self) -> None:
        """Copy the trained parameters back into the modules."""
        ...
