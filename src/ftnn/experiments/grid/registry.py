"""What each experiment has registered: its kinds of tasks, by which stores are read, and its CSV tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

from ftnn.errors import DataError, FormulaError, FtnnError
from ftnn.experiments.grid.task import AnyTask

if TYPE_CHECKING:
    from ftnn.experiments.grid.rows import Addition, Row

N = TypeVar("N", int, float)
Epochs = Mapping[str, Sequence[Mapping[str, Any]]]
"""The epochs of stages by key, as plain data: making 60,000 objects takes longer than drawing them."""


@dataclass(frozen=True)
class Line:
    """A line of a CSV file."""

    place: str
    values: Mapping[str, Any]

    def number(self, name: str, kind: type[N]) -> N:
        try:
            return kind(self.values[name])
        except ValueError:
            what = "whole number" if kind is int else "number"
            raise DataError(f"{name} is {self.values[name]!r}; expected a {what}") from None

    def number_or_none(self, name: str) -> float | None:
        return self.number(name, float) if self.values[name] else None


Reader = Callable[[Iterable[Line]], Iterator[tuple[str, "Addition"]]]
"""Lines to what a store is to add, with its place. An error is taken to be of the last line that was read."""


@dataclass(frozen=True)
class Table:
    """A CSV table: which rows of a store it has, and how they are read back."""

    name: str
    columns: tuple[str, ...]
    lines: Callable[[Iterable[Row], Callable[[], Epochs]], Iterator[Sequence[Any]]]
    """Results as lines of the table, from the rows of a store and, if it asks for them, all epochs."""
    read: Reader
    """What the lines of a file add to a store."""
    papers_only: bool = True
    """Whether it leaves out all stages with other settings than the paper's."""


KINDS: dict[str, type[AnyTask]] = {}
TABLES: dict[str, Table] = {}


def register(*tasks: type[AnyTask], tables: Iterable[Table] = ()) -> None:
    """Make an experiment known: its tasks under their kinds, and its tables under their names."""
    KINDS.update((task.kind, task) for task in tasks)
    TABLES.update((table.name, table) for table in tables)


def task_to_text(task: AnyTask) -> str:
    """A task as JSON; `task_from_text` reads it."""
    return json.dumps({"kind": task.kind, **asdict(task.cell)})


def task_from_text(text: Any) -> AnyTask:
    """The task that `task_to_text` wrote. Raises `DataError` for all else."""
    quoted = f"task is {text!r:.100}"
    try:
        values: Any = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        raise DataError(f"{quoted}; expected JSON") from None
    kind = KINDS.get(str(values.pop("kind", None))) if isinstance(values, dict) else None
    if kind is None:
        raise DataError(f"{quoted}; expected an object whose kind is one of {', '.join(KINDS)}")
    is_needed = {field.name: field.default is MISSING for field in fields(kind.cell_type)}
    if not {name for name, needed in is_needed.items() if needed} <= values.keys() <= is_needed.keys():
        raise DataError(f"{quoted}; expected the fields {', '.join(is_needed)}")
    # JSON has no tuples.
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    try:
        return kind(kind.cell_type(**values))
    except FtnnError as error:
        raise DataError(f"task: {reason_of(error)}") from error


def reason_of(error: FtnnError) -> str:
    """What an error says, on one line: a formula's place is of no use where the formula is not shown."""
    return f"{error.text!r}: {error.message}" if isinstance(error, FormulaError) else str(error)
