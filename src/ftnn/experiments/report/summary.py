"""How close our results are to the paper's, in a few numbers; with other seeds, and with other settings."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ftnn.experiments.paper.mnist.grids import GAMMAS, LAYERS
from ftnn.experiments.report.entries import FAR, Entry, Run
from ftnn.experiments.report.others import Custom
from ftnn.experiments.report.rates import Gains, OwnBest, Rates, gains, median_size, own_best, rates_of

BIN = 0.25
EDGE = 3.0
"""Larger differences count in the outermost bins."""
CLOSE = 0.1
"""Points of accuracy within which two runs are practically equal: ten test images."""


@dataclass(frozen=True)
class Nearness:
    """How close some runs are to the paper, after one of the stages."""

    failed: int
    median: float | None
    """The median absolute difference of those that trained, in points."""
    middle: float | None
    """The median difference, with its sign."""
    close: int
    """Runs within 0.1 of the paper."""
    above: int
    """Runs above the paper."""
    within: int
    """Runs within 1.0 of the paper, or better."""
    inside: int
    """Runs within 1.0 of the paper, in either direction."""


@dataclass(frozen=True)
class Depth:
    """One of the paper's three tables."""

    layers: int
    cells: int
    done: int
    """A cell that has failed so far, and for which the paper has no γ, is done if it was run at all six."""
    paper_failed: int
    """Of all cells."""
    ours_failed: int
    """Of those done."""
    both_failed: int
    compared: int
    """Cells that the paper trained and that are done here, whether or not they failed."""
    median: float | None
    """The median absolute difference after fine-tuning, in points, if both trained."""
    within: int
    """Cells within 1 point of the paper, or better; cells that failed here do not count."""
    inside: int
    """Cells within 1 point of the paper, in either direction."""
    lwt: Nearness
    """The same cells after layer-wise training."""
    rates: Rates
    """At all γ."""
    by_gamma: tuple[Rates, ...]
    own: tuple[OwnBest, ...]


@dataclass(frozen=True)
class Summary:
    """All three tables; fields as in `Depth`."""

    depths: tuple[Depth, ...]
    cells: int
    done: int
    paper_failed: int
    ours_failed: int
    compared: int
    trained: int
    """Of the cells compared, those that trained here too."""
    median: float | None
    mean: float | None
    """The mean difference, with its sign."""
    within: int
    inside: int
    lwt: Nearness
    far: tuple[Entry, ...]
    """Cells more than 1 point off in either direction, or failed here only; the worst first."""
    runs: int
    """Cells of the grid of 1,080, over all learning rates, that are done with at least one seed."""
    gains: Gains
    """Ours, over all γ."""
    paper_gains: Gains

    @property
    def share_within(self) -> float | None:
        """In percent."""
        return 100 * self.within / self.compared if self.compared else None

    @property
    def share_inside(self) -> float | None:
        """In percent."""
        return 100 * self.inside / self.compared if self.compared else None


def summarise(entries: Sequence[Entry]) -> Summary:
    compared = [e for e in entries if e.run is not None and e.paper.ft_accuracy is not None]
    known = differences(compared)
    far = [e for e in compared if not e.has_trained or abs(e.difference("ft") or 0.0) > FAR]
    rates = [rate for entry in entries for rate in entry.rates]
    depths = tuple(_depth(layers, [e for e in entries if e.layers == layers]) for layers in LAYERS)
    return Summary(
        depths=depths,
        cells=sum(depth.cells for depth in depths),
        done=sum(depth.done for depth in depths),
        paper_failed=sum(depth.paper_failed for depth in depths),
        ours_failed=sum(depth.ours_failed for depth in depths),
        compared=len(compared),
        trained=len(known),
        median=median_size(known),
        mean=statistics.fmean(known) if known else None,
        within=_within(known),
        inside=_inside(known),
        lwt=_nearness([entry.difference("lwt") for entry in compared]),
        far=tuple(sorted(far, key=lambda e: -1000.0 if (d := e.difference("ft")) is None else d)),
        runs=sum(bool(rate.runs and rate.paper) for entry in entries for rate in entry.rates),
        gains=gains((run.lwt, run.ft) for rate in rates if (run := rate.first) and not run.failed),
        paper_gains=gains((rate.paper.lwt_accuracy, rate.paper.ft_accuracy) for rate in rates if rate.paper),
    )


