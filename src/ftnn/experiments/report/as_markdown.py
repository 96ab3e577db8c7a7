"""A report as Markdown: the tables of the page, for documents and terminals."""

from __future__ import annotations

from collections.abc import Iterable

from ftnn.experiments.paper.mnist.grids import GAMMAS, LAYERS
from ftnn.experiments.report.contents import Report
from ftnn.experiments.report.entries import Entry, Run, result_of
from ftnn.experiments.report.others import reason_of
from ftnn.experiments.report.summary import BIN, differences, histogram
from ftnn.experiments.report.texts import ACTIVATION_NAMES, accuracy, signed, templates


def markdown(report: Report) -> str:
    """A report as Markdown, with only the data that CSV tables have: importing them gives the same report."""
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
                (layers, complete)
                for layers in LAYERS
                if (complete := [e for e in report.entries if e.layers == layers and e.is_complete])
            ],
            gammas=GAMMAS,
            at=_at,
            both=_both,
            of_run=_of_run,
            activations=ACTIVATION_NAMES,
            accuracy=accuracy,
            result_of=result_of,
            reason_of=reason_of,
        )
    )


def _at(entry: Entry, gamma: float) -> str:
    """Our accuracies at this γ after LWT/FT, with the paper's in brackets."""
    rate = next((rate for rate in entry.rates if rate.gamma == gamma), None)
    if rate is None or rate.first is None:
        return "·"
    paper = rate.paper
    return _of_run(rate.first) + (
        "" if paper is None else f" ({_both(paper.lwt_accuracy, paper.ft_accuracy)})"
    )


def _of_run(run: Run) -> str:
    return _both(None, None) if run.failed else _both(run.lwt, run.ft)


def _both(lwt: float | None, ft: float | None) -> str:
    return accuracy(None) if ft is None else f"{accuracy(lwt)}/{accuracy(ft)}"


def _bars(entries: Iterable[Entry]) -> list[tuple[str, int]]:
    """(range, count) of each bin of the histogram that is not empty."""
    bins = histogram(differences(entries))
    names = [f"{signed(left)} to {signed(left + BIN)}" for left, _ in bins]
    names[0] = f"below {signed(bins[1][0])}"
    names[-1] = f"{signed(bins[-1][0])} and more"
    return [(name, count) for name, (_, count) in zip(names, bins, strict=True) if count]
