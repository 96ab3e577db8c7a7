"""The number of training images: the function that tells 50,000 and 60,000 apart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ftnn.data import PaperCell
from ftnn.experiments.paper.mnist.cells import Cell
from ftnn.experiments.report.entries import Entry, Run
from ftnn.experiments.report.others import Custom

TELLING = "F11"
"""It trains late, so its accuracy depends on the number of steps."""
_ALL_IMAGES = Cell(TELLING, "logistic", 1, 0.0, data="mnist").setting


@dataclass(frozen=True)
class Images:
    """A cell that was run with either number of images."""

    paper: PaperCell
    usual: Run
    """With 50,000."""
    all: Run
    """With 60,000."""


def images(entries: Iterable[Entry], others: Iterable[Custom]) -> list[Images]:
    varied = {
        (group.layers, group.activation, rate.gamma): rate.first
        for group in others
        if (group.function, group.setting) == (TELLING, _ALL_IMAGES)
        for rate in group.rates
    }
    return [
        Images(rate.paper, rate.first, run)
        for entry in entries
        if entry.function == TELLING
        for rate in entry.rates
        if rate.first and rate.paper and (run := varied.get((entry.layers, entry.activation, rate.gamma)))
    ]