def _depth(layers: int, entries: Sequence[Entry]) -> Depth:
    ours = [entry.is_done and not entry.has_trained for entry in entries]
    paper = [entry.paper.ft_accuracy is None for entry in entries]
    done = [entry.is_done for entry in entries]
    return Depth(
        layers=layers,
        cells=len(entries),
        done=sum(done),
        paper_failed=sum(paper),
        ours_failed=sum(ours),
        both_failed=sum(a and b for a, b in zip(ours, paper, strict=True)),
        compared=sum(a and not b for a, b in zip(done, paper, strict=True)),
        median=median_size(differences(entries)),
        within=_within(differences(entries)),
        inside=_inside(differences(entries)),
        lwt=_nearness([e.difference("lwt") for e in entries if e.run and e.paper.lwt_accuracy is not None]),
        rates=rates_of(entries),
        by_gamma=tuple(rates_of(entries, gamma) for gamma in GAMMAS),
        own=tuple(own_best(entries)),
    )


def differences(entries: Iterable[Entry]) -> list[float]:
    """Ours minus the paper's after fine-tuning, if both trained."""
    return [difference for entry in entries if (difference := entry.difference("ft")) is not None]


def _within(differences: Iterable[float]) -> int:
    """How many are within 1 point of the paper, or better."""
    return sum(each >= -FAR for each in differences)


def _inside(differences: Iterable[float]) -> int:
    """How many are within 1 point of the paper, in either direction."""
    return sum(abs(each) <= FAR for each in differences)


def histogram(values: Iterable[float]) -> list[tuple[float, int]]:
    """(left edge, count) of each bin from -EDGE to EDGE. Values at an edge count in the bin on its right."""
    bins = round(2 * EDGE / BIN)
    counts = [0] * bins
    for value in values:
        # In hundredths: rounding errors must not put -0.25 into the wrong bin.
        place = (round(value * 100) + round(EDGE * 100)) // round(BIN * 100)
        counts[min(max(place, 0), bins - 1)] += 1
    return [(-EDGE + number * BIN, count) for number, count in enumerate(counts)]


# --- seeds ---


@dataclass(frozen=True)
class OfSeed:
    """The results of one seed, over the cells that were run with several seeds."""

    seed: int
    cells: int
    failed: int
    median: float | None
    """The median absolute difference from the paper after fine-tuning, in points."""


@dataclass(frozen=True)
class Seeds:
    """How much the results of a cell vary with the seed."""

    cells: tuple[Entry, ...]
    """Those with more than one seed at the γ that the tables show."""
    by_seed: tuple[OfSeed, ...]
    median: float | None
    """The median spread (largest minus smallest accuracy), in points."""
    inside: int
    """Cells for which the paper's accuracy is between ours, or no further away than their spread."""


def seeds(entries: Iterable[Entry]) -> Seeds:
    cells = [(e, e.shown.runs) for e in entries if e.shown is not None and len(e.shown.runs) > 1]
    by_seed: dict[int, list[float | None]] = defaultdict(list)
    inside = 0
    for entry, runs in cells:
        for run in runs:
            by_seed[run.seed].append(entry.difference_of(run, "ft"))
        known = [d for run in runs if (d := entry.difference_of(run, "ft")) is not None]
        if known and entry.spread is not None:
            inside += min(known) <= entry.spread and max(known) >= -entry.spread
    return Seeds(
        tuple(entry for entry, _ in cells),
        tuple(_of_seed(seed, values) for seed, values in sorted(by_seed.items())),
        median_size(entry.spread for entry, _ in cells if entry.spread is not None),
        inside,
    )


def _of_seed(seed: int, differences: list[float | None]) -> OfSeed:
    known = [each for each in differences if each is not None]
    return OfSeed(seed, len(differences), len(differences) - len(known), median_size(known))


# --- other settings ---


@dataclass(frozen=True)
class Varied:
    """All cells of one depth that were run with a different setting, at the paper's best γ."""

    setting: str
    layers: int
    cells: int
    both: int
    """Those of them that were run with the paper's setting too."""
    usual: Nearness
    varied: Nearness


def settings(entries: Iterable[Entry], others: Iterable[Custom]) -> list[Varied]:
    """Over the cells that the paper trained, each with its lowest seed."""
    by_place = {(entry.function, entry.activation, entry.layers): entry for entry in entries}
    runs_of: dict[tuple[str, int], list[tuple[Entry, Run]]] = defaultdict(list)
    for group in others:
        entry = by_place.get((group.function, group.activation, group.layers))
        if group.setting and entry is not None and entry.paper.gamma is not None:
            rate = next((rate for rate in group.rates if rate.gamma == entry.paper.gamma), None)
            if rate is not None and rate.first is not None:
                runs_of[group.setting, group.layers].append((entry, rate.first))
    return [
        Varied(
            setting,
            layers,
            len(runs),
            sum(entry.run is not None for entry, _ in runs),
            _nearness([entry.difference("ft") for entry, _ in runs if entry.run is not None]),
            _nearness([entry.difference_of(varied, "ft") for entry, varied in runs]),
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
        above=sum(each > 0 for each in known),
        within=_within(known),
        inside=_inside(known),
    )
