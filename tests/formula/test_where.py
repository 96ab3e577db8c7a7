"""Ranges after `where`, wherever a formula is text."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import ftnn
from ftnn import Function, Mixed, catalogue
from ftnn.cli import app
from ftnn.errors import FormulaError
from ftnn.experiments.paper.mnist.functions import given
from ftnn.formula._where import split_ranges
from ftnn.nn import Network, Transfer

TEXT = "p*sin(q*x + r) where q in [-10, 10] and r in [-3, 3]"
FORMULA, RANGES = "p*sin(q*x + r)", {"q": (-10.0, 10.0), "r": (-3.0, 3.0)}


def test_a_function_holds_the_formula_and_the_ranges_apart():
    function = Function(TEXT)
    assert (function.formula, function.init) == (FORMULA, RANGES)
    assert function == Function(FORMULA, init=RANGES)
    assert Function(TEXT, init={"p": (0, 1)}).init == {"p": (0, 1), **RANGES}
    assert eval(repr(function), {"Function": Function}) == function


@pytest.mark.parametrize(
    ("text", "formula", "ranges"),
    [
        ("p*x", "p*x", {}),
        ("p*x\n where\tp in[0,1e-3]", "p*x", {"p": (0, 1e-3)}),
        ("F12 where r in [-pi, pi/2]", "F12", {"r": (-np.pi, np.pi / 2)}),
        ("p*where(x > 0, x, q)", "p*where(x > 0, x, q)", {}),
        ("p* where (x > 0, x, q) where q in [1, 1]", "p* where (x > 0, x, q)", {"q": (1, 1)}),
        ("land*x where land in [0, 1] and q_1 in [-1, 0]", "land*x", {"land": (0, 1), "q_1": (-1, 0)}),
    ],
)
def test_text_is_split_at_where(text: str, formula: str, ranges: Any):
    assert split_ranges(text) == (formula, ranges)


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("p*x where", "", "is not a range; write: FORMULA where q in [-10, 10] and r in [0, 1]"),
        ("p*x where p", " p", "'p' is not a range"),
        ("p*x where p in (0, 1)", " p in (0, 1)", "is not a range"),
        ("p*x where p in [0, 1] and", "", "'' is not a range"),
        ("p*x + q where p in [0, 1], q in [0, 1]", " p in [0, 1], q in [0, 1]", "is not a range"),
        ("p*x where p in [a, 1]", " p in [a, 1]", "is not a range"),
        ("p*x where p in [0, 1] and p in [0, 2]", " p in [0, 2]", "the range of 'p' is given twice"),
        ("p*x where q in [0, 1]", None, "there is a range for 'q', which is not a parameter"),
        ("p*x where p in [1, 0]", None, "must be (low, high), finite and low ≤ high"),
        ("p*x where p in [0, 1e999]", None, "is not a range"),
    ],
)
def test_ranges_that_are_not_ranges_are_marked(text: str, place: str | None, message: str):
    with pytest.raises(FormulaError) as caught:
        Function(text)
    error = caught.value
    assert message in error.message
    if place is not None:
        assert error.text == text
        assert text[error.start : error.end] == place


def test_a_range_given_twice_is_an_error():
    with pytest.raises(FormulaError, match="the range of 'q' is given twice: here and in init"):
        Function(TEXT, init={"q": (0, 1)})


def test_ranges_replace_those_of_the_catalogue():
    function = Transfer(3, 2, "F12 where q in [0, 1]").function
    assert function.init == {**catalogue["F12"].init, "q": (0, 1)}
    assert function.formula == FORMULA


def test_ranges_work_wherever_a_formula_is_text(tmp_path: Path):
    expected = Function(TEXT)
    layer = Transfer(3, 4, TEXT)
    assert layer.function == expected
    assert (layer.ranges["q"], layer.ranges["r"]) == ((-10, 10), (-3, 3))
    assert layer.matrix("q").abs().max() > 3
    assert Network(3, [4, 4], 1, [TEXT, "F03"]).layers[0].function == expected
    assert Mixed([TEXT, "F03"]).functions[0] == expected
    assert given(TEXT) == expected
    x = np.random.default_rng(0).normal(size=(40, 2))
    model = ftnn.FTNNRegressor(function=TEXT, hidden_layer_sizes=3, epochs=1).fit(x, x[:, 0])
    assert model.network_.layers[0].function == expected
    ftnn.save(layer, tmp_path / "layer")
    loaded = ftnn.load(tmp_path / "layer")
    assert isinstance(loaded, Transfer)
    assert (loaded.function.formula, loaded.function.init) == (FORMULA, RANGES)


class TestCommands:
    def run(self, *arguments: Any) -> Any:
        return CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)

    @pytest.mark.parametrize(
        "arguments",
        [
            [TEXT],
            [FORMULA + " where q in [-10, 10]", "--init", "r=-3,3"],
            [FORMULA, "--init", "q=-10,10", "--init", "r=-3,3"],
        ],
    )
    def test_functions_take_ranges_in_the_text_or_as_options(self, arguments: list[str]):
        explained = json.loads(self.run("functions", *arguments, "--json").stdout)
        assert explained["formula"] == FORMULA
        assert {name: tuple(explained["parameters"][name]) for name in "qr"} == RANGES

    def test_a_range_in_the_text_and_as_an_option_is_an_error(self):
        result = self.run("functions", TEXT, "--init", "q=0,1")
        assert result.exit_code == 2
        assert "the range of 'q' is also in" in " ".join(result.stderr.replace("│", "").split())

    def test_train_takes_both(self, tmp_path: Path):
        rows = np.random.default_rng(0).normal(size=(60, 2))
        table = tmp_path / "t.csv"
        table.write_text("a,y\n" + "\n".join(f"{a},{y}" for a, y in rows))
        same = ["--data", table, "--target", "y", "--width", 3, "--epochs", 1]
        first, second = tmp_path / "1", tmp_path / "2"
        for out, *function in (
            (first, "--function", "rect(p*x + q)*u where q in [0, 1]", "--constant", "u=-1,1"),
            (second, "--function", "F08", "--init", "q=0,1", "--init", "p=-2,2"),
        ):
            done = self.run("train", *same, *function, "--out", out)
            assert done.exit_code == 0, done.output
        for out, init in ((first, {"q": (0, 1)}), (second, {"p": (-2, 2), "q": (0, 1)})):
            net = ftnn.load(out / "model.safetensors")
            assert isinstance(net, Network)
            assert net.layers[0].function.init == init
            assert set(torch.unique(net.layers[0].matrix("u")).tolist()) <= {-1.0, 1.0}
