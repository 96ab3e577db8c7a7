"""The table in docs/howto/sklearn.md: estimators at their defaults beside scikit-learn's MLP. Half an hour.

It writes Markdown: mean scores over twenty splits, and the difference to the MLP with its standard error over
the splits; "!" marks a function that is worse by more than one standard error. For other splits and data:
python docs/tables/estimators.py 100-115 wine digits.
"""

import sys
import warnings
from typing import Any

import numpy as np
import torch
from sklearn import datasets
from sklearn.compose import TransformedTargetRegressor
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import ftnn

FUNCTIONS = ("F03", "F12", "F16", "p*tanh(q*x + r) + s*x")
CLASSIFICATION: dict[str, Any] = {
    "breast_cancer": datasets.load_breast_cancer,
    "digits": datasets.load_digits,
    "wine": datasets.load_wine,
}
DATA = (*CLASSIFICATION, "diabetes", "friedman1")


def split(name: str, seed: int) -> Any:
    """Training and test inputs, training and test targets; a quarter is for testing."""
    if name in CLASSIFICATION:
        x, y = CLASSIFICATION[name](return_X_y=True)
        return train_test_split(x, y, random_state=seed, stratify=y)
    if name == "diabetes":
        x, y = datasets.load_diabetes(return_X_y=True)
    else:
        x, y = datasets.make_friedman1(1000, noise=1.0, random_state=seed)
    return train_test_split(x, y, random_state=seed)


def mlp(name: str, seed: int) -> Any:
    settings: Any = {"max_iter": 5000, "random_state": seed}  # enough to converge
    if name in CLASSIFICATION:
        return make_pipeline(StandardScaler(), MLPClassifier(**settings))
    scaled = TransformedTargetRegressor(MLPRegressor(**settings), transformer=StandardScaler())
    return make_pipeline(StandardScaler(), scaled)


def estimator(name: str, seed: int, function: str, *, scaled: bool) -> Any:
    kind = ftnn.FTNNClassifier if name in CLASSIFICATION else ftnn.FTNNRegressor
    model = kind(function=function, random_state=seed)
    return make_pipeline(StandardScaler(), model) if scaled else model


def score(model: Any, name: str, seed: int) -> float:
    """Accuracy or R² on the test samples, in percent."""
    x, x_test, y, y_test = split(name, seed)
    return 100 * model.fit(x, y).score(x_test, y_test)


def cell(scores: Any, theirs: Any) -> str:
    difference = np.subtract(scores, theirs)
    error = difference.std(ddof=1) / np.sqrt(len(difference))
    mark = "" if difference.mean() >= -error else " !"
    return f"{np.mean(scores):.1f} ({difference.mean():+.1f} ± {error:.1f}){mark}"


def main(splits: str = "200-219", *data: str) -> None:
    first, last = map(int, splits.split("-"))
    seeds = range(first, last + 1)
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    columns = ("data", "StandardScaler in front", "MLP", *(f"`{function}`" for function in FUNCTIONS))
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for name in data or DATA:
        theirs = [score(mlp(name, seed), name, seed) for seed in seeds]
        for scaled in (False, True):
            ours = [
                [score(estimator(name, seed, function, scaled=scaled), name, seed) for seed in seeds]
                for function in FUNCTIONS
            ]
            cells = [cell(scores, theirs) for scores in ours]
            row = [name, "yes" if scaled else "no", f"{np.mean(theirs):.1f}", *cells]
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
