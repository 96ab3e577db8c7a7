"""Parquet files: all stages with their epochs and parameters. Needs the extra `ftnn[tables]`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from ftnn.errors import DataError, FtnnError
from ftnn.experiments.grid.registry import Epochs, Line, task_from_text, task_to_text
from ftnn.experiments.grid.rows import Addition, Damaged, Row, from_json, read_arrays
from ftnn.experiments.grid.store import Store

_PLAIN = tuple(
    field.name for field in fields(Row) if field.name not in ("key", "task", "versions", "finished")
)
_NEWER = ("validation_accuracy", "lwt_validation_accuracy")
"""Columns that older files do not have."""


def write(
    store: Store, rows: Sequence[Row], epochs: Epochs, parameters: bool, on_damage: Callable[[Damaged], None]
) -> bytes:
    """These rows as a Parquet file. Damaged parameters are left out, and passed to `on_damage`."""
    arrow, parquet = _pyarrow()

    def arrays(key: str) -> bytes | None:
        content = store.arrays_as_bytes(key) if key in epochs else None
        try:
            if content is not None:
                read_arrays(content)
            return content
        except DataError as error:
            on_damage(Damaged(key, str(error)))
            return None

    columns: dict[str, list[Any]] = {
        "task": [task_to_text(row.task) for row in rows],
        **{name: [getattr(row, name) for row in rows] for name in _PLAIN},
        "versions": [json.dumps(row.versions, sort_keys=True) for row in rows],
        "finished": [row.finished for row in rows],
        "results": [row.task.version for row in rows],
        "epochs": [json.dumps(epochs[row.key]) if row.key in epochs else None for row in rows],
    }
    if parameters:
        columns["parameters"] = [arrays(row.key) for row in rows]
    sink = arrow.BufferOutputStream()
    parquet.write_table(arrow.table(columns), sink, compression="zstd")
    return sink.getvalue().to_pybytes()


def lines(path: Path) -> list[Line]:
    arrow, parquet = _pyarrow()
    try:
        with parquet.ParquetFile(path) as file:
            rows: list[dict[str, Any]] = file.read().to_pylist()
    except (OSError, arrow.ArrowException, ValueError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"cannot read {path}: {reason}") from error
    return [Line(f"row {number}", row) for number, row in enumerate(rows, 1)]


def read(lines: Iterable[Line]) -> Iterator[tuple[str, Addition]]:
    for line in lines:
        values: dict[str, Any] = {**dict.fromkeys(_NEWER), **line.values}
        for name in ("task", *_PLAIN, "versions", "finished", "epochs"):
            if name not in values:
                raise DataError(f"column {name!r} is missing: this is not an export of a store")
        task, versions = task_from_text(values["task"]), from_json(values["versions"], "versions")
        task = task.at(values.get("results", task.results_in_0_1))
        plain = {name: values[name] for name in (*_PLAIN, "finished")}
        row = Row(task.key, task, **plain, versions=versions)
        yield line.place, (row, values["epochs"], values.get("parameters"))


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise FtnnError("Parquet files need pyarrow: pip install 'ftnn[tables]'") from None
    return pyarrow, pyarrow.parquet
