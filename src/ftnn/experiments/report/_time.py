"""Where the time went."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ftnn.experiments._rows import Row
from ftnn.experiments._tasks import Cell


@dataclass(frozen=True)
class Part:
    """Stages of one sort."""

    name: str
    stages: int
    seconds: float


@dataclass(frozen=True)
class Alone:
    """What one cell takes by itself, with nothing shared: by function and depth."""

    function: str
    setting: str
    """What differs from the paper's experiment; empty where nothing does."""
    by_depth: tuple[float | None, ...]
    """The mean of its cells, in seconds."""
    total: float


@dataclass(frozen=True)
class Times:
    stages: int
    seconds: float
    """Processor time of all stages in the store; shared ones once."""
    imported: int
    """Cells that came without their stages: only the time of each alone is known."""
    imported_seconds: float
    cells: int
    per_cell: float | None
    """The median of what a cell of MNIST takes alone."""
    longest: float | None
    saved: float
    """What the cells run here would have taken more, had each run its own layer-wise stages."""
    parts: tuple[Part, ...]
    depths: tuple[int, ...]
    functions: tuple[Alone, ...]


def times(rows: Sequence[Row]) -> Times:
    ran = [row for row in rows if not _is_imported(row)]
    brought = [row for row in rows if _is_imported(row)]
    ends = [row for row in rows if row.task.kind == "ft" and row.cell_seconds is not None]
    alone = [row.cell_seconds or 0.0 for row in ends]
    ours = [row for row in ran if row.task.kind in ("lwt", "ft")]
    apart = sum(row.cell_seconds or 0.0 for row in ours if row.task.kind == "ft")
    depths = sorted({row.task.cell.hidden_layers for row in ends if isinstance(row.task.cell, Cell)})
    return Times(
        stages=len(ran),
        seconds=sum(row.seconds for row in ran),
        imported=len(brought),
        imported_seconds=sum(row.cell_seconds or 0.0 for row in brought),
        cells=len(ends),
        per_cell=statistics.median(alone) if alone else None,
        longest=max(alone, default=None),
        saved=max(0.0, apart - sum(row.seconds for row in ours)),
        parts=_parts(ran),
        depths=tuple(depths),
        functions=_functions(ends, depths),
    )


def _is_imported(row: Row) -> bool:
    """Whether only what its cell took is known, as a table of results has it."""
    return row.task.kind == "ft" and row.seconds == 0 and row.cell_seconds is not None


def _parts(rows: Iterable[Row]) -> tuple[Part, ...]:
    seconds: dict[tuple[int, int, str], list[float]] = defaultdict(list)
    for row in rows:
        cell = row.task.cell
        if not isinstance(cell, Cell):
            place = (2, 0, "digits of π" if row.task.kind == "pi" else "conic boundaries")
        elif row.task.kind == "lwt":
            place = (0, cell.hidden_layers, f"layer-wise, layer {cell.hidden_layers}")
        else:
            place = (1, cell.hidden_layers, f"fine-tuning of {cell.hidden_layers}")
        seconds[place].append(row.seconds)
    return tuple(Part(place[2], len(found), sum(found)) for place, found in sorted(seconds.items()))


def _functions(ends: Iterable[Row], depths: Sequence[int]) -> tuple[Alone, ...]:
    found: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in ends:
        cell = row.task.cell
        if isinstance(cell, Cell):
            found[cell.setting, cell.function][cell.hidden_layers].append(row.cell_seconds or 0.0)
    return tuple(
        Alone(
            function,
            setting,
            tuple(statistics.fmean(each[depth]) if depth in each else None for depth in depths),
            sum(sum(seconds) for seconds in each.values()),
        )
        for (setting, function), each in sorted(found.items(), key=_named_first)
    )


def _named_first(item: tuple[tuple[str, str], object]) -> tuple[str, bool, str]:
    setting, function = item[0]
    return setting, len(function) > 3, function
