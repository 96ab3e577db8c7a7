"""Rows of a store, and the one check that all of them pass: whoever writes them, and when they are read."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

import safetensors
import safetensors.numpy

from ftnn.errors import DataError
from ftnn.experiments._conic_problems import PROBLEMS
from ftnn.experiments._jobs import Array
from ftnn.experiments._tasks import Cell, Kind, PiCell, Task, function_of
from ftnn.formula import catalogue
from ftnn.training import Epoch, Pass

_DIGEST = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(frozen=True)
class Row:
    """What is known of a stage that is done, without its epochs and parameters.

    Raises `DataError` for what cannot be the result of a stage.
    """

    key: str
    task: Task
    lwt_accuracy: float | None
    ft_accuracy: float | None
    loss: float | None
    failed: str | None
    advice: str | None
    seconds: float
    """Processor time of this stage."""
    cell_seconds: float | None
    """Of the whole cell, where this stage is its last: what it takes alone, with nothing shared."""
    digest: str
    """Of the network; empty for curves of π that were imported from CSV, which does not have it."""
    versions: dict[str, str]
    finished: str
    """When, in UTC."""

    def __post_init__(self) -> None:
        _check(vars(self), _ROW)
        cell = self.task.cell
        if not self.digest and not isinstance(cell, PiCell):
            raise DataError("digest is empty; expected a SHA-256 digest")
        trained = self.task.kind == "ft" and isinstance(cell, Cell) and any(cell.epochs)
        if trained and self.ft_accuracy is None and self.failed is None:
            raise DataError("ft_accuracy is null; a cell without accuracies must say why it failed")


@dataclass(frozen=True)
class Damaged:
    """A row that is in a store, but makes no sense."""

    key: str
    reason: str

    def __str__(self) -> str:
        return f"{self.key}: {self.reason}"


# --- epochs and parameters ---


def read_epochs(text: Any, kind: Kind) -> list[dict[str, Any]]:
    """Epochs from JSON, as plain data with the fields of `Pass` for π, and of `Epoch` for all else."""
    if not isinstance(text, str):
        raise DataError(f"epochs are {text!r:.60}; expected JSON")
    given: Any = from_json(text, "epochs")
    if not isinstance(given, list):
        raise DataError(f"epochs are {text[:60]!r}; expected a list")
    checks = _PASS if kind == "pi" else _EPOCH
    for number, each in enumerate(given, 1):
        if not isinstance(each, dict) or each.keys() != checks.keys():
            raise DataError(f"epochs: number {number} is {each!r:.60}; expected {', '.join(checks)}")
        try:
            _check(each, checks)
        except DataError as error:
            raise DataError(f"epochs: number {number}: {error}") from error
    return given


def made(epochs: Iterable[Mapping[str, Any]]) -> Iterator[Epoch | Pass]:
    """What `read_epochs` has read, as objects."""
    for each in epochs:
        yield Epoch(**each) if "stage" in each else Pass(**each)


def read_arrays(content: Any) -> dict[str, Array]:
    """Parameters from safetensors."""
    try:
        return safetensors.numpy.load(content)
    except (safetensors.SafetensorError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"parameters are not in the format of safetensors ({error})") from error


def check_first_layer(task: Task, arrays: Mapping[str, Array]) -> None:
    """Refuse parameters that are not those of the network of a task, as far as its first layer says."""
    cell = task.cell
    if isinstance(cell, PiCell):
        return
    shapes: dict[str, tuple[int, ...]] = {}
    if isinstance(cell, Cell):
        function, sizes = function_of(cell.function), (784, *_units(arrays))
    else:
        problem = PROBLEMS[cell.problem]
        function, sizes = catalogue[problem.function], (problem.dimension, problem.units)
        shapes["hidden.0.bias"] = (problem.units,)
        if problem.kind == "learned":
            shapes |= {"output.weight": (2, problem.units), "output.bias": (2,)}
    shapes |= {f"hidden.0.theta.{name}": sizes for name in function.parameters}
    shapes |= {f"hidden.0.constants.{name}": sizes for name in function.constants}
    for name, shape in shapes.items():
        found = arrays.get(name)
        if found is None or found.shape != shape or found.dtype.kind != "f":
            what = "missing" if found is None else f"{found.dtype} with the shape {found.shape}"
            raise DataError(f"parameters: {name} is {what}; expected floats with the shape {shape}")


def _units(arrays: Mapping[str, Array]) -> tuple[int, ...]:
    """How many units the first layer has: as many as its first matrix has columns."""
    first = [array for name, array in sorted(arrays.items()) if name.startswith("hidden.0.theta.")]
    return (first[0].shape[1:] if first else ()) or (1,)


def from_json(text: Any, what: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise DataError(f"{what}: {text!r:.60} is not JSON ({error})") from error


def now() -> str:
    """In UTC, as a row has it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


# --- the checks ---

_Check = tuple[Callable[[Any], bool], str]
"""(whether a value is right, what was expected)."""


def _check(values: Mapping[str, Any], checks: Mapping[str, _Check]) -> None:
    for name, (is_right, expected) in checks.items():
        if not is_right(values[name]):
            raise DataError(f"{name} is {values[name]!r:.100}; expected {expected}")


def _is_number(value: Any) -> bool:
    return type(value) in (float, int)  # a bool is an int, too


def _is_text(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(value.encode())
    except UnicodeEncodeError:  # half of a character
        return False


def _is_time(value: Any) -> bool:
    try:
        return _is_text(value) and bool(datetime.fromisoformat(value))
    except ValueError:
        return False


def _or_null(check: _Check) -> _Check:
    is_right, expected = check
    return lambda value: value is None or is_right(value), f"null or {expected}"


_NUMBER: _Check = _is_number, "a number"
_TEXT: _Check = _is_text, "a text"
_SECONDS: _Check = lambda v: _is_number(v) and 0 <= v < math.inf, "a finite number of 0 or more"
_ACCURACY = _or_null((lambda v: _is_number(v) and 0 <= v <= 100, "a number from 0 to 100"))

_ROW: dict[str, _Check] = {
    "key": _TEXT,
    "task": (lambda v: isinstance(v, Task), "a task"),
    "lwt_accuracy": _ACCURACY,
    "ft_accuracy": _ACCURACY,
    "loss": _or_null(_NUMBER),
    "failed": _or_null(_TEXT),
    "advice": _or_null(_TEXT),
    "seconds": _SECONDS,
    "cell_seconds": _or_null(_SECONDS),
    "digest": (lambda v: v == "" or (_is_text(v) and bool(_DIGEST.fullmatch(v))), "a SHA-256 digest"),
    "versions": (
        lambda v: isinstance(v, dict) and all(_is_text(text) for pair in v.items() for text in pair),
        "names and versions",
    ),
    "finished": (_is_time, "a date and time"),
}
_COUNT: _Check = lambda v: type(v) is int and v >= 0, "a whole number of 0 or more"
_PASS: dict[str, _Check] = {"epoch": _COUNT, "loss": _NUMBER, "accuracy": _ACCURACY, "seconds": _SECONDS}
_EPOCH: dict[str, _Check] = {
    "stage": (lambda v: v in ("lwt", "ft", "joint"), "lwt, ft or joint"),
    "layer": _COUNT,
    "epoch": _COUNT,
    "rate": _NUMBER,
    "loss": _NUMBER,
    "train_accuracy": _ACCURACY,
    "test_accuracy": _ACCURACY,
    "test_loss": _or_null(_NUMBER),
    "seconds": _SECONDS,
    "undone": (lambda v: type(v) is bool, "true or false"),
}
assert [*_ROW] == [field.name for field in fields(Row)]
