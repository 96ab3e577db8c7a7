"""Every function of the catalogue with everything that torch does to a layer."""

import re

import pytest

from tests.compat import checks, processes
from tests.compat.cases import NAMES
from tests.compat.checks import COLUMNS, applies
from tests.compat.table import ABOUT, PAGE, failures, table

# Warnings are of the making of torch.compile and of the exporters.
pytestmark = pytest.mark.filterwarnings("ignore")
SLOW = ("compile",)


@pytest.mark.parametrize(
    "column", [pytest.param(c, marks=pytest.mark.slow) if c in SLOW else c for c in COLUMNS]
)
def test_every_function_works_with(column: str):
    if column == "DDP" and not processes.gloo():
        pytest.skip("this build of torch has no gloo")
    assert failures(column) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_function_is_one_graph_for_all_batch_sizes(name: str):
    checks.compiled(name)


def test_a_wrong_answer_is_a_cross_in_the_table(monkeypatch: pytest.MonkeyPatch):
    def check(name: str) -> None:
        assert name != "F03"

    monkeypatch.setitem(COLUMNS, "eager", check)
    failed = {column: failures(column) if column == "eager" else {} for column in COLUMNS}
    assert failed["eager"].keys() == {"F03"}
    rows = {line.split()[1]: line for line in table(failed).splitlines()[2:]}
    assert [name for name, row in rows.items() if "✗" in row] == ["F03"]


def test_the_committed_table_has_every_function_and_every_column_and_nothing_failed():
    page = PAGE.read_text("utf-8")
    header, _, *rows = (line for line in page.splitlines() if line.startswith("|"))
    assert [cell.strip() for cell in header.strip("|").split("|")] == ["function", *COLUMNS]
    assert [row.split()[1] for row in rows] == list(NAMES)
    for name, row in zip(NAMES, rows, strict=True):
        marks = [cell.strip() for cell in re.sub(r"`[^`]*`", "", row).strip("|").split("|")][1:]
        assert marks == ["✓" if applies(column, name) else "–" for column in COLUMNS]
    assert page.endswith(ABOUT)
