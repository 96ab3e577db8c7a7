import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import ftnn
from ftnn.cli import app

SCRIPT = Path(sys.executable).with_name("ftnn")


def run(*arguments: str, columns: int | None = None) -> Result:
    """Run the command in this process, as if on a terminal if `columns` is given."""
    screen = {"FORCE_COLOR": "1", "COLUMNS": str(columns)} if columns else {}
    plain = {"NO_COLOR": None, "FORCE_COLOR": None, "COLUMNS": None, "TERM": "xterm"}
    return CliRunner(env={**plain, **screen}).invoke(app, arguments)


def document(*arguments: str) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(result.stdout, parse_constant=refuse)


def explained(*arguments: str) -> dict[str, str]:
    """The lines that explain one function, as label → text."""
    result = run("functions", *arguments)
    assert result.exit_code == 0, result.output
    pairs = (line.split("  ", 1) for line in result.stdout.splitlines())
    return {label: text.strip() for label, text in pairs}


# ---- the catalogue


def test_the_catalogue_table_lists_every_function():
    result = run("functions")
    assert result.exit_code == 0
    head, *lines = result.stdout.splitlines()
    assert head.split("  ")[0] == "name"
    assert len(lines) == len(ftnn.catalogue)
    for line, (name, function) in zip(lines, ftnn.catalogue.items(), strict=True):
        assert line.startswith(f"{name} ")
        assert f" {function.formula} " in line
        assert ("fused" in line) == (function.plan.kind == "fused")
    assert "\x1b" not in result.stdout  # no colours outside a terminal
    assert not any(line.endswith(" ") for line in lines)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("F03", ["p*x**2 + q*x", "p, q ±0.1", "2 GEMMs"]),
        ("F05", ["p*exp(q*x)", "p ±0.1; q [-4, -2]", "fused"]),
        ("F07", ["rect_ada(p)*u*x", "p [0, 0.2]", "u of -1, 1", "1 GEMM"]),
        ("F12", ["p*sin(q*x + r)", "p ±0.1; q, r ±10", "fused"]),
        ("F19", ["p**2*(x - q)**2", "p, q ±0.1", "fused"]),
    ],
)
def test_a_row_has_initial_ranges_and_how_the_function_is_computed(name: str, parts: list[str]):
    row = next(line for line in run("functions").stdout.splitlines() if line.startswith(name))
    assert [part for part in (part.strip() for part in row.split("  ")) if part] == [name, *parts]


def test_the_table_fits_a_terminal_of_80_columns():
    result = run("functions", columns=80)
    lines = result.stdout.splitlines()
    assert len(lines) == 1 + len(ftnn.catalogue)  # no line is wrapped
    assert "\x1b[" in result.stdout


def test_the_catalogue_as_json():
    entries = {entry["name"]: entry for entry in document("functions")["functions"]}
    assert list(entries) == list(ftnn.catalogue)
    assert entries["F07"]["formula"] == "rect_ada(p)*u*x"
    assert entries["F07"]["parameters"] == {"p": [0.0, 0.2]}
    assert entries["F07"]["constants"] == {"u": [-1.0, 1.0]}
    assert entries["F04"]["computed"]["kind"] == "gemm"
    assert entries["F04"]["computed"]["gemms"] == 3
    assert entries["F12"]["computed"]["kind"] == "fused"


# ---- one function


def test_a_formula_is_explained():
    lines = explained("p*tan(q*x+r)", "--init", "q=-3,3", "--init", "r=-1,1")
    assert lines["F(x)"] == "p*tan(q*x+r)"
    assert lines["parameters"].endswith(", q in [-3, 3], r in [-1, 1]")
    assert lines["chosen"].startswith("p, for a layer of 100 standardised inputs: errors pass backward ")
    assert lines["∂F/∂p"] == "tan(q*x + r)"
    assert lines["computed"].startswith("fused: ")
    assert "cos(q*x + r) = 0" in lines["pole"]


def test_a_catalogue_function_is_explained_with_its_own_or_other_ranges():
    assert explained("F12")["parameters"] == "p in [-0.1, 0.1], q in [-10, 10], r in [-10, 10]"
    assert explained("F12", "--init", "q=0,2.5")["parameters"] == (
        "p in [-0.1, 0.1], q in [0, 2.5], r in [-10, 10]"
    )
    assert explained("F08", "--constant", "u=-2,0,2")["constants"] == "u in {-2, 0, 2}"
    lines = explained("F12", "--constant", "q=1,2")  # q becomes a constant
    assert lines["parameters"] == "p in [-0.1, 0.1], r in [-10, 10]"
    assert lines["constants"] == "q in {1, 2}"


