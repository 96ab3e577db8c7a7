"""What `ftnn train` and `ftnn predict` say about a result: notes, causes, and how to go on."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import ftnn
from ftnn.cli import app
from ftnn.training._engine_search import SearchEngine

LM = ("--solver", "lm", "--width", "2", "--function", "p*x", "--starts", "1")


def run(*arguments: Any) -> Any:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert "Traceback" not in done.output
    return done


def one_line(text: str) -> str:
    return " ".join(text.split())


def table(tmp_path: Path, y: Any, x: Any = None, name: str = "t.csv") -> Path:
    x = np.linspace(-1, 1, len(y)) if x is None else x
    path = tmp_path / name
    path.write_text("x,y\n" + "\n".join(f"{a},{b}" for a, b in zip(x, y, strict=True)))
    return path


def straight(tmp_path: Path, rows: int = 40) -> Path:
    return table(tmp_path, np.round(2.5 * np.linspace(-1, 1, rows) + 0.123, 4))


# --- notes ---


def test_notes_and_convergence_are_shown(tmp_path: Path) -> None:
    few = ("train", "--data", straight(tmp_path, 5), "--target", "y", *LM, "--epochs", "1")
    done = run(*few)
    assert "no, in 1 iteration: more may help (--epochs 4)" in done.stdout
    assert "no standard errors: 4 observations for 7 parameters leave no degrees of freedom" in done.stdout
    assert "there is no R²: it needs different targets to compare with" in done.stdout
    result = json.loads(run(*few, "--json").stdout)
    assert result["converged"] is False
    assert "4 observations" in result["notes"][0]
    more = run("train", "--data", straight(tmp_path), "--target", "y", *LM)
    assert "converged yes" in one_line(more.stdout)
    assert "the data do not determine" in more.stdout
    others = json.loads(run("train", "--data", straight(tmp_path), "--target", "y", "--json").stdout)
    assert (others["converged"], others["notes"]) == (None, [])


# --- causes ---


def test_advice_is_spelled_as_options(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    path = table(tmp_path, random.normal(size=60), random.normal(size=60))
    done = run(
        "train", "--data", path, "--target", "y", "--function", "p*x where p in [0, 0]", "--gamma", "-30"
    )
    assert "a larger --gamma -29" in done.stdout
    assert "grounded" not in done.stdout


def test_equal_inputs_are_named(tmp_path: Path) -> None:
    path = table(tmp_path, np.random.default_rng(0).normal(size=60), np.ones(60))
    done = run("train", "--data", path, "--target", "y", *LM)
    assert "other inputs: these are the same for all samples" in done.stdout


def test_a_regression_that_fails_at_once_has_no_accuracy(tmp_path: Path) -> None:
    done = run("train", "--data", straight(tmp_path), "--target", "y", "--learning-rate", "1e12")
    assert "the loss was not finite in training, epoch 1" in done.stdout
    assert "test RMSE" in done.stdout
    assert "accuracy" not in done.stdout


def test_a_very_negative_r2_has_few_digits(tmp_path: Path) -> None:
    """R² has no lower limit; all of its digits would widen the table."""
    far = table(tmp_path, [1e6, 1e6 + 1], [0, 1], "far.csv")
    quick = ("--width", "4", "--epochs", "2", "--out", tmp_path / "m")
    done = run("train", "--data", straight(tmp_path), "--target", "y", "--test", far, *quick)
    assert re.search(r"test R² +-\d,\d{3},\d{3},\d{3},\d{3}$", done.stdout, re.MULTILINE)
    assert re.search(r"R² -[\d,]+$", run("predict", tmp_path / "m", far).stderr, re.MULTILINE)


def test_a_constant_target_is_refused(tmp_path: Path) -> None:
    done = run("train", "--data", table(tmp_path, np.full(30, 1.5)), "--target", "y")
    assert done.exit_code == 2
    assert "column 'y' is 1.5 in all training rows, so there is nothing to learn" in one_line(done.stderr)


def test_nearly_as_many_classes_as_rows_are_refused(tmp_path: Path) -> None:
    path = table(tmp_path, np.arange(100) * 10 + 5)
    done = run("train", "--data", path, "--target", "y", "--task", "classification")
    assert done.exit_code == 2
    message = one_line(done.stderr)
    assert "column 'y' has 100 different labels in 100 rows, such as '5', '15', '25' and 97 more" in message
    assert "use --task regression to predict a number" in message


def test_predictions_that_are_not_finite_have_a_cause(tmp_path: Path) -> None:
    net = ftnn.nn.Network(1, [3], 1, "p*exp(q*x) where p in [1, 1] and q in [40, 40]", "relu")
    column = {"name": "x", "median": None, "flag": False}
    preparation = {"task": "regression", "classes": None, "target": "y", "id": None, "columns": [column]}
    ftnn.save(net, tmp_path / "m", {"preparation": preparation | {"inputs": None, "targets": None}})
    done = run("predict", tmp_path / "m", table(tmp_path, [1, 2], [0, 3]))
    assert done.exit_code == 2
    assert "Try smaller inputs or initial ranges, or a formula that grows less: p*exp(q*x)" in (
        one_line(done.stderr)
    )


# --- how tables are read ---


def test_a_model_remembers_how_tables_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = [f'"{n},{n:03d}";"{n},500"' for n in range(1, 30)]
    path.write_text("x;y\n" + "\n".join(rows))
    quick = ("--width", "4", "--epochs", "2", "--target", "y", "--out", tmp_path / "m")
    assert run("train", "--data", path, *quick, "--decimal", ",", "--separator", ";").exit_code == 0
    path.write_text("x;y\n" + "\n".join(f"{n},{n}00;{n},500" for n in range(1, 5)))  # could be thousands
    for command in (("predict", tmp_path / "m", path), ("inspect", tmp_path / "m", "--data", path)):
        assert run(*command).exit_code == 0
        done = run(*command, "--decimal", ".")  # but the command decides
        assert "row 1 has '1," in one_line(done.stderr)
        assert "which is not a number" in one_line(done.stderr)
        assert "--separator" in run(command[0], "--help").stdout


def test_rows_without_a_target_are_predicted_but_not_measured(tmp_path: Path) -> None:
    train = ("train", "--width", "4", "--epochs", "2", "--target", "y")
    run(*train, "--data", straight(tmp_path), "--out", tmp_path / "m")
    whole = json.loads(run("predict", tmp_path / "m", table(tmp_path, [1, 2, 3]), "--json").stdout)
    done = run("predict", tmp_path / "m", table(tmp_path, [1, "", "NA"], [-1, 0, 1]), "--json")
    answer = json.loads(done.stdout)
    assert answer["predictions"] == whole["predictions"]
    assert answer["rmse"] == pytest.approx(abs(answer["predictions"][0] - 1), rel=1e-4)
    assert "column 'y' is empty in 2 of 3 rows, which are predicted but not measured" in done.stderr
    text = run("predict", tmp_path / "m", table(tmp_path, [1, "", ""]))
    assert "; there is no R²: it needs different targets to compare with" in text.stderr

    classes = table(tmp_path, ["no", "yes"] * 20)
    run(*train, "--data", classes, "--out", tmp_path / "c")
    done = run("predict", tmp_path / "c", table(tmp_path, ["no", "", "yes"]), "--json")
    answer = json.loads(done.stdout)
    right = [answer["predictions"][row] == label for row, label in ((0, "no"), (2, "yes"))]
    assert answer["accuracy"] == 50 * sum(right)
    wrong = run("predict", tmp_path / "c", table(tmp_path, ["no", "", "perhaps"]))
    assert "row 3 has the label 'perhaps'" in one_line(wrong.stderr)


def test_models_are_not_used_on_training_images(tmp_path: Path) -> None:
    ftnn.save(ftnn.nn.Network(784, [2], 10), tmp_path / "m")
    done = run("predict", tmp_path / "m", "mnist:5")
    assert done.exit_code == 2
    assert "mnist:5 stands for training images; models are used on the test images: mnist" in (
        one_line(done.stderr)
    )


# --- interruptions ---


def interrupted(monkeypatch: pytest.MonkeyPatch, after: int, *command: Any) -> Any:
    """Ctrl-C in an iteration."""
    epoch, count = SearchEngine.epoch, iter(range(after + 1))

    def stopped(self: SearchEngine, *arguments: Any) -> Any:
        if next(count) == after:
            raise KeyboardInterrupt
        return epoch(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(SearchEngine, "epoch", stopped)
        return run(*command)


def test_an_interruption_says_how_to_continue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    command = ("train", "--data", straight(tmp_path), "--target", "y", *LM, "--function", "F12", "--out", out)
    done = interrupted(monkeypatch, 3, *command)
    assert done.exit_code == 130
    assert "checkpoint.safetensors has the progress so far: repeat the command to continue" in (
        one_line(done.stderr)
    )
    for unfinished in (run("predict", out, straight(tmp_path)), run("inspect", out)):
        assert unfinished.exit_code == 2
        assert "is not finished: repeat `ftnn train` with the same options" in one_line(unfinished.stderr)
    assert run(*command).exit_code == 0
    assert run("predict", out, straight(tmp_path)).exit_code == 0


def test_the_help_of_a_command_has_whole_paragraphs() -> None:
    lines = CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "300"}).stdout.splitlines()
    assert any("filled in; all of it is saved with the model. A fifth of the rows" in line for line in lines)
