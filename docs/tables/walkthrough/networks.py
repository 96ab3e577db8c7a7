"""Tasks 3 to 7: networks, beside what PyTorch or scikit-learn would take."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from rows import Effort, Row, compared
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

import ftnn

SINE = "p*sin(q*x + r)"
WAVE = "p*sin(q*x + r) + s*x"
"""Of the guide to PyTorch."""


# --- 3: a damped sine ---


def damped_sine(effort: Effort) -> Iterator[Row]:
    """Fit 2·exp(-x/2)·sin(3x + 0.4), from 200 samples without noise and no idea where parameters start."""
    ours: list[float] = []
    mlps: list[float] = []
    for seed in range(effort.seeds):
        x = np.random.default_rng(seed).uniform(0, 4, (200, 1))
        x_test = np.linspace(0, 4, 1000)[:, None]
        y, y_test = (2 * np.exp(-each / 2) * np.sin(3 * each + 0.4) for each in (x, x_test))
        torch.manual_seed(seed)
        layer = ftnn.nn.Transfer(1, 1, "p*exp(-q*x)*sin(w*x + r)", bias=False, dtype=torch.float64)
        model = nn.Sequential(layer)
        ftnn.training.fit(model, x, y, solver="lm", seed=seed)
        with torch.no_grad():
            ours.append(_rms(model(torch.from_numpy(x_test)).numpy() - y_test))
        network = MLPRegressor(
            hidden_layer_sizes=(100, 100),
            activation="tanh",
            solver="lbfgs",
            alpha=0,
            max_iter=effort.of(3000),
            random_state=seed,
        )
        mlp = make_pipeline(StandardScaler(), network)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it does not converge
            mlps.append(_rms(mlp.fit(x, y[:, 0]).predict(x_test)[:, None] - y_test))
    what = 'a damped sine with `solver="lm"`: RMSE, median'
    yield Row(what, f"{np.median(ours):.0e}", f"`MLPRegressor` (L-BFGS) {np.median(mlps):.0e}")


# --- 4: MNIST in a plain loop ---


def plain_loop(effort: Effort) -> Iterator[Row]:
    """784-128-10 with tanh, 30,000 images, three epochs of Adam: functions instead of `nn.Linear`."""
    parts = _mnist(30_000, effort)

    def with_layer(layer: nn.Module) -> nn.Module:
        return nn.Sequential(layer, nn.Tanh(), nn.Linear(128, 10))

    whole = ftnn.Function(WAVE)
    for how, function in {"": whole, ", grounded": whole.grounded()}.items():
        makers: dict[str, Callable[[], nn.Module]] = {
            WAVE: lambda function=function: with_layer(ftnn.nn.Transfer(784, 128, function)),
            "`nn.Linear`": lambda: with_layer(nn.Linear(784, 128)),
        }
        yield compared(f"MNIST in a plain PyTorch loop{how}: accuracy", _trained(makers, parts, 3, effort))


# --- 5: depth ---


def depth(effort: Effort) -> Iterator[Row]:
    """Five and ten layers of 64 units on 10,000 images of MNIST, ten epochs, the same schedule."""
    x, y, *test = _mnist(10_000, effort)
    epochs = effort.of(10)
    for layers in (5, 10):
        scores: dict[str, list[float]] = {"ftnn": [], "torch, with BatchNorm": []}
        for seed in range(effort.seeds):
            net = ftnn.nn.Network(784, [64] * layers, 10, SINE, "tanh")
            ftnn.training.initialise(net, seed=seed)
            history = ftnn.training.fit(net, x, y, epochs=epochs, seed=seed, test=(test[0], test[1]))
            scores["ftnn"].append(history.accuracy or 0.0)
            torch.manual_seed(seed)
            blocks = [
                module
                for size in [784, *[64] * (layers - 1)]
                for module in (nn.Linear(size, 64), nn.BatchNorm1d(64), nn.ReLU())
            ]
            mlp = nn.Sequential(*blocks, nn.Linear(64, 10))
            _train(mlp, x, y, epochs=epochs, rate=0.01, one_cycle=True)
            scores["torch, with BatchNorm"].append(_accuracy(mlp, *test))
        yield compared(f"{layers} layers, MNIST: accuracy", scores)


# --- 6: a chaotic series ---


def mackey_glass(effort: Effort) -> Iterator[Row]:
    """Predict the Mackey-Glass series six steps ahead: memory layers and a GRU under the same readout."""
    series = torch.from_numpy(_mackey_glass(6000)).float()
    windows = ((series - series.mean()) / series.std()).unfold(0, 106, 10).T[:, :, None]
    train, test = windows[:, :400], windows[:, 430:]  # windows of both do not overlap
    steps = effort.of(400)
    makers: dict[str, Callable[[], nn.Module]] = {
        "`nn.Memory`": lambda: ftnn.nn.Memory(1, 64, "tanh(p*x + q*C + r)", through_time=True),
        "`nn.GRU`": lambda: nn.GRU(1, 64),
    }
    scores: dict[str, list[float]] = {name: [] for name in makers}
    for seed in range(effort.seeds):
        for name, make in makers.items():
            torch.manual_seed(seed)
            memory, read = make(), nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
            optimizer = torch.optim.Adam([*memory.parameters(), *read.parameters()], lr=0.01)
            schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, steps)
            for _ in range(steps):
                batch = train[:, torch.randint(train.shape[1], (32,))]
                optimizer.zero_grad()
                (read(memory(batch[:-6])[0])[30:] - batch[36:]).square().mean().backward()
                nn.utils.clip_grad_norm_(memory.parameters(), 1.0)
                optimizer.step()
                schedule.step()
            with torch.no_grad():
                wrong = (read(memory(test[:-6])[0])[30:] - test[36:]).square().mean()
            scores[name].append(100 * (1 - float(wrong / test[36:].var())))
    yield compared("Mackey-Glass, six steps ahead: R²", scores)


def _mackey_glass(count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Samples of dx/dt = 0.2·x(t-17)/(1 + x(t-17)^10) - 0.1·x, one for each unit of time."""
    per_unit, lag = 10, 170
    values = [1.2] * (lag + 1)
    for _ in range((count + 300) * per_unit):
        past = values[-1 - lag]
        values.append(values[-1] + (0.2 * past / (1 + past**10) - 0.1 * values[-1]) / per_unit)
    return np.array(values[-count * per_unit :: per_unit])


