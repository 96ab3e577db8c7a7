"""The tables in docs/direct.md and docs/howto/deep.md, in Markdown.

python docs/tables/direct.py ablation    networks with 10 layers, each ingredient removed in turn; an hour
python docs/tables/direct.py short       with and without clipping, on fewer images; 10 minutes
python docs/tables/direct.py long        parts that show only in longer training, if at all; 10 minutes
python docs/tables/direct.py deep        networks with 20 layers; half an hour
python docs/tables/direct.py untuned     formulas of your own, with 1 and 10 layers; 10 minutes
python docs/tables/direct.py loop        one layer in a plain PyTorch loop; some minutes
python docs/tables/direct.py cost        time of direct training beside plain SGD; some minutes

Results are kept in build/direct.csv, and not computed again.
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import nullcontext
from functools import lru_cache
from pathlib import Path
from statistics import mean, median
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn

import ftnn
from ftnn.training import _start

STORE = Path("build/direct.csv")
Job = tuple[str, ...]
"""What to compute: a kind, and its arguments."""


# --- the ablation: 3 epochs on 50,000 training images, accuracy on the other 10,000 ---

CELLS = ("F01-relu", "F03-relu", "F05-relu", "F07-logistic", "F08-tanh", "F09-relu", "F11-relu", "F12-tanh",
         "F14-relu", "F16-logistic", "F18-relu", "F20-relu")  # fmt: skip
LAYERS, WIDTH, EPOCHS, BATCH = 10, 128, 3, 32
CHANCE = 20.0
"""An accuracy of no more than this is a failure, 0 one whose outputs are not finite; both are shown as ×."""
REMOVED: dict[str, dict[str, Any]] = {
    "nothing": {},
    "balanced ranges": {"calibrate": False},
    "first scale and shift": {},
    "normalised sums": {"normalise": False},
    "normalised sums, but grounded": {"normalise": False},
    "one-cycle schedule": {"schedule": "constant"},
    "clipping": {"clip_norm": float("inf")},
    "care with explosions": {"learning_rate": _start.RATE, "weight_decay": 0.0},
}
INSTEAD = ("LayerNorm, grounded", "LayerNorm, grounded, residual")
"""What else was tried, instead of normalised sums."""


@lru_cache
def images() -> tuple[Any, Any, Any, Any]:
    data = ftnn.data.mnist()
    x, y = data.train_images, data.train_labels
    return x[:50_000], y[:50_000], x[50_000:], y[50_000:]


def without_ranges(name: str) -> ftnn.Function:
    """A function of the catalogue, without the paper's ranges."""
    function = ftnn.catalogue[name]
    return ftnn.Function(function.formula, constants=function.choices)


def ablation(cell: str, change: str, count: str = "50000", seed: str = "0") -> float:
    """The validation accuracy in percent, after training on the first `count` images."""
    name, activation = cell.split("-")
    if change in INSTEAD:
        return layer_norm(name, activation, change)
    x, y, *test = images()
    grounded = change == "normalised sums, but grounded"
    function = without_ranges(name).grounded() if grounded else ftnn.catalogue[name]
    net = ftnn.nn.Network(784, [WIDTH] * LAYERS, 10, function, activation)
    ftnn.training.initialise(net, seed=int(seed))
    starts_plain = change == "first scale and shift"  # scale 1, shift 0
    with patch.object(_start.Start, "shift") if starts_plain else nullcontext():
        settings: dict[str, Any] = {"epochs": EPOCHS, "seed": int(seed), **REMOVED[change]}
        history = ftnn.training.fit(net, x[: int(count)], y[: int(count)], test=tuple(test), **settings)
    return 0.0 if history.accuracy is None else history.accuracy


class Block(nn.Module):
    """A layer, LayerNorm, an activation; optionally added to the input."""

    def __init__(self, layer: nn.Module, activation: str, *, residual: bool):
        super().__init__()
        self.layer, self.norm, self.residual = layer, nn.LayerNorm(WIDTH), residual
        self.activation = {"relu": nn.ReLU, "tanh": nn.Tanh, "logistic": nn.Sigmoid}[activation]()

    def forward(self, x: Tensor) -> Tensor:
        y = self.activation(self.norm(self.layer(x)))
        return x + y if self.residual else y


def layer_norm(name: str, activation: str, change: str) -> float:
    """Balanced ranges, LayerNorm, and otherwise what direct training does."""
    x, y, x_test, y_test = (torch.from_numpy(array) for array in images())
    function = without_ranges(name)
    if "grounded" in change:
        function = function.grounded()
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    blocks, signal = [], x[:1000]
    for depth in range(LAYERS):
        layer = ftnn.nn.Transfer(784 if depth == 0 else WIDTH, WIDTH, function)
        layer.calibrate(signal, generator)
        blocks.append(Block(layer, activation, residual="residual" in change and depth > 0))
        with torch.no_grad():
            signal = blocks[-1](signal)
    net = nn.Sequential(*blocks, nn.Linear(WIDTH, 10))
    steps = EPOCHS * -(-len(x) // BATCH)
    optimizer = torch.optim.AdamW(net.parameters(), _start.RATE, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, _start.RATE, steps, cycle_momentum=False, final_div_factor=1e4
    )
    train(net, x, y, optimizer, BATCH, EPOCHS, schedule.step, largest_norm=1.0)
    return accuracy(net, x_test, y_test)


def train(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    optimizer: torch.optim.Optimizer,
    batch_size: int,
    epochs: int,
    after_step: Callable[[], None] = lambda: None,
    largest_norm: float = float("inf"),
) -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(epochs):
        for batch in torch.randperm(len(x), generator=generator).split(batch_size):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x[batch]), y[batch]).backward()
            nn.utils.clip_grad_norm_(net.parameters(), largest_norm)
            optimizer.step()
            after_step()


