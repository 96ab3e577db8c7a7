"""The registered experiments: their kinds of tasks, which stores are read with, and their CSV tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar

from ftnn.errors import DataError, FormulaError, FtnnError
from ftnn.experiments.grid.task import AnyTask

if TYPE_CHECKING:
    from ftnn.experiments.grid.rows import Addition, Row

N = TypeVar("N", int, float)
Epochs = Mapping[str, Sequence[Mapping[str, Any]]]
"""The epochs of stages by key, as plain data: creating 60,000 objects would take longer than drawing them."""


@dataclass(frozen=True)
class Line:
    """A line of a CSV file, or a row of a Parquet file."""

    place: str
    values: Mapping[str, Any]

    def number(self, name: str, kind: type[N]) -> N:
        try:
            return kind(self.values[name])
        except ValueError:
            expected = "whole number" if kind is int else "number"
            raise DataError(f"{name} is {self.values[name]!r}; expected a {expected}") from None

    def number_or_none(self, name: str) -> float | None:
        return self.number(name, float) if self.values[name] else None


Reader = Callable[[Iterable[Line]], Iterator[tuple[str, "Addition"]]]
"""Turns lines into (place, addition to a store). Errors are attributed to the last line read."""


@dataclass(frozen=True)
class Table:
    """A CSV table: which rows of a store it contains, and how to read it.

    Files have the columns `results` and `cpu` too, after those of the table; files of ftnn 0.1 do not.
    """

    name: str
    kind: str
    """The kind of stage that has a line."""
    columns: tuple[str, ...]
    lines: Callable[[Iterable[Row], Callable[[], Epochs]], Iterator[tuple[Row, Sequence[Any]]]]
    """Makes its lines, each with its row, from a store's rows and a function that loads all epochs."""
    read: Reader
    older: Mapping[tuple[str, ...], Reader] = field(default_factory=dict[tuple[str, ...], "Reader"])
    """How to read older files, by their columns."""
    paper_settings_only: bool = True
    """Whether it leaves out stages whose settings differ from the paper's."""


KINDS: dict[str, type[AnyTask]] = {}
TABLES: dict[str, Table] = {}


def register(*tasks: type[AnyTask], tables: Iterable[Table] = ()) -> None:
    """Register an experiment's tasks and tables."""
    KINDS.update((task.kind, task) for task in tasks)
    TABLES.update((table.name, table) for table in tables)


def task_to_text(task: AnyTask) -> str:
    """A task as JSON, for `task_from_text`."""
    return json.dumps({"kind": task.kind, **asdict(task.cell)})


def task_from_text(text: Any) -> AnyTask:
    """The task that `task_to_text` wrote. Raises `DataError` for anything else."""
    quoted = f"task is {text!r:.100}"
    try:
        values: Any = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        raise DataError(f"{quoted}; expected JSON") from None
    kind = KINDS.get(str(values.pop("kind", None))) if isinstance(values, dict) else None
    if kind is None:
        raise DataError(f"{quoted}; expected an object whose kind is one of {', '.join(KINDS)}")
    is_required = {field.name: field.default is MISSING for field in fields(kind.cell_type)}
    if (
        not {name for name, required in is_required.items() if required}
        <= values.keys()
        <= is_required.keys()
    ):
        raise DataError(f"{quoted}; expected the fields {', '.join(is_required)}")
    # JSON has no tuples.
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    try:
        return kind(kind.cell_type(**values))
    except FtnnError as error:
        raise DataError(f"task: {reason_of(error)}") from error


def reason_of(error: FtnnError) -> str:
    """An error's message on one line, without carets under a formula."""
    return f"{error.text!r}: {error.message}" if isinstance(error, FormulaError) else str(error)
