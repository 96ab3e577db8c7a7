"""Training on one sequence, pair by pair: the paper's second experiment."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from ftnn.errors import FtnnError
from ftnn.kernels import program, signature
from ftnn.nn import MemoryNetwork
from ftnn.nn._network import ACTIVATIONS
from ftnn.training import _engines
from ftnn.training._arguments import callables, learning_rate, real, whole
from ftnn.training._engines import EngineName
from ftnn.training._history import Pass
from ftnn.training._outcome import classes_of
from ftnn.training._problem import Array, Loss, Problem, problem_for
from ftnn.training._settings import checked_clip


@dataclass
class SequenceHistory:
    """All passes of a run, and how it ended."""

    passes: list[Pass] = field(default_factory=list)
    failed: str | None = None
    advice: str | None = None
    engine: str = ""

    @property
    def accuracies(self) -> Array:
        """(passes,), in percent."""
        return np.array([p.accuracy for p in self.passes], dtype=np.float64)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class _Settings:
    batch_size: int = 1
    clip: float | None = None
    momentum: float = 0.0
    weight_decay: float = 0.0


def fit_sequence(
    net: MemoryNetwork,
    x: Any,
    y: Any,
    gamma: float = -4,
    epochs: int = 5000,
    *,
    window: int = 1,
    clip: float | None = 1000.0,
    engine: EngineName = "auto",
    loss: Loss | None = None,
    done: int = 0,
    callbacks: Sequence[Callable[[Pass, MemoryNetwork], bool | None]] = (),
) -> SequenceHistory:
    """Train on a sequence, again and again, each time from an empty memory.

    **Arguments:**

    - `net`: the network; its parameters are trained in place.
    - `x`: (time, in_features).
    - `y`: what is to be predicted at each time: labels, (time,), or targets, (time, out).
    - `gamma`: the learning rate is 2^γ, constant.
    - `epochs`: how many passes.
    - `window`: how many pairs each update takes. With 1, the paper's, nothing goes back in time. More make
        sense with a network made with `through_time=True`: gradients then go back through a window.
    - `clip`: the largest allowed size of each parameter's gradient summed over a window.
    - `engine`: `"compiled"` (window 1), `"torch"`, or `"auto"`.
    - `done`: how many of the passes the network has behind it; as each begins anew, any can be the first.
    - `callbacks`: called after each pass with its record and the network; True ends the training.
    """
    window, epochs = whole("window", window, least=1), whole("epochs", epochs, least=0)
    done, clip, called = whole("done", done, least=0), checked_clip(clip), callables("callbacks", callbacks)
    gamma = real("gamma", gamma)
    rate = learning_rate(gamma)
    problem = problem_for(net, MemoryNetwork, x, y, loss=loss)
    name = _engines.choose(engine, net, _Settings(clip=clip), None)
    if window > 1:
        if engine == "compiled":
            raise FtnnError(
                f'engine="compiled" trains pair by pair, not with window={window}; engine="torch" does'
            )
        name = "torch"
    run: Any = (_Compiled if name == "compiled" else _Torch)(net, problem, rate, clip, window)
    history = SequenceHistory(engine=name)
    for epoch in range(done + 1, epochs + 1):
        kept = run.snapshot()
        start = time.perf_counter()
        losses, right, finite = run.once()
        if not finite or not all(np.isfinite(array).all() for array in run.snapshot()):
            run.restore(kept)
            history.failed = f"{'a parameter' if finite else 'the loss'} was not finite in epoch {epoch}"
            history.advice = f"a smaller gamma: {gamma - 1:g}"
            break
        accuracy = 100 * right / len(problem.x) if problem.loss == "softmax" else None
        history.passes.append(Pass(epoch, float(losses.mean()), accuracy, time.perf_counter() - start))
        if called:
            run.write_back()
            wishes = [callback(history.passes[-1], net) for callback in called]  # all of them are called
            if any(wishes):
                break
    run.write_back()
    return history


class _Compiled:
    """Passes in compiled code."""

    def __init__(self, net: MemoryNetwork, problem: Problem, rate: float, clip: float | None, window: int):
        from ftnn.kernels._buffers import Shape
        from ftnn.kernels._memory_driver import MemoryNetwork as Driver

        self._net, self._problem, self._rate, self._clip = net, problem, rate, clip
        cell = net.memory
        shape = Shape(program(*signature(cell.function)), cell.in_features, cell.out_features)
        dtype = "float64" if net.output.weight.dtype == torch.float64 else "float32"
        self._driver = Driver(shape, net.out_features, net.activation, problem.loss, dtype)
        assert cell.bias is not None  # `choose` saw to it
        self._driver.load(
            [m.detach().numpy() for m in cell.matrices()],
            cell.bias.detach().numpy(),
            net.output.weight.detach().numpy(),
            net.output.bias.detach().numpy(),
        )

    def once(self) -> tuple[Array, int, bool]:
        problem = self._problem
        done = self._driver.train(
            problem.x, rate=self._rate, clip=self._clip, labels=problem.labels, targets=problem.targets
        )
        return done.losses, done.right, done.finite

    def _arrays(self) -> list[Array]:
        matrices, bias, weight, output_bias = self._driver.read()
        return [*matrices, bias, weight, output_bias]

    def snapshot(self) -> list[Array]:
        return [array.copy() for array in self._arrays()]

    def restore(self, kept: list[Array]) -> None:
        for array, old in zip(self._arrays(), kept, strict=True):
            array[...] = old

    @torch.no_grad()
    def write_back(self) -> None:
        matrices, bias, weight, output_bias = self._driver.read()
        net = self._net
        targets = [*net.memory.theta.tensors(), net.memory.bias, net.output.weight, net.output.bias]
        arrays = [*matrices[: len(net.memory.theta)], bias, weight, output_bias]
        for tensor, array in zip(targets, arrays, strict=True):
            assert tensor is not None
            tensor.copy_(torch.from_numpy(array))


class _Torch:
    """Passes by autograd."""

    def __init__(self, net: MemoryNetwork, problem: Problem, rate: float, clip: float | None, window: int):
        self._net, self._problem, self._rate, self._clip, self._window = net, problem, rate, clip, window
        device = net.output.weight.device
        self._x = torch.from_numpy(problem.x)[:, None].to(device)
        self._y = torch.from_numpy(problem.y).to(device)
        self._parameters = [p for p in net.parameters() if p.requires_grad]

    def once(self) -> tuple[Array, int, bool]:
        net = self._net
        state = net.memory.reset(1)
        losses: list[float] = []
        right = 0
        for first in range(0, len(self._x), self._window):
            sums, state = net.memory(self._x[first : first + self._window], state.detach())
            out = net.output(ACTIVATIONS[net.activation](sums))[:, 0]
            wanted = self._y[first : first + self._window]
            if self._problem.loss == "softmax":
                each = nn.functional.cross_entropy(out, wanted, reduction="none")
                right += int((classes_of(out) == wanted).sum())
            else:
                each = 0.5 * ((out - wanted) ** 2).sum(1)
            losses += each.tolist()
            if not np.isfinite(losses).all():
                return np.array(losses), right, False
            grads = torch.autograd.grad(each.sum(), self._parameters)
            with torch.no_grad():
                for parameter, grad in zip(self._parameters, grads, strict=True):
                    clipped = grad if self._clip is None else grad.clamp(-self._clip, self._clip)
                    parameter.sub_(clipped, alpha=self._rate / len(each))
        return np.array(losses), right, True

    def snapshot(self) -> list[Array]:
        return [p.detach().cpu().numpy().copy() for p in self._parameters]

    @torch.no_grad()
    def restore(self, kept: list[Array]) -> None:
        for parameter, old in zip(self._parameters, kept, strict=True):
            parameter.copy_(torch.from_numpy(old))

    def write_back(self) -> None:
        """Nothing to do: the module is what is trained."""
