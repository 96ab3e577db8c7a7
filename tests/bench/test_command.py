"""What `ftnn bench` asks for and shows."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ftnn.bench import WORKLOADS, Effort, Row, Systems, bench
from ftnn.bench._show import chart, grid
from ftnn.bench._workloads import FUNCTIONS, QUICK_FUNCTIONS, Choice, choose, run
from ftnn.cli import app
from ftnn.errors import FtnnError


def row(system: str, ms: float, one: float = 2.0, function: str = "F12", workload: str = "A") -> Row:
    return Row(
        workload, function, system, ms, ms / one, ms * 0.9, ms * 1.1, repetitions=3, batch=16, width=128
    )


ROWS = [row("ftnn", 1.0), row("mlp", 2.0), row("eager", 30.0), row("ftnn", 3.0, function="F16")]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Row]:
    """`bench` shows these instead of measuring."""

    def pretended(choice: Choice, say: object) -> Iterator[Row]:
        yield from ROWS

    monkeypatch.setattr("ftnn.bench._command.run", pretended)
    return ROWS


def test_standard_output_is_one_json_document_and_the_rest_is_beside_it(
    measured: list[Row], capsys: pytest.CaptureFixture[str]
):
    bench(json=True, quick=True)
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert [(r["function"], r["system"], r["ms"], r["times_mlp"]) for r in found] == [
        ("F12", "ftnn", 1.0, 0.5),
        ("F12", "mlp", 2.0, 1.0),
        ("F12", "eager", 30.0, 15.0),
        ("F16", "ftnn", 3.0, 1.5),
    ]
    assert "torch.compile and pykan are left out" in err


def test_people_see_ratios_first_and_bars(measured: list[Row], capsys: pytest.CaptureFixture[str]):
    bench(quick=True)
    out = capsys.readouterr().out
    header, first = out.splitlines()[1:3]
    assert header.split()[:5] == ["function", "formula", "×", "torch", "MLP"]
    assert "0.50 1.00 (0.90-1.10) 2.00 (1.80-2.20) 30.0 × (30.0)" in " ".join(first.split())
    assert "left out" in out
    assert "█" in out


def test_the_tables_are_written_as_markdown(
    measured: list[Row], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    bench(quick=True, markdown_file=tmp_path / "tables.md")
    assert "| F12 | `p*sin(q*x + r)` | 0.50 |" in (tmp_path / "tables.md").read_text("utf-8")
    capsys.readouterr()


def test_a_bar_is_as_long_as_its_ratio_and_the_mark_is_at_one():
    lines = chart(WORKLOADS["A"], [row("ftnn", 1.0), row("ftnn", 4.0, function="F16")])
    assert [line.count("█") for line in lines] == [0, 10, 40]
    assert lines[0].index("1 = torch MLP") == lines[1].index("│")
    assert [line.split()[-1] for line in lines[1:]] == ["0.50", "2.00"]


def test_a_workload_without_a_yardstick_has_no_bars():
    rows = [Row("C", "memory", "ftnn", 1.0, None), Row("C", "memory", "eager", 50.0, None)]
    assert chart(WORKLOADS["C"], rows) == []
    assert grid(WORKLOADS["C"], rows).lines == (("memory", "tanh(p*x + q*C + r)", "1.00", "50.0 × (50.0)"),)


def test_settings_are_columns_where_they_differ():
    some = [Row("E", "F12", "ftnn", 1.0, 2.0, batch=64), Row("E", "F12", "ftnn", 3.0, 2.0, batch=256)]
    found = grid(WORKLOADS["E"], some)
    assert found.header[:3] == ("function", "formula", "batch")
    assert [line[2] for line in found.lines] == ["64", "256"]


def test_memory_that_could_not_be_told_from_none_gives_no_ratio():
    rows = [
        Row("D", "F12", "ftnn", None, None, mib=0.0),
        Row("D", "F12", "eager", None, None, mib=9.0, note="scaled"),
    ]
    assert grid(WORKLOADS["D"], rows).lines[0][2:] == ("0.00", "(9.00*)")


def test_a_quick_run_is_one_workload_of_five_functions_without_compiling():
    choice, notes = choose(quick=True)
    assert choice.workloads == ("A",)
    assert choice.functions == QUICK_FUNCTIONS == ("F03", "F07", "F09", "F12", "F16")
    assert not choice.systems.compile
    assert any("quick" in note for note in notes)


def test_all_workloads_run_with_all_their_functions_unless_some_are_named():
    choice, _ = choose()
    assert choice.workloads == ("A", "B", "C", "D", "E", "growth")
    assert choice.functions_of(WORKLOADS["A"]) == FUNCTIONS
    named, _ = choose(["A", "C"], ["F03"])
    assert [named.functions_of(WORKLOADS[name]) for name in named.workloads] == [("F03",), ("memory",)]


@pytest.mark.parametrize(
    ("workloads", "functions", "message"),
    [(["Z"], [], "there is no workload 'Z'.*A, B, C"), ([], ["F99"], "there is no function 'F99'.*F01, F02")],
)
def test_what_is_not_known_is_refused(workloads: list[str], functions: list[str], message: str):
    with pytest.raises(FtnnError, match=message):
        choose(workloads, functions)


def test_running_says_what_it_measures_function_by_function(monkeypatch: pytest.MonkeyPatch):
    def pretended(functions: Sequence[str], effort: Effort, systems: Systems) -> Iterator[Row]:
        yield from (row("ftnn", 1.0, function=name) for name in functions)

    monkeypatch.setitem(WORKLOADS, "A", replace(WORKLOADS["A"], title="steps", rows=pretended))
    said: list[str] = []
    rows = list(run(Choice(("A",), ("F12", "F03")), said.append))
    assert [found.function for found in rows] == ["F12", "F03"]
    assert said == ["A: steps: F12 (1 of 2)", "A: steps: F03 (2 of 2)"]


def test_the_command_line_is_handed_on(monkeypatch: pytest.MonkeyPatch):
    given: list[object] = []

    def pretended(*args: object, **more: object) -> None:
        given.extend((*args, more))

    monkeypatch.setattr("ftnn.bench.bench", pretended)
    line = "bench --workload A,B --workload C --functions F03,F12 --no-compile --json"
    assert CliRunner().invoke(app, line.split()).exit_code == 0
    more = {"quick": False, "compile": False, "json": True, "markdown_file": None}
    assert given == [["A", "B", "C"], ["F03", "F12"], more]


def test_the_command_line_names_what_it_does_not_know():
    found = CliRunner().invoke(app, ["bench", "--workload", "Z"])
    assert found.exit_code == 2
    assert "there is no workload 'Z'" in found.output
