"""Results out of a store and into one: CSV for people and for version control, Parquet with everything."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, TypeVar

from ftnn import _atomic
from ftnn.errors import DataError, FtnnError
from ftnn.experiments._rows import Damaged, Row, from_json, now, read_arrays, read_epochs
from ftnn.experiments._store import Addition, Store, ended
from ftnn.experiments._tasks import Cell, PiCell, as_text, reason_of, task_of
from ftnn.formula import catalogue
from ftnn.training import Pass

What = Literal["mnist", "custom", "other", "pi"]
WHATS: tuple[What, ...] = ("mnist", "custom", "other", "pi")
MNIST_COLUMNS = (
    "hidden_layers",
    "function",
    "activation",
    "gamma",
    "lwt_accuracy",
    "ft_accuracy",
    "seed",
    "seconds",
    "failed",
    "digest",
)
SETTING_COLUMNS = ("data", "lwt_epochs", "ft_epochs", "width", "batch_size")
"""What is the paper's in all cells but those of `other`, which have these columns too."""
OTHER_COLUMNS = (*MNIST_COLUMNS, *SETTING_COLUMNS)
PI_COLUMNS = ("hidden", "pairs", "seed", "epoch", "accuracy")
_N = TypeVar("_N", int, float)


# --- out ---


def export(
    store: Store,
    path: Path,
    what: What = "mnist",
    *,
    parameters: bool = True,
    tell: Callable[[Damaged], None] = lambda damaged: None,
) -> tuple[int, int]:
    """Write results into a file, by its ending.

    Returns how many rows it has, and how many stages were left out as their settings are not the paper's.
    Calls `tell` for each damaged row: it is not written, or without the part that is damaged.

    `.csv`: cells with the paper's settings, of the catalogue's functions (`mnist`) or of others (`custom`),
    cells with other settings (`other`), or the curves of π (`pi`). `.parquet`: all stages with their epochs
    and, if wanted, parameters.
    """
    left_out = 0
    rows, damaged = store.survey()
    for each in damaged:
        tell(each)
    if path.suffix == ".parquet":
        content, count = _parquet(store, rows, parameters, tell), len(rows)
    elif path.suffix == ".csv":
        if what not in WHATS:
            raise FtnnError(f"cannot export {what!r}; expected {', '.join(WHATS)}")
        lines = list(_pi_lines(rows, _epochs(store, tell)) if what == "pi" else _mnist_lines(rows, what))
        if what != "other":
            left_out = sum(not row.task.cell.is_papers for row in rows)
        columns = {"pi": PI_COLUMNS, "other": OTHER_COLUMNS}.get(what, MNIST_COLUMNS)
        content, count = _csv(columns, lines), len(lines)
    else:
        raise FtnnError(f"{path} must end in .csv or .parquet, to say what to write")
    _atomic.write_or_explain(path, content, FtnnError)
    return count, left_out


