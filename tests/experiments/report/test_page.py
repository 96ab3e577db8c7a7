"""The contents of the page, from stores with known contents."""

import fcntl
import json
import os
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from ftnn.cli import app
from ftnn.data import paper_best
from ftnn.errors import FtnnError
from ftnn.experiments import Store, conic_cells
from ftnn.experiments.paper.conic.cells import run_conic
from ftnn.experiments.paper.mnist.functions import FUNCTIONS
from ftnn.experiments.report import collect, page, write_report
from ftnn.experiments.report.claims import Count
from ftnn.experiments.report.entries import grade_of
from ftnn.experiments.report.summary import histogram
from ftnn.formula import catalogue
from tests.experiments import stored


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "s.sqlite") as opened:
        yield opened


def entry(store: Store, layers: int, function: str, activation: str) -> Any:
    entries = collect(store).entries
    return next(e for e in entries if (e.layers, e.function, e.activation) == (layers, function, activation))


class Tags(HTMLParser):
    """Counts tags, and collects external resources and unclosed tags."""

    def __init__(self, text: str):
        super().__init__()
        self.counts: dict[str, int] = {}
        self.loads: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1
        attributes = dict(attrs)
        self.loads += [
            v
            for n in ("src", "href", "srcset")
            if (v := attributes.get(n)) and not v.startswith(("#", "data:"))
        ]
        if tag not in ("meta", "link", "input", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1


# --- the paper's tables ---


def test_an_empty_store_shows_only_the_papers_results(store: Store):
    report = collect(store)
    assert (report.summary.done, report.summary.cells, report.summary.paper_failed) == (0, 180, 20)
    assert report.summary.median is None
    assert report.summary.share_within is None
    text = page(report)
    tags = Tags(text)
    assert tags.open == []
    assert tags.loads == []
    assert tags.counts["math"] == 2 * sum(2 + len(f.parameters) + f.has_memory for f in catalogue.values())
    body = text[text.index('id="table-1"') : text.index('id="table-5"')]
    for known in paper_best():
        if known.hidden_layers == 1 and known.ft_accuracy is not None:
            assert f">{known.ft_accuracy:.2f}<" in body


def test_differences_are_taken_at_the_papers_best_rate(store: Store):
    stored.cell(store, "F03", "logistic", 1, 0, ft=98.14, lwt=97.90)  # the paper: 98.04 and 97.98
    stored.cell(store, "F03", "logistic", 1, -1, ft=50.0)  # another rate than the best
    cell = entry(store, 1, "F03", "logistic")
    assert (cell.difference("lwt"), cell.difference("ft"), cell.grade) == (-0.08, 0.1, "near")
    assert cell.gamma == 0
    assert [rate.gamma for rate in cell.rates] == [0, -1, -2, -3, -4, -5]
    assert cell.rates[1].paper.ft_accuracy is not None


def test_the_lowest_of_several_seeds_is_shown_and_all_are_listed(store: Store):
    for seed, ft in ((2, 98.5), (1, 97.0), (0, 98.0)):
        stored.cell(store, "F03", "logistic", 1, 0, ft=ft, lwt=97.0, seed=seed)
    stored.cell(store, "F03", "logistic", 1, 0, ft=9.8, failed="the loss was not finite", seed=3)
    cell = entry(store, 1, "F03", "logistic")
    assert [run.seed for run in cell.shown.runs] == [0, 1, 2, 3]
    assert cell.run.ft == 98.0
    assert cell.shown.spread == 1.5  # the failed one does not count


def test_if_the_paper_failed_our_best_rate_is_shown(store: Store):
    for gamma, ft, failed in ((0, None, "the loss was not finite"), (-3, 88.0, None), (-4, 87.0, None)):
        stored.cell(store, "F11", "relu", 1, gamma, ft=ft, failed=failed)
    cell = entry(store, 1, "F11", "relu")
    assert (cell.gamma, cell.grade, cell.difference("ft")) == (-3, "revived", None)
    stored.cell(store, "F17", "relu", 5, 0, ft=None, failed="the loss was not finite")
    assert entry(store, 5, "F17", "relu").grade == "both-failed"
    assert entry(store, 10, "F17", "relu").grade == "missing"


def test_differences_are_graded_as_near_or_far():
    differences = (None, 0.0, 0.3, -0.3, 0.31, -0.31, 1.0, -1.0, 1.01, -1.01)
    assert [grade_of(value) for value in differences] == [
        *("missing", "near", "near", "near", "better", "worse", "better", "worse", "far-better", "far-worse")
    ]


def test_the_summary_does_not_count_a_failed_cell_as_within(store: Store):
    best = {(c.hidden_layers, c.function, c.activation): c for c in paper_best()}
    for function, off in (("F01", 0.1), ("F02", -0.4), ("F03", -1.5), ("F04", 2.0)):
        known = best[1, function, "relu"]
        assert known.gamma is not None
        assert known.ft_accuracy is not None
        stored.cell(store, function, "relu", 1, known.gamma, ft=known.ft_accuracy + off, lwt=90.0)
    gamma = best[5, "F06", "tanh"].gamma
    assert gamma is not None
    stored.cell(store, "F06", "tanh", 5, gamma, ft=9.8, failed="the final accuracy is no better than chance")
    stored.cell(store, "F11", "relu", 1, -2, ft=80.0)  # the paper failed: it is not compared
    summary = collect(store).summary
    assert (summary.done, summary.compared, summary.trained, summary.within) == (6, 5, 4, 3)
    assert summary.median == pytest.approx((0.4 + 1.5) / 2)
    assert summary.mean == pytest.approx((0.1 - 0.4 - 1.5 + 2.0) / 4)
    assert summary.share_within == pytest.approx(60.0)
    assert [e.function for e in summary.far] == ["F06", "F03", "F04"]  # the worst first
    assert [(d.done, d.paper_failed, d.ours_failed) for d in summary.depths] == [
        (5, 1, 0),
        (1, 8, 1),
        (0, 11, 0),
    ]


def test_where_the_paper_has_no_rate_a_cell_has_failed_only_after_all_six(store: Store):
    def failures() -> tuple[int, int, int]:
        one = collect(store).summary.depths[0]
        return one.done, one.ours_failed, one.both_failed

    for gamma in (0, -1, -2, -3, -4):
        stored.cell(store, "F11", "relu", 1, gamma, ft=None, failed="the loss was not finite")
    assert failures() == (0, 0, 0)
    stored.cell(store, "F11", "relu", 1, -5, ft=None, failed="the loss was not finite")
    assert failures() == (1, 1, 1)


def test_the_histogram_counts_every_difference_once():
    counts = dict(histogram([0.0, 0.24, 0.25, -0.01, -0.25, -0.26, 99.0, -99.0, 3.0, -3.0]))
    assert counts[0.0] == 2
    assert counts[0.25] == 1
    assert counts[-0.25] == 2
    assert counts[-0.5] == 1
    assert counts[2.75] == 2
    assert counts[-3.0] == 2
    assert sum(counts.values()) == 10


def test_an_undone_epoch_is_never_the_best(store: Store):
    epochs = [
        stored.epoch(1, 97.0),
        stored.epoch(2, 98.2),
        stored.epoch(3, 98.0),
        stored.epoch(4, 99.0, undone=True),
    ]
    stored.cell(store, "F03", "logistic", 1, 0, ft=98.0, lwt=97.0, epochs=epochs)
    assert entry(store, 1, "F03", "logistic").run.best == 98.2


# --- claims of the paper ---


def test_the_papers_claims_are_recounted_in_its_tables(store: Store):
    counts = [(claim.paper.text, claim.paper.holds, claim.ours.holds) for claim in collect(store).claims]
    assert counts[:3] == [("1", True, None), ("8", True, None), ("11", True, None)]
    # The paper says 14 better: it includes F07-tanh, which has 97.79 at both depths.
    assert counts[3] == ("13 better, 38 worse, 1 equal", False, None)
    assert counts[4] == ("12 better, 36 worse, 1 equal", True, None)
    # "Always", of tanh at 5 layers, has exceptions; at 1 layer, the paper only says that it is similar.
    assert [holds for _, holds, _ in counts[5:9]] == [True, False, True, True]
    assert [text for text, _, _ in counts[9:]] == ["only a figure"] * 8


def test_claims_are_judged_by_our_results_once_these_are_complete(tmp_path: Path):
    stored.whole_grid(tmp_path / "s.sqlite")
    with Store(tmp_path / "s.sqlite") as store:
        claims = collect(store).claims
    assert [(claim.ours.text, claim.ours.holds) for claim in claims[:3]] == [
        ("1", True),
        ("8", True),
        ("11", True),
    ]
    assert all(claim.ours.holds is not None for claim in claims[3:9])
    # The curves end after 600 epochs, so claims about later epochs are unknown.
    assert [claim.ours.holds for claim in claims[9:]] == [None, None, True, True, None, None, None, None]


def test_a_model_has_failed_only_if_it_failed_at_every_rate(store: Store):
    for gamma in range(-5, 1):
        stored.cell(store, "F11", "relu", 1, float(gamma), ft=None, failed="no")
        trained = gamma == -4
        stored.cell(
            store,
            "F12",
            "relu",
            1,
            float(gamma),
            ft=90.0 if trained else None,
            failed=None if trained else "no",
        )
    stored.cell(store, "F13", "relu", 1, -3.0, ft=None, failed="no")  # not run at all γ
    assert collect(store).claims[0].ours == Count("1 of 2 run at all γ", None)


def test_sentences_about_curves_are_judged_for_each_state_over_seeds(store: Store):
    for seed, better in ((0, 60.0), (1, 61.0), (2, 50.0)):
        for place, hidden in enumerate((128, 256, 512, 1024)):
            stored.curve(
                store, hidden, 800, [50.0 if place == 0 else better + place], seed=seed, keep_state=True
            )
    judged = {claim.says: claim.ours for claim in collect(store).claims}
    says = "800D models have better accuracies with more hidden units (memory {})"
    assert judged[says.format("carried")] == Count(
        "best of the last 500: 50.0, 61.0, 62.0, 63.0; 50.0, 62.0, 63.0, 64.0; 50.0, 51.0, 52.0, 53.0 %; "
        "holds with 3 of 3 seeds",
        True,
    )
    assert judged[says.format("reset")].holds is None


def test_best_rates_are_counted_early_but_judged_only_when_complete(store: Store):
    best = {"logistic": -1, "relu": -2, "tanh": -3}
    for activation in best:
        for gamma in range(-5, 1):
            ft = 90.0 - abs(gamma - best[activation])
            stored.cell(store, "F03", activation, 1, float(gamma), lwt=ft, ft=ft)
    *_, relu, tanh = collect(store).claims[5:9]
    assert relu.ours == tanh.ours == Count("1 of 1 smaller, 0 larger", None)


# --- the complete page ---


@pytest.mark.slow
def test_a_complete_grid_gives_one_page_and_reads_few_parameters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    stored.whole_grid(tmp_path / "s.sqlite")
    read: list[str] = []
    arrays = Store.arrays
    monkeypatch.setattr(Store, "arrays", lambda self, key: read.append(key) or arrays(self, key))  # pyright: ignore
    with Store(tmp_path / "s.sqlite") as store:
        stored.cell(
            store, "F01", "logistic", 1, -1.5, ft=99.0, arrays={"hidden.0.theta.p": np.ones((784, 3), "f4")}
        )
        first = page(collect(store))
        assert store.arrays(read[0]) is not None  # the best of F01
        assert first == page(collect(store))  # the same store, the same page
    tags = Tags(first)
    assert tags.open == []
    assert tags.loads == []
    assert len(first) < 3_000_000
    details = json.loads(re.search(r'id="details">(.*?)</script>', first, re.S)[1])  # pyright: ignore
    assert sum(
        len(rate["runs"]) for key, cell in details.items() if key[0] in "15" for rate in cell["rates"]
    ) == (360 * 3 + 360 + 360 + 1)


def test_conic_boundaries_and_ray_checks_are_shown(store: Store):
    run_conic(store, conic_cells(["three-ellipses", "closed-3"]))
    report = collect(store)
    assert [(result.problem, drawn is not None) for result, drawn in report.conic] == [
        ("three-ellipses", True),
        ("closed-3", False),
    ]
    text = page(report)
    assert "100.00 % of 4,000 points correct" in text
    assert 'id="rays"' in text


# --- the command ---


def test_writing_to_a_pipe_does_not_replace_it(store: Store, tmp_path: Path):
    pipe = tmp_path / "pipe.md"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, 1 << 20)
    write_report(store, pipe)
    assert os.read(reading, 100).startswith(b"# Reproduction")
    os.close(reading)
    assert pipe.is_fifo()


