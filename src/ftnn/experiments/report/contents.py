"""The contents of a report, as data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from ftnn.experiments.grid.registry import Epochs
from ftnn.experiments.grid.rows import Damaged, Row, rows_of
from ftnn.experiments.grid.store import Store, StoreError
from ftnn.experiments.grid.task import AnyTask
from ftnn.experiments.paper.mnist.cells import Cell, FineTuning, Stage, data_name
from ftnn.experiments.paper.mnist.cells import images as count_of
from ftnn.experiments.report.claims import Claim, curve_claims, table_claims
from ftnn.experiments.report.conic import ConicResult, conic_results, figure
from ftnn.experiments.report.direct import DirectDepth, direct
from ftnn.experiments.report.entries import Entry, entries, is_papers
from ftnn.experiments.report.gallery import CatalogueFunction, Trained, gallery, trained
from ftnn.experiments.report.images import Images, images
from ftnn.experiments.report.others import Custom, custom
from ftnn.experiments.report.pi import Curve, curves
from ftnn.experiments.report.summary import Seeds, Summary, Varied, seeds, settings, summarise
from ftnn.experiments.report.times import Times, times


@dataclass(frozen=True)
class Report:
    """The contents of a store, next to the paper's results."""

    rows: int
    finished: str | None
    """The time of the last row, in UTC: the same store always gives the same page."""
    versions: tuple[str, ...]
    entries: tuple[Entry, ...]
    summary: Summary
    seeds: Seeds
    claims: tuple[Claim, ...]
    direct: tuple[DirectDepth, ...]
    curves: tuple[Curve, ...]
    conic: tuple[tuple[ConicResult, str | None], ...]
    """Results and pictures."""
    gallery: tuple[CatalogueFunction, ...]
    trained: tuple[Trained, ...]
    own: tuple[Custom, ...]
    others: tuple[Custom, ...]
    settings: tuple[Varied, ...]
    images: tuple[Images, ...]
    times: Times
    damaged: tuple[Damaged, ...] = ()
    """Invalid rows, which are left out or shown in part."""
    older: int = 0
    """The number of rows whose results are of an older version."""
    data: str = Cell.data
    """What the networks of the tables were trained on."""

    @property
    def count(self) -> int:
        """The number of training images."""
        return count_of(self.data)

    @property
    def is_usual(self) -> bool:
        """Whether the page is about everything in the store."""
        return self.data == Cell.data

    def to_dict(self) -> dict[str, Any]:
        """The main numbers, for JSON."""
        summary = self.summary
        return {
            "rows": self.rows,
            "data": self.data,
            "older": self.older,
            "finished": self.finished,
            "cells": {"done": summary.done, "of": summary.cells, "of_all_rates": summary.runs},
            "compared": summary.compared,
            "median_absolute_difference": summary.median,
            "mean_difference": summary.mean,
            "within_one_point_or_better_percent": summary.share_within,
            "within_one_point_percent": summary.share_inside,
            "lwt": asdict(summary.lwt),
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
            "direct": [
                {
                    "hidden_layers": depth.layers,
                    "cells": len(depth.entries),
                    "as_good_as_the_paper": depth.reached,
                    "failed": depth.failed,
                }
                for depth in self.direct
            ],
            "pi_curves": len(self.curves),
            "conic": [result.to_dict() for result, _ in self.conic],
            "own_functions": len(self.own),
            "settings": [asdict(varied) for varied in self.settings],
            "seconds": self.times.seconds + self.times.imported_seconds,
            "damaged": [asdict(each) for each in self.damaged],
        }


def collect(store: Store, data: str = Cell.data) -> Report:
    """Read a store. Parameters are read only if they are drawn.

    If `data` is not the usual, only networks of the paper's tables that were trained on it are read.
    """
    data = data_name(data)
    rows, damaged = store.survey()
    usual = data == Cell.data
    if not usual:
        rows = [row for row in rows if isinstance(row.task, Stage) and is_papers(row.task.cell, data)]
    epochs, damaged_epochs = store.all_epochs()
    damaged += damaged_epochs

    def parameters(task: AnyTask) -> dict[str, Any] | None:
        try:
            return store.parameters(task)
        except StoreError as error:
            damaged.append(Damaged(task.key, str(error)))
            return None

    best = _best_epochs(rows, epochs)
    cells, drawn = entries(rows, best, data), curves(rows, epochs)
    own, others = custom(rows, best, data)
    conic = [(result, figure(parameters, result)) for result in conic_results(parameters, rows)]
    found = trained(parameters, rows)
    return Report(
        rows=len(rows),
        finished=max((row.finished for row in rows), default=None),
        versions=_versions(rows),
        entries=tuple(cells),
        summary=summarise(cells),
        seeds=seeds(cells),
        claims=(*table_claims(cells), *(curve_claims(drawn) if usual else ())),
        direct=tuple(direct(rows)),
        curves=tuple(drawn),
        conic=tuple(conic),
        gallery=tuple(gallery()),
        trained=tuple(found),
        own=tuple(own),
        others=tuple(others),
        settings=tuple(settings(cells, others)),
        images=tuple(images(cells, others)),
        times=times(rows),
        damaged=tuple({each.key: each for each in damaged}.values()),
        older=sum(row.task.older is not None for row in rows),
        data=data,
    )


def _best_epochs(rows: Iterable[Row], epochs: Epochs) -> dict[str, float]:
    """The best test accuracy over the fine-tuning epochs that were not undone, by key."""
    best: dict[str, float] = {}
    for _, row in rows_of(FineTuning, rows):
        done = epochs.get(row.key, ())
        known = [each["test_accuracy"] for each in done if each["test_accuracy"] and not each["undone"]]
        if known:
            best[row.key] = max(known)
    return best


def _versions(rows: Iterable[Row]) -> tuple[str, ...]:
    """Each combination of versions, in words."""
    sets = {tuple(sorted(row.versions.items())) for row in rows if row.versions}
    return tuple(", ".join(f"{name} {version}" for name, version in each) for each in sorted(sets))