def _csv(header: Iterable[str], lines: Iterable[Iterable[Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(lines)
    return text.getvalue().encode()


def _mnist_lines(rows: Iterable[Row], what: What) -> Iterator[list[Any]]:
    def place(found: tuple[Cell, Row]) -> tuple[Any, ...]:
        cell, _ = found
        return cell.hidden_layers, cell.function, cell.activation, -cell.gamma, cell.seed, _settings_of(cell)

    for cell, row in sorted(ended(rows), key=place):
        if _what(cell) == what:
            accuracies = ["", ""] if row.failed else [_rounded(row.lwt_accuracy), _rounded(row.ft_accuracy)]
            yield [
                cell.hidden_layers,
                cell.function,
                cell.activation,
                f"{cell.gamma:g}",
                *accuracies,
                cell.seed,
                _rounded(row.cell_seconds, 1),
                row.failed or "",
                row.digest,
                *(_settings_of(cell) if what == "other" else ()),
            ]


def _settings_of(cell: Cell) -> tuple[str | int, ...]:
    """As SETTING_COLUMNS has them; `_settings` reads them."""
    return cell.data, *cell.epochs, cell.width, cell.batch_size


def _what(cell: Cell) -> What:
    """Which of the CSV files a cell belongs to."""
    if not cell.is_papers:
        return "other"
    return "mnist" if cell.function in catalogue else "custom"


def _epochs(store: Store, tell: Callable[[Damaged], None]) -> dict[str, list[dict[str, Any]]]:
    found, damaged = store.all_epochs()
    for each in damaged:
        tell(each)
    return found


def _pi_lines(rows: Iterable[Row], epochs: dict[str, list[dict[str, Any]]]) -> Iterator[list[Any]]:
    found = [
        (row.task.cell, row.key)
        for row in rows
        if isinstance(row.task.cell, PiCell) and row.task.cell.is_papers
    ]
    for cell, key in sorted(found, key=lambda each: (each[0].pairs, each[0].hidden, each[0].seed)):
        for each in epochs.get(key, ()):
            yield [cell.hidden, cell.pairs, cell.seed, each["epoch"], _rounded(each["accuracy"])]


def _rounded(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"


_FIELDS = ("lwt_accuracy", "ft_accuracy", "loss", "failed", "advice", "seconds", "cell_seconds", "digest")


def _parquet(store: Store, rows: list[Row], parameters: bool, tell: Callable[[Damaged], None]) -> bytes:
    arrow, parquet = _pyarrow()
    epochs = _epochs(store, tell)

    def arrays(key: str) -> bytes | None:
        content = store.arrays_as_bytes(key) if key in epochs else None
        try:
            if content is not None:
                read_arrays(content)
            return content
        except DataError as error:
            tell(Damaged(key, str(error)))
            return None

    columns: dict[str, list[Any]] = {
        "task": [as_text(row.task) for row in rows],
        **{name: [getattr(row, name) for row in rows] for name in _FIELDS},
        "versions": [json.dumps(row.versions, sort_keys=True) for row in rows],
        "finished": [row.finished for row in rows],
        "epochs": [json.dumps(epochs[row.key]) if row.key in epochs else None for row in rows],
    }
    if parameters:
        columns["parameters"] = [arrays(row.key) for row in rows]
    sink = arrow.BufferOutputStream()
    parquet.write_table(arrow.table(columns), sink, compression="zstd")
    return sink.getvalue().to_pybytes()


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise FtnnError("Parquet files need pyarrow: pip install 'ftnn[tables]'") from None
    return pyarrow, pyarrow.parquet


# --- in ---


def import_file(store: Store, path: Path) -> tuple[int, int]:
    """Add what a file has and the store has not; all of it or, where something is wrong, nothing.

    Returns how many rows the file has, and how many were new.
    """
    return import_files(store, [path])[path]


def import_files(store: Store, paths: Iterable[Path]) -> dict[Path, tuple[int, int]]:
    """The same for several files: all of them, or nothing."""
    found = {path: _read(path) for path in paths}
    place = ""

    def additions() -> Iterator[Addition]:
        nonlocal place
        for path, rows in found.items():
            for number, row in rows:
                place = f"{path}, {number}"
                yield row

    try:
        new = iter(store.add_all(additions()))
    except DataError as error:
        raise DataError(f"{place}: {error}; nothing was imported") from error
    return {path: (len(rows), sum(itertools.islice(new, len(rows)))) for path, rows in found.items()}


_Placed = list[tuple[str, Addition]]
"""Rows of a file, each with its place in it."""


def _read(path: Path) -> _Placed:
    if path.suffix == ".parquet":
        return _read_parquet(path)
    if path.suffix == ".csv":
        return _read_csv(path)
    raise DataError(f"{path} must end in .csv or .parquet, as `ftnn store export` writes them")


@contextmanager
def _reading(path: Path, place: str) -> Generator[None]:
    """What is wrong with a row is said with its place."""
    try:
        yield
    except FtnnError as error:
        raise DataError(f"{path}, {place}: {reason_of(error)}; nothing was imported") from error


def _read_csv(path: Path) -> _Placed:
    try:
        text = io.StringIO(path.read_bytes().decode("utf-8-sig"), newline="")
        header, *lines = list(csv.reader(text, strict=True)) or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    columns = tuple(header)
    if columns not in (MNIST_COLUMNS, OTHER_COLUMNS, PI_COLUMNS):
        raise DataError(
            f"{path} has the columns {', '.join(header) or '(none)'}; expected {', '.join(MNIST_COLUMNS)}, "
            f"then possibly {', '.join(SETTING_COLUMNS)}; or {', '.join(PI_COLUMNS)}"
        )
    named: list[tuple[str, dict[str, str]]] = []
    for number, line in enumerate(lines, 2):
        if line:
            place = f"line {number}"
            with _reading(path, place):
                if len(line) != len(columns):
                    raise DataError(f"has {len(line)} fields, but there are {len(columns)} columns")
            named.append((place, dict(zip(columns, line, strict=True))))
    if columns == PI_COLUMNS:
        return _pi_rows(path, named)
    found: _Placed = []
    for place, line in named:
        with _reading(path, place):
            found.append((place, _mnist_row(line)))
    return found


def _mnist_row(line: dict[str, str]) -> Addition:
    activation: Any = line["activation"]
    cell = Cell(
        line["function"],
        activation,
        _number(line, "hidden_layers", int),
        _number(line, "gamma", float),
        _number(line, "seed", int),
        **(_settings(line) if "data" in line else {}),
    )
    lwt, ft = (_number(line, name, float) if line[name] else None for name in ("lwt_accuracy", "ft_accuracy"))
    seconds = _number(line, "seconds", float)
    failed = line["failed"] or None
    task = cell.task()
    digest = line["digest"]
    return Row(task.key, task, lwt, ft, None, failed, None, 0.0, seconds, digest, {}, now()), None, None


def _settings(line: dict[str, str]) -> dict[str, Any]:
    return {
        "data": line["data"],
        "epochs": (_number(line, "lwt_epochs", int), _number(line, "ft_epochs", int)),
        "width": _number(line, "width", int),
        "batch_size": _number(line, "batch_size", int),
    }


def _number(line: dict[str, str], name: str, kind: Callable[[str], _N]) -> _N:
    try:
        return kind(line[name])
    except ValueError:
        what = "whole number" if kind is int else "number"
        raise DataError(f"{name} is {line[name]!r}; expected a {what}") from None


def _pi_rows(path: Path, lines: list[tuple[str, dict[str, str]]]) -> _Placed:
    curves: dict[tuple[int, int, int], list[dict[str, Any]]] = {}
    ends: dict[tuple[int, int, int], str] = {}
    for place, line in lines:
        with _reading(path, place):
            hidden, pairs, seed, epoch = (_number(line, name, int) for name in PI_COLUMNS[:4])
            curve = curves.setdefault((hidden, pairs, seed), [])
            ends[hidden, pairs, seed] = place
            accuracy = _number(line, "accuracy", float) if line["accuracy"] else None
            curve.append(asdict(Pass(epoch, math.nan, accuracy, 0.0)))
            if epoch != len(curve):
                raise DataError(f"epoch {epoch} where {len(curve)} is expected")
            read_epochs(json.dumps(curve[-1:]), "pi")
    found: _Placed = []
    for sizes, curve in curves.items():
        with _reading(path, ends[sizes]):
            task = PiCell(*sizes, epochs=len(curve)).task()
            last = curve[-1]["accuracy"]
            row = Row(task.key, task, None, last, None, None, None, 0.0, None, "", {}, now())
            found.append((ends[sizes], (row, json.dumps(curve), None)))
    return found


def _read_parquet(path: Path) -> _Placed:
    arrow, parquet = _pyarrow()
    try:
        with parquet.ParquetFile(path) as file:
            lines: list[dict[str, Any]] = file.read().to_pylist()
    except (OSError, arrow.ArrowException, ValueError, OverflowError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    found: _Placed = []
    for number, line in enumerate(lines, 1):
        place = f"row {number}"
        with _reading(path, place):
            for name in ("task", *_FIELDS, "versions", "finished", "epochs"):
                if name not in line:
                    raise DataError(
                        f"there is no column {name!r}: `ftnn store export` did not write this file"
                    )
            task, versions = task_of(line["task"]), from_json(line["versions"], "versions")
            values = {name: line[name] for name in (*_FIELDS, "finished")}
            row = Row(task.key, task, **values, versions=versions)
        found.append((place, (row, line["epochs"], line.get("parameters"))))
    return found