def test_the_command_writes_the_page_and_prints_json(tmp_path: Path):
    with Store(tmp_path / "s.sqlite") as store:
        stored.cell(store, "F03", "logistic", 1, 0, ft=98.14, lwt=97.9)
    out = tmp_path / "page.html"
    command = ["report", "--store", str(tmp_path / "s.sqlite"), "--out", str(out)]
    result = CliRunner().invoke(app, [*command, "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["out"] == str(out)
    assert document["cells"]["done"] == 1
    assert document["median_absolute_difference"] == pytest.approx(0.1)
    assert out.read_text("utf-8").startswith("<!DOCTYPE html>")
    assert "1 of the paper's 180 cells" in CliRunner().invoke(app, command).stdout


def test_without_a_store_no_page_is_written(tmp_path: Path):
    out = tmp_path / "page.html"
    result = CliRunner().invoke(app, ["report", "--store", str(tmp_path / "none.sqlite"), "--out", str(out)])
    assert result.exit_code == 2
    assert "there is no store" in result.stderr
    assert "none.sqlite" in result.stderr
    assert not out.exists()
    assert not (tmp_path / "none.sqlite").exists()


def test_a_page_that_cannot_be_written_is_an_error(store: Store, tmp_path: Path):
    with pytest.raises(FtnnError, match=r"cannot write the report .*nowhere.*page\.html: No such file"):
        write_report(store, tmp_path / "nowhere" / "page.html")
    with pytest.raises(FtnnError, match="directory"):
        write_report(store, tmp_path)


def test_every_function_of_the_tables_is_in_the_gallery(store: Store):
    assert [function.name for function in collect(store).gallery] == [*FUNCTIONS, "memory"]
