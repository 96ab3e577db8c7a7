"""How near ours is to the paper, in a few numbers."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ftnn.experiments.paper.mnist.grids import LAYERS
from ftnn.experiments.report.entries import FAR, Entry

BIN = 0.25
EDGE = 3.0
"""Differences beyond this go into the outermost bins."""


@dataclass(frozen=True)
class Depth:
    """One of the three tables."""

    layers: int
    cells: int
    done: int
    paper_failed: int
    """Of all its cells."""
    ours_failed: int
    """Of those done here."""
    both_failed: int
    compared: int
    """Cells that the paper trained and that are done here, trained or failed."""
    median: float | None
    """The median absolute difference of the fine-tuned accuracy, over those trained in both, in points."""
    within: int
    """Cells within 1 point of the paper or better; one that failed here is not."""
    rates: Rates


@dataclass(frozen=True)
class Rates:
    """A depth over all learning rates: what was run, each γ for itself."""

    done: int
    paper_only: int
    """Failed in the paper only."""
    ours_only: int
    both_failed: int
    median: float | None
    """The median absolute difference after fine-tuning, where both trained."""


@dataclass(frozen=True)
class Summary:
    depths: tuple[Depth, ...]
    compared: int
    """Cells that the paper trained and that are done here, trained or failed."""
    trained: int
    """Of these, how many trained here too."""
    median: float | None
    """The median absolute difference of the fine-tuned accuracy, over those trained in both, in points."""
    mean: float | None
    """The mean difference, with its sign."""
    within: int
    """Cells within 1 point of the paper or better; one that failed here is not."""
    far: tuple[Entry, ...]
    """Cells more than 1 point off, either way, or failed here only; the worst first."""
    runs: int
    """Cells of the whole grid of 1,080, over all learning rates, that are done with at least one seed."""

    @property
    def done(self) -> int:
        return sum(depth.done for depth in self.depths)

    @property
    def cells(self) -> int:
        return sum(depth.cells for depth in self.depths)

    @property
    def share_within(self) -> float | None:
        """In percent."""
        return 100 * self.within / self.compared if self.compared else None

    @property
    def paper_failed(self) -> int:
        return sum(depth.paper_failed for depth in self.depths)

    @property
    def ours_failed(self) -> int:
        return sum(depth.ours_failed for depth in self.depths)


def differences(entries: Iterable[Entry]) -> list[float]:
    """Ours less the paper's after fine-tuning, where both trained."""
    return [difference for entry in entries if (difference := entry.difference("ft")) is not None]


def summarise(entries: Sequence[Entry]) -> Summary:
    compared = [e for e in entries if e.run is not None and e.paper.ft_accuracy is not None]
    known = differences(compared)
    far = [e for e in compared if not e.has_trained or abs(e.difference("ft") or 0.0) > FAR]
    return Summary(
        depths=tuple(_depth(layers, [e for e in entries if e.layers == layers]) for layers in LAYERS),
        compared=len(compared),
        trained=len(known),
        median=median_size(known),
        mean=statistics.fmean(known) if known else None,
        within=within(known),
        far=tuple(sorted(far, key=_how_bad)),
        runs=sum(bool(rate.runs and rate.paper) for entry in entries for rate in entry.rates),
    )


def _how_bad(entry: Entry) -> float:
    difference = entry.difference("ft")
    return -1000.0 if difference is None else difference


def _depth(layers: int, entries: Sequence[Entry]) -> Depth:
    ours = [entry.run is not None and not entry.has_trained for entry in entries]
    paper = [entry.paper.ft_accuracy is None for entry in entries]
    return Depth(
        layers=layers,
        cells=len(entries),
        done=sum(entry.run is not None for entry in entries),
        paper_failed=sum(paper),
        ours_failed=sum(ours),
        both_failed=sum(a and b for a, b in zip(ours, paper, strict=True)),
        compared=sum(
            entry.run is not None and not failed for entry, failed in zip(entries, paper, strict=True)
        ),
        median=median_size(differences(entries)),
        within=within(differences(entries)),
        rates=_rates(entries),
    )


def _rates(entries: Sequence[Entry]) -> Rates:
    pairs = [
        (rate.paper.ft_accuracy, None if rate.first.failed else rate.first.ft)
        for entry in entries
        for rate in entry.rates
        if rate.first is not None and rate.paper is not None
    ]
    return Rates(
        done=len(pairs),
        paper_only=sum(paper is None and ours is not None for paper, ours in pairs),
        ours_only=sum(paper is not None and ours is None for paper, ours in pairs),
        both_failed=sum(paper is None and ours is None for paper, ours in pairs),
        median=median_size(ours - paper for paper, ours in pairs if paper is not None and ours is not None),
    )


def median_size(differences: Iterable[float]) -> float | None:
    """The median absolute difference; None where there are none."""
    sizes = [abs(each) for each in differences]
    return statistics.median(sizes) if sizes else None


def within(differences: Iterable[float]) -> int:
    """How many are within 1 point of the paper or better."""
    return sum(each >= -FAR for each in differences)


def histogram(values: Iterable[float]) -> list[tuple[float, int]]:
    """(left edge, how many) of each bin from -EDGE to EDGE; one holds what is at or above its left edge."""
    bins = round(2 * EDGE / BIN)
    counts = [0] * bins
    for value in values:
        # A hundredth is the unit: floats must not put -0.25 into the wrong bin.
        place = (round(value * 100) + round(EDGE * 100)) // round(BIN * 100)
        counts[min(max(place, 0), bins - 1)] += 1
    return [(-EDGE + number * BIN, count) for number, count in enumerate(counts)]
