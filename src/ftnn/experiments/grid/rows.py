"""Rows of a store. Every row is checked when it is created: by training, import, or reading a store."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from typing import Any, get_args

import safetensors
import safetensors.numpy

from ftnn.errors import DataError
from ftnn.experiments.grid import checks
from ftnn.experiments.grid.checks import Check, check, or_null
from ftnn.experiments.grid.jobs import Array
from ftnn.experiments.grid.registry import KINDS, Line
from ftnn.experiments.grid.task import AnyTask, C, Task
from ftnn.training._history import StageName


@dataclass(frozen=True)
class Row:
    """A finished stage, without its epochs and parameters. Raises `DataError` for impossible values."""

    key: str
    task: AnyTask
    lwt_accuracy: float | None
    ft_accuracy: float | None
    validation_accuracy: float | None
    lwt_validation_accuracy: float | None
    """On held-out training samples: after this stage and, if it is fine-tuning, before it."""
    loss: float | None
    failed: str | None
    advice: str | None
    seconds: float
    """Processor time of this stage."""
    cell_seconds: float | None
    """Of all stages of the cell, if this is the last: what the cell takes when nothing is shared."""
    digest: str
    """Of the network; empty for curves of π imported from CSV."""
    versions: dict[str, str]
    finished: str
    """Date and time in UTC."""

    def __post_init__(self) -> None:
        check(vars(self), _ROW)
        self.task.check_row(self)


Addition = tuple[Row, str | None, bytes | None]
"""A row, its epochs as JSON, and its parameters as safetensors."""


@dataclass(frozen=True)
class Damaged:
    """An invalid row in a store."""

    key: str
    reason: str

    def __str__(self) -> str:
        return f"{self.key}: {self.reason}"


def rows_of(kind: type[Task[C]], rows: Iterable[Row]) -> Iterator[tuple[C, Row]]:
    """The rows of one kind of stage, each with its cell."""
    for row in rows:
        if isinstance(row.task, kind):
            yield row.task.cell, row


ORIGIN = ("results", "cpu")
"""The last columns of every CSV table: the version of the results, and the kind of CPU."""


def origin(row: Row) -> tuple[int, str]:
    """The values of `ORIGIN`; the CPU is empty if it is unknown."""
    return row.task.version, row.versions.get("cpu", "")


def stated(task: Task[C], line: Line) -> Task[C]:
    """A task at the version of the results that a line of a CSV file states."""
    return task.at(line.number("results", int) if "results" in line.values else task.results_in_0_1)


def imported(
    task: AnyTask,
    line: Line,
    *,
    lwt_accuracy: float | None = None,
    ft_accuracy: float | None = None,
    validation_accuracy: float | None = None,
    lwt_validation_accuracy: float | None = None,
    failed: str | None = None,
    cell_seconds: float | None = None,
    digest: str = "",
) -> Row:
    """A row from a CSV table, which has no package versions and no times of stages."""
    task, cpu = stated(task, line), line.values.get("cpu")
    return Row(
        key=task.key,
        task=task,
        lwt_accuracy=lwt_accuracy,
        ft_accuracy=ft_accuracy,
        validation_accuracy=validation_accuracy,
        lwt_validation_accuracy=lwt_validation_accuracy,
        loss=None,
        failed=failed,
        advice=None,
        seconds=0.0,
        cell_seconds=cell_seconds,
        digest=digest,
        versions={"cpu": cpu} if cpu else {},
        finished=now(),
    )


def now() -> str:
    """The time in UTC, in the format of `Row.finished`."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


_PACKAGES = ("ftnn", "torch", "numpy", "llvmlite", "scipy")


@cache
def versions() -> dict[str, str]:
    """Package versions and the processor, which the last bits of a result depend on."""
    import llvmlite.binding  # here because it loads LLVM

    packages = {name: metadata.version(name) for name in _PACKAGES}
    return {**packages, "python": platform.python_version(), "cpu": str(llvmlite.binding.get_host_cpu_name())}


# --- epochs and parameters ---


def read_epochs(text: Any, kind: str) -> list[dict[str, Any]]:
    """Epochs from JSON, as plain data, checked against the epoch type of this kind of task."""
    if not isinstance(text, str):
        raise DataError(f"epochs are {text!r:.60}; expected JSON")
    epochs: Any = from_json(text, "epochs")
    if not isinstance(epochs, list):
        raise DataError(f"epochs are {text[:60]!r}; expected a list")
    if kind not in KINDS:
        raise DataError(f"kind is {kind!r:.60}; expected one of {', '.join(KINDS)}")
    expected = {field.name: _EPOCH[field.name] for field in fields(KINDS[kind].epoch_type)}
    for number, epoch in enumerate(epochs, 1):
        if not isinstance(epoch, dict) or epoch.keys() != expected.keys():
            raise DataError(f"epochs: number {number} is {epoch!r:.60}; expected {', '.join(expected)}")
        try:
            check(epoch, expected)
        except DataError as error:
            raise DataError(f"epochs: number {number}: {error}") from error
    return epochs


def read_arrays(content: Any) -> dict[str, Array]:
    """Parameters from safetensors."""
    try:
        return safetensors.numpy.load(content)
    except (safetensors.SafetensorError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"parameters are not in safetensors format ({error})") from error


def check_shapes(task: AnyTask, arrays: Mapping[str, Array]) -> None:
    """Raise `DataError` unless the parameters have the shapes that the task expects."""
    for name, shape in task.shapes(arrays).items():
        array = arrays.get(name)
        if array is None or array.shape != shape or array.dtype.kind != "f":
            actual = "missing" if array is None else f"{array.dtype} with the shape {array.shape}"
            raise DataError(f"parameters: {name} is {actual}; expected floats with the shape {shape}")


def from_json(text: Any, what: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise DataError(f"{what}: {text!r:.60} is not JSON ({error})") from error


# --- the checks ---

_ROW: dict[str, Check] = {
    "key": checks.TEXT,
    "task": (lambda v: isinstance(v, Task), "a task"),
    "lwt_accuracy": checks.ACCURACY,
    "ft_accuracy": checks.ACCURACY,
    "validation_accuracy": checks.ACCURACY,
    "lwt_validation_accuracy": checks.ACCURACY,
    "loss": or_null(checks.NUMBER),
    "failed": or_null(checks.TEXT),
    "advice": or_null(checks.TEXT),
    "seconds": checks.SECONDS,
    "cell_seconds": or_null(checks.SECONDS),
    "digest": checks.DIGEST,
    "versions": checks.VERSIONS,
    "finished": checks.TIME,
}
assert [*_ROW] == [field.name for field in fields(Row)]
_EPOCH: dict[str, Check] = {  # of every epoch type
    "stage": (lambda v: v in get_args(StageName), ", ".join(get_args(StageName))),
    "layer": checks.COUNT,
    "epoch": checks.COUNT,
    "rate": checks.NUMBER,
    "loss": checks.NUMBER,
    "accuracy": checks.ACCURACY,
    "train_accuracy": checks.ACCURACY,
    "test_accuracy": checks.ACCURACY,
    "test_loss": or_null(checks.NUMBER),
    "seconds": checks.SECONDS,
    "undone": checks.FLAG,
}
