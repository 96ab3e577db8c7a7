"""How far results of one cell lie apart when only the seed differs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from ftnn.experiments.report.entries import Entry
from ftnn.experiments.report.summary import median_size


@dataclass(frozen=True)
class OfSeed:
    """All cells that were run with one seed, of those that were run with several."""

    seed: int
    cells: int
    failed: int
    median: float | None
    """The median absolute difference from the paper after fine-tuning, in points."""


@dataclass(frozen=True)
class Seeds:
    cells: tuple[Entry, ...]
    """Those with more than one seed at the γ that the tables show."""
    by_seed: tuple[OfSeed, ...]
    median: float | None
    """Of the spreads, largest less smallest accuracy, in points."""
    inside: int
    """Cells whose accuracy in the paper lies between ours, or no further off than their spread."""


def seeds(entries: Iterable[Entry]) -> Seeds:
    cells = [entry for entry in entries if entry.shown is not None and len(entry.shown.runs) > 1]
    spreads = [entry.spread for entry in cells if entry.spread is not None]
    differences: dict[int, list[float | None]] = defaultdict(list)
    for entry in cells:
        for run in entry.shown.runs if entry.shown else ():
            differences[run.seed].append(entry.difference_of(run, "ft"))
    return Seeds(
        tuple(cells),
        tuple(_of_seed(seed, values) for seed, values in sorted(differences.items())),
        median_size(spreads),
        sum(_is_inside(entry) for entry in cells),
    )


def _of_seed(seed: int, differences: list[float | None]) -> OfSeed:
    known = [each for each in differences if each is not None]
    return OfSeed(seed, len(differences), len(differences) - len(known), median_size(known))


def _is_inside(entry: Entry) -> bool:
    if entry.spread is None or entry.shown is None:
        return False
    differences = [entry.difference_of(run, "ft") for run in entry.shown.runs]
    known = [difference for difference in differences if difference is not None]
    return bool(known) and min(known) <= entry.spread and max(known) >= -entry.spread
