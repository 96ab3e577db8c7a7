"""Computing times."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ftnn.experiments.grid.rows import Row, rows_of
from ftnn.experiments.paper.mnist.cells import Cell, FineTuning, Stage


@dataclass(frozen=True)
class Part:
    """All stages with the same type of work."""

    name: str
    stages: int
    seconds: float


@dataclass(frozen=True)
class Alone:
    """The time of a cell if nothing is shared, by function and depth."""

    function: str
    setting: str
    """The differences from the paper's settings; empty if there are none."""
    by_depth: tuple[float | None, ...]
    """The mean over its cells, in seconds."""
    total: float


@dataclass(frozen=True)
class Times:
    stages: int
    seconds: float
    """Processor time of all stages in the store, counting shared stages once."""
    imported: int
    """Cells imported without their stages: only the time of the whole cell is known."""
    imported_seconds: float
    cells: int
    per_cell: float | None
    """The median time of an MNIST cell if nothing is shared."""
    longest: float | None
    saved: float
    """The additional time if each cell had run its own layer-wise stages."""
    parts: tuple[Part, ...]
    depths: tuple[int, ...]
    functions: tuple[Alone, ...]


def times(rows: Sequence[Row]) -> Times:
    ran = [row for row in rows if not _is_imported(row)]
    imported = [row for row in rows if _is_imported(row)]
    ends = rows_of(FineTuning, rows)
    alone = [(cell, row.cell_seconds) for cell, row in ends if row.cell_seconds is not None]
    shared = sum(row.seconds for _, row in rows_of(Stage, ran))
    apart = sum(row.cell_seconds or 0.0 for _, row in rows_of(FineTuning, ran))
    seconds = [duration for _, duration in alone]
    depths = tuple(sorted({cell.hidden_layers for cell, _ in alone}))
    return Times(
        stages=len(ran),
        seconds=sum(row.seconds for row in ran),
        imported=len(imported),
        imported_seconds=sum(row.cell_seconds or 0.0 for row in imported),
        cells=len(alone),
        per_cell=statistics.median(seconds) if seconds else None,
        longest=max(seconds, default=None),
        saved=max(0.0, apart - shared),
        parts=_parts(ran),
        depths=depths,
        functions=_functions(alone, depths),
    )


def _is_imported(row: Row) -> bool:
    """Whether only the time of the whole cell is known, as in a CSV table."""
    return isinstance(row.task, FineTuning) and row.seconds == 0 and row.cell_seconds is not None


def _parts(rows: Iterable[Row]) -> tuple[Part, ...]:
    """Layer-wise stages first, then the ends of chains, then everything else."""
    by_work: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_work[row.task.work].append(row)

    def place(part: tuple[str, list[Row]]) -> tuple[bool, bool, int, str]:
        work, (row, *_) = part
        chain = row.task.chain
        return row.task.ends_cell, row.task.ends_cell and not chain, len(chain), work

    return tuple(
        Part(work, len(stages), sum(row.seconds for row in stages))
        for work, stages in sorted(by_work.items(), key=place)
    )


def _functions(alone: Iterable[tuple[Cell, float]], depths: Sequence[int]) -> tuple[Alone, ...]:
    groups: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for cell, seconds in alone:
        groups[cell.setting, cell.function][cell.hidden_layers].append(seconds)
    return tuple(
        Alone(
            function,
            setting,
            tuple(statistics.fmean(by_depth[depth]) if depth in by_depth else None for depth in depths),
            sum(sum(seconds) for seconds in by_depth.values()),
        )
        for (setting, function), by_depth in sorted(groups.items(), key=_named_first)
    )


def _named_first(item: tuple[tuple[str, str], object]) -> tuple[str, bool, str]:
    setting, function = item[0]
    return setting, len(function) > 3, function
