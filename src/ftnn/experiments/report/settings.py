"""Cells of the paper's tables again with other settings, beside themselves with the usual ones."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ftnn.experiments.report.custom import Custom
from ftnn.experiments.report.entries import Entry, Run
from ftnn.experiments.report.summary import median_size, within

CLOSE = 0.1
"""Points of accuracy within which two runs are as good as equal: ten of the test images."""


@dataclass(frozen=True)
class Nearness:
    """How near some runs are to the paper after fine-tuning."""

    failed: int
    median: float | None
    """The median absolute difference of those that trained, in points."""
    middle: float | None
    """The median difference, with its sign."""
    close: int
    """Runs within 0.1 of the paper."""
    within: int
    """Runs within 1.0 of the paper or better."""


@dataclass(frozen=True)
class Varied:
    """All cells of one depth that were run with a setting and with the usual ones, at the paper's best γ."""

    setting: str
    """What differs from the experiment."""
    layers: int
    cells: int
    usual: Nearness
    varied: Nearness


def settings(entries: Iterable[Entry], others: Iterable[Custom]) -> list[Varied]:
    """Over cells that the paper trained; each with its lowest seed."""
    by_place = {(entry.function, entry.activation, entry.layers): entry for entry in entries}
    runs_of: dict[tuple[str, int], list[tuple[Entry, Run, Run]]] = defaultdict(list)
    for group in others:
        entry = by_place.get((group.function, group.activation, group.layers))
        if group.setting and entry is not None and entry.paper.gamma is not None and entry.run is not None:
            rate = next((rate for rate in group.rates if rate.gamma == entry.paper.gamma), None)
            if rate is not None and rate.first is not None:
                runs_of[group.setting, group.layers].append((entry, entry.run, rate.first))
    return [
        Varied(
            setting,
            layers,
            len(runs),
            _nearness([entry.difference_of(usual, "ft") for entry, usual, _ in runs]),
            _nearness([entry.difference_of(varied, "ft") for entry, _, varied in runs]),
        )
        for (setting, layers), runs in sorted(runs_of.items())
    ]


def _nearness(differences: Sequence[float | None]) -> Nearness:
    known = [each for each in differences if each is not None]
    return Nearness(
        failed=len(differences) - len(known),
        median=median_size(known),
        middle=statistics.median(known) if known else None,
        close=sum(abs(each) <= CLOSE for each in known),
        within=within(known),
    )
