"""Stages of training as data, each with a key made from everything that determines its result.

A cell of an experiment is a chain of stages. Stages that cells share have equal keys, and run once.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from ftnn.errors import DataError
from ftnn.training import Epoch, Pass

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from ftnn.experiments.grid.jobs import Array, Checkpoint, Outcome, Predecessor, Progress
    from ftnn.experiments.grid.rows import Row

C = TypeVar("C", bound="DataclassInstance", covariant=True)
OnProgress = Callable[["Progress"], None]


@dataclass(frozen=True)
class Task(ABC, Generic[C]):
    """One stage. Experiments subclass it for each kind of stage."""

    cell: C
    """The cell that the stage belongs to: plain data, with a readable `str`."""
    older: int | None = None
    """The version of its results, if it is not the current one: see `at`."""

    kind: ClassVar[str]
    """The name of this kind of stage in stores."""
    results: ClassVar[int]
    """The version of its results, part of every key: raise it when training gives different numbers."""
    results_in_0_1: ClassVar[int] = 1
    """The version of rows in files that do not state it, as those of ftnn 0.1."""
    cell_type: ClassVar[type[DataclassInstance]]
    epoch_type: ClassVar[type[Epoch | Pass]] = Epoch
    ends_cell: ClassVar[bool] = True
    """Whether it is the last stage of its cell. The last stage runs even if an earlier one failed: its row
    says why the cell failed. Other stages must keep their parameters for the next one."""

    @property
    def spec(self) -> dict[str, Any]:
        """Everything that determines the result, as plain data."""
        return {"kind": self.kind, "results": self.version, **asdict(self.cell)}

    @cached_property
    def key(self) -> str:
        text = json.dumps(self.spec, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @property
    def version(self) -> int:
        """The version of its results."""
        return self.results if self.older is None else self.older

    def at(self, version: Any) -> Self:
        """This stage with the results of this version: a different key, under which nothing is run."""
        if type(version) is not int or not 1 <= version <= self.results:
            raise DataError(f"results is {version!r:.60}; expected a version from 1 to {self.results}")
        older = None if version == self.results else version
        return self if older == self.older else replace(self, older=older)

    def with_key(self, key: str) -> Self:
        """This stage with the results of the version that has this key; unchanged if there is none."""
        versions = (self.at(version) for version in range(self.results, 0, -1))
        return next((task for task in versions if task.key == key), self)

    @property
    def before(self) -> Task[C] | None:
        """The stage that must finish first."""
        return None

    @property
    def chain(self) -> tuple[Task[C], ...]:
        """All earlier stages of the cell, in order."""
        stages: list[Task[C]] = []
        before = self.before
        while before is not None:
            stages.append(before)
            before = before.before
        return tuple(reversed(stages))

    @property
    def matches_paper(self) -> bool:
        """Whether its settings are the paper's."""
        return getattr(self.cell, "matches_paper", True)

    # --- for people ---

    @property
    @abstractmethod
    def title(self) -> str:
        """Which part of the cell this is, in a word."""

    @property
    @abstractmethod
    def work(self) -> str:
        """The type of work, for the time that the report adds up."""

    def __str__(self) -> str:
        return f"{self.cell}, {self.title}"

    # --- running ---

    @property
    @abstractmethod
    def epochs(self) -> int:
        """The largest possible number of epochs."""

    @property
    @abstractmethod
    def effort(self) -> float:
        """The amount of work, in any unit that is the same for the whole family."""

    @property
    def family(self) -> str:
        """Tasks of one family take time in proportion to their effort."""
        return self.kind

    @abstractmethod
    def run(
        self, before: tuple[Predecessor, ...], checkpoint: Checkpoint | None, on_progress: OnProgress
    ) -> Outcome:
        """Run to the end, from the checkpoint if there is one.

        **Arguments:**

        - `before`: the earlier stages, up to the first that failed.
        - `on_progress`: called after some epochs.
        """

    # --- results ---

    def check_row(self, row: Row) -> None:
        """Raise `DataError` if a row cannot be the result of this task."""
        if not row.digest:
            raise DataError("digest is empty; expected a SHA-256 digest")

    def shapes(self, arrays: Mapping[str, Array]) -> Mapping[str, tuple[int, ...]]:
        """The expected shapes of the parameters that drawing its network needs."""
        return {}


AnyTask = Task[Any]


def with_chains(tasks: Iterable[AnyTask]) -> dict[str, AnyTask]:
    """These tasks and all earlier stages of their chains by key, each once, in an order that can be run."""
    stages: dict[str, AnyTask] = {}
    for task in tasks:
        for stage in (*task.chain, task):
            stages.setdefault(stage.key, stage)
    return stages
