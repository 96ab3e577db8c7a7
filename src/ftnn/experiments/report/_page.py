"""From a store to a page."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from ftnn import _atomic
from ftnn.errors import FtnnError
from ftnn.experiments import _svg
from ftnn.experiments._conic_results import ConicResult, conic_result, figure
from ftnn.experiments._grids import FUNCTIONS, LAYERS
from ftnn.experiments._store import Row, Store
from ftnn.experiments._tasks import ACTIVATIONS
from ftnn.experiments.report._claims import Claim, claims
from ftnn.experiments.report._custom import Custom, custom
from ftnn.experiments.report._gallery import Found, Shown, found, gallery
from ftnn.experiments.report._grid import Entry, Rate, entries
from ftnn.experiments.report._pi import Curve, curves, panels
from ftnn.experiments.report._summary import BIN, EDGE, Summary, differences, histogram, summarise
from ftnn.experiments.report._time import Times, times
from ftnn.formula import catalogue

ACTIVATION_NAMES = {"logistic": "Logistic", "relu": "ReLU", "tanh": "Tanh"}


@dataclass(frozen=True)
class Report:
    """All that the page shows, as data."""

    rows: int
    finished: str | None
    """When the last of them was, in UTC; so that one store always gives the same page."""
    versions: tuple[str, ...]
    entries: tuple[Entry, ...]
    summary: Summary
    claims: tuple[Claim, ...]
    curves: tuple[Curve, ...]
    conic: tuple[tuple[ConicResult, str | None], ...]
    """Results with their pictures."""
    gallery: tuple[Shown, ...]
    found: tuple[Found, ...]
    own: tuple[Custom, ...]
    others: tuple[Custom, ...]
    times: Times

    def to_dict(self) -> dict[str, Any]:
        """The numbers in short, for programs."""
        summary = self.summary
        return {
            "rows": self.rows,
            "finished": self.finished,
            "cells": {"done": summary.done, "of": summary.cells, "of_all_rates": summary.runs},
            "compared": summary.compared,
            "median_absolute_difference": summary.median,
            "mean_difference": summary.mean,
            "within_one_point_or_better_percent": summary.share_within,
            "failed": {"paper": summary.paper_failed, "ours": summary.ours_failed},
            "depths": [asdict(depth) for depth in summary.depths],
            "far": [
                {
                    "hidden_layers": entry.layers,
                    "function": entry.function,
                    "activation": entry.activation,
                    "gamma": entry.gamma,
                    "difference": entry.difference("ft"),
                }
                for entry in summary.far
            ],
            "claims": [asdict(claim) for claim in self.claims],
            "pi_curves": len(self.curves),
            "conic": [result.to_dict() for result, _ in self.conic],
            "own_functions": len(self.own),
            "seconds": self.times.seconds + self.times.imported_seconds,
        }


def collect(store: Store) -> Report:
    """All that the page shows. Parameters are read only where they are drawn."""
    rows = store.rows()
    epochs = store.all_epochs()
    best = _best_epochs(rows, epochs)
    cells, drawn = entries(rows, best), curves(rows, epochs)
    own, others = custom(rows, best)
    conic = [result for row in rows if (result := conic_result(store, row)) is not None]
    return Report(
        rows=len(rows),
        finished=max((row.finished for row in rows), default=None),
        versions=_versions(rows),
        entries=tuple(cells),
        summary=summarise(cells),
        claims=tuple(claims(cells, drawn)),
        curves=tuple(drawn),
        conic=tuple((result, figure(store, result)) for result in conic),
        gallery=tuple(gallery()),
        found=tuple(found(store, rows)),
        own=tuple(own),
        others=tuple(others),
        times=times(rows),
    )


def _best_epochs(rows: Iterable[Row], epochs: Mapping[str, str]) -> dict[str, float]:
    """The best test accuracy of any epoch that fine-tuning kept, by key; not for rows without epochs."""
    best: dict[str, float] = {}
    for row in rows:
        if row.task.kind == "ft":
            done: list[dict[str, Any]] = json.loads(epochs.get(row.key, "[]"))
            known = [each["test_accuracy"] for each in done if each["test_accuracy"] and not each["undone"]]
            if known:
                best[row.key] = max(known)
    return best


def _versions(rows: Iterable[Row]) -> tuple[str, ...]:
    """Each combination that made a row, in words."""
    sets = {tuple(sorted(row.versions.items())) for row in rows if row.versions}
    return tuple(", ".join(f"{name} {version}" for name, version in each) for each in sorted(sets))


# --- the page ---


def page(report: Report) -> str:
    """The page as HTML: one file, with nothing to load."""
    by_place = {(e.layers, e.function, e.activation): e for e in report.entries}
    hidden = sorted({curve.hidden for curve in report.curves})
    return (
        _templates()
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
            panels=[(pairs, Markup(drawn)) for pairs, drawn in panels(report.curves)],
            series={units: number % 6 for number, units in enumerate(hidden)},
            details=_details(report),
            markup=Markup,
        )
    )


def _details(report: Report) -> dict[str, Any]:
    """What the page's script shows of a cell when it is asked."""
    shown = {
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
            shown[f"{kind}-{number}"] = {
                "title": f"{group.function} with {name}, {layers_of(group.layers)}",
                "formula": group.setting,
                "gamma": None,
                "paper_failed": False,
                "rates": [_rate(rate) for rate in group.rates],
            }
    return shown


def _rate(rate: Rate) -> dict[str, Any]:
    paper = rate.paper
    return {
        "gamma": rate.gamma,
        "paper": None if paper is None else [paper.lwt_accuracy, paper.ft_accuracy],
        "runs": [
            [run.seed, _short(run.lwt), _short(run.ft), _short(run.best), _short(run.seconds, 1), run.failed]
            for run in rate.runs
        ],
    }


def _short(value: float | None, digits: int = 2) -> float | None:
    return None if value is None else round(value, digits)


def _histogram(entries: Sequence[Entry]) -> str:
    """How many cells differ by how much after fine-tuning."""
    found = differences(entries)
    bins = histogram(found)
    most = max(max(count for _, count in bins), 4)
    frame = _svg.Frame(360, 210, (-EDGE, EDGE), (0, most), top=22, right=10, bottom=36)
    ticks = [tick for tick in _svg.round_ticks(0, most, 4) if tick == int(tick)]
    parts = [_svg.axes(frame, range(-3, 4), ticks, "points", "cells")]
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
    return _svg.svg(frame, parts, f"Differences of {len(found)} cells, from -3 to 3 points")


@cache
def _templates() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("ftnn.experiments.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    filters: dict[str, Any] = {
        "percent": percent,
        "signed": signed,
        "seconds": seconds,
        "g": _svg.number,
        "plural": plural,
    }
    made.filters.update(filters)
    return made


def percent(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def signed(value: float | None) -> str:
    """With its sign, so that better and worse are told apart without colour."""
    if value is None:
        return ""
    return f"{value:+.2f}".replace("-", "−") if round(value, 2) else "0.00"


def seconds(value: float | None) -> str:
    if value is None:
        return ""
    if value < 120:
        return f"{value:.1f} s"
    return f"{value / 60:.1f} min" if value < 7200 else f"{value / 3600:.1f} h"


def layers_of(count: int) -> str:
    return plural(count, "hidden layer")


def plural(count: int, name: str) -> str:
    return f"{count} {name}{'s'[: count != 1]}"


# --- the file ---


def write_report(store: Store, path: Path) -> Report:
    """Write the page, whole or not at all."""
    report = collect(store)
    try:
        _atomic.write(path, page(report).encode())
    except OSError as error:
        raise FtnnError(
            f"--out {path}: {error.strerror or error}; name a file in a folder that is there and can be "
            "written"
        ) from error
    return report