@torch.no_grad()
def accuracy(net: nn.Module, x: Tensor, y: Tensor) -> float:
    """In percent. A sample whose outputs are not finite is wrong."""
    outputs = torch.cat([net(part) for part in x.split(1000)])
    right = (outputs.argmax(1) == y) & outputs.isfinite().all(1)
    return 100 * float(right.float().mean())


def ablation_jobs() -> list[Job]:
    return [("ablation", cell, change) for change in (*REMOVED, *INSTEAD) for cell in CELLS]


def shown(accuracy: float, digits: int = 1) -> str:
    return f"{accuracy:.{digits}f}" if accuracy > CHANCE else "×"


def ablation_table(results: dict[Job, float]) -> str:
    rows: list[list[str]] = []
    for change in (*REMOVED, *INSTEAD):
        values = [results[("ablation", cell, change)] for cell in CELLS]
        rows.append([change, *map(shown, values), f"{mean(values):.1f}"])
    return markdown(["removed", *CELLS, "mean"], rows)


# --- clipping: the same with 20,000 images and two seeds, and three more functions that grow ---

SHORT = (*CELLS, "F04-relu", "F17-relu", "F19-relu")


def short_jobs() -> list[Job]:
    return [
        ("ablation", cell, change, "20000", seed)
        for change in ("nothing", "clipping")
        for seed in "01"
        for cell in SHORT
    ]


def short_table(results: dict[Job, float]) -> str:
    rows: list[list[str]] = []
    for change, title in (("nothing", "with"), ("clipping", "without")):
        for seed in "01":
            values = [results[("ablation", cell, change, "20000", seed)] for cell in SHORT]
            rows.append([f"{title}, seed {seed}", *map(shown, values), f"{mean(values):.1f}"])
    return markdown(["clipping", *SHORT, "mean"], rows)


# --- direct training at its defaults: 50,000 images, test accuracy ---


def direct(function: str, activation: str, layers: str, removed: str = "nothing") -> float:
    """The test accuracy in percent after 10 epochs; 0 if an output is not finite."""
    x, y, *_ = images()
    data = ftnn.data.mnist()
    net = ftnn.nn.Network(784, [WIDTH] * int(layers), 10, function, activation)
    ftnn.training.initialise(net, seed=0)
    test = data.test_images, data.test_labels
    history = ftnn.training.fit(net, x, y, test=test, progress=False, **REMOVED[removed])
    return 0.0 if history.accuracy is None or history.failed else history.accuracy


LONG = (("F04", "clipping"), ("F05", "clipping"), ("F17", "clipping"),
        ("F05", "care with explosions"), ("F14", "care with explosions"))  # fmt: skip


def long_jobs() -> list[Job]:
    return sorted(
        {("direct", name, "relu", "10", part) for name, *parts in LONG for part in ("nothing", *parts)}
    )


def long_table(results: dict[Job, float]) -> str:
    rows: list[list[str]] = []
    for name, part in LONG:
        with_it, without = (results[("direct", name, "relu", "10", removed)] for removed in ("nothing", part))
        rows.append([f"{name}-ReLU", part, shown(with_it, 2), shown(without, 2)])
    return markdown(["network", "part", "with it", "without"], rows)


def deep_jobs() -> list[Job]:
    return [("direct", name, "relu", "20") for name in ftnn.catalogue if name != "memory"]


def untuned_jobs() -> list[Job]:
    return [("direct", formula, "relu", layers) for formula in UNTUNED for layers in ("1", "10")]


def deep_table(results: dict[Job, float]) -> str:
    return markdown(["function", "20 layers"], [[job[1], shown(results[job], 2)] for job in deep_jobs()])


def untuned_table(results: dict[Job, float]) -> str:
    rows = [
        [f"`{formula}`", *(f"{results[('direct', formula, 'relu', layers)]:.2f}" for layers in ("1", "10"))]
        for formula in UNTUNED
    ]
    return markdown(["function", "1 layer", "10 layers"], rows)


# --- the loop: 60,000 images, test accuracy, means over seeds ---

UNTUNED = ("p*cosh(q*x + r)", "p*gauss(q*x + r)", "p*softplus(q*x + r)", "p*tan(q*x + r)", "p*sech(q*x + r)",
           "p*x/(1 + abs(q*x))", "p*sin(q*x + r) + s*x", "p*x*exp(-(q*x)**2)", "p*erf(q*x + r)",
           "p*sqrt(1 + (q*x + r)**2)")  # fmt: skip
