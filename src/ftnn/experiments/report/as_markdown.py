"""A report as Markdown: the tables of the page, for documents and for reading in a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from ftnn.experiments.paper.mnist.grids import GAMMAS, LAYERS
from ftnn.experiments.report.contents import Report
from ftnn.experiments.report.custom import reason_of
from ftnn.experiments.report.entries import Entry, result_of
from ftnn.experiments.report.summary import BIN, differences, histogram
from ftnn.experiments.report.texts import ACTIVATION_NAMES, accuracy, signed, templates


def markdown(report: Report) -> str:
    """A report as Markdown. It has what tables of results know, and so a store of imports gives the same."""
    return (
        templates("markdown")
        .get_template("report.md")
        .render(
            report=report,
            summary=report.summary,
            bars=_bars(report.entries),
            tables=[(layers, [e for e in report.entries if e.layers == layers]) for layers in LAYERS],
            failed=[e for e in report.entries if e.paper.gamma is None and e.run is not None],
            grids=[
                (layers, whole)
                for layers in LAYERS
                if (whole := [e for e in report.entries if e.layers == layers and e.is_whole])
            ],
            gammas=GAMMAS,
            at=_at,
            activations=ACTIVATION_NAMES,
            accuracy=accuracy,
            result_of=result_of,
            reason_of=reason_of,
        )
    )


def _at(entry: Entry, gamma: float) -> str:
    """Ours at this γ and, in brackets, the paper's."""
    rate = next((rate for rate in entry.rates if rate.gamma == gamma), None)
    if rate is None or rate.first is None:
        return "·"
    paper = "" if rate.paper is None else f" ({accuracy(rate.paper.ft_accuracy)})"
    return result_of(rate.first) + paper


def _bars(entries: Iterable[Entry]) -> list[tuple[str, int]]:
    """(from where to where, how many) of each part of the distribution that has any."""
    bins = histogram(differences(entries))
    names = [f"{signed(left)} to {signed(left + BIN)}" for left, _ in bins]
    names[0] = f"below {signed(bins[1][0])}"
    names[-1] = f"{signed(bins[-1][0])} and more"
    return [(name, count) for name, (_, count) in zip(names, bins, strict=True) if count]
