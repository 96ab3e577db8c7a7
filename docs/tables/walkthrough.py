"""Tasks of a new user, end to end, from a wheel in a fresh environment. A few minutes.

Builds a wheel of this checkout, installs it in a new environment (its dependencies come from the current one)
and runs each task there: with ftnn at its defaults, beside scikit-learn's MLP (standardised) and
HistGradientBoosting. Prints Markdown: mean test accuracies or R² in percent over the splits, and the
difference between ftnn and the better of the two with its standard error over the splits; "!" marks more than
two standard errors below. `python docs/tables/walkthrough.py tables` runs only some tasks.

A task is a function here: add it to TASKS.
"""

import csv
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
SPLITS = range(5)
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Row:
    """A line of the table: scores in percent, one for each split."""

    what: str
    ftnn: list[float]
    mlp: list[float]
    trees: list[float]


# --- the tasks ---


def estimators() -> list[Row]:
    """Task 2: data sets of scikit-learn with the estimators at their defaults."""
    from sklearn import datasets
    from sklearn.model_selection import train_test_split

    from ftnn import FTNNClassifier, FTNNRegressor

    rows: list[Row] = []
    for name in ("diabetes", "friedman1", "breast_cancer", "digits"):
        is_class = name in ("breast_cancer", "digits")
        scores: list[tuple[float, ...]] = []
        for seed in SPLITS:
            if name == "friedman1":
                x, y = datasets.make_friedman1(1000, noise=1.0, random_state=seed)
            else:
                x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
            parts = train_test_split(x, y, random_state=seed, stratify=y if is_class else None)
            model = (FTNNClassifier if is_class else FTNNRegressor)(random_state=seed)
            scores.append(tuple(_score(each, parts) for each in (model, *_others(is_class, seed))))
        rows.append(Row(name, *(list(column) for column in zip(*scores, strict=True))))
    return rows


def tables() -> list[Row]:
    """Task 9: a table with a category, missing values, an id and a price, on the command line."""
    scores: list[tuple[float, ...]] = []
    for seed in SPLITS:
        with tempfile.TemporaryDirectory() as folder:
            train, test = Path(folder, "flats.csv"), Path(folder, "more.csv")
            columns = flats(1500, seed)
            write(train, {name: cells[:1000] for name, cells in columns.items()})
            write(test, {name: cells[1000:] for name, cells in columns.items()})
            command = (sys.executable, "-m", "ftnn")
            about = ("--data", train, "--target", "price", "--task", "regression", "--id", "id")
            subprocess.run(
                [*command, "train", *about, "--out", Path(folder, "m")], check=True, capture_output=True
            )
            done = subprocess.run(
                [*command, "predict", Path(folder, "m"), test, "--json"], check=True, capture_output=True
            )
        answer = json.loads(done.stdout)
        assert answer["ids"] == columns["id"][1000:]
        # The command trains on 800 of the first 1,000 rows; so do the others.
        order = np.random.default_rng([0, 7]).permutation(1000)[200:]
        x, y = encoded(columns), np.array([float(price) for price in columns["price"]])
        parts = (x[order], x[1000:], y[order], y[1000:])
        scores.append((100 * answer["r2"], *(_score(each, parts) for each in _others(False, seed))))
    return [Row("flats, `ftnn train` and `ftnn predict`", *(list(c) for c in zip(*scores, strict=True)))]


TASKS: dict[str, Callable[[], list[Row]]] = {"estimators": estimators, "tables": tables}

# --- the others ---


def _others(is_class: bool, seed: int) -> tuple[Any, Any]:
    """An MLP with standardised inputs and targets, and gradient-boosted trees."""
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.impute import SimpleImputer
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    prepared = SimpleImputer(strategy="median", add_indicator=True), StandardScaler()
    if is_class:
        trees: Any = HistGradientBoostingClassifier(random_state=seed)
        return make_pipeline(*prepared, MLPClassifier(max_iter=1000, random_state=seed)), trees
    mlp = TransformedTargetRegressor(
        MLPRegressor(max_iter=1000, random_state=seed), transformer=StandardScaler()
    )
    return make_pipeline(*prepared, mlp), HistGradientBoostingRegressor(random_state=seed)