def test_constants_and_the_range_of_inputs_can_be_set():
    lines = explained("rect(p*x + q)*u", "--constant", "u=-1,1", "--x", "-3", "2")
    assert lines["constants"] == "u in {-1, 1}"
    assert "x in [-3, 2]" in lines["zero"]


def test_a_formula_may_start_with_a_minus():
    assert explained("--", "-p*x")["F(x)"] == "-p*x"


def test_long_lines_are_wrapped_only_on_a_terminal():
    formula = " + ".join(f"p{n}*x**{n}" for n in range(1, 12))
    assert formula in run("functions", formula).stdout
    wrapped = run("functions", formula, columns=60).stdout
    assert formula not in wrapped
    assert "p11*x**11" in wrapped


def test_one_function_as_json():
    explanation = document("functions", "p*exp(q*x)", "--init", "q=-400,400", "--x", "-2", "2")
    assert explanation["formula"] == "p*exp(q*x)"
    assert explanation["parameters"] == {"p": [-0.1, 0.1], "q": [-400, 400]}
    assert explanation["x"] == [-2, 2]
    assert explanation["derivatives"] == {"x": "p*q*exp(q*x)", "p": "exp(q*x)", "q": "p*x*exp(q*x)"}
    assert explanation["overflow"]["largest"] is None  # beyond float64: JSON has no infinity
    assert document("functions", "p*cosh(q*x + r)")["reaches_zero"] == 0
    assert explanation["poles"] == []
    pole = document("functions", "p/x")["poles"]
    assert pole == [{"where": "x = 0", "draws": 1.0}]
    f06 = document("functions", "F06")
    assert f06["can_die"].startswith("p = -")
    assert f06["can_revive"] is False


# ---- help and version


def test_the_version_is_shown():
    result = run("--version")
    assert result.exit_code == 0
    assert result.stdout == f"ftnn {ftnn.__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["functions", "--help"]])
def test_help_has_examples(arguments: list[str]):
    result = run(*arguments)
    assert 'ftnn functions "p*tan(q*x + r)"' in result.output
    assert "Examples" in result.output


# ---- bad input

WRONG = "p*sinn(q*x)"


def test_an_invalid_formula_is_quoted_with_carets_and_no_traceback():
    result = run("functions", WRONG)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: sinn is not a function; did you mean sin?")
    assert result.stderr.endswith(f"\n  {WRONG}\n    ^^^^\n")
    assert result.stderr.count("\n") == 3  # not wrapped


def test_after_an_error_no_json_is_printed():
    result = run("functions", WRONG, "--json")
    assert (result.exit_code, result.stdout) == (2, "")


def test_on_a_terminal_errors_are_red_and_carets_stay_in_place():
    formula = " + ".join(["p*x"] * 40) + " + foo(x) + [red]"
    result = run("functions", formula, columns=60)
    assert "\x1b[31m" in result.stderr
    plain = result.stderr.replace("\x1b[31m", "").replace("\x1b[0m", "")
    carets = next(line for line in plain.splitlines() if set(line) == {" ", "^"})
    quoted = plain.splitlines()[plain.splitlines().index(carets) - 1]
    assert len(quoted) <= 60
    assert quoted[carets.index("^") :].startswith("foo(x)")
    assert carets.strip() == "^^^"


def test_brackets_in_a_formula_are_not_markup():
    result = run("functions", "p*x + [bold]")
    assert "  p*x + [bold]\n        ^^^^^^\n" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["p*x", "--init", "q=1,2"], "there is a range for 'q'"),
        (["p*x", "--init", "p=2,1"], "low ≤ high"),
        (["p*x", "--init", "p=1"], "must be (low, high)"),
        (["p*x", "--init", "p=1,2,3"], "must be (low, high)"),
        (["p*x", "--init", "p=nan,1"], "finite and low ≤ high"),
        (["p*x", "--constant", "u=1"], "'u' does not occur"),
        (["p*x", "--x", "1", "1"], "low < high"),
        (["F99"], "'F99' is neither a catalogue name"),
        (["9**9**9**9*p*x"], "too large"),
        (["p"], "does not use x"),
        ([""], "the formula is empty"),
    ],
)
def test_invalid_functions_are_errors_without_a_traceback(arguments: list[str], message: str):
    result = run("functions", *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["p*x", "--init", "p"],
        ["p*x", "--init", "p=a,b"],
        ["p*x", "--init", "p="],
        ["p*x", "--constant", "1,2"],
        ["p*x", "--x", "1"],
        ["p*x", "--x", "a", "b"],
        ["--init", "p=1,2"],
        ["--unknown"],
        ["p*x", "more"],
    ],
)
def test_invalid_options_are_usage_errors(arguments: list[str]):
    result = run("functions", *arguments)
    assert result.exit_code == 2
    assert "─ Error ─" in result.stderr
    assert result.stdout == ""


