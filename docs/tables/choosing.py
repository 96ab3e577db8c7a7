"""The small experiments of docs/choosing.md: `python docs/tables/choosing.py`, about a minute on one core.

Frequencies: the share of seeds for which one unit finds sin(6*x), from two ranges. Tables: R² of the default
regressor beside trees, on a smooth function and on steps.
"""

import warnings
from typing import Any

import numpy as np
import torch
from sklearn.datasets import make_friedman1
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import train_test_split

import ftnn

SEEDS = 10


def finds_frequency(function: str) -> float:
    x = np.linspace(-2, 2, 400)[:, None]
    y = np.sin(6 * x[:, 0] + 1)
    found = 0
    for seed in range(SEEDS):
        torch.manual_seed(seed)
        layer = ftnn.nn.Transfer(1, 1, function)
        settings: Any = {"epochs": 200, "learning_rate": 0.02, "normalise": False, "calibrate": False}
        fitted = ftnn.training.fit(torch.nn.Sequential(layer), x, y, seed=seed, **settings)
        found += (fitted.loss or 1.0) < 0.01
    return found / SEEDS


def tables() -> None:
    random = np.random.default_rng(0)
    x = random.uniform(size=(800, 6))
    steps = (x[:, 0] > 0.5) * (x[:, 1] > 0.3) * 2.0 + (x[:, 2] > 0.7) - (x[:, 3] > 0.2) * (x[:, 0] > 0.8)
    data = {
        "friedman1, 800 samples": make_friedman1(800, noise=1.0, random_state=0),
        "steps, 800 samples": (x, steps + 0.1 * random.normal(size=800)),
    }
    for name, (x, y) in data.items():
        scores: dict[str, list[float]] = {"FTNNRegressor": [], "HistGradientBoosting": []}
        for seed in range(5):
            split = train_test_split(x, y, random_state=seed)
            for key, model in (
                ("FTNNRegressor", ftnn.FTNNRegressor(random_state=seed)),
                ("HistGradientBoosting", HistGradientBoostingRegressor(random_state=seed)),
            ):
                scores[key].append(100 * model.fit(split[0], split[2]).score(split[1], split[3]))
        means = [f"{k} {np.mean(score):.1f} ± {np.std(score) / 5**0.5:.1f}" for k, score in scores.items()]
        print(f"{name}: {', '.join(means)}")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for ranges in ("[5, 7]", "[-1, 1]"):
        share = finds_frequency(f"p*sin(q*x + r) where q in {ranges} and r in [-pi, pi]")
        print(f"sin(6*x + 1) found from q in {ranges}: {share:.0%} of {SEEDS} seeds")
    tables()
