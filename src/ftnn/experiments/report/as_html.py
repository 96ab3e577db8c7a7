"""A report as a single HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from ftnn.experiments.paper.mnist.cells import ACTIVATIONS
from ftnn.experiments.paper.mnist.functions import FUNCTIONS
from ftnn.experiments.paper.mnist.grids import LAYERS
from ftnn.experiments.report import svg
from ftnn.experiments.report.contents import Report
from ftnn.experiments.report.direct import by_function
from ftnn.experiments.report.entries import Entry, Rate
from ftnn.experiments.report.pi import panels
from ftnn.experiments.report.summary import BIN, EDGE, differences, histogram
from ftnn.experiments.report.texts import ACTIVATION_NAMES, layers_of, signed, templates
from ftnn.formula import catalogue


def page(report: Report) -> str:
    """The page as HTML: one file that loads nothing else."""
    by_place = {(e.layers, e.function, e.activation): e for e in report.entries}
    hidden = sorted({curve.hidden for curve in report.curves})
    return (
        templates("html")
        .get_template("page.html")
        .render(
            report=report,
            summary=report.summary,
            histogram=Markup(_histogram(report.entries)),
            tables=[
                (
                    layers,
                    [(name, [by_place[layers, name, each] for each in ACTIVATIONS]) for name in FUNCTIONS],
                )
                for layers in LAYERS
            ],
            formulas={name: catalogue[name].formula for name in FUNCTIONS},
            activations=ACTIVATION_NAMES,
            panels=[(caption, Markup(drawn)) for caption, drawn in panels(report.curves)],
            series={units: number % 6 for number, units in enumerate(hidden)},
            direct_rows=by_function,
            details=_details(report),
            markup=Markup,
        )
    )


def _details(report: Report) -> dict[str, Any]:
    """The data of the dialogs that the page's script opens for each cell."""
    details = {
        f"{e.layers}-{e.function}-{e.activation}": {
            "title": f"{e.function} with {ACTIVATION_NAMES[e.activation]}, {layers_of(e.layers)}",
            "formula": catalogue[e.function].formula,
            "gamma": e.gamma,
            "paper_failed": e.paper.gamma is None,
            "rates": [_rate(rate) for rate in e.rates],
        }
        for e in report.entries
    }
    for kind, groups in (("own", report.own), ("other", report.others)):
        for number, group in enumerate(groups):
            name = ACTIVATION_NAMES.get(group.activation, group.activation)
            details[f"{kind}-{number}"] = {
                "title": f"{group.function} with {name}, {layers_of(group.layers)}",
                "formula": group.setting,
                "gamma": None,
                "paper_failed": False,
                "rates": [_rate(rate) for rate in group.rates],
            }
    return details


def _rate(rate: Rate) -> dict[str, Any]:
    paper = rate.paper
    return {
        "gamma": rate.gamma,
        "paper": None if paper is None else [paper.lwt_accuracy, paper.ft_accuracy],
        "runs": [
            [
                *(run.seed, _short(run.lwt), _short(run.ft), _short(run.best), _short(run.seconds, 1)),
                *(run.failed, _short(run.validation)),
            ]
            for run in rate.runs
        ],
    }


def _short(value: float | None, digits: int = 2) -> float | None:
    return None if value is None else round(value, digits)


def _histogram(entries: Sequence[Entry]) -> str:
    """The distribution of differences after fine-tuning."""
    values = differences(entries)
    bins = histogram(values)
    most = max(max(count for _, count in bins), 4)
    frame = svg.Frame(360, 210, (-EDGE, EDGE), (0, most), top=22, right=10, bottom=36)
    ticks = [tick for tick in svg.round_ticks(0, most, 4) if tick == int(tick)]
    parts = [svg.axes(frame, range(-3, 4), ticks, "points", "cells")]
    for left, count in bins:
        if count:
            middle = left + BIN / 2
            kind = "near" if abs(middle) < BIN else "worse" if middle < 0 else "better"
            label = f"{count} from {signed(left)} to {signed(left + BIN)}"
            x, top, bottom = frame.to_x(left) + 0.5, frame.to_y(count), frame.to_y(0)
            width = frame.to_x(left + BIN) - frame.to_x(left) - 1
            parts.append(
                f'<rect class="bar {kind}" x="{x:.1f}" y="{top:.1f}" width="{width:.1f}" '
                f'height="{bottom - top:.1f}"><title>{label}</title></rect>'
            )
    return svg.picture(frame, parts, f"Differences of {len(values)} cells, from -3 to 3 points")
