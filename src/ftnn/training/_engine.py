"""What trains the layers of a stage. There are two engines, with one result: compiled code and autograd."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Protocol

from ftnn.training._problem import Array, Problem

EngineName = Literal["auto", "compiled", "torch"]
Snapshot = dict[str, Array]


class Steps(Protocol):
    """What some mini-batches did."""

    @property
    def losses(self) -> Array: ...
    @property
    def right(self) -> int: ...
    @property
    def finite(self) -> bool: ...


class Engine(Protocol):
    """Some hidden layers and the linear one above them, being trained on a problem."""

    def epoch(self, order: Array, rates: Array, data: Problem | None = None) -> Iterator[Steps]:
        """Run over samples in this order, with a learning rate for each mini-batch.

        In chunks of a fraction of a second. The samples are the problem's, unless there are other `data`.
        """
        ...

    def outputs(self, x: Array) -> Array:
        """What the linear layer gives, (samples, out)."""
        ...

    def hidden(self, x: Array) -> Array:
        """What the last hidden layer gives after its activation, (samples, width)."""
        ...

    def snapshot(self) -> Snapshot:
        """A copy of all that an epoch changes."""
        ...

    def restore(self, snapshot: Snapshot) -> None: ...

    def write_back(self) -> None:
        """Bring the modules up to date."""
        ...
