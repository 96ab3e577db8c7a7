"""`ftnn train` and `ftnn predict`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import ftnn
from ftnn.cli import app
from ftnn.data import Images
from tests.training.problems import blobs

runner = CliRunner()
QUICK = ["--width", "8", "--epochs", "8", "--fine-tuning-epochs", "3", "--gamma", "-1"]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    x, y = blobs(samples=200)
    names = np.array(["red", "green", "blue"])[y]
    path = tmp_path / "blobs.csv"
    rows = [",".join(map(str, [*(1000 * row), name])) for row, name in zip(x, names, strict=True)]
    path.write_text("\n".join(["a,b,c,d,e,colour", *rows]))
    return path


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """A folder of IDX files, 4 × 4 pixels, two kinds."""
    folder = tmp_path / "idx"
    folder.mkdir()
    random = np.random.default_rng(0)
    for part, count in (("train", 120), ("t10k", 40)):
        labels = random.integers(2, size=count).astype(np.uint8)
        pixels = random.integers(0, 120, size=(count, 4, 4)).astype(np.uint8)
        pixels[labels == 1, :2] += 120
        for name, array in ((f"{part}-images-idx3-ubyte", pixels), (f"{part}-labels-idx1-ubyte", labels)):
            head = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
            (folder / name).write_bytes(head + array.tobytes())
    return folder


def invoke(*arguments: Any) -> Any:
    return runner.invoke(app, [str(argument) for argument in arguments])


def test_a_model_trained_on_a_table_is_saved_and_predicts(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    trained = invoke(
        "train", "--data", table, "--target", "colour", "--function", "F03", "--out", out, "--json", *QUICK
    )
    assert trained.exit_code == 0, trained.output
    result = json.loads(trained.stdout)
    assert list(result) == [
        "function", "activation", "hidden_layers", "solver", "gamma", "seed", "accuracy", "lwt_accuracy",
        "ft_accuracy", "rmse", "r2", "training_samples", "test_samples", "seconds", "failed", "converged",
        "notes", "digest",
    ]  # fmt: skip
    assert result["ft_accuracy"] > 85
    assert result["failed"] is None
    model = ftnn.load(out / "model.safetensors")
    assert ftnn.training.digest(model) == result["digest"]
    history = ftnn.training.History.from_json((out / "history.json").read_text())
    assert history.ft_accuracy == result["ft_accuracy"]
    done = invoke("predict", out, table, "--json")
    answer = json.loads(done.stdout)
    assert set(answer["predictions"]) <= {"red", "green", "blue"}
    assert answer["accuracy"] > 85
    assert "accuracy" in done.stderr


def test_predictions_need_no_target_and_any_order_of_columns(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    invoke("train", "--data", table, "--target", "colour", "--out", out, *QUICK)
    expected = invoke("predict", out, table).stdout.splitlines()
    lines = [line.split(",")[:5] for line in table.read_text().splitlines()]
    other = tmp_path / "other.csv"
    other.write_text(
        "\n".join(",".join(["extra" if not n else "0", *reversed(line)]) for n, line in enumerate(lines))
    )
    assert invoke("predict", out, other).stdout.splitlines() == expected
    first = invoke("predict", out, other, "--proba").stdout.splitlines()[0].split(",")
    assert first[0] == expected[0]
    assert sum(map(float, first[1:])) == pytest.approx(1, abs=1e-4)


def test_real_targets_mean_regression_and_whole_numbers_allow_it(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (300, 2))
    y = x[:, 0] ** 2 + x[:, 1]
    path = tmp_path / "numbers.csv"
    path.write_text("\n".join(["a,b,y", *(f"{a},{b},{c}" for (a, b), c in zip(x, y, strict=True))]))
    out = tmp_path / "out"
    done = invoke("train", "--data", path, "--target", "y", "--function", "F03", "--activation", "tanh",
                  "--out", out, "--width", "16", "--epochs", "40", "--gamma", "-4")  # fmt: skip
    assert "test RMSE" in done.stdout
    answers = np.array([float(line) for line in invoke("predict", out, path).stdout.splitlines()])
    assert ((answers - y) ** 2).mean() < 0.2 * y.var()
    whole = tmp_path / "whole.csv"
    whole.write_text("a,y\n" + "\n".join(f"{n / 10},{n}" for n in range(30)))
    task = ["--task", "regression", "--out", tmp_path / "whole", *QUICK]
    assert invoke("train", "--data", whole, "--target", "y", *task).exit_code == 0
    assert json.loads(invoke("predict", tmp_path / "whole", whole, "--json").stdout)["classes"] is None


def test_a_model_can_be_trained_on_a_folder_of_images(images: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    trained = invoke("train", "--data", images, "--function", "F07", "--out", out, "--json", *QUICK)
    assert json.loads(trained.stdout)["ft_accuracy"] > 90
    assert json.loads(invoke("predict", out, images, "--json").stdout)["accuracy"] > 90


def test_the_samples_option_equals_training_on_shorter_data(images: Path) -> None:
    arguments = ["train", "--data", images, "--function", "F03", "--json", *QUICK]
    whole, first = (json.loads(invoke(*arguments, *n).stdout)["digest"] for n in ([], ["--samples", "50"]))
    assert whole == json.loads(invoke(*arguments, "--samples", "120").stdout)["digest"]
    for name, head in (("train-images-idx3-ubyte", 16), ("train-labels-idx1-ubyte", 8)):
        content = (images / name).read_bytes()
        size = (len(content) - head) // 120
        (images / name).write_bytes(content[:4] + (50).to_bytes(4, "big") + content[8 : head + 50 * size])
    assert first == json.loads(invoke(*arguments).stdout)["digest"] != whole


def test_a_table_is_scaled_by_its_training_rows_only(table: Path, tmp_path: Path) -> None:
    arguments = ["train", "--data", table, "--target", "colour", "--out", tmp_path / "out", *QUICK]
    assert invoke(*arguments, "--samples", "40").exit_code == 0
    mean = ftnn.nn.notes_of(tmp_path / "out" / "model.safetensors")["preparation"]["inputs"]["mean"]
    rows = np.random.default_rng([0, 7]).permutation(200)[40:80]
    np.testing.assert_allclose(mean, 1000 * blobs(samples=200)[0][rows].mean(0), rtol=1e-5)


def test_the_settings_of_fit_are_options(table: Path, tmp_path: Path) -> None:
    data = ["--data", table, "--target", "a", "--layers", "1", "--width", "4", "--epochs", "3"]
    more = ["--weight-decay", "0.5", "--clip-norm", "0.01", "--loss", "huber"]
    digests = [
        json.loads(invoke("train", *data, *some, "--json").stdout)["digest"]
        for some in ([], more[:2], more[2:4], more[4:])
    ]
    assert len({*digests}) == 4
    bounded = ["--function", "F16", "--solver", "lm", "--bounds", "q=0.25,", "--bounds", "p=-1.5,1.5"]
    done = invoke("train", *data, *bounded, "--out", tmp_path / "m")
    assert done.exit_code == 0, done.output
    (layer,) = ftnn.load(tmp_path / "m" / "model.safetensors").layers
    assert bool((layer.matrix("q") >= 0.25).all())
    assert bool((layer.matrix("p").abs() <= 1.5).all())


def test_the_papers_result_is_shown_only_for_its_own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    few = Images(random.random((64, 784), np.float32), random.integers(10, size=64),
                 random.random((32, 784), np.float32), random.integers(10, size=32))  # fmt: skip
    monkeypatch.setattr("ftnn.data._by_name.mnist", lambda: few)
    done = invoke("train", "--function", "F07", "--gamma", "0")
    assert "the paper's" in done.stdout
    assert "97.99 %" in done.stdout
    others = (["--epochs", "1"], ["--samples", "60"])
    for other in (["--function", "p*x"], *(["--function", "F07", *each] for each in others)):
        assert "the paper's" not in invoke("train", *other, "--gamma", "0").stdout


def test_repeating_the_command_resumes_and_gives_the_same_result(table: Path, tmp_path: Path) -> None:
    arguments = ["train", "--data", table, "--target", "colour", "--out", tmp_path / "out", "--json", *QUICK]
    one, two = (json.loads(invoke(*arguments).stdout) for _ in range(2))
    assert one["digest"] == two["digest"]


class TestBadInput:
    def fails(self, *arguments: Any) -> str:
        result = invoke(*arguments)
        assert result.exit_code == 2
        assert "Traceback" not in result.output
        return " ".join(result.stderr.split())

    def test_text_in_a_feature_column_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "t.csv"
        path.write_text("a,b,y\n1,x,0\n2,3,1\n")
        assert "column 'b', row 1 has 'x', which is not a number" in self.fails(
            "train", "--data", path, "--target", "y"
        )

    def test_a_target_with_one_class_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "t.csv"
        path.write_text("a,y\n1,u\n2,u\n")
        assert "only one class" in self.fails("train", "--data", path, "--target", "y")

    @pytest.mark.parametrize("samples", [0, -1, 161])
    def test_an_impossible_number_of_samples_is_refused(self, table: Path, samples: int) -> None:
        message = self.fails("train", "--data", table, "--target", "colour", "--samples", samples)
        assert f"--samples {samples}: expected 1 to 160" in message

    def test_a_table_needs_a_target(self, table: Path) -> None:
        assert "--target" in self.fails("train", "--data", table)

    def test_predicting_without_a_feature_column_is_refused(self, table: Path, tmp_path: Path) -> None:
        invoke("train", "--data", table, "--target", "colour", "--out", tmp_path / "out", *QUICK)
        other = tmp_path / "other.csv"
        other.write_text("a,b\n1,2\n")
        assert "no columns 'c', 'd', 'e'" in self.fails("predict", tmp_path / "out", other)

    def test_an_output_folder_that_cannot_be_written_is_refused(self, table: Path, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        message = self.fails(
            "train", "--data", table, "--target", "colour", "--out", tmp_path / "file" / "out"
        )
        assert "cannot write to --out" in message

    def test_a_checkpoint_of_another_run_is_refused_and_not_touched(
        self, table: Path, tmp_path: Path
    ) -> None:
        same = ["train", "--data", table, "--target", "colour", "--out", tmp_path / "out"]
        invoke(*same, *QUICK)
        model = (tmp_path / "out" / "model.safetensors").read_bytes()
        assert "another run" in self.fails(*same, *QUICK, "--seed", "3")
        assert (tmp_path / "out" / "model.safetensors").read_bytes() == model

    def test_a_model_not_saved_by_train_cannot_predict(self, table: Path, tmp_path: Path) -> None:
        ftnn.save(ftnn.nn.Network(5, [4], 3), tmp_path / "m.safetensors")
        assert "does not describe its inputs" in self.fails("predict", tmp_path / "m.safetensors", table)

    @pytest.mark.parametrize(
        ("bounds", "message"),
        [
            (["q"], "'q' is not of the form NAME=LOW,HIGH, in which"),
            (["q=,"], "'q=,' is not of the form"),
            (["q=1,2,3"], "'q=1,2,3' is not of the form"),
            (["q=0,1", "q=0,2"], "'q' is given twice"),
            (["q=2,1"], "'q' has (2, 1); expected low < high"),
        ],
    )
    def test_bounds_that_are_none_are_refused(self, table: Path, bounds: list[str], message: str) -> None:
        options = [part for pair in bounds for part in ("--bounds", pair)]
        assert message in self.fails(
            "train", "--data", table, "--target", "colour", "--solver", "lm", *options
        )

    def test_losses_that_do_not_suit_the_target_are_refused(self, table: Path) -> None:
        data = ["train", "--data", table]
        assert "is for numbers" in self.fails(*data, "--target", "colour", "--loss", "huber")
        assert "is for classes" in self.fails(*data, "--target", "a", "--loss", "softmax")
        assert "'s' is unknown" in self.fails("train", "--loss", "abs(y - s)")  # before data are read

    def test_unknown_names_and_sizes_are_refused(self, table: Path) -> None:
        data = ["--data", table, "--target", "colour"]
        assert "neither a catalogue name" in self.fails("train", *data, "--function", "F99")
        assert "activation" in self.fails("train", *data, "--activation", "sigmoid")
        assert "solver" in self.fails("train", *data, "--solver", "x")
        assert "engine" in self.fails("train", *data, "--engine", "gpu")
        assert "1 or more" in self.fails("train", *data, "--layers", "0")
        for option in ("--layers", "--width"):
            assert "at most" in self.fails("train", *data, option, 10**20)


class TestTables:
    """Values of a table are used as spelled, or refused with their place."""

    def write(self, path: Path, target: list[str], feature: str = "{}") -> Path:
        rows = [f"{feature.format(n % 17)},{n * n % 23},{label}" for n, label in enumerate(target)]
        path.write_text("\n".join(["a,b,y", *rows]))
        return path

    def train(self, tmp_path: Path, data: Path, *more: str) -> Any:
        return invoke("train", "--data", data, "--target", "y", "--out", tmp_path / "out", *QUICK, *more)

    def refuses(self, done: Any) -> str:
        assert done.exit_code == 2, done.output
        assert "Traceback" not in done.output
        return " ".join(done.stderr.split())

    def test_a_missing_number_does_not_turn_a_regression_into_classification(self, tmp_path: Path) -> None:
        data = self.write(tmp_path / "t.csv", [str(n / 7) for n in range(59)] + ["nan"])
        message = self.refuses(self.train(tmp_path, data))
        assert "column 'y', row 60 is 'nan'" in message

    def test_labels_keep_their_spelling(self, tmp_path: Path) -> None:
        data = self.write(tmp_path / "t.csv", ["007", "01", "1"] * 20)
        assert self.train(tmp_path, data).exit_code == 0
        answer = json.loads(invoke("predict", tmp_path / "out", data, "--json").stdout)
        assert answer["classes"] == ["007", "01", "1"]
        assert answer["accuracy"] is not None

    def test_whole_numbers_are_classes_in_numerical_order(self, tmp_path: Path) -> None:
        data = self.write(tmp_path / "t.csv", [str(n % 11) for n in range(60)])
        assert self.train(tmp_path, data).exit_code == 0
        notes = ftnn.nn.notes_of(tmp_path / "out" / "model.safetensors")
        assert notes["preparation"]["classes"] == [str(n) for n in range(11)]

    def test_labels_spelled_differently_are_matched_and_reported(self, tmp_path: Path) -> None:
        data = self.write(tmp_path / "t.csv", [str(int(n * n % 23 > 10)) for n in range(90)])
        self.train(tmp_path, data)
        same = json.loads(invoke("predict", tmp_path / "out", data, "--json").stdout)
        other = self.write(tmp_path / "o.csv", [f"{int(n * n % 23 > 10)}.0" for n in range(90)])
        done = invoke("predict", tmp_path / "out", other, "--json")
        assert json.loads(done.stdout) == same
        assert same["accuracy"] > 60
        assert "'1.0' was read as the class '1'" in " ".join(done.stderr.split())

    def test_unknown_labels_are_refused(self, tmp_path: Path) -> None:
        data = self.write(tmp_path / "t.csv", ["red", "blue"] * 30)
        self.train(tmp_path, data)
        other = self.write(tmp_path / "o.csv", ["red", "Blue"] * 30)
        message = self.refuses(invoke("predict", tmp_path / "out", other))
        assert "column 'y', row 2 has the label 'Blue'" in message
        assert "'blue', 'red'" in message

    def test_a_number_that_matches_two_classes_is_refused(self, tmp_path: Path) -> None:
        data = self.write(tmp_path / "t.csv", ["01", "1"] * 30)
        self.train(tmp_path, data)
        other = self.write(tmp_path / "o.csv", ["01", "1.0"] * 30)
        assert "'1.0'" in self.refuses(invoke("predict", tmp_path / "out", other))

    def test_labels_may_be_missing(self, tmp_path: Path) -> None:
        data = self.write(tmp_path / "t.csv", ["red", "blue"] * 30)
        self.train(tmp_path, data)
        empty = self.write(tmp_path / "o.csv", [""] * 60)
        assert json.loads(invoke("predict", tmp_path / "out", empty, "--json").stdout)["accuracy"] is None
        some = self.write(tmp_path / "s.csv", ["red", ""] * 30)
        answer = json.loads(invoke("predict", tmp_path / "out", some, "--json").stdout)
        assert answer["accuracy"] == 100 * answer["predictions"][::2].count("red") / 30

    @pytest.mark.parametrize(
        ("feature", "message"),
        [
            ("1e2{:02d}", "column 'a', row 1 is 1e200, beyond the range of float32"),
            ("1e-2{:02d}", "column 'a'"),
        ],
    )
    def test_features_that_float32_cannot_distinguish_are_refused(
        self, tmp_path: Path, feature: str, message: str
    ) -> None:
        data = self.write(tmp_path / "t.csv", ["red", "blue"] * 30, feature)
        assert message in self.refuses(self.train(tmp_path, data))

    def test_targets_that_float32_cannot_distinguish_are_learned(self, tmp_path: Path) -> None:
        data = self.write(tmp_path / "t.csv", [f"1000000000{n * n % 23:02d}.5" for n in range(60)])
        done = invoke("train", "--data", data, "--target", "y", "--out", tmp_path / "out", "--json")
        assert json.loads(done.stdout)["r2"] > 0.9

    def test_a_feature_far_outside_the_training_range_counts_as_five_deviations(self, tmp_path: Path) -> None:
        data = self.write(tmp_path / "t.csv", ["red", "blue"] * 30, "{}e-30")
        assert self.train(tmp_path, data).exit_code == 0
        other = tmp_path / "o.csv"
        other.write_text("a,b\n1e-28,2\n1e30,2\n")
        lines = invoke("predict", tmp_path / "out", other, "--proba").stdout.splitlines()
        assert lines[0] == lines[1]

    def test_a_constant_column_is_not_scaled(self, tmp_path: Path) -> None:
        """The standard deviation of equal numbers is not exactly zero."""
        data = self.write(tmp_path / "t.csv", ["red", "blue"] * 30)
        data.write_text("\n".join(
            line if not n else "0.1," + line.partition(",")[2]
            for n, line in enumerate(data.read_text().splitlines())
        ))  # fmt: skip
        assert self.train(tmp_path, data).exit_code == 0
        notes = ftnn.nn.notes_of(tmp_path / "out" / "model.safetensors")
        assert notes["preparation"]["inputs"]["scale"][0] == 1


class TestNotes:
    """A model file's notes on its inputs are checked before they are used."""

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("task", "guessing"),
            ("classes", ["red", 5, "blue"]),
            ("classes", ["red"]),
            ("classes", "red"),
            ("columns", [{"name": "a", "median": "x", "flag": False}]),
            ("columns", [{"name": "a", "categories": []}]),
            ("columns", ["a"] * 5),
            ("columns", 5),
            ("columns", []),
            ("inputs", {"mean": [1, 2], "scale": [1, 2], "limit": None}),
            ("inputs", {"mean": ["x"] * 5, "scale": [1] * 5, "limit": None}),
            ("inputs", {"mean": [0] * 5, "scale": [0.0] * 5, "limit": None}),
            ("inputs", {"mean": [0] * 5, "scale": [float("nan")] * 5, "limit": None}),
            ("inputs", {"mean": [0] * 5, "scale": [1] * 5, "limit": 0}),
            ("inputs", [0]),
            ("targets", {"mean": [0], "scale": [1], "limit": None}),
            ("target", 5),
            ("id", 5),
        ],
    )
    def test_invalid_notes_are_refused(self, table: Path, tmp_path: Path, field: str, value: Any) -> None:
        out = tmp_path / "out"
        assert invoke("train", "--data", table, "--target", "colour", "--out", out, *QUICK).exit_code == 0
        path = out / "model.safetensors"
        notes = ftnn.nn.notes_of(path)
        notes["preparation"][field] = value
        ftnn.save(ftnn.load(path), path, notes=notes)
        done = invoke("predict", out, table)
        assert done.exit_code == 2, done.output
        assert field in done.stderr
        assert "Traceback" not in done.output
