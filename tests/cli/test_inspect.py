"""`ftnn inspect`, from files to text, JSON, plots and pruned models."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sympy.parsing.sympy_parser import parse_expr
from torch import nn
from typer.testing import CliRunner, Result

import ftnn
from ftnn.cli import app
from ftnn.inspect import connections, sympy
from ftnn.nn import MemoryNetwork, Network, Partial, Transfer


def run(*arguments: object, columns: int | None = None) -> Result:
    screen = {"FORCE_COLOR": "1", "COLUMNS": str(columns)} if columns else {}
    plain = {"NO_COLOR": None, "FORCE_COLOR": None, "COLUMNS": None, "TERM": "xterm"}
    return CliRunner(env={**plain, **screen}).invoke(app, ["inspect", *map(str, arguments)])


def document(*arguments: object) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refused(*arguments: object) -> str:
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    assert result.stdout == ""
    return " ".join(result.stderr.split())


@pytest.fixture
def table(tmp_path: Path) -> Path:
    x = np.random.default_rng(0).normal(30, 2, size=(40, 2))
    lines = [f"{a:.3f},{b:.3f},{'up' if a > b else 'down'}" for a, b in x]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,which", *lines]))
    return tmp_path / "t.csv"


def trained(table: Path, out: Path, function: str, width: int) -> Path:
    """The model file that `ftnn train --out` saves."""
    size = ["--activation", "logistic", "--width", str(width), "--epochs", "1", "--fine-tuning-epochs", "1"]
    arguments = ["train", "--data", str(table), "--target", "which", "--function", function, *size]
    assert CliRunner().invoke(app, [*arguments, "--json", "--out", str(out)]).exit_code == 0
    return out / "model.safetensors"


@pytest.fixture
def folder(table: Path, tmp_path: Path) -> Path:
    """A folder from `ftnn train --out`, with one of four connections dead."""
    path = trained(table, tmp_path / "out", "F06", 2)
    net, notes = ftnn.load(path), ftnn.nn.notes_of(path)
    assert isinstance(net, Network)
    with torch.no_grad():
        net.layers[0].theta["p"].copy_(torch.tensor([[0.5, -0.5], [0.5, 0.5]]))
    ftnn.save(net, path, notes)
    return tmp_path / "out"


def test_without_data_dead_connections_are_counted(folder: Path):
    lines = [line.split() for line in run(folder).stdout.splitlines()]
    assert lines == [
        ["Network,", "12", "parameters"],
        ["layer", "function", "size", "connections", "dead", "revivable"],
        ["hidden.0", "F06:", "rect(p)*u*x", "2→2", "4", "1", "(25", "%)", "0"],
    ]


def test_with_data_sleeping_connections_are_counted_too(folder: Path, table: Path):
    text = run(folder, "--data", table).stdout.splitlines()
    assert text[0] == "Network, 12 parameters, on 40 samples"
    assert text[1].split()[-5:] == ["dead", "revivable", "sleeping", "reviving", "awake"]
    assert text[2].split()[-7:] == ["%)", "0", "0", "0", "3", "(75", "%)"]
    result = document(folder, "--data", table)
    assert result["samples"] == 40
    (layer,) = result["layers"]
    assert (layer["dead"], layer["sleeping"], layer["awake"]) == (1, 0, 3)
    assert result["inputs"][0].startswith("(a - ")
    assert document(folder)["layers"][0]["sleeping"] is None


def test_data_are_standardised_like_the_training_data(table: Path, tmp_path: Path):
    """About half of the standardised values are below 0, but none of the raw ones."""
    path = trained(table, tmp_path / "o", "F08", 3)
    net, notes = ftnn.load(path), ftnn.nn.notes_of(path)
    assert isinstance(net, Network)
    with torch.no_grad():
        net.layers[0].theta["p"].fill_(-1.0)
        net.layers[0].theta["q"].fill_(-0.5)
    ftnn.save(net, path, notes)
    raw = ftnn.data.read_table(table, None, ("a", "b")).x
    mean, scale = (np.array(notes["preparation"]["inputs"][name]) for name in ("mean", "scale"))
    expected = connections(net, (raw - mean) / scale)[0].awake
    assert document(path, "--data", table)["layers"][0]["awake"] == expected == 6
    assert connections(net, raw)[0].awake == 0


def test_formulas_are_printed_as_sympy_or_latex(folder: Path):
    net = ftnn.load(folder / "model.safetensors")
    lines = run(folder, "--sympy", "--digits", 4).stdout.splitlines()
    assert [line.split(" = ")[0] for line in lines[3:]] == ["x0", "x1", "y0", "y1"]
    assert lines[5] == f"y0 = {sympy(net, digits=4)[0]}"
    assert r"\frac" in run(folder, "--latex").stdout
    assert len(document(folder, "--sympy")["outputs"]) == 2


def test_formulas_give_the_predictions_for_outliers_and_large_offsets(tmp_path: Path):
    """Numbers that differ only after ten digits, an input beyond the limit, and a missing category."""
    path, out = tmp_path / "t.csv", tmp_path / "out"
    rows = [f"{1700000000 + 40 * n},{n % 7},{['red', ''][n % 2]},{1e9 + n / 4}" for n in range(60)]
    path.write_text("time,x,colour,y\n" + "\n".join(rows))
    command = ("train", "--data", path, "--target", "y", "--width", 2, "--epochs", 3, "--out", out)
    assert CliRunner().invoke(app, list(map(str, command))).exit_code == 0
    path.write_text("time,x,colour\n1700000777,1e6,\n")
    done = CliRunner().invoke(app, ["predict", str(out), str(path)])
    formulas = document(out, "--sympy", "--digits", 15)
    inputs: dict[str, float] = {}
    named = {"time": 1700000777, "x": 1e6, "colour is missing": 1, "colour = red": 0}
    for n, (name, value) in enumerate(named.items()):
        found = re.fullmatch(rf"\({name} - (\S+)\)/(\S+), limited to ±5", formulas["inputs"][n])
        assert found is not None, formulas["inputs"]
        mean, scale = map(float, found.groups())
        inputs[f"x{n}"] = min(5.0, max(-5.0, (value - mean) / scale))
    output = float(parse_expr(formulas["outputs"][0]).subs(inputs))
    found = re.fullmatch(r"(\S+) \+ (\S+)\*y0", formulas["predictions"][0])
    assert found is not None
    mean, scale = map(float, found.groups())
    assert mean + scale * output == pytest.approx(float(done.stdout), rel=0, abs=1e-4)


@pytest.mark.slow
def test_the_pruned_model_gives_the_same_predictions(folder: Path, table: Path, tmp_path: Path):
    small = tmp_path / "small.safetensors"
    assert document(folder, "--prune", small)["written"] == [str(small)]
    net = ftnn.load(small)
    assert isinstance(net, Network)
    assert isinstance(net.layers[0], Partial)
    assert document(small)["layers"][0]["connections"] == 3
    predictions = [CliRunner().invoke(app, ["predict", str(m), str(table)]).stdout for m in (folder, small)]
    assert predictions[0] == predictions[1] != ""


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_plots_are_written_to_files(folder: Path, tmp_path: Path, ending: str):
    result = run(folder, "--plot", tmp_path / f"p.{ending}")
    assert f"wrote {tmp_path}" in result.stderr.replace("\n", "")
    head = (tmp_path / f"p.{ending}").read_bytes()[:200]
    assert {"png": b"PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending] in head


def test_on_a_narrow_terminal_each_number_has_its_own_line(folder: Path, table: Path):
    lines = run(folder, "--data", table, columns=60).stdout.splitlines()
    assert max(map(len, lines)) < 100  # with colours
    assert any("sleeping" in line for line in lines)
    assert not any("…" in line for line in lines)
    assert len(lines) == 1 + 9


@pytest.mark.slow
def test_a_model_saved_from_python_is_inspected_on_mnist(tmp_path: Path):
    ftnn.save(Network(784, [3], 10, "F09"), tmp_path / "m")
    result = document(tmp_path / "m", "--data", "mnist")
    assert result["samples"] == 10_000
    assert result["inputs"] is None
    layer = result["layers"][0]
    assert layer["dead"] + layer["sleeping"] + layer["awake"] == 784 * 3
    assert layer["sleeping"] > 100


def test_a_normalised_sequence_with_a_scale_is_inspected(table: Path, tmp_path: Path):
    torch.manual_seed(0)
    layers = [
        Transfer(3, 2, "F06", scale=True),
        nn.BatchNorm1d(2),
        nn.SiLU(),
        nn.LayerNorm(2),
        nn.Linear(2, 1),
    ]
    net = nn.Sequential(*layers)
    with torch.no_grad():
        layers[0].theta["p"][0, 0] = -1  # pyright: ignore
    ftnn.save(net, tmp_path / "model")
    files = tmp_path / "p.svg", tmp_path / "small"
    arguments = ("--sympy", "--plot", files[0], "--prune", files[1])
    found = document(tmp_path / "model", *arguments)
    assert found["layers"][0]["dead"] == 1
    assert found["outputs"] == [str(sympy(net, 3)[0])]
    assert [Path(file) for file in found["written"]] == list(files)
    small, x = ftnn.load(files[1]).eval(), torch.randn(4, 3)
    torch.testing.assert_close(small(x), net.eval()(x), rtol=1e-5, atol=1e-6)


def test_invalid_input_is_named_in_the_error(folder: Path, table: Path, tmp_path: Path):
    assert "there is no file" in refused(tmp_path / "nothing")
    assert "is not a valid model file" in refused(table)
    assert "there is no file" in refused(folder, "--data", tmp_path / "nothing.csv")
    assert "this model expects a table with a, b, not images: mnist" in refused(folder, "--data", "mnist")
    (tmp_path / "other.csv").write_text("a,c\n1,2\n")
    assert "has no column 'b'; it has a, c" in refused(folder, "--data", tmp_path / "other.csv")
    (tmp_path / "inf.csv").write_text("a,b\n1,inf\n")
    assert "inf" in refused(folder, "--data", tmp_path / "inf.csv")
    assert "ending in .pdf, .png, .svg" in refused(folder, "--plot", tmp_path / "p.gif")
    assert "cannot write" in refused(folder, "--plot", tmp_path / "no" / "p.png")
    assert "cannot write" in refused(folder, "--prune", tmp_path / "no" / "m")
    assert "cannot be combined" in run(folder, "--sympy", "--latex").stderr
    assert "digits must be from 1 to 17" in refused(folder, "--sympy", "--digits", 0)
    ftnn.save(MemoryNetwork(3, 2, 3), tmp_path / "memory")
    assert "is a Memory layer" in refused(tmp_path / "memory")
    ftnn.save(Network(3, [2], 1), tmp_path / "three")
    assert "expects 3 features, but" in refused(tmp_path / "three", "--data", tmp_path / "other.csv")
    ftnn.save(Network(784, [200], 10), tmp_path / "big")
    assert "the limit is 5,000" in refused(tmp_path / "big", "--latex")
