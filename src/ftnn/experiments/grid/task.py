"""What there is to run: stages of training as data, each with a key made of all that decides its result.

A cell of an experiment is a chain of stages. Cells may have their first stages in common: equal stages have
equal keys, and run once.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from ftnn.errors import DataError
from ftnn.training import Epoch, Pass

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from ftnn.experiments.grid.jobs import Array, Checkpoint, Kept, Outcome, Progress
    from ftnn.experiments.grid.rows import Row

C = TypeVar("C", bound="DataclassInstance", covariant=True)
Tell = Callable[["Progress"], None]


@dataclass(frozen=True)
class Task(ABC, Generic[C]):
    """One stage. An experiment has a subclass for each kind of stage."""

    cell: C
    """What the stage belongs to: plain data, whose `str` names it."""

    kind: ClassVar[str]
    """The name of this kind of stage in stores."""
    results: ClassVar[int]
    """The version of its results: raised when it gives other numbers than before. Part of every key."""
    cell_type: ClassVar[type[DataclassInstance]]
    epoch_type: ClassVar[type[Epoch | Pass]] = Epoch
    ends_cell: ClassVar[bool] = True
    """Whether it is the last stage of its cell. Such a stage runs even after one before it failed: its row
    says why the cell failed. The parameters of other stages are needed by those after them."""

    # --- what it is ---

    @property
    def spec(self) -> dict[str, Any]:
        """All that decides the result, as plain data."""
        return {"kind": self.kind, "results": self.results, **asdict(self.cell)}

    @cached_property
    def key(self) -> str:
        text = json.dumps(self.spec, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @property
    def before(self) -> Task[C] | None:
        """The stage that must be done first."""
        return None

    @property
    def chain(self) -> tuple[Task[C], ...]:
        """All stages that lead to this one, the first one first; this one is not among them."""
        stages: list[Task[C]] = []
        before = self.before
        while before is not None:
            stages.append(before)
            before = before.before
        return tuple(reversed(stages))

    @property
    def is_papers(self) -> bool:
        """Whether its settings are the paper's."""
        return True

    # --- how people see it ---

    @property
    @abstractmethod
    def title(self) -> str:
        """Which part of its cell this is, in a word."""

    @property
    @abstractmethod
    def work(self) -> str:
        """What sort of work this is: the report adds up the time of each sort."""

    def __str__(self) -> str:
        return f"{self.cell}, {self.title}"

    # --- how it runs ---

    @property
    @abstractmethod
    def epochs(self) -> int:
        """How many, at most."""

    @property
    @abstractmethod
    def effort(self) -> float:
        """How much work it is, up to a factor that is the same in its family."""

    @property
    def family(self) -> str:
        """Tasks of one family take time in proportion to their effort."""
        return self.kind

    @abstractmethod
    def run(self, before: tuple[Kept, ...], checkpoint: Checkpoint | None, tell: Tell) -> Outcome:
        """Run it from its checkpoint, or from its start, to its end.

        **Arguments:**

        - `before`: the stages that lead to it, up to the first that failed.
        - `tell`: called now and then as epochs end.
        """

    # --- what can be its result ---

    def check_row(self, row: Row) -> None:
        """Raise `DataError` if a row cannot be the result of this task."""
        if not row.digest:
            raise DataError("digest is empty; expected a SHA-256 digest")

    def shapes(self, arrays: Mapping[str, Array]) -> Mapping[str, tuple[int, ...]]:
        """The shapes of those parameters without which its network cannot be drawn."""
        return {}


AnyTask = Task[Any]


def with_chains(tasks: Iterable[AnyTask]) -> dict[str, AnyTask]:
    """These tasks and all that lead to them, each once, by key, a stage after those before it."""
    stages: dict[str, AnyTask] = {}
    for task in tasks:
        for stage in (*task.chain, task):
            stages.setdefault(stage.key, stage)
    return stages