def _score(model: Any, parts: Any) -> float:
    """Accuracy or R² on the test samples, in percent."""
    x, x_test, y, y_test = parts
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the MLP's, if it does not converge
        return 100 * model.fit(x, y).score(x_test, y_test)


# --- a generated table ---


def flats(rows: int, seed: int) -> dict[str, list[str]]:
    """Flats with a price, 10 % of some cells missing."""
    random = np.random.default_rng(seed)
    worth = {"Bergen": 1.1, "Oslo": 1.6, "Tromsø": 0.8}
    area, distance = random.uniform(25, 180, rows), random.exponential(4.0, rows)
    year, city = random.integers(1900, 2024, rows), random.choice(list(worth), rows)
    level = 40_000 * (1 + ((year - 1965) / 60.0) ** 2) * (0.6 + np.exp(-distance / 3))
    price = (
        area**0.9 * level * np.array([worth[name] for name in city]) * (1 + 0.03 * random.normal(size=rows))
    )

    def with_gaps(cells: list[str]) -> list[str]:
        return ["" if random.random() < 0.1 else cell for cell in cells]

    return {
        "id": [f"N-{number:05d}" for number in range(rows)],
        "area": [f"{value:.1f}" for value in area],
        "year": with_gaps([str(value) for value in year]),
        "distance": with_gaps([f"{value:.2f}" for value in distance]),
        "city": with_gaps(city.tolist()),
        "price": [f"{value:.0f}" for value in price],
    }


def write(path: Path, columns: dict[str, list[str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([[*columns], *zip(*columns.values(), strict=True)])


def encoded(columns: dict[str, list[str]]) -> Array:
    """The features for scikit-learn: NaN for missing numbers, a column for each city."""
    numbers = [[float(cell or "nan") for cell in columns[name]] for name in ("area", "year", "distance")]
    cities = [[float(cell == name) for cell in columns["city"]] for name in sorted({*columns["city"]})]
    return np.array([*numbers, *cities]).T


# --- running ---


def in_fresh_environment(arguments: list[str]) -> int:
    """Run this script with the wheel of this checkout, and without the source tree."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with tempfile.TemporaryDirectory() as folder:

        def call(*command: str | Path) -> str:
            return subprocess.run(
                command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True
            ).stdout

        call(
            sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", Path(folder, "dist"), ROOT
        )
        call(sys.executable, "-m", "venv", "--without-pip", Path(folder, "fresh"))
        python = Path(folder, "fresh", "bin", "python")
        (wheel,) = Path(folder, "dist").glob("*.whl")
        pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
        call(*pip, "install", "--quiet", "--no-index", "--no-deps", wheel)
        purelib = call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
        # A folder named in a .pth file comes last, and its own .pth files, such as an editable ftnn, have no
        # effect.
        Path(purelib, "dependencies.pth").write_text(sysconfig.get_path("purelib"), "utf-8")
        script = Path(folder, "walkthrough.py")
        script.write_text(Path(__file__).read_text("utf-8"), "utf-8")
        command = [python, script, "--here", *arguments]
        return subprocess.run(command, cwd=folder, env=environment).returncode


def line(row: Row) -> str:
    better = max(row.mlp, row.trees, key=lambda scores: float(np.mean(scores)))
    differences = np.array(row.ftnn) - np.array(better)
    mean, error = differences.mean(), differences.std(ddof=1) / len(differences) ** 0.5
    mark = " !" if mean < -2 * error else ""
    means = " | ".join(f"{np.mean(scores):.1f}" for scores in (row.ftnn, row.mlp, row.trees))
    return f"| {row.what} | {means} | {mean:+.1f} ± {error:.1f}{mark} |"


def main(arguments: list[str]) -> int:
    if "--here" not in arguments:
        return in_fresh_environment(arguments)
    import ftnn

    assert Path(ftnn.__file__).is_relative_to(sys.prefix)  # the wheel, not the source tree
    print("| task | ftnn | MLP | trees | ftnn against the better one |\n|---|---|---|---|---|")
    for name in [name for name in arguments if name != "--here"] or TASKS:
        for row in TASKS[name]():
            print(line(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
