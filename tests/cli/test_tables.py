# scikit-learn has no types.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false
"""Real tables on the command line: units, categories, missing values, ids, separators."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression
from typer.testing import CliRunner

import ftnn
from ftnn.cli import app
from ftnn.data import Images
from ftnn.data._by_name import TableOptions, training_data
from ftnn.experiments.paper.mnist.training import problem_of
from tests.cli.prices import NUMBERS, flats, with_gaps, write

QUICK = ["--width", "8", "--epochs", "3"]


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def train(data: Path, out: Path, *more: Any, quick: bool = True) -> Any:
    settings = QUICK if quick else []
    done = run("train", "--data", data, "--target", "price", "--out", out, "--json", *settings, *more)
    assert done.exit_code == 0, done.output
    return done


def refused(*arguments: Any) -> str:
    done = run("train", *arguments, *QUICK)
    assert done.exit_code == 2, done.output
    assert "Traceback" not in done.output
    return " ".join(done.stderr.split())


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    return write(tmp_path / "prices.csv", with_gaps(flats()))


REGRESSION = ("--task", "regression", "--id", "id")

# --- units ---


def numbers_only(tmp_path: Path) -> Path:
    columns = flats(800)
    return write(tmp_path / "numbers.csv", {name: columns[name] for name in (*NUMBERS, "price")})


def test_a_table_of_prices_is_learned_as_well_as_by_an_estimator(tmp_path: Path) -> None:
    path = numbers_only(tmp_path)
    done = train(path, tmp_path / "out", "--task", "regression", "--function", "F12", quick=False)
    result = json.loads(done.stdout)
    values = np.loadtxt(path, delimiter=",", skiprows=1)
    x, y = values[:, :-1], values[:, -1]
    order = np.random.default_rng([0, 7]).permutation(800)
    test, rest = order[:160], order[160:]

    def rmse(model: Any) -> float:
        return float(np.sqrt(np.mean((model.fit(x[rest], y[rest]).predict(x[test]) - y[test]) ** 2)))

    assert result["rmse"] < 1.05 * rmse(ftnn.FTNNRegressor(function="F12", random_state=0))
    assert result["rmse"] < 0.9 * rmse(LinearRegression())
    predictions = np.array([float(line) for line in run("predict", tmp_path / "out", path).stdout.split()])
    errors = predictions[test] - y[test]
    assert result["rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)), rel=1e-4)
    assert result["r2"] == pytest.approx(1 - np.mean(errors**2) / y[test].var(), rel=1e-4)
    assert (result["training_samples"], result["test_samples"]) == (640, 160)


def test_the_papers_method_learns_prices_too(tmp_path: Path) -> None:
    more = ("--task", "regression", "--gamma", "-4", "--width", "32", "--epochs", "20")
    result = json.loads(train(numbers_only(tmp_path), tmp_path / "out", *more).stdout)
    assert result["r2"] > 0.3
    assert result["failed"] is None


def test_predictions_of_a_regression_are_compared_with_the_target(tmp_path: Path) -> None:
    path = numbers_only(tmp_path)
    train(path, tmp_path / "out", "--task", "regression")
    done = run("predict", tmp_path / "out", path, "--json")
    answer = json.loads(done.stdout)
    prices = np.loadtxt(path, delimiter=",", skiprows=1)[:, -1]
    assert answer["rmse"] == pytest.approx(np.sqrt(np.mean((np.array(answer["predictions"]) - prices) ** 2)))
    assert f"RMSE {answer['rmse']:,.0f}, R² {answer['r2']:.4f}" in done.stderr


def test_the_text_shows_rmse_and_r2_and_which_rows_were_tested(prices: Path) -> None:
    done = run("train", "--data", prices, "--target", "price", *REGRESSION, *QUICK)
    assert "test RMSE" in done.stdout
    assert "test R²" in done.stdout
    assert "100 of 500 rows, at random (--seed 0, --test-size)" in done.stdout
    assert "--test-size" in run("train", "--help").stdout


def test_a_model_from_0_1_still_predicts(tmp_path: Path) -> None:
    """Its columns are numbers, standardised without a limit, and its targets are not scaled."""
    net = ftnn.nn.Network(2, [3], 1, function="F03")
    preparation = {
        "task": "regression", "classes": None, "features": ["b", "a"], "target": "y", "mean": [1.0, 2.0],
        "scale": [2.0, 4.0],
    }  # fmt: skip
    ftnn.save(net, tmp_path / "m.ftnn", {"preparation": preparation})
    data = tmp_path / "d.csv"
    data.write_text("a,b\n30,7\n-6,-5\n")
    answers = json.loads(run("predict", tmp_path / "m.ftnn", data, "--json").stdout)["predictions"]
    expected = net(torch.tensor([[3.0, 7.0], [-3.0, -2.0]]))[:, 0].tolist()
    assert answers == pytest.approx(expected)
    data.write_text("a,b\n,7\n")
    assert "is empty" in run("predict", tmp_path / "m.ftnn", data).stderr


# --- categories and missing values ---


def test_raw_rows_with_categories_and_gaps_are_learned_and_predicted(prices: Path, tmp_path: Path) -> None:
    result = json.loads(train(prices, tmp_path / "out", *REGRESSION, quick=False).stdout)
    assert result["r2"] > 0.8
    lines = run("predict", tmp_path / "out", prices).stdout.splitlines()
    assert lines[3].startswith("N-00003,")
    assert len(lines) == 500


def test_columns_are_encoded_by_the_training_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("size,colour,y\n" + "1,red,0.5\n2,,1.5\n,blue,2.5\n4,red,3.5\n6,red,0.25\n" * 5)
    options = TableOptions("y", test=str(path))
    data = training_data(str(path), options)
    preparation = data.preparation
    assert preparation.input_names == (
        "size", "size is missing", "colour is missing", "colour = blue", "colour = red"
    )  # fmt: skip
    assert preparation.inputs is not None
    raw = np.array([[1, 0, 0, 0, 1], [2, 0, 1, 0, 0], [3, 1, 0, 1, 0], [4, 0, 0, 0, 1], [6, 0, 0, 0, 1]])
    np.testing.assert_allclose(preparation.inputs.mean, raw.mean(0))  # the median of 1, 2, 4 and 6 is 3
    np.testing.assert_allclose(data.test_x[:5], (raw - raw.mean(0)) / raw.std(0))
    assert preparation.targets is not None
    assert preparation.targets.mean == pytest.approx([1.65])
    np.testing.assert_allclose(preparation.unscaled(data.test_y[:5, None])[:, 0], [0.5, 1.5, 2.5, 3.5, 0.25])


def test_new_categories_and_gaps_can_be_predicted(tmp_path: Path) -> None:
    columns = flats(100)
    train(write(tmp_path / "t.csv", columns), tmp_path / "out", *REGRESSION)
    columns["city"][0], columns["area"][1] = "Bodø", "n/a"
    done = run("predict", tmp_path / "out", write(tmp_path / "o.csv", columns))
    assert done.exit_code == 0, done.output
    assert len(done.stdout.splitlines()) == 100
    assert "column 'city' has categories that the model does not know, in 1 row: 'Bodø'" in done.stderr


def test_numbers_can_be_categories(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", flats(100))
    train(path, tmp_path / "out", *REGRESSION, "--categorical", "rooms")
    notes = ftnn.nn.notes_of(tmp_path / "out" / "model.safetensors")
    column = next(each for each in notes["preparation"]["columns"] if each["name"] == "rooms")
    assert set(column["categories"]) <= set("123456")


def test_only_the_most_common_categories_become_inputs(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("code,y\n" + "\n".join(f"c{n % 150},{n % 7}.5" for n in range(400)))
    data = training_data(str(path), TableOptions("y", test=str(path)))
    assert data.x.shape == (400, 100)
    assert "150 categories; only the 100 most common" in data.notes[0]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (["1,0.5", "x,1.5", "3,2.5"], "column 'a', row 2 has 'x', which is not a number, unlike '1' and 1"),
        (["1,0.5", "x,1.5", ",2.5"], "column 'a', row 2 has 'x', which is not a number, unlike '1'; "),
        (["1,0.5", "inf,1.5", "3,2.5"], "column 'a', row 2 is inf, but must be a finite number"),
        ([",0.5", ",1.5", ",2.5"], "column 'a' is empty in all training rows; leave it out with --drop a"),
        (["NA,0.5", "-,1.5", ",2.5"], "column 'a' is empty in all training rows; leave it out with --drop a"),
        ([f"t{n},{n}.5" for n in range(60)], "column 'a' has 48 different texts in 48 training rows"),
    ],
)
def test_columns_that_are_neither_numbers_nor_categories_are_refused(
    tmp_path: Path, rows: list[str], expected: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b,y\n" + "\n".join(row.replace(",", ",1,") for row in rows))
    message = refused("--data", path, "--target", "y")
    assert expected in message
    assert "--drop a" in message
    assert run("train", "--data", path, "--target", "y", "--drop", "a", *QUICK).exit_code == 0


def test_a_table_in_another_encoding_is_refused_with_advice(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("town,y\nTromsø,1.5\nOslo,2.5\n", "latin-1")
    message = refused("--data", path, "--target", "y")
    assert "it is not UTF-8" in message
    assert "save it as CSV in UTF-8" in message


def test_a_column_that_counts_the_rows_is_pointed_out(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("n,a,y\n" + "\n".join(f"{n},{n % 5},{n % 3}.5" for n in range(30)))
    done = run("train", "--data", path, "--target", "y", *QUICK)
    assert "column 'n' merely counts the rows; --id n would leave it out" in done.stderr
    assert "numbers the rows" not in run("train", "--data", path, "--target", "y", "--id", "n", *QUICK).stderr


# --- the target, and the test rows ---


def test_many_whole_numbers_need_a_task(prices: Path) -> None:
    message = refused("--data", prices, "--target", "price", "--id", "id")
    assert "column 'price' has 500 different whole numbers" in message
    assert "--task regression" in message
    assert "--task classification" in message


def test_codes_and_a_few_whole_numbers_are_classes(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for labels in ([f"{n % 20}" for n in range(60)], [f"{n % 25:03d}" for n in range(60)]):
        path.write_text("a,y\n" + "\n".join(f"{n},{label}" for n, label in enumerate(labels)))
        assert training_data(str(path), TableOptions("y")).preparation.task == "classification"


def test_the_test_rows_can_be_chosen(prices: Path, tmp_path: Path) -> None:
    def counts(*more: Any) -> tuple[int, int]:
        result = json.loads(train(prices, tmp_path / "-".join(map(str, more)), *REGRESSION, *more).stdout)
        return result["training_samples"], result["test_samples"]

    assert counts("--test-size", 0.1) == (450, 50)
    assert counts("--test-size", 30) == (470, 30)
    other = write(tmp_path / "other.csv", flats(40, seed=3))
    assert counts("--test", other) == (500, 40)
    for value in (0, -1, 1.5, 500, "inf", "nan"):
        message = refused("--data", prices, "--target", "price", *REGRESSION, "--test-size", value)
        assert "--test-size" in message or "at least 501" in message
    more = ("--test", other, "--test-size", 0.5)
    assert "choose one" in refused("--data", prices, "--target", "price", *REGRESSION, *more)


def test_a_label_that_only_the_test_file_has_is_found_there(tmp_path: Path) -> None:
    training, other = tmp_path / "training.csv", tmp_path / "other.csv"
    training.write_text("a,y\n" + "1.5,no\n2.5,yes\n" * 20)
    other.write_text("a,y\n1.5,no\n1.7,perhaps\n")
    message = refused("--data", training, "--target", "y", "--test", other)
    assert "other.csv: column 'y', row 2 has the label 'perhaps'" in message
    assert "training.csv" not in message
    assert message.endswith("spell it as in the training data, or leave the row out")


def test_scaling_and_encoding_ignore_the_test_file(prices: Path, tmp_path: Path) -> None:
    other = flats(40, seed=3)
    other["area"], other["city"] = ["1e6"] * 40, ["Bodø"] * 40
    options = TableOptions("price", "regression", id="id", test=str(write(tmp_path / "o.csv", other)))
    with_other = training_data(str(prices), options)
    assert with_other.preparation == training_data(
        str(prices), TableOptions("price", "regression", id="id", test=str(prices))
    ).preparation  # fmt: skip
    assert with_other.test_x[:, 0] == pytest.approx(5)


# --- ids and columns ---


def test_predictions_can_show_any_column(prices: Path, tmp_path: Path) -> None:
    train(prices, tmp_path / "out", "--task", "regression", "--drop", "id", "--drop", "year")
    plain = run("predict", tmp_path / "out", prices).stdout.splitlines()
    named = run("predict", tmp_path / "out", prices, "--id", "id").stdout.splitlines()
    assert named == [f"N-{row:05d},{line}" for row, line in enumerate(plain)]
    assert (
        json.loads(run("predict", tmp_path / "out", prices, "--id", "id", "--json").stdout)["ids"][1]
        == "N-00001"
    )
    wrong = run("predict", tmp_path / "out", prices, "--id", "ID")
    assert wrong.exit_code == 2
    assert "no column 'ID'" in wrong.stderr


def test_columns_that_are_missing_or_used_twice_are_refused(prices: Path) -> None:
    table = ("--data", prices, "--target", "price", "--task", "regression")
    assert "no column 'nothing'; it has id, area" in refused(*table, "--drop", "nothing")
    assert "'price' is both used and left out" in refused(*table, "--drop", "price")
    assert "'city' is both used and left out" in refused(*table, "--categorical", "city", "--id", "city")
    assert "--drop is for tables, but mnist holds images" in refused("--drop", "a")


# --- separators and decimal signs ---


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_separators_and_decimal_commas_are_detected(tmp_path: Path, separator: str) -> None:
    columns = flats(60)
    names = ("area", "year", "distance", "city", "price")
    plain = write(tmp_path / "plain.csv", {name: columns[name] for name in names})
    german = {name: [cell.replace(".", ",") for cell in columns[name]] for name in names}
    other = write(tmp_path / "other.csv", german, separator)
    options = TableOptions("price", "regression")
    one, two = (training_data(str(path), options) for path in (plain, other))
    np.testing.assert_array_equal(one.x, two.x)
    assert one.preparation == two.preparation


def test_separators_and_decimal_signs_can_be_given(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a b;y\n" * 1 + "\n".join(f"{n},{n}25 {n % 3};{n},500" for n in range(1, 20)))
    options = TableOptions("b;y", "classification", separator=" ")
    assert training_data(str(path), options).preparation.input_names == ("a",)
    path.write_text("a;y\n" + "\n".join(f"{n},250;red\n{n},750;blue" for n in range(1, 30)))
    message = refused("--data", path, "--target", "y")
    assert "column 'a', row 1 has '1,250', which could be 1.250 or 1250" in message
    done = training_data(str(path), TableOptions("y", decimal=","))
    assert done.preparation.inputs is not None
    assert done.preparation.inputs.mean[0] == pytest.approx(15, abs=3)
    assert "expected . or ," in refused("--data", path, "--target", "y", "--decimal", "x")
    assert "one character" in refused("--data", path, "--target", "y", "--separator", "ab")


def test_points_and_commas_are_not_both_decimal_signs(tmp_path: Path) -> None:
    """Where commas are decimal signs, points separate thousands."""
    path = tmp_path / "t.csv"
    rows = [f"{20 + n},5;{n % 3 + 2},5;{300 + 7 * n}.000;24.12" for n in range(40)]
    path.write_text("area;rooms;price;day\n" + "\n".join(rows))
    message = refused("--data", path, "--target", "price")
    assert "column 'area', row 1 has '20,5', but column 'price', row 1 has '300.000'" in message
    assert message.endswith("use --decimal , or --decimal . to say which is the decimal sign")
    message = refused("--data", path, "--target", "price", "--decimal", ",", "--drop", "day")
    assert "column 'price', row 1 has '300.000', but the decimal sign is a comma (--decimal)" in message
    options = TableOptions("area", drop=("price",), decimal=",", categorical=("day",))
    assert training_data(str(path), options).preparation.input_names == ("rooms", "day = 24.12")


def test_a_separator_inside_of_texts_does_not_mislead(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a;b, with, many, commas;y\n1;x, y;0.5\n2;z;1.5\n3;z;2.5\n")
    data = training_data(str(path), TableOptions("y", test=str(path)))
    assert data.preparation.input_names == ("a", "b, with, many, commas = x, y", "b, with, many, commas = z")


# --- images ---


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Images:
    random = np.random.default_rng(0)
    images = Images(
        random.random((64, 784), np.float32), random.integers(10, size=64),
        random.random((32, 784), np.float32), random.integers(10, size=32),
    )  # fmt: skip
    monkeypatch.setattr("ftnn.data._by_name.mnist", lambda: images)
    return images


@pytest.mark.filterwarnings("ignore:FTNN")
def test_models_from_the_command_line_and_from_python_predict_mnist(few: Images, tmp_path: Path) -> None:
    assert run("train", "--out", tmp_path / "out", "--json", *QUICK).exit_code == 0
    net = ftnn.load(tmp_path / "out" / "model.safetensors")
    ftnn.save(net, tmp_path / "net.ftnn")  # without any notes
    labels = net(torch.from_numpy(few.test_images)).argmax(1).tolist()
    for model in ("out", "net.ftnn"):
        done = run("predict", tmp_path / model, "mnist", "--json")
        assert done.exit_code == 0, done.output
        answer = json.loads(done.stdout)
        assert answer["predictions"] == list(map(str, labels))
        assert answer["accuracy"] == pytest.approx(100 * np.mean(labels == few.test_labels))
    estimator = ftnn.FTNNClassifier(hidden_layer_sizes=8, epochs=2, random_state=0)
    ftnn.save(estimator.fit(few.train_images, few.train_labels), tmp_path / "estimator.ftnn")
    answer = json.loads(run("predict", tmp_path / "estimator.ftnn", "mnist", "--json").stdout)
    assert answer["predictions"] == list(map(str, estimator.predict(few.test_images).tolist()))


def test_mnist_with_a_number_means_the_first_training_images_and_all_test_images(
    few: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = training_data("mnist:20"), training_data("mnist", samples=20)
    np.testing.assert_array_equal(one.x, few.train_images[:20])
    np.testing.assert_array_equal(one.x, two.x)
    assert len(one.test_x) == len(two.test_x) == 32
    monkeypatch.setattr("ftnn.experiments.paper.mnist.training.mnist", lambda: few)
    problem = problem_of.__wrapped__("mnist:20")  # what `ftnn reproduce` uses, without its cache
    assert (len(problem.x), len(problem.test_x)) == (20, 32)
    assert "mean the same" in refused("--data", "mnist:20", "--samples", 20)
    for wrong in ("mnist:", "mnist:x", "mnist:0", "mnist:99"):
        assert "expected" in refused("--data", wrong)
    assert "unknown data 'mnist:0'" in refused("--data", "mnist:0")