# --- 7: images ---


def images(effort: Effort) -> Iterator[Row]:
    """Two convolutions on 5,000 images of MNIST; on their features, a layer of functions or of weights."""
    x, y, x_test, y_test = _mnist(5000, effort)

    def with_head(head: nn.Module) -> nn.Module:
        return nn.Sequential(
            nn.Unflatten(1, (1, 28, 28)), nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.BatchNorm1d(800), head,
        )  # fmt: skip

    makers: dict[str, Callable[[], nn.Module]] = {
        f"`{WAVE}`": lambda: with_head(ftnn.nn.Transfer(800, 10, WAVE)),
        "`nn.Linear`": lambda: with_head(nn.Linear(800, 10)),
    }
    scores = _trained(makers, (x, y, x_test, y_test), 5, effort)
    yield compared("the last layer of a convolutional network, MNIST: accuracy", scores)


# --- MNIST, and ordinary PyTorch ---


def _mnist(count: int, effort: Effort) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The first images and labels for training, and those for testing."""
    data, count, tests = ftnn.data.mnist(), effort.of(count), effort.of(10_000)
    train = torch.from_numpy(data.train_images[:count]), torch.from_numpy(data.train_labels[:count])
    return *train, torch.from_numpy(data.test_images[:tests]), torch.from_numpy(data.test_labels[:tests])


def _trained(
    makers: dict[str, Callable[[], nn.Module]], parts: Iterable[Any], epochs: int, effort: Effort
) -> dict[str, list[float]]:
    x, y, x_test, y_test = parts
    scores: dict[str, list[float]] = {name: [] for name in makers}
    for seed in range(effort.seeds):
        for name, make in makers.items():
            torch.manual_seed(seed)
            model = make()
            _train(model, x, y, epochs=effort.of(epochs))
            scores[name].append(_accuracy(model, x_test, y_test))
    return scores


def _train(
    model: nn.Module, x: Tensor, y: Tensor, epochs: int, rate: float = 0.001, *, one_cycle: bool = False
) -> None:
    optimizer = torch.optim.Adam(model.parameters(), rate, fused=True)
    size = 32 if one_cycle else 64
    schedule = (
        torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, epochs * (len(x) // size)) if one_cycle else None
    )
    for _ in range(epochs):
        for batch in torch.randperm(len(x))[: len(x) // size * size].split(size):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
            if schedule is not None:
                schedule.step()


def _accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    with torch.no_grad():
        return 100 * (model.eval()(x).argmax(1) == y).float().mean().item()


def _rms(errors: Any) -> float:
    return float(np.sqrt(np.mean(errors**2)))
