"""Which workloads are run, and how results are shown."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from ftnn.bench import WORKLOADS, Effort, Row, Systems
from ftnn.bench._show import chart, grid
from ftnn.bench._workloads import FUNCTIONS, QUICK_FUNCTIONS, Choice, choose, run
from ftnn.errors import FtnnError


def row(system: str, ms: float, one: float = 2.0, function: str = "F12", workload: str = "A") -> Row:
    return Row(
        workload, function, system, ms, ms / one, ms * 0.9, ms * 1.1, repetitions=3, batch=16, width=128
    )


ROWS = [row("ftnn", 1.0), row("mlp", 2.0), row("eager", 30.0), row("ftnn", 3.0, function="F16")]


def test_a_bar_is_proportional_to_its_ratio_with_a_mark_at_one():
    lines = chart(WORKLOADS["A"], [row("ftnn", 1.0), row("ftnn", 4.0, function="F16")])
    assert [line.count("█") for line in lines] == [0, 10, 40]
    assert lines[0].index("1 = torch MLP") == lines[1].index("│")
    assert [line.split()[-1] for line in lines[1:]] == ["0.50", "2.00"]


def test_a_workload_without_a_yardstick_has_no_bars():
    rows = [Row("C", "memory", "ftnn", 1.0, None), Row("C", "memory", "eager", 50.0, None)]
    assert chart(WORKLOADS["C"], rows) == []
    assert grid(WORKLOADS["C"], rows).lines == (("memory", "tanh(p*x + q*C + r)", "1.00", "50.0 × (50.0)"),)


def test_settings_that_differ_have_columns():
    some = [Row("E", "F12", "ftnn", 1.0, 2.0, batch=64), Row("E", "F12", "ftnn", 3.0, 2.0, batch=256)]
    table = grid(WORKLOADS["E"], some)
    assert table.header[:3] == ("function", "formula", "batch")
    assert [line[2] for line in table.lines] == ["64", "256"]


def test_a_basis_is_shown_by_its_first_term():
    (line,) = grid(WORKLOADS["bases"], [Row("bases", "gaussians", "ftnn", 1.0, 2.0)]).lines
    assert line[:2] == ("gaussians", "a0*gauss(3.5*x + 3.5) + …")


def test_libraries_of_spline_networks_are_measured_where_a_workload_has_them(monkeypatch: pytest.MonkeyPatch):
    def installed(name: str) -> object:
        return object()

    monkeypatch.setattr("ftnn.bench._systems.find_spec", installed)
    chosen = {name: choose([name])[0].systems.kans for name in ("A", "E", "bases", "B", "small")}
    libraries = ("pykan", "fast-kan", "efficient-kan")
    assert chosen == {"A": libraries, "E": libraries, "bases": libraries, "B": (), "small": ()}


def test_no_ratio_is_shown_if_no_extra_memory_was_measured():
    rows = [
        Row("D", "F12", "ftnn", None, None, mib=0.0),
        Row("D", "F12", "eager", None, None, mib=9.0, note="scaled"),
    ]
    assert grid(WORKLOADS["D"], rows).lines[0][2:] == ("0.00", "(9.00*)")


def test_a_quick_run_has_one_workload_and_five_functions_without_torch_compile():
    choice, notes = choose(quick=True)
    assert choice.workloads == ("A",)
    assert choice.functions == QUICK_FUNCTIONS == ("F03", "F07", "F09", "F12", "F16")
    assert not choice.systems.compile
    assert any("quick" in note for note in notes)


def test_by_default_all_workloads_run_with_their_own_functions():
    choice, _ = choose()
    assert choice.workloads == (*"ABCDEFG", "bases", "small", "float64", "time", "start", "growth")
    assert choice.functions_of(WORKLOADS["A"]) == FUNCTIONS
    named, _ = choose(["A", "C"], ["F03"])
    assert [named.functions_of(WORKLOADS[name]) for name in named.workloads] == [("F03",), ("memory",)]
    bases, _ = choose(["bases"], ["fourier"])
    assert bases.functions_of(WORKLOADS["bases"]) == ("fourier",)


@pytest.mark.parametrize(
    ("workloads", "functions", "message"),
    [(["Z"], [], "unknown workload 'Z'.*A, B, C"), ([], ["F99"], "unknown function 'F99'.*F01, F02")],
)
def test_unknown_workloads_and_functions_are_refused(
    workloads: list[str], functions: list[str], message: str
):
    with pytest.raises(FtnnError, match=message):
        choose(workloads, functions)


def test_running_reports_each_function_as_it_is_measured(monkeypatch: pytest.MonkeyPatch):
    def pretended(function: str, effort: Effort, systems: Systems) -> Iterator[Row]:
        yield row("ftnn", 1.0, function=function)

    monkeypatch.setitem(WORKLOADS, "A", replace(WORKLOADS["A"], title="steps", rows=pretended))
    messages: list[str] = []
    rows = list(run(Choice(("A",), ("F12", "F03")), messages.append))
    assert [row.function for row in rows] == ["F12", "F03"]
    assert messages == ["A: steps: F12 (1 of 2)", "A: steps: F03 (2 of 2)"]
