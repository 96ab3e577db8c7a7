"""Rows as tables (ratios, milliseconds, other systems) and as bar charts."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.table import Table
from rich.text import Text

from ftnn.bench._bases import TERMS
from ftnn.bench._rows import SETTINGS, Row
from ftnn.bench._systems import FTNN, TITLES
from ftnn.bench._workloads import WORKLOADS, Workload
from ftnn.formula import catalogue

BAR = 40
"""The width of the longest bar."""
_EIGHTHS = " ▏▎▍▌▋▊▉"


@dataclass(frozen=True, slots=True)
class Grid:
    """A table as text, for a terminal or for Markdown."""

    header: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]


def by_workload(rows: Iterable[Row]) -> dict[str, list[Row]]:
    workloads: dict[str, list[Row]] = {}
    for row in rows:
        workloads.setdefault(row.workload, []).append(row)
    return workloads


def _by_task(rows: Iterable[Row]) -> list[dict[str, Row]]:
    """For each task, the rows by system."""
    tasks: dict[object, dict[str, Row]] = {}
    for row in rows:
        tasks.setdefault(row.task, {})[row.system] = row
    return list(tasks.values())


def _varying(rows: Sequence[Row]) -> list[str]:
    """The settings that differ between tasks."""
    return [name for name in SETTINGS if len({getattr(row, name) for row in rows}) > 1]


def grid(workload: Workload, rows: Sequence[Row]) -> Grid:
    """The rows of one workload, one line per task."""
    systems = [name for name in TITLES if any(row.system == name for row in rows)]
    others = [name for name in systems if name not in (FTNN, workload.yardstick)]
    settings, yardstick = _varying(rows), workload.yardstick
    titles = [f"ftnn, {workload.unit}"]
    if yardstick is not None:
        titles = [f"× {TITLES[yardstick]}", *titles, TITLES[yardstick]]
    header = ("function", "formula", *settings, *titles, *(f"{TITLES[name]} / ftnn" for name in others))
    lines: list[tuple[str, ...]] = []
    for task in _by_task(rows):
        own = task.get(FTNN)
        if own is None:
            continue
        costs = [_measured(own)]
        if yardstick is not None:
            costs = [_number(own.times_mlp), *costs, _measured(task.get(yardstick))]
        varying = (str(getattr(own, name)) for name in settings)
        compared = (_compared(own, task.get(name)) for name in others)
        lines.append((own.function, _formula(own.function), *varying, *costs, *compared))
    return Grid(header, tuple(lines))


def _formula(name: str) -> str:
    """A function's formula, or a basis's first term."""
    if name in TERMS:
        return f"{TERMS[name][0]} + …"
    return catalogue[name].formula


def _cost(row: Row | None) -> float | None:
    return None if row is None else row.mib if row.ms is None else row.ms


def _number(value: float | None) -> str:
    """About three digits, without an exponent."""
    if value is None:
        return ""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _measured(row: Row | None) -> str:
    """The median, with quartiles if known."""
    cost = _cost(row)
    if row is None or cost is None:
        return ""
    spread = f" ({_number(row.low_ms)}-{_number(row.high_ms)})" if row.low_ms is not None else ""
    return f"{_number(cost)}{spread}"


def _compared(own: Row, other: Row | None) -> str:
    """Another system's cost: relative to ftnn's, and absolute."""
    ours, theirs = _cost(own), _cost(other)
    if other is None or ours is None or theirs is None:
        return ""
    times = f"{_number(theirs / ours)} × " if ours > 0 else ""
    return f"{times}({_number(theirs)}{'*' if other.note else ''})"


def remarks(rows: Iterable[Row]) -> list[str]:
    """The footnotes of a table."""
    return sorted({f"* {TITLES[row.system]}: {row.note}" for row in rows if row.note})


def table(workload: Workload, rows: Sequence[Row]) -> Table:
    """For a terminal."""
    cells = grid(workload, rows)
    result = Table(box=None, pad_edge=False)
    for n, name in enumerate(cells.header):
        result.add_column(name, justify="left" if n < 2 else "right", style="bold" if "×" in name else "")
    for line in cells.lines:
        result.add_row(*map(Text, line))  # not str, in which brackets are markup
    return result


def chart(workload: Workload, rows: Sequence[Row]) -> list[str]:
    """A bar per task for its ratio to the yardstick, with a mark at 1; empty without a yardstick."""
    settings = _varying(rows)
    bars = [row for row in rows if row.system == FTNN and row.times_mlp is not None]
    if workload.yardstick is None or not bars:
        return []
    labels = [
        " ".join([row.function, *(f"{name} {getattr(row, name)}" for name in settings)]) for row in bars
    ]
    longest = max(1.25, *(row.times_mlp or 0 for row in bars))
    widest = max(map(len, labels))
    mark = round(BAR / longest)
    lines = [f"{'':{widest}}  {'':{mark}}1 = {TITLES[workload.yardstick]}"]
    for label, row in zip(labels, bars, strict=True):
        ratio = row.times_mlp or 0.0
        lines.append(f"{label:{widest}}  {_bar(ratio / longest, mark)} {_number(ratio)}")
    return lines


def _bar(share: float, mark: int) -> str:
    """A bar of `share` of the full width, to an eighth of a column, with a line at column `mark`."""
    eighths = round(8 * BAR * share)
    cells = list("█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()) + [" "] * (BAR + 1)
    if cells[mark] == " ":
        cells[mark] = "│"
    return "".join(cells[: BAR + 1])


def markdown(rows: Iterable[Row]) -> str:
    """All workloads as Markdown tables, for `docs/performance.md`."""
    parts: list[str] = [machine()]
    for name, measured in by_workload(rows).items():
        workload = WORKLOADS[name]
        parts += [f"## {name}: {workload.title}", _markdown_table(grid(workload, measured))]
        parts += (remark.replace("*", "\\*") for remark in remarks(measured))
    return "\n\n".join(parts) + "\n"


def _markdown_table(cells: Grid) -> str:
    def line(texts: Sequence[str]) -> str:
        return f"| {' | '.join(texts)} |"

    def body(function: str, formula: str, *numbers: str) -> str:
        return line([function, f"`{formula}`", *(number.replace("*", "\\*") for number in numbers)])

    under = "|".join(["---", "---", *["---:"] * (len(cells.header) - 2)])
    return "\n".join([line(cells.header), f"|{under}|", *(body(*texts) for texts in cells.lines)])


def machine() -> str:
    """A description of this machine."""
    versions = f"torch {torch.__version__}, Python {platform.python_version()}"
    return f"{_processor()}, {torch.get_num_threads()} threads; {versions}."


def _processor() -> str:
    try:
        match = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text("utf-8"), re.MULTILINE)
    except OSError:
        match = None
    return match[1] if match else platform.processor() or platform.machine()