def test_an_unknown_command_is_a_usage_error():
    assert run("function").exit_code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["reproduce", "mnist", "--functions", ""],
        ["reproduce", "mnist", "--functions", " , "],
        ["reproduce", "mnist", "--functions", "F03", "--functions", ","],
        ["reproduce", "mnist", "--functions="],
        ["reproduce", "mnist", "--activations", ""],
        ["reproduce", "mnist", "--activations", ","],
        ["reproduce", "mnist", "--layers", ""],
        ["reproduce", "mnist", "--gammas", ","],
        ["reproduce", "mnist", "--seeds", ""],
        ["reproduce", "pi", "--hidden", ","],
        ["reproduce", "pi", "--pairs", ""],
        ["reproduce", "conic", "--problems", ""],
        ["reproduce", "conic", "--problems", ","],
        ["bench", "--functions", ""],
        ["bench", "--functions", ","],
        ["bench", "--workload", ""],
        ["bench", "--workload", ","],
        ["functions", "p*x", "--init", ""],
        ["functions", "p*x", "--constant", ""],
        ["train", "--out", ""],
        ["train", "--data", ""],
        ["train", "--function", ""],
        ["report", "--out", ""],
        ["store", "list", "--store", ""],
    ],
)
def test_an_empty_value_is_an_error_and_never_means_everything(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def never(*arguments: Any, **options: Any) -> None:
        raise AssertionError("the command ran")

    monkeypatch.chdir(tmp_path)
    for place in ("ftnn.cli._reproduce._run", "ftnn.bench.run", "ftnn.training.fit"):
        monkeypatch.setattr(place, never)
    monkeypatch.setattr("ftnn.experiments.paper.conic.cells.run_conic", never)
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    option = next(word for word in arguments if word.startswith("--")).rstrip("=")
    assert option in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_malformed_and_repeated_options_are_quoted():
    assert "'p 1' is not of the form" in " ".join(run("functions", "p*x", "--init", "p 1").stderr.split())
    assert "given twice" in run("functions", "p*x", "--init", "p=1,2", "--init", "p=3,4").stderr


# ---- in a separate process


def run_process(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ftnn", *arguments]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, **options)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize(
    "arguments", [["functions"], ["functions", "--json"], ["functions", "F12"], ["--help"], ["--version"]]
)
def test_if_output_cannot_be_written_one_line_says_why(arguments: list[str]):
    with Path("/dev/full").open("w") as full:
        result = run_process(*arguments, stdout=full)
    assert result.returncode == 1
    assert result.stderr == "error: cannot write to standard output: No space left on device\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["functions"], ["functions", "--json"], ["--help"]])
def test_a_closed_pipe_ends_the_command_silently(arguments: list[str], unbuffered: str):
    reading, writing = os.pipe()
    os.close(reading)
    result = run_process(*arguments, stdout=writing, env={**os.environ, "PYTHONUNBUFFERED": unbuffered})
    os.close(writing)
    assert (result.returncode, result.stderr) == (1, "")


def test_closed_standard_output_is_an_error():
    result = run_process("functions", preexec_fn=lambda: os.close(1))
    assert result.returncode == 1
    assert result.stderr == "error: cannot write to standard output: Bad file descriptor\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_if_standard_error_cannot_be_written_the_exit_code_stays():
    command = [sys.executable, "-m", "ftnn", "functions", WRONG]
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=full, text=True, check=False)
    assert (result.returncode, result.stdout) == (2, "")


def test_the_installed_command_works_in_a_pipe_and_without_unicode():
    result = subprocess.run(
        [SCRIPT, "functions", "F12"],
        capture_output=True,
        encoding="ascii",
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[0].split() == ["F(x)", "p*sin(q*x", "+", "r)"]
    assert "?F/?x" in result.stdout  # ASCII has no ∂
