"""Tasks 2 and 9: the estimators at their defaults, a grid search, and a table on the command line.

The others are scikit-learn's MLP, with standardised inputs and targets, and HistGradientBoosting.
"""

import csv
import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rows import Effort, Row, compared
from sklearn import datasets
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ftnn import FTNNClassifier, FTNNRegressor

Array = np.ndarray[Any, np.dtype[Any]]
NAMES = "ftnn", "MLP", "trees"


# --- 2: data sets of scikit-learn ---


def estimators(effort: Effort) -> Iterator[Row]:
    """Accuracy or R² at the defaults, then with a grid search over functions."""
    for name in ("diabetes", "friedman1", "breast_cancer", "digits"):
        is_class = name in ("breast_cancer", "digits")
        scores: dict[str, list[float]] = {key: [] for key in NAMES}
        for seed in range(effort.splits):
            model = (FTNNClassifier if is_class else FTNNRegressor)(random_state=seed)
            for key, each in zip(NAMES, (model, *_others(is_class, seed)), strict=True):
                scores[key].append(_score(each, _split(name, seed, effort, is_class=is_class)))
        yield compared(f"{name}: {'accuracy' if is_class else 'R²'}", scores)
    yield _grid_search(effort)


def _grid_search(effort: Effort) -> Row:
    functions = ["F03", "F12", "F16", "p*tanh(q*x + r) + s*x"]
    scores: dict[str, list[float]] = {key: [] for key in NAMES}
    for seed in range(effort.seeds):
        mlp, trees = _others(False, seed)
        searches = (
            GridSearchCV(FTNNRegressor(random_state=seed), {"function": functions}, cv=3),
            GridSearchCV(mlp, {"transformedtargetregressor__regressor__alpha": [1e-4, 1e-2, 1.0]}, cv=3),
            GridSearchCV(trees, {"learning_rate": [0.03, 0.1], "max_leaf_nodes": [7, 31]}, cv=3),
        )
        for key, each in zip(NAMES, searches, strict=True):
            scores[key].append(_score(each, _split("friedman1", seed, effort, is_class=False)))
    return compared("friedman1, grid searches: R²", scores)


def _split(name: str, seed: int, effort: Effort, *, is_class: bool) -> Any:
    if name == "friedman1":
        x, y = datasets.make_friedman1(1000, noise=1.0, random_state=seed)
    else:
        x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    sizes: dict[str, Any] = {"train_size": effort.of(len(x) - len(x) // 4), "test_size": len(x) // 4}
    return train_test_split(x, y, random_state=seed, stratify=y if is_class else None, **sizes)


# --- 9: a table on the command line ---


def tables(effort: Effort) -> Iterator[Row]:
    """A table with a category, missing values, an id and a price, through `ftnn train` and `ftnn predict`."""
    scores: dict[str, list[float]] = {key: [] for key in NAMES}
    count = effort.of(1000)
    for seed in range(effort.splits):
        with tempfile.TemporaryDirectory() as folder:
            train, test, model = (Path(folder, name) for name in ("flats.csv", "more.csv", "model"))
            columns = flats(count + 500, seed)
            write(train, {name: cells[:count] for name, cells in columns.items()})
            write(test, {name: cells[count:] for name, cells in columns.items()})
            about = ("--data", train, "--target", "price", "--task", "regression", "--id", "id")
            _ftnn("train", *about, "--out", model, "--seed", str(seed))
            answer = json.loads(_ftnn("predict", model, test, "--json"))
        assert answer["ids"] == columns["id"][count:]
        # The command holds out a fifth of the rows; so do the others.
        order = np.random.default_rng([seed, 7]).permutation(count)[count // 5 :]
        x, y = encoded(columns), np.array([float(price) for price in columns["price"]])
        parts = (x[order], x[count:], y[order], y[count:])
        for key, score in zip(
            NAMES, (100 * answer["r2"], *(_score(each, parts) for each in _others(False, seed))), strict=True
        ):
            scores[key].append(score)
    yield compared("flats, `ftnn train` and `ftnn predict`: R²", scores)


def _ftnn(*arguments: str | Path) -> str:
    command = (sys.executable, "-m", "ftnn", *arguments)
    return subprocess.run(
        command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ).stdout


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


# --- the others ---


def _others(is_class: bool, seed: int) -> tuple[Any, Any]:
    """An MLP with standardised inputs and targets, and gradient-boosted trees."""

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
