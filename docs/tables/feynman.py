"""The table in docs/howto/fitting.md: formulas of physics, fitted by ftnn and by pykan's networks of splines.

python docs/tables/feynman.py ours       RESULTS.csv    every problem with five seeds; a minute
python docs/tables/feynman.py pykan      RESULTS.csv    the same in an environment with pykan; an hour or two
python docs/tables/feynman.py show       RESULTS.csv    the table, as Markdown

`ours` and `pykan` append to the file and skip what it has; problems (`I.6.2`) may follow. Each run uses one
thread, 1,000 training and 1,000 test points, and float64.
"""

import csv
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

Array = np.ndarray[Any, np.dtype[np.float64]]
Interval = tuple[float, float]
TURN = 2 * np.pi
PROBLEMS: dict[str, tuple[str, Callable[[Array, Array], Array], Interval, Interval]] = {
    "I.6.2": (
        "exp(-a²/2b²)/√(2πb²)",
        lambda a, b: np.exp(-(a**2) / (2 * b**2)) / np.sqrt(TURN * b**2),
        (-1, 1),
        (0.5, 2),
    ),
    "I.12.11": ("1 + a·sin b", lambda a, b: 1 + a * np.sin(b), (-1, 1), (0, TURN)),
    "I.13.12": ("a(1/b - 1)", lambda a, b: a * (1 / b - 1), (0, 1), (0.5, 2)),
    "I.16.6": ("(a + b)/(1 + ab)", lambda a, b: (a + b) / (1 + a * b), (-0.8, 0.8), (-0.8, 0.8)),
    "I.18.4": ("(1 + ab)/(1 + a)", lambda a, b: (1 + a * b) / (1 + a), (0.5, 2), (-1, 1)),
    "I.26.2": ("asin(a·sin b)", lambda a, b: np.arcsin(a * np.sin(b)), (0, 0.99), (0, TURN)),
    "I.27.6": ("1/(1 + ab)", lambda a, b: 1 / (1 + a * b), (0.5, 2), (0.5, 2)),
    "I.37.4": ("1 + a + 2√a·cos b", lambda a, b: 1 + a + 2 * np.sqrt(a) * np.cos(b), (0.1, 1), (0, TURN)),
    "I.40.1": ("a·e^-b", lambda a, b: a * np.exp(-b), (0, 1), (-1, 1)),
    "II.2.42": ("(a - 1)b", lambda a, b: (a - 1) * b, (-1, 1), (-1, 1)),
    "III.10.19": ("√(1 + a² + b²)", lambda a, b: np.sqrt(1 + a**2 + b**2), (-1, 1), (-1, 1)),
}
SEEDS = range(5)
SAMPLES = 1000
GRIDS = (3, 5, 10, 20, 50)
STEPS = 50
COLUMNS = ("system", "problem", "seed", "size", "parameters", "test_rmse", "seconds")


def data(problem: str, seed: int) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Training and test samples (x, y): (samples, 2) and (samples, 1)."""
    _, function, *intervals = PROBLEMS[problem]
    random = np.random.default_rng([seed, list(PROBLEMS).index(problem)])
    parts: list[tuple[Array, Array]] = []
    for _ in range(2):
        x = np.stack([random.uniform(*interval, SAMPLES) for interval in intervals], 1)
        parts.append((x, function(x[:, 0], x[:, 1])[:, None]))
    return parts[0], parts[1]


def rmse(outputs: Array, y: Array) -> float:
    return float(np.sqrt(np.mean((outputs - y) ** 2)))


Row = tuple[int, int, float, float]
"""Size, parameters, test RMSE and seconds so far."""


def pykan(problem: str, seed: int) -> Iterator[Row]:
    """A row for each grid; each starts from the one before, as pykan's documentation does it."""
    from kan import KAN  # pyright: ignore

    torch.set_default_dtype(torch.float64)
    train, test = (tuple(map(torch.from_numpy, part)) for part in data(problem, seed))
    sets = {"train_input": train[0], "train_label": train[1], "test_input": test[0], "test_label": test[1]}
    model: Any = None
    seconds = 0.0
    for grid in GRIDS:
        start = time.perf_counter()
        if model is None:
            model = KAN(width=[2, 5, 1], grid=grid, k=3, seed=seed, device="cpu", auto_save=False)
        else:
            model = model.refine(grid)
            model.auto_save = False
        try:
            model.fit(sets, opt="LBFGS", steps=STEPS, log=STEPS)
        except Exception as error:  # its least-squares solver may fail
            print(f"pykan failed at grid {grid}: {error}", file=sys.stderr)
            return
        seconds += time.perf_counter() - start
        used = sum(p.coef.numel() + p.scale_base.numel() + p.scale_sp.numel() for p in model.act_fun)
        with torch.no_grad():
            yield grid, used, rmse(model(test[0]).numpy(), test[1].numpy()), seconds


def run(system: Callable[[str, int], Iterator[Row]], path: Path, problems: list[str]) -> None:
    torch.set_num_threads(1)
    name = system.__name__
    done = {(row["problem"], int(row["seed"])) for row in read(path) if row["system"] == name}
    for seed in SEEDS:
        for problem in problems or PROBLEMS:
            if (problem, seed) in done:
                continue
            rows = list(system(problem, seed))
            is_new = not path.exists()
            with path.open("a", newline="") as file:
                writer = csv.writer(file)
                if is_new:
                    writer.writerow(COLUMNS)
                writer.writerows((name, problem, seed, *row) for row in rows)
            print(problem, seed, *rows, sep="\n  ", flush=True)


def read(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


if __name__ == "__main__":
    command, path, *problems = sys.argv[1:]
    if command == "pykan":
        run(pykan, Path(path), problems)
