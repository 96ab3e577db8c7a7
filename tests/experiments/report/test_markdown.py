"""The report as Markdown, and its numbers."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ftnn.errors import FtnnError
from ftnn.experiments import Cell, Store
from ftnn.experiments.grid.exchange import export
from ftnn.experiments.grid.registry import TABLES
from ftnn.experiments.report import collect, markdown, page, write_report
from ftnn.experiments.report.entries import Entry
from tests.experiments import stored
from tests.experiments.quick import import_file

ROOT = Path(__file__).parents[3]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "s.sqlite") as opened:
        yield opened


def tables(text: str) -> list[list[list[str]]]:
    """All tables as rows of cells, without the line below the header. Each must be valid Markdown."""
    all_tables: list[list[list[str]]] = []
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in block.splitlines()]
        assert all(re.fullmatch(r":?-+:?", cell) for cell in rows[1]), block[:200]
        assert {len(row) for row in rows} == {len(rows[0])}, block[:200]
        all_tables.append([rows[0], *rows[2:]])
    return all_tables


def under(text: str, heading: str) -> str:
    """The section below a heading."""
    part = text.split(f"\n## {heading}\n", 1)[1]
    return part.split("\n## ", 1)[0] + "\n"


@pytest.mark.slow
def test_every_table_of_a_complete_grid_is_valid_markdown(tmp_path: Path):
    path = tmp_path / "whole.sqlite"
    stored.whole_grid(path)
    with Store(path) as store:
        text = markdown(collect(store))
    assert [len(tables(under(text, f"{n} hidden layer{'s'[: n > 1]}"))[0]) for n in (1, 5, 10)] == [61] * 3
    assert [len(tables(under(text, f"Every γ, {n} hidden layer{'s'[: n > 1]}"))[0]) for n in (1, 5, 10)] == [
        61
    ] * 3
    assert len(tables(under(text, "Where the paper failed"))[0]) == 21
    assert sum(int(row[1]) for row in tables(under(text, "Distribution of the differences"))[0][1:]) == 160
    assert len(tables(text)) >= 14
    assert not re.search(r"\n\n\n", text)
    assert "{" not in text


def test_an_empty_store_shows_only_the_papers_numbers(store: Store):
    text = markdown(collect(store))
    tables(text)
    assert "| F03 | Logistic | 0 | 97.98 | · | | 98.04 | · | | | | |" in text
    assert "## Seeds" not in text
    assert "| all | 0 of 180 | 0 |" in text
    assert under(text, "Where the paper failed").startswith("\nNone of the 20 cells")
    assert "|" not in under(text, "Where the paper failed")


def test_cells_that_are_far_off_list_their_other_runs(store: Store):
    for seed, ft in ((0, 94.0), (1, 96.2), (2, None)):
        stored.cell(
            store, "F03", "logistic", 1, 0.0, lwt=ft, ft=ft, seed=seed, failed=None if ft else "× it is"
        )
    stored.cell(store, "F03", "logistic", 1, -1.0, lwt=97.0, ft=97.5)
    report = collect(store)
    (far,) = report.summary.far
    assert far.evidence == "seeds 1: 96.20, 2: ×; γ = -1: 97.50 (paper 97.86)"
    assert tables(under(markdown(report), "Cells more than 1 point off"))[0][1] == [
        *("1", "F03", "Logistic", "0", "98.04", "94.00", "−4.04"),
        far.evidence,
    ]


def test_depths_and_rates_are_counted_separately(store: Store):
    for gamma, ft in ((0, 98.0), (-1, 97.0), (-2, None)):
        stored.cell(store, "F03", "logistic", 1, float(gamma), lwt=ft, ft=ft, failed=None if ft else "no")
    stored.cell(store, "F11", "relu", 1, 0.0, lwt=50.0, ft=55.0)  # the paper failed at every γ
    stored.cell(store, "F11", "relu", 1, -1.0, lwt=None, ft=None, failed="no")
    stored.cell(store, "F01", "tanh", 5, -3.0, lwt=90.0, ft=90.0)
    one, five, ten = collect(store).summary.depths
    assert (one.compared, one.median, one.within) == (1, pytest.approx(0.04), 1)
    assert (one.rates.done, one.rates.paper_only, one.rates.ours_only, one.rates.both_failed) == (5, 1, 1, 1)
    assert one.rates.median == pytest.approx((0.04 + 0.86) / 2)
    assert (five.compared, five.within, five.rates.done) == (1, 0, 1)
    assert (ten.compared, ten.median, ten.rates.median) == (0, None, None)


def test_shares_are_counted_both_ways_and_for_layer_wise_training_too(store: Store):
    # The paper: 97.98 and 98.04; 97.90 and 97.99; 95.64 and 97.08
    for function, gamma, lwt, ft in (
        ("F03", 0, 97.58, 98.04),
        ("F07", 0, 95.90, 99.50),
        ("F12", -2, None, None),
    ):
        failed = None if ft else "no"
        stored.cell(store, function, "logistic", 1, float(gamma), lwt=lwt, ft=ft, failed=failed)
    report = collect(store)
    summary = report.summary
    assert (summary.compared, summary.within, summary.inside) == (3, 2, 1)
    assert (summary.lwt.failed, summary.lwt.inside, summary.lwt.within) == (1, 1, 1)
    assert summary.lwt.median == pytest.approx((0.40 + 2.00) / 2, abs=0.11)
    assert summary.depths[0].lwt == summary.lwt
    assert "1 (33.3 %) | 2 (66.7 %)" in markdown(report)
    assert "33.3 % <small>1 of 3" in page(report)
    assert report.to_dict()["within_one_point_percent"] == pytest.approx(100 / 3)


def test_our_own_rate_is_the_best_on_validation_images(store: Store):
    for gamma, ft, validation in ((0, 98, 90), (-1, 97, 96), (-2, 96, 97), (-3, 95, 97), (-4, 94, 93)):
        stored.cell(
            store, "F03", "logistic", 1, float(gamma), lwt=1.0 * ft, ft=1.0 * ft, validation=1.0 * validation
        )
    assert entry_of(store).chosen is None  # γ = -5 is missing
    stored.cell(store, "F03", "logistic", 1, -5.0, ft=None, failed="no")
    entry = entry_of(store)
    assert entry.chosen is not None
    assert (entry.chosen.gamma, entry.gamma) == (-2, 0)  # the larger of equals; the paper's
    assert (entry.best_rate and entry.best_rate.gamma) == 0
    text = markdown(collect(store))
    row = next(row for row in tables(under(text, "1 hidden layer"))[0] if row[:2] == ["F03", "Logistic"])
    assert row[-3:-1] == ["−2", "96.00"]
    every = next(row for row in tables(under(text, "Every γ, 1 hidden layer"))[0] if row[0] == "F03")
    assert every[2] == "98.00/98.00 (97.98/98.04)"
    assert every[-1].startswith("× (")


def test_a_run_without_validation_leaves_our_own_rate_unknown(store: Store):
    for gamma in range(-5, 1):
        validation = None if gamma == -3 else 90.0
        stored.cell(store, "F03", "logistic", 1, float(gamma), lwt=90.0, ft=90.0, validation=validation)
    assert entry_of(store).chosen is None


def entry_of(store: Store) -> Entry:
    return next(e for e in collect(store).entries if (e.function, e.activation) == ("F03", "logistic"))


def test_our_own_best_rates_are_compared_with_the_papers(store: Store):
    best = {
        "F03": (0, 0, 98.05),
        "F07": (-1, 0, 97.91),
        "F12": (-4, -5, 97.08),
    }  # paper: 0, 98.04; 0, 97.99; -2, 97.08
    for function, (validated, tested, ft) in best.items():
        for gamma in range(-5, 1):
            stored.cell(
                *(store, function, "logistic", 1, float(gamma)),
                lwt=50.0,
                ft=ft + (gamma == tested) * 0.5 if gamma in (validated, tested) else 50.0,
                validation=90.0 + (gamma == validated),
            )
    stored.cell(store, "F01", "logistic", 1, -1.0, lwt=50.0, ft=90.0)  # not at all γ
    one, five, _ = collect(store).summary.depths
    validation, test = one.own
    assert (validation.cells, validation.same, validation.near) == (3, 1, 1)
    assert validation.median == pytest.approx(0.08)
    assert validation.mean == pytest.approx((0.51 - 0.08 + 0) / 3)
    assert (test.cells, test.same, test.near) == (3, 2, 0)
    assert test.median == pytest.approx(0.50)
    assert five.own == ()
    rows = tables(under(markdown(collect(store)), "Summary"))[2][1:]
    assert [row[:6] for row in rows] == [
        ["1", "validation images", "3", "1", "1", "1"],
        ["1", "test images", "3", "2", "0", "1"],
    ]
    assert "<td>validation images</td>" in page(collect(store))


def test_each_rate_is_counted_and_what_fine_tuning_changes(store: Store):
    # The paper: 96.60, 98.04 and 97.99 after fine-tuning
    stored.cell(store, "F01", "logistic", 1, -1.0, lwt=96.0, ft=95.5)
    stored.cell(store, "F03", "logistic", 1, 0.0, lwt=98.0, ft=98.0)
    stored.cell(store, "F07", "logistic", 1, 0.0, lwt=98.0, ft=99.2)
    summary = collect(store).summary
    one = summary.depths[0]
    assert [(each.gamma, each.done, each.compared) for each in one.by_gamma][:3] == [
        (0, 2, 2),
        (-1, 1, 1),
        (-2, 0, 0),
    ]
    assert (one.by_gamma[0].worse, one.by_gamma[0].better) == (0, 1)
    assert (one.by_gamma[1].worse, one.by_gamma[1].better) == (1, 0)
    assert one.by_gamma[1].middle == pytest.approx(-1.1)
    assert (one.rates.worse, one.rates.better, one.rates.done) == (1, 1, 3)
    assert (summary.gains.cells, summary.gains.lower, summary.gains.equal) == (3, 1, 1)
    assert (summary.paper_gains.cells, summary.paper_gains.lower, summary.paper_gains.equal) == (785, 0, 130)


def test_a_report_can_be_about_networks_trained_on_all_images(store: Store):
    stored.cell(store, "F03", "logistic", 1, 0.0, lwt=97.0, ft=98.0)
    stored.cell(store, "F03", "logistic", 1, 0.0, lwt=97.0, ft=98.14, data="mnist")
    stored.cell(store, "F03", "relu20", 1, 0.0, lwt=97.0, ft=98.14, data="mnist")
    stored.cell(store, "p*tan(q*x)", "relu", 1, 0.0, lwt=1.0, ft=90.0, data="mnist")
    stored.curve(store, 128, 200, [50.0])
    report = collect(store, "mnist:60000")
    assert (report.data, report.rows, report.summary.median) == ("mnist", 1, pytest.approx(0.10))
    assert (report.own, report.others, report.curves) == ((), (), ())
    text = markdown(report)
    assert text.startswith("# Reproduction: the tables, 60,000 images\n")
    assert not {"## π\n", "## Other settings\n"} & {*text.splitlines(keepends=True)}
    assert "memory" not in under(text, "The paper's claims, recounted")
    html = page(report)
    assert "only the paper’s tables, from networks trained on 60,000 images" in html
    assert re.findall('id="(claims|pi|conic|direct|own)"', html) == ["claims"]
    with pytest.raises(FtnnError, match="unknown data 'cifar'"):
        collect(store, "cifar")


def test_the_function_that_tells_the_numbers_of_images_apart_is_listed(store: Store):
    for gamma, few, many in ((-4, 75.0, 83.0), (-5, 49.0, None)):
        stored.cell(store, "F11", "logistic", 1, float(gamma), lwt=60.0, ft=few)
        failed = None if many else "no"
        stored.cell(store, "F11", "logistic", 1, float(gamma), lwt=60.0, ft=many, failed=failed, data="mnist")
    stored.cell(store, "F11", "tanh", 1, -3.0, lwt=60.0, ft=80.0, data="mnist")  # with 60,000 only
    assert tables(under(markdown(collect(store)), "The number of images"))[0][1:] == [
        ["1", "F11", "Logistic", "−4", "61.06/72.77", "60.00/83.00", "60.00/75.00"],
        ["1", "F11", "Logistic", "−5", "×", "×", "60.00/49.00"],
    ]


def test_the_spread_over_seeds_is_summarised(store: Store):
    for seed, ft in ((0, 98.0), (1, 98.1), (2, 97.8)):
        stored.cell(store, "F03", "logistic", 1, 0.0, lwt=ft, ft=ft, seed=seed)  # paper: 98.04
    for seed, ft in ((0, 90.0), (1, 90.2)):
        stored.cell(store, "F01", "relu", 1, -2.0, lwt=ft, ft=ft, seed=seed)  # paper: 96.73
    stored.cell(store, "F02", "relu", 1, -1.0, lwt=96.0, ft=96.0)  # one seed only
    seeds = collect(store).seeds
    assert [(each.function, each.shown and each.shown.spread) for each in seeds.cells] == [
        ("F01", pytest.approx(0.2)),
        ("F03", pytest.approx(0.3)),
    ]
    assert seeds.median == pytest.approx(0.25)
    assert seeds.inside == 1
    assert [(each.seed, each.cells, each.failed, each.median) for each in seeds.by_seed] == [
        (0, 2, 0, pytest.approx((0.04 + 6.73) / 2)),
        (1, 2, 0, pytest.approx((0.06 + 6.53) / 2)),
        (2, 1, 0, pytest.approx(0.24)),
    ]


def test_other_settings_are_compared_with_the_papers(store: Store):
    # Accuracies after FT: ours, and ours with all images; the comment has the paper's
    for function, gamma, usual, fewer in (
        ("F03", 0.0, 98.30, 98.06),  # 98.04
        ("F07", 0.0, 98.11, None),  # 97.99
        ("F12", -2.0, 97.08, 95.08),  # 97.08
    ):
        stored.cell(store, function, "logistic", 1, gamma, lwt=90.0, ft=usual)
        failed = None if fewer else "it is ×"
        stored.cell(store, function, "logistic", 1, gamma, lwt=90.0, ft=fewer, failed=failed, data="mnist")
    # Not at the paper's best γ; run with this setting only; at a depth not in the paper:
    stored.cell(store, "F03", "logistic", 1, -1.0, lwt=90.0, ft=90.0, data="mnist")
    stored.cell(store, "F04", "logistic", 1, -2.0, lwt=90.0, ft=90.0, data="mnist")
    stored.cell(store, "F03", "logistic", 3, 0.0, lwt=90.0, ft=90.0)
    report = collect(store)
    (varied,) = report.settings
    assert (varied.setting, varied.layers, varied.cells, varied.both) == ("60,000 images", 1, 4, 3)
    assert tables(under(markdown(report), "Other settings"))[0][1] == [
        *("`60,000 images`", "1", "4 (3)", "1 (0)"),
        *("2.00 (0.12)", "−2.00 (+0.12)", "1 (1)", "1 (3)", "1 (3)", "1 (2)"),
    ]
    assert "−2.00 (+0.12)" in page(report)
    times = [(each.function, each.setting, each.total) for each in report.times.functions]
    assert times[:2] == [("F03", "", 10.0), ("F07", "", 5.0)]
    assert ("F03", "60,000 images", 10.0) in times


@pytest.mark.slow
def test_importing_exported_tables_gives_the_same_report(tmp_path: Path):
    stored.whole_grid(tmp_path / "a.sqlite")
    with Store(tmp_path / "a.sqlite") as first, Store(tmp_path / "b.sqlite") as second:
        stored.cell(first, "F03", "logistic", 1, 0.0, lwt=97.9, ft=98.05, data="mnist")
        stored.cell(first, "p*tan(q*x)", "relu", 1, 0.0, lwt=1.0, ft=90.0)
        for what in TABLES:
            export(first, tmp_path / f"{what}.csv", what)
            import_file(second, tmp_path / f"{what}.csv")
        write_report(first, tmp_path / "a.md")
        write_report(second, tmp_path / "b.md")
    assert (tmp_path / "a.md").read_text() == (tmp_path / "b.md").read_text()


@pytest.mark.slow
def test_the_committed_tables_match_the_committed_results(tmp_path: Path):
    with Store(tmp_path / "results.sqlite") as store:
        for file in sorted((ROOT / "results").glob("*.csv")):
            import_file(store, file)
        for name, data in (("reproduction-tables", Cell.data), ("reproduction-tables-60000", "mnist")):
            committed = (ROOT / "docs" / f"{name}.md").read_text("utf-8")
            assert committed == markdown(collect(store, data)), "run `make tables`"
