"""Learning rates: each γ counted separately, and our own best γ next to the paper's."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ftnn.experiments.report.entries import FAR, Entry, Rate


@dataclass(frozen=True)
class Rates:
    """Some cells of the grid of 1,080, which has one for each γ, with the lowest seed."""

    gamma: float | None
    """None: at all γ."""
    done: int
    paper_only: int
    """Failed in the paper only."""
    ours_only: int
    both_failed: int
    compared: int
    """Trained in both."""
    median: float | None
    """The median absolute difference after fine-tuning, over those."""
    middle: float | None
    """The median difference, with its sign."""
    worse: int
    """More than 1 point below the paper."""
    better: int
    """More than 1 point above the paper."""


def rates_of(entries: Sequence[Entry], gamma: float | None = None) -> Rates:
    pairs = [
        (rate.paper.ft_accuracy, None if rate.first.failed else rate.first.ft)
        for entry in entries
        for rate in entry.rates
        if rate.first is not None and rate.paper is not None and gamma in (None, rate.gamma)
    ]
    known = [round(ours - paper, 2) for paper, ours in pairs if paper is not None and ours is not None]
    return Rates(
        gamma,
        done=len(pairs),
        paper_only=sum(paper is None and ours is not None for paper, ours in pairs),
        ours_only=sum(paper is not None and ours is None for paper, ours in pairs),
        both_failed=sum(paper is None and ours is None for paper, ours in pairs),
        compared=len(known),
        median=median_size(known),
        middle=statistics.median(known) if known else None,
        worse=sum(each < -FAR for each in known),
        better=sum(each > FAR for each in known),
    )


@dataclass(frozen=True)
class OwnBest:
    """Our own best γ and the paper's, over cells of one depth that were run at all γ and train in both."""

    chosen_on: str
    cells: int
    same: int
    """Cells at which both are equal."""
    near: int
    """One step apart."""
    median: float | None
    """The median absolute difference after fine-tuning, each at its own best γ."""
    mean: float | None


def own_best(entries: Sequence[Entry]) -> list[OwnBest]:
    """Chosen on the validation images, and on the test images; without those that no cell is known for."""
    found = [
        _own_best("validation images", ((e, e.chosen) for e in entries)),
        _own_best("test images", ((e, e.best_rate) for e in entries if e.is_complete)),
    ]
    return [each for each in found if each.cells]


def _own_best(chosen_on: str, chosen: Iterable[tuple[Entry, Rate | None]]) -> OwnBest:
    steps: list[float] = []
    differences: list[float] = []
    for entry, rate in chosen:
        paper = entry.paper
        if rate is not None and rate.first is not None and paper.gamma is not None:
            steps.append(abs(rate.gamma - paper.gamma))
            if rate.first.ft is not None and paper.ft_accuracy is not None:
                differences.append(rate.first.ft - paper.ft_accuracy)
    return OwnBest(
        chosen_on,
        len(steps),
        sum(step == 0 for step in steps),
        sum(step == 1 for step in steps),
        median_size(differences),
        statistics.fmean(differences) if differences else None,
    )


@dataclass(frozen=True)
class Gains:
    """What fine-tuning changes, over all cells that trained, with the lowest seed."""

    cells: int
    lower: int
    equal: int


def gains(pairs: Iterable[tuple[float | None, float | None]]) -> Gains:
    """Of the accuracies after layer-wise training and after fine-tuning."""
    signs = [round(ft - lwt, 2) for lwt, ft in pairs if lwt is not None and ft is not None]
    return Gains(len(signs), sum(each < 0 for each in signs), sum(each == 0 for each in signs))


def median_size(differences: Iterable[float]) -> float | None:
    """The median absolute difference."""
    sizes = [abs(each) for each in differences]
    return statistics.median(sizes) if sizes else None
