"""The table in docs/howto/fitting.md: known formulas, fitted by ftnn and by SciPy with Jacobians by hand.

Usage: python docs/tables/known_formulas.py. It takes seconds, and writes Markdown: the largest difference of
the parameters and of their standard errors, relative to SciPy's, and the median of the milliseconds.
"""

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import numpy as np
import torch
from scipy.optimize import least_squares
from threadpoolctl import threadpool_limits

import ftnn

Array = np.ndarray[Any, np.dtype[np.float64]]
SAMPLES = 10_000
REPEATS = 15


def damped(t: Array, x: Array) -> Array:
    p, q, w, r = t
    return p * np.exp(-q * x) * np.sin(w * x + r)


def slopes_of_damped(t: Array, x: Array) -> Array:
    p, q, w, r = t
    decay, angle = np.exp(-q * x), w * x + r
    shape, turned = decay * np.sin(angle), p * decay * np.cos(angle)
    return np.stack([shape, -p * x * shape, x * turned, turned], 1)


def growth(t: Array, x: Array) -> Array:
    a, b, c = t
    return a / (1 + np.exp(-b * (x - c)))


def slopes_of_growth(t: Array, x: Array) -> Array:
    a, b, c = t
    share = 1 / (1 + np.exp(-b * (x - c)))
    slope = a * share * (1 - share)
    return np.stack([share, slope * (x - c), -slope * b], 1)


def peak(t: Array, x: Array) -> Array:
    p, m, s, c, d = t
    return p * np.exp(-(((x - m) / s) ** 2) / 2) + c * x + d


def slopes_of_peak(t: Array, x: Array) -> Array:
    p, m, s, _, _ = t
    z = (x - m) / s
    shape = np.exp(-(z**2) / 2)
    slope = p * shape * z / s
    return np.stack([shape, slope, slope * z, x, np.ones_like(x)], 1)


Known = tuple[
    Callable[[Array, Array], Array], Callable[[Array, Array], Array], Mapping[str, tuple[float, float]]
]
FORMULAS: dict[str, Known] = {
    "p*exp(-q*x)*sin(w*x + r)": (
        damped,
        slopes_of_damped,
        {"p": (2, 1.5), "q": (0.5, 0.4), "w": (3, 2.8), "r": (0.4, 0.5)},
    ),
    "a/(1 + exp(-b*(x - c)))": (growth, slopes_of_growth, {"a": (5, 4), "b": (2, 1), "c": (1.5, 1)}),
    "p*exp(-((x - m)/s)**2/2) + c*x + d": (
        peak,
        slopes_of_peak,
        {"p": (3, 2), "m": (2, 1.7), "s": (0.4, 0.6), "c": (0.5, 0), "d": (1, 0)},
    ),
}
"""For each formula, its values, its Jacobian, and each parameter's true value and where the search starts."""


def ours(layer: ftnn.nn.Transfer, start: Mapping[str, float], x: Array, y: Array) -> tuple[Array, Array]:
    with torch.no_grad():
        for name, value in start.items():
            layer.matrix(name).fill_(value)
    history = ftnn.training.fit(torch.nn.Sequential(layer), x[:, None], y[:, None], solver="lm", starts=1)
    assert history.covariance is not None
    values = [float(layer.matrix(name).detach()) for name in start]
    errors = history.covariance.errors
    return np.array(values), np.array([float(errors[f"0.theta.{name}"][0, 0]) for name in start])


def scipys(function: Any, slopes: Any, start: Array, x: Array, y: Array) -> tuple[Array, Array]:
    def residuals(t: Array) -> Array:
        return function(t, x) - y

    def jacobian(t: Array) -> Array:
        return slopes(t, x)

    options: Any = {"jac": jacobian, "ftol": 1e-13, "xtol": 1e-12, "gtol": 1e-13}
    found = least_squares(residuals, start, **options)
    inverse = np.linalg.inv(found.jac.T @ found.jac)
    return found.x, np.sqrt(np.diag(inverse) * 2 * found.cost / (len(y) - len(start)))


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = run()
    return result, 1000 * (time.perf_counter() - start)


def main() -> None:
    torch.set_num_threads(1)
    columns = ("formula", "parameters differ by", "standard errors by", "ftnn, ms", "SciPy, ms")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for formula, (function, slopes, parameters) in FORMULAS.items():
        random = np.random.default_rng(0)
        x = random.uniform(0, 4, SAMPLES)
        truth, start = (np.array([pair[n] for pair in parameters.values()]) for n in range(2))
        y = function(truth, x) + 0.05 * random.normal(size=SAMPLES)
        first = dict(zip(parameters, start, strict=True))
        layer = ftnn.nn.Transfer(1, 1, formula, bias=False, dtype=torch.float64)
        times: dict[str, list[float]] = {"ours": [], "scipy": []}
        mine = theirs = None
        for _ in range(REPEATS):  # in turns, so that both see the same load
            mine, seconds = timed(lambda n=layer, s=first, x=x, y=y: ours(n, s, x, y))
            times["ours"].append(seconds)
            theirs, seconds = timed(lambda f=function, j=slopes, s=start, x=x, y=y: scipys(f, j, s, x, y))
            times["scipy"].append(seconds)
        assert mine is not None
        assert theirs is not None
        values, errors = (float(np.abs(a / b - 1).max()) for a, b in zip(mine, theirs, strict=True))
        cells = [
            f"`{formula}`",
            f"{values:.0e}",
            f"{errors:.0e}",
            *(f"{median(t):.1f}" for t in times.values()),
        ]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