SEEDS = ("0", "1", "2")


def loop(formula: str, grounding: str, seed: str) -> float:
    """The test accuracy in percent after 3 epochs of Adam, without normalisation."""
    torch.manual_seed(int(seed))
    data = ftnn.data.mnist()
    arrays = (data.train_images, data.train_labels, data.test_images, data.test_labels)
    x, y, x_test, y_test = map(torch.from_numpy, arrays)
    if formula == "nn.Linear":
        first: nn.Module = nn.Linear(784, 128)
    else:
        function = ftnn.Function(formula)
        first = ftnn.nn.Transfer(784, 128, function.grounded() if grounding == "grounded" else function)
    net = nn.Sequential(first, nn.Tanh(), nn.Linear(128, 10))
    train(net, x, y, torch.optim.Adam(net.parameters(), 1e-3), 64, 3)
    return accuracy(net, x_test, y_test)


def loop_jobs() -> list[Job]:
    formulas = [(formula, grounding) for formula in UNTUNED for grounding in ("grounded", "as it is")]
    return [("loop", *case, seed) for case in [("nn.Linear", ""), *formulas] for seed in SEEDS]


def loop_table(results: dict[Job, float]) -> str:
    def average(formula: str, grounding: str) -> float:
        return mean(results[("loop", formula, grounding, seed)] for seed in SEEDS)

    weights = average("nn.Linear", "")
    rows = [["`nn.Linear`", f"{weights:.2f}", ""]]
    for formula in UNTUNED:
        values = [average(formula, grounding) for grounding in ("grounded", "as it is")]
        rows.append([f"`{formula}`", *(f"{value:.2f} ({value - weights:+.2f})" for value in values)])
    return markdown(["function", "grounded", "as it is"], rows)


# --- the cost of an epoch, interleaved ---

TIMED = ("F03", "F07", "F09", "F12", "F16", "F15")


def cost_table() -> str:
    x, y, *_ = images()
    rows = []
    for layers in (1, 5):
        for name in TIMED:
            ratios: list[float] = []
            for _ in range(5):
                seconds = [epoch_seconds(name, layers, x, y, solver) for solver in ("joint", "direct")]
                ratios.append(seconds[1] / seconds[0])
            rows.append([name, str(layers), f"{median(ratios):.2f}"])
            print(rows[-1], flush=True)
    return markdown(["function", "layers", "time of direct training, × plain SGD"], rows)


def epoch_seconds(name: str, layers: int, x: Any, y: Any, solver: Any) -> float:
    """Of the faster of two epochs over 10,000 images with mini-batches of 64."""
    net = ftnn.nn.Network(784, [WIDTH] * layers, 10, name)
    ftnn.training.initialise(net, seed=0)
    times = [time.perf_counter()]

    def after_epoch(*_: Any) -> None:
        times.append(time.perf_counter())

    ftnn.training.fit(
        net, x[:10_000], y[:10_000], solver=solver, epochs=3, batch_size=64, learning_rate=1e-4,
        callbacks=[after_epoch], progress=False,
    )  # fmt: skip
    return min(np.diff(times)[1:])


# --- running ---


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [columns, ["---"] * len(columns), *rows])


def run(jobs: Sequence[Job]) -> dict[Job, float]:
    """The results of all jobs, on all cores; kept in a file."""
    STORE.parent.mkdir(exist_ok=True)
    STORE.touch()
    with STORE.open() as file:
        results = {tuple(job): float(value) for *job, value in csv.reader(file)}
    todo = [job for job in jobs if job not in results]
    pool = ProcessPoolExecutor(initializer=torch.set_num_threads, initargs=(1,))
    with pool, STORE.open("a") as file:
        kinds: dict[str, Callable[..., float]] = {"ablation": ablation, "direct": direct, "loop": loop}
        futures = {pool.submit(kinds[job[0]], *job[1:]): job for job in todo}
        for future in as_completed(futures):
            job, error = futures[future], future.exception()
            if error is not None and not isinstance(error, ftnn.FtnnError):
                raise error
            value = 0.0 if error else future.result()  # such as a function that cannot be grounded
            results[job] = value
            csv.writer(file).writerow([*job, value])
            file.flush()
            print(*job, value, file=sys.stderr, flush=True)
    return results


TABLES: dict[str, tuple[Callable[[], list[Job]], Callable[[dict[Job, float]], str]]] = {
    "ablation": (ablation_jobs, ablation_table),
    "short": (short_jobs, short_table),
    "long": (long_jobs, long_table),
    "deep": (deep_jobs, deep_table),
    "untuned": (untuned_jobs, untuned_table),
    "loop": (loop_jobs, loop_table),
}


def main(name: str) -> None:
    if name == "cost":
        print(cost_table())
    else:
        jobs, table = TABLES[name]
        print(table(run(jobs())))


if __name__ == "__main__":
    main(*sys.argv[1:])
