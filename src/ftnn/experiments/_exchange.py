"""Results out of a store and into one: CSV for people and for version control, Parquet with everything."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import safetensors.numpy

from ftnn import _atomic
from ftnn.errors import DataError, FtnnError
from ftnn.experiments._store import Row, Store, ended, now, read_epochs
from ftnn.experiments._tasks import Cell, PiCell, as_text, task_of
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
Addition = tuple[Row, str | None, bytes | None]


# --- out ---


def export(store: Store, path: Path, what: What = "mnist", *, parameters: bool = True) -> tuple[int, int]:
    """Write results into a file, by its ending.

    Returns how many rows it has, and how many stages were left out as their settings are not the paper's.

    `.csv`: cells with the paper's settings, of the catalogue's functions (`mnist`) or of others (`custom`),
    cells with other settings (`other`), or the curves of π (`pi`). `.parquet`: all stages with their epochs
    and, if wanted, parameters.
    """
    left_out = 0
    if path.suffix == ".parquet":
        content, count = _parquet(store, parameters)
    elif path.suffix == ".csv":
        if what not in WHATS:
            raise FtnnError(f"{what!r} cannot be exported: allowed are {', '.join(WHATS)}")
        rows = store.rows()
        lines = list(_pi_lines(store, rows) if what == "pi" else _mnist_lines(rows, what))
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


def _pi_lines(store: Store, rows: Iterable[Row]) -> Iterator[list[Any]]:
    found = [
        (row.task.cell, row.key)
        for row in rows
        if isinstance(row.task.cell, PiCell) and row.task.cell.is_papers
    ]
    for cell, key in sorted(found, key=lambda each: (each[0].pairs, each[0].hidden, each[0].seed)):
        for epoch in store.epochs(key):
            assert isinstance(epoch, Pass)
            yield [cell.hidden, cell.pairs, cell.seed, epoch.epoch, _rounded(epoch.accuracy)]


def _rounded(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"


_FIELDS = ("lwt_accuracy", "ft_accuracy", "loss", "failed", "advice", "seconds", "cell_seconds", "digest")


def _parquet(store: Store, parameters: bool) -> tuple[bytes, int]:
    arrow, parquet = _pyarrow()
    rows, epochs = store.rows(), store.all_epochs()
    columns: dict[str, list[Any]] = {
        "task": [as_text(row.task) for row in rows],
        **{name: [getattr(row, name) for row in rows] for name in _FIELDS},
        "versions": [json.dumps(row.versions, sort_keys=True) for row in rows],
        "finished": [row.finished for row in rows],
        "epochs": [epochs.get(row.key) for row in rows],
    }
    if parameters:
        columns["parameters"] = [store.arrays_as_bytes(row.key) for row in rows]
    sink = arrow.BufferOutputStream()
    parquet.write_table(arrow.table(columns), sink, compression="zstd")
    return sink.getvalue().to_pybytes(), len(rows)


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
    if path.suffix == ".parquet":
        found = _read_parquet(path)
    elif path.suffix == ".csv":
        found = _read_csv(path)
    else:
        raise DataError(f"{path} must end in .csv or .parquet, as `ftnn store export` writes them")
    return len(found), store.add_all(found)


def _read_csv(path: Path) -> list[Addition]:
    try:
        lines = list(csv.DictReader(io.StringIO(path.read_text("utf-8"))))
        header = tuple(lines[0]) if lines else ()
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    if not lines:
        return []
    if header in (MNIST_COLUMNS, OTHER_COLUMNS):
        return [
            _line(path, number, lambda each=each: _mnist_row(each)) for number, each in enumerate(lines, 2)
        ]
    if header == PI_COLUMNS:
        return _pi_rows(path, lines)
    raise DataError(
        f"{path} has the columns {', '.join(map(str, header))}; allowed are {', '.join(MNIST_COLUMNS)}, "
        f"after these {', '.join(SETTING_COLUMNS)}, or {', '.join(PI_COLUMNS)}"
    )


def _line(path: Path, number: int, make: Callable[[], Addition]) -> Addition:
    try:
        return make()
    except (FtnnError, ValueError, TypeError) as error:
        raise DataError(f"{path}, line {number}: {error}; nothing was imported") from error


def _mnist_row(line: dict[str, str]) -> Addition:
    activation: Any = line["activation"]
    cell = Cell(
        line["function"],
        activation,
        int(line["hidden_layers"]),
        float(line["gamma"]),
        int(line["seed"]),
        **(_settings(line) if "data" in line else {}),
    )
    if len(line["digest"]) != 64:
        raise DataError(f"{line['digest']!r} is no SHA-256 digest")
    seconds = float(line["seconds"])
    failed = line["failed"] or None
    lwt, ft = (_accuracy(line[name]) for name in ("lwt_accuracy", "ft_accuracy"))
    if not failed and (lwt is None or ft is None):
        raise DataError("a cell without accuracies must say why it failed")
    row = Row(
        cell.task().key, cell.task(), lwt, ft, None, failed, None, 0.0, seconds, line["digest"], {}, now()
    )
    return row, None, None


def _settings(line: dict[str, str]) -> dict[str, Any]:
    return {
        "data": line["data"],
        "epochs": (int(line["lwt_epochs"]), int(line["ft_epochs"])),
        "width": int(line["width"]),
        "batch_size": int(line["batch_size"]),
    }


def _accuracy(text: str) -> float | None:
    if not text:
        return None
    value = float(text)
    if not 0 <= value <= 100:
        raise DataError(f"{text} is no accuracy in percent")
    return value


def _pi_rows(path: Path, lines: list[dict[str, str]]) -> list[Addition]:
    curves: dict[tuple[int, int, int], list[Pass]] = {}
    for number, line in enumerate(lines, 2):
        try:
            place = int(line["hidden"]), int(line["pairs"]), int(line["seed"])
            curve = curves.setdefault(place, [])
            curve.append(Pass(int(line["epoch"]), math.nan, _accuracy(line["accuracy"]), 0.0))
            if curve[-1].epoch != len(curve):
                raise DataError(f"epoch {curve[-1].epoch} where {len(curve)} is expected")
        except (FtnnError, ValueError, TypeError) as error:
            raise DataError(f"{path}, line {number}: {error}; nothing was imported") from error
    found: list[Addition] = []
    for place, curve in curves.items():
        task = PiCell(*place, epochs=len(curve)).task()
        last = curve[-1].accuracy
        row = Row(task.key, task, None, last, None, None, None, 0.0, None, "", {}, now())
        found.append((row, json.dumps([asdict(each) for each in curve]), None))
    return found


def _read_parquet(path: Path) -> list[Addition]:
    arrow, parquet = _pyarrow()
    try:
        lines: list[dict[str, Any]] = parquet.read_table(str(path)).to_pylist()
    except (OSError, arrow.ArrowInvalid) as error:
        raise DataError(f"{path} cannot be read: {error}") from error

    def make(line: dict[str, Any]) -> Addition:
        try:
            task = task_of(line["task"])
            values = {name: line[name] for name in _FIELDS}
            row = Row(
                task.key, task, **values, versions=json.loads(line["versions"]), finished=line["finished"]
            )
            if line["epochs"] is not None:
                read_epochs(line["epochs"])
            if line.get("parameters") is not None:
                safetensors.numpy.load(line["parameters"])
        except (KeyError, safetensors.SafetensorError) as error:
            raise DataError(f"it was not written by `ftnn store export` ({error})") from error
        return row, line["epochs"], line.get("parameters")

    return [_line(path, number, lambda line=line: make(line)) for number, line in enumerate(lines, 1)]
