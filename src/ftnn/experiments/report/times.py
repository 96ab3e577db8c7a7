"""Where the time went."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ftnn.experiments.grid.rows import Row, rows_of
from ftnn.experiments.paper.mnist.cells import Cell, FineTuning, Stage


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
    ends = rows_of(FineTuning, rows)
    alone = [(cell, row.cell_seconds) for cell, row in ends if row.cell_seconds is not None]
    shared = sum(row.seconds for _, row in rows_of(Stage, ran))
    apart = sum(row.cell_seconds or 0.0 for _, row in rows_of(FineTuning, ran))
    seconds = [taken for _, taken in alone]
    depths = tuple(sorted({cell.hidden_layers for cell, _ in alone}))
    return Times(
        stages=len(ran),
        seconds=sum(row.seconds for row in ran),
        imported=len(brought),
        imported_seconds=sum(row.cell_seconds or 0.0 for row in brought),
        cells=len(alone),
        per_cell=statistics.median(seconds) if seconds else None,
        longest=max(seconds, default=None),
        saved=max(0.0, apart - shared),
        parts=_parts(ran),
        depths=depths,
        functions=_functions(alone, depths),
    )


def _is_imported(row: Row) -> bool:
    """Whether only what its cell took is known, as a table of results has it."""
    return isinstance(row.task, FineTuning) and row.seconds == 0 and row.cell_seconds is not None


def _parts(rows: Iterable[Row]) -> tuple[Part, ...]:
    """Stages that lead to others first, then those that end chains, then all else."""
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
