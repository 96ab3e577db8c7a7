"""Each task of the walkthrough runs, here with few samples, and its rows are in docs/walkthrough.md."""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.documents import ROOT

FOLDER = ROOT / "docs" / "tables" / "walkthrough"
PAGE = ROOT / "docs" / "walkthrough.md"
MODULES = ("networks", "rows", "tabular", "tools")
TASKS = [str(number) for number in range(1, 11)]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The folder as Python runs it."""
    monkeypatch.syspath_prepend(str(FOLDER))
    spec = importlib.util.spec_from_file_location("walkthrough", FOLDER / "__main__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.mark.slow
@pytest.mark.parametrize("number", TASKS)
def test_a_task_runs_and_its_rows_are_in_the_page(number: str, script: ModuleType):
    effort = importlib.import_module("rows").Effort(splits=2, seeds=2, share=0.02)
    rows = list(script.tasks()[number](effort))
    page = PAGE.read_text("utf-8")
    assert rows
    for row in rows:
        assert row.ftnn
        assert f"| {number} | {row.what} |" in page


def test_the_page_has_a_row_for_each_task():
    lines = [
        line.split("|")[1].strip() for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")
    ]
    assert {*TASKS} <= {*lines}


def test_a_difference_of_more_than_two_standard_errors_is_marked(script: ModuleType):
    del script
    compared = importlib.import_module("rows").compared
    row = compared("what", {"ftnn": [90.0, 91.0, 92.0], "A": [80.0, 80.0, 80.0], "B": [93.0, 94.5, 94.5]})
    assert (row.ftnn, row.others, row.difference) == ("91.0", "A 80.0, B 94.0", "-3.0 ± 0.3 !")
    assert compared("what", {"ftnn": [1.0, 2.0], "A": [1.0, 1.0]}).difference == "+0.5 ± 0.5"


def test_new_rows_replace_those_of_the_same_task(script: ModuleType):
    page = "text\n\n| task |\n|---|---|---|---|---|\n| 1 | a |\n| 2 | b |\n| 2 | c |\n| 10 | d |\n\nmore\n"
    rows = ["| task |", script.RULE, "| 2 | e |", "| 3 | f |"]
    expected = page.replace("| 2 | b |\n| 2 | c |", "| 2 | e |\n| 3 | f |")
    assert script.merged(page, rows) == expected
    assert script.merged(page, []) == page
