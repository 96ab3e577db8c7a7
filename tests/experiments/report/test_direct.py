"""Direct training next to the paper's best results."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ftnn.experiments import DirectCell, Store
from ftnn.experiments.report import collect, markdown, page
from tests.experiments.stored import row

# The paper has 96.13, 93.62, × and 98.04 for the first four networks.
RESULTS = [
    (DirectCell("F12", "tanh", 5), 96.13, None),
    (DirectCell("F12", "relu", 5), None, "it was <b>not</b> finite"),
    (DirectCell("F14", "relu", 5), 95.01, None),
    (DirectCell("F03", "logistic", 1, seed=1), 99.0, None),
    (DirectCell("F03", "logistic", 1), 98.03, None),
    (DirectCell("F03", "tanh", 1, epochs=3), 99.0, None),
    (DirectCell("p*gauss(x)", "tanh", 1), 99.0, None),
]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "a.sqlite")
    for cell, accuracy, failed in RESULTS:
        store.add(row(cell.task(), accuracy, failed=failed), None, None)
    return store


def test_only_the_papers_networks_count_each_with_its_lowest_seed(store: Store) -> None:
    shallow, deep = collect(store).direct
    assert (shallow.layers, deep.layers) == (1, 5)
    (only,) = shallow.entries
    assert (only.accuracy, only.difference, only.is_reached) == (98.03, -0.01, False)
    found = {
        (entry.paper.function, entry.paper.activation): (entry.difference, entry.is_reached, entry.grade)
        for entry in deep.entries
    }
    assert found == {
        ("F12", "relu"): (None, False, "failed"),
        ("F12", "tanh"): (0.0, True, "near"),
        ("F14", "relu"): (None, True, "revived"),
    }
    assert (deep.reached, deep.failed) == (2, 1)


def test_the_page_and_the_markdown_show_them(store: Store) -> None:
    report = collect(store)
    html = page(report)
    section = html[html.index('<section id="direct">') :]
    section = section[: section.index("</section>")]
    assert "2 of 3 networks are as good" in section
    assert "0 of 1 network is as good" in section
    assert "not&lt;/b&gt; finite" in section
    text = markdown(report)
    assert "| F12 | Tanh | 96.13 | 96.13 | 0.00 |" in text
    assert re.search(r"\| F14 \| ReLU \| × \| 95\.01 \| +\|", text)
    assert [each["as_good_as_the_paper"] for each in report.to_dict()["direct"]] == [0, 2]


def test_an_empty_store_says_how_to_run_them(tmp_path: Path) -> None:
    with Store(tmp_path / "b.sqlite") as store:
        assert "<code>ftnn reproduce direct</code>" in page(collect(store))
