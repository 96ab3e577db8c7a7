"""Every function of the catalogue with every feature of torch."""

import re

import pytest

from tests.compat import checks, processes
from tests.compat.cases import NAMES
from tests.compat.checks import COLUMNS, applies
from tests.compat.table import ABOUT, PAGE, failures, table

# Warnings come from torch.compile and the exporters.
pytestmark = pytest.mark.filterwarnings("ignore")
SLOW = ("compile",)


@pytest.mark.parametrize(
    "column", [pytest.param(c, marks=pytest.mark.slow) if c in SLOW else c for c in COLUMNS]
)
def test_every_function_passes_the_check(column: str):
    if column == "DDP" and not processes.gloo():
        pytest.skip("this build of torch has no gloo")
    assert failures(column) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_function_compiles_to_one_graph_for_all_batch_sizes(name: str):
    checks.compiled(name)


def test_a_failed_check_is_marked_in_the_table(monkeypatch: pytest.MonkeyPatch):
    def check(name: str) -> None:
        assert name != "F03"

    monkeypatch.setitem(COLUMNS, "eager", check)
    failed = {column: failures(column) if column == "eager" else {} for column in COLUMNS}
    assert failed["eager"].keys() == {"F03"}
    rows = {line.split()[1]: line for line in table(failed).splitlines()[2:]}
    assert [name for name, row in rows.items() if "✗" in row] == ["F03"]


def test_the_committed_table_is_complete_and_has_no_failures():
    page = PAGE.read_text("utf-8")
    header, _, *rows = (line for line in page.splitlines() if line.startswith("|"))
    assert [cell.strip() for cell in header.strip("|").split("|")] == ["function", *COLUMNS]
    assert [row.split()[1] for row in rows] == list(NAMES)
    for name, row in zip(NAMES, rows, strict=True):
        marks = [cell.strip() for cell in re.sub(r"`[^`]*`", "", row).strip("|").split("|")][1:]
        assert marks == ["✓" if applies(column, name) else "–" for column in COLUMNS]
    assert page.endswith(ABOUT)
