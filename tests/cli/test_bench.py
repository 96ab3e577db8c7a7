"""`ftnn bench` with fake measurements."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ftnn.bench import Choice, Row
from ftnn.cli import app

ROWS = [
    Row("A", function, system, ms, ms / 2, ms * 0.9, ms * 1.1, repetitions=3, batch=16, width=128)
    for function, system, ms in (
        ("F12", "ftnn", 1.0), ("F12", "mlp", 2.0), ("F12", "eager", 30.0), ("F16", "ftnn", 3.0)
    )
]  # fmt: skip


@pytest.fixture
def choices(monkeypatch: pytest.MonkeyPatch) -> list[Choice]:
    """Makes `ftnn bench` show `ROWS` instead of measuring; collects what it should measure."""
    choices: list[Choice] = []

    def fake_run(choice: Choice, say: Callable[[str], None]) -> Iterator[Row]:
        choices.append(choice)
        say("measuring")
        yield from ROWS

    monkeypatch.setattr("ftnn.bench.run", fake_run)
    return choices


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(app, ["bench", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result


def test_json_goes_to_standard_output_and_the_rest_to_standard_error(choices: list[Choice]):
    result = run("--quick", "--json")
    rows = json.loads(result.stdout)
    assert [(row["function"], row["system"], row["ms"], row["times_mlp"]) for row in rows] == [
        ("F12", "ftnn", 1.0, 0.5),
        ("F12", "mlp", 2.0, 1.0),
        ("F12", "eager", 30.0, 15.0),
        ("F16", "ftnn", 3.0, 1.5),
    ]
    assert "torch.compile and KAN libraries are left out" in result.stderr
    assert "measuring" in result.stderr


def test_tables_have_ratios_first_then_bars_follow(choices: list[Choice]):
    out = run("--quick").stdout
    header, first = out.splitlines()[1:3]
    assert header.split()[:5] == ["function", "formula", "×", "torch", "MLP"]
    assert "0.50 1.00 (0.90-1.10) 2.00 (1.80-2.20) 30.0 × (30.0)" in " ".join(first.split())
    assert "left out" in out
    assert "█" in out


def test_tables_are_written_as_markdown(choices: list[Choice], tmp_path: Path):
    run("--quick", "--markdown", tmp_path / "tables.md")
    assert "| F12 | `p*sin(q*x + r)` | 0.50 |" in (tmp_path / "tables.md").read_text("utf-8")


def test_the_options_decide_what_is_measured(choices: list[Choice]):
    run("--workload", "A,B", "--workload", "C", "--functions", "F03,F12", "--no-compile", "--json")
    (choice,) = choices
    assert (choice.workloads, choice.functions) == (("A", "B", "C"), ("F03", "F12"))
    assert not choice.systems.compile


def test_an_unknown_workload_is_named():
    result = CliRunner().invoke(app, ["bench", "--workload", "Z"])
    assert result.exit_code == 2
    assert "unknown workload 'Z'" in result.output
