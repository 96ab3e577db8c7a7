"""All that a report shows, as data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from ftnn.experiments.grid.registry import Epochs
from ftnn.experiments.grid.rows import Damaged, Row, rows_of
from ftnn.experiments.grid.store import Store, StoreError
from ftnn.experiments.grid.task import AnyTask
from ftnn.experiments.paper.mnist.cells import FineTuning
from ftnn.experiments.report.claims import Claim, claims
from ftnn.experiments.report.conic import ConicResult, conic_results, figure
from ftnn.experiments.report.custom import Custom, custom
from ftnn.experiments.report.entries import Entry, entries
from ftnn.experiments.report.gallery import Found, Shown, gallery, trained
from ftnn.experiments.report.pi import Curve, curves
from ftnn.experiments.report.seeds import Seeds, seeds
from ftnn.experiments.report.settings import Varied, settings
from ftnn.experiments.report.summary import Summary, summarise
from ftnn.experiments.report.times import Times, times


@dataclass(frozen=True)
class Report:
    """What is in a store, beside the paper."""

    rows: int
    finished: str | None
    """When the last of them was, in UTC; so that one store always gives the same page."""
    versions: tuple[str, ...]
    entries: tuple[Entry, ...]
    summary: Summary
    seeds: Seeds
    claims: tuple[Claim, ...]
    curves: tuple[Curve, ...]
    conic: tuple[tuple[ConicResult, str | None], ...]
    """Results with their pictures."""
    gallery: tuple[Shown, ...]
    found: tuple[Found, ...]
    own: tuple[Custom, ...]
    others: tuple[Custom, ...]
    settings: tuple[Varied, ...]
    times: Times
    damaged: tuple[Damaged, ...] = ()
    """Rows that are not shown, or not whole, since they make no sense."""

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
            "settings": [asdict(varied) for varied in self.settings],
            "seconds": self.times.seconds + self.times.imported_seconds,
            "damaged": [asdict(each) for each in self.damaged],
        }


def collect(store: Store) -> Report:
    """Read a store. Parameters are read only where they are drawn."""
    rows, damaged = store.survey()
    epochs, without_epochs = store.all_epochs()
    careful = _Careful(store)
    best = _best_epochs(rows, epochs)
    cells, drawn = entries(rows, best), curves(rows, epochs)
    own, others = custom(rows, best)
    conic = conic_results(careful, rows)
    return Report(
        rows=len(rows),
        finished=max((row.finished for row in rows), default=None),
        versions=_versions(rows),
        entries=tuple(cells),
        summary=summarise(cells),
        seeds=seeds(cells),
        claims=tuple(claims(cells, drawn)),
        curves=tuple(drawn),
        conic=tuple((result, figure(careful, result)) for result in conic),
        gallery=tuple(gallery()),
        found=tuple(trained(careful, rows)),
        own=tuple(own),
        others=tuple(others),
        settings=tuple(settings(cells, others)),
        times=times(rows),
        damaged=tuple({each.key: each for each in (*damaged, *without_epochs, *careful.damaged)}.values()),
    )


class _Careful:
    """A store's parameters; those that are damaged are noted, and then missing."""

    def __init__(self, store: Store):
        self._store = store
        self.damaged: list[Damaged] = []

    def parameters(self, task: AnyTask) -> dict[str, Any] | None:
        try:
            return self._store.parameters(task)
        except StoreError as error:
            self.damaged.append(Damaged(task.key, str(error)))
            return None


def _best_epochs(rows: Iterable[Row], epochs: Epochs) -> dict[str, float]:
    """The best test accuracy of any epoch that fine-tuning kept, by key; not for rows without epochs."""
    best: dict[str, float] = {}
    for _, row in rows_of(FineTuning, rows):
        done = epochs.get(row.key, ())
        known = [each["test_accuracy"] for each in done if each["test_accuracy"] and not each["undone"]]
        if known:
            best[row.key] = max(known)
    return best


def _versions(rows: Iterable[Row]) -> tuple[str, ...]:
    """Each combination that made a row, in words."""
    sets = {tuple(sorted(row.versions.items())) for row in rows if row.versions}
    return tuple(", ".join(f"{name} {version}" for name, version in each) for each in sorted(sets))
