"""Training on one sequence, pair by pair: the paper's second experiment."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ftnn.errors import FtnnError
from ftnn.nn import MemoryNetwork
from ftnn.nn._activations import activation_formula
from ftnn.training._checks import callables, real, whole
from ftnn.training._engine import EngineName, Steps
from ftnn.training._engine_choice import choose
from ftnn.training._engine_torch import TorchSteps, clipped, sample_losses
from ftnn.training._history import Pass, SequenceHistory
from ftnn.training._lowering import lower
from ftnn.training._problem import Array, Loss, Problem, problem_for
from ftnn.training._settings import Settings
from ftnn.training.compiled.buffers import Samples
from ftnn.training.compiled.sequence import CompiledMemoryNetwork


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
    keep_state: bool = True,
    state: torch.Tensor | None = None,
    callbacks: Sequence[Callable[[Pass, MemoryNetwork], bool | None]] = (),
) -> SequenceHistory:
    """Train on a sequence in repeated passes.

    **Arguments:**

    - `net`: the network; its parameters are trained in place.
    - `x`: (time, in_features).
    - `y`: the values to predict at each time: labels, (time,), or targets, (time, out).
    - `gamma`: the learning rate is 2^γ, constant.
    - `epochs`: the number of passes.
    - `window`: the number of pairs per update. With 1, as in the paper, gradients do not go back in time.
        Larger windows make sense for a network with `through_time=True`: gradients then go back through
        the window.
    - `clip`: the largest allowed size of each parameter's gradient summed over a window.
    - `engine`: `"compiled"` (window 1), `"torch"`, or `"auto"`.
    - `done`: the number of passes already done, to continue an earlier training.
    - `keep_state`: whether each pass starts from the memory that the last one left, as in the authors' code,
        or from an empty one.
    - `state`: the memory of the first pass, (1, out, in); by default, it is empty. With `keep_state`, it is
        updated in place, before callbacks are called and at the end.
    - `callbacks`: called after each pass with its record and the network; True ends the training.
    """
    window, epochs = whole("window", window, least=1), whole("epochs", epochs, least=0)
    done, callbacks = whole("done", done, least=0), callables("callbacks", callbacks)
    settings = Settings(real("gamma", gamma), batch_size=1, clip=clip, fine_tuning_shift=0)
    problem = problem_for(net, (MemoryNetwork,), x, y, loss=loss)
    name = choose(engine, net, None)
    if window > 1:
        if engine == "compiled":
            raise FtnnError(
                f'engine="compiled" trains pair by pair, not with window={window}; use engine="torch"'
            )
        name = "torch"
    cells = _cells(net, state)
    problem.check_start(lambda sequence: _outputs(net, sequence, cells))
    run = (_CompiledPasses if name == "compiled" else _TorchPasses)(net, problem, settings, window)
    history = SequenceHistory(engine=name)
    for epoch in range(done + 1, epochs + 1):
        before = run.snapshot()
        start = time.perf_counter()
        steps, after = run.once(cells if keep_state or epoch == done + 1 else net.memory.reset(1))
        if not steps.finite or not all(np.isfinite(array).all() for array in run.snapshot()):
            run.restore(before)
            quantity = "a parameter" if steps.finite else "the loss"
            history.failed = f"{quantity} was not finite in epoch {epoch}"
            history.advice = f"a smaller gamma: {gamma - 1:g}"
            break
        accuracy = 100 * steps.right / len(problem.x) if problem.is_classification else None
        record = Pass(epoch, float(steps.losses.mean()), accuracy, time.perf_counter() - start)
        history.passes.append(record)
        if keep_state:
            cells.copy_(after)
        if callbacks:
            run.write_back()
            stops = [callback(record, net) for callback in callbacks]  # call all of them
            if any(stops):
                break
    run.write_back()
    return history


def _cells(net: MemoryNetwork, state: Any) -> torch.Tensor:
    """The memory of the first pass; the user's own tensor, if there is one."""
    empty = net.memory.reset(1)
    if state is None:
        return empty
    if not isinstance(state, torch.Tensor) or state.shape != empty.shape or state.dtype != empty.dtype:
        given = f"{state.dtype} {tuple(state.shape)}" if isinstance(state, torch.Tensor) else f"{state!r:.60}"
        raise FtnnError(
            f"state is {given}; expected a tensor (1, out, in): {empty.dtype} {tuple(empty.shape)}"
        )
    return state


@torch.no_grad()
def _outputs(net: MemoryNetwork, x: Array, cells: torch.Tensor) -> Array:
    outputs, _ = net(torch.from_numpy(x)[:, None].to(cells.device), cells)
    return outputs[:, 0].cpu().numpy()


class _CompiledPasses:
    """Passes in compiled code."""

    def __init__(self, net: MemoryNetwork, problem: Problem, settings: Settings, window: int):
        self._layers, self._problem, self._settings = lower(net), problem, settings
        memory, output = (layer.shape for layer in self._layers)
        self._network = CompiledMemoryNetwork(memory, output, problem.formula, problem.dtype)
        self._sequence = Samples.dense(problem.x, problem.dtype)
        for compiled, layer in zip(self._network.layers, self._layers, strict=True):
            layer.load(compiled)

    def once(self, cells: torch.Tensor) -> tuple[Steps, torch.Tensor]:
        problem, settings = self._problem, self._settings
        self._network.cells[...] = cells[0].T.cpu().numpy()
        steps = self._network.train_sequence(
            self._sequence, problem.targets, rate=settings.rate, clip=settings.clip, keep_state=True
        )
        return steps, torch.from_numpy(self._network.cells.T[None].copy())

    def _arrays(self) -> list[Array]:
        return [array for layer in self._network.layers for _, array in layer.arrays()]

    def snapshot(self) -> list[Array]:
        return [array.copy() for array in self._arrays()]

    def restore(self, snapshot: list[Array]) -> None:
        for array, old in zip(self._arrays(), snapshot, strict=True):
            array[...] = old

    def write_back(self) -> None:
        for compiled, layer in zip(self._network.layers, self._layers, strict=True):
            layer.store(compiled)


class _TorchPasses:
    """Passes by autograd."""

    def __init__(self, net: MemoryNetwork, problem: Problem, settings: Settings, window: int):
        self._net, self._settings, self._window = net, settings, window
        self._loss = problem.formula
        device = net.output.weight.device
        self._x = torch.from_numpy(problem.x)[:, None].to(device)
        self._y = torch.from_numpy(problem.y).to(device)
        self._parameters = [p for p in net.parameters() if p.requires_grad]

    def once(self, cells: torch.Tensor) -> tuple[Steps, torch.Tensor]:
        net, clip, rate = self._net, self._settings.clip, self._settings.rate
        state = cells
        losses: list[float] = []
        right = 0
        for first in range(0, len(self._x), self._window):
            sums, state = net.memory(self._x[first : first + self._window], state.detach())
            outputs = net.output(activation_formula(net.activation)(sums))[:, 0]
            y = self._y[first : first + self._window]
            window_losses, window_right = sample_losses(outputs, y, self._loss)
            right += window_right
            losses += window_losses.tolist()
            if not np.isfinite(losses).all():
                return TorchSteps(np.array(losses), right, False), state.detach()
            gradients = clipped(torch.autograd.grad(window_losses.sum(), self._parameters), clip)
            with torch.no_grad():
                for parameter, gradient in zip(self._parameters, gradients, strict=True):
                    parameter.sub_(gradient, alpha=rate / len(y))
        return TorchSteps(np.array(losses), right, True), state.detach()

    def snapshot(self) -> list[Array]:
        return [p.detach().cpu().numpy().copy() for p in self._parameters]

    @torch.no_grad()
    def restore(self, snapshot: list[Array]) -> None:
        for parameter, old in zip(self._parameters, snapshot, strict=True):
            parameter.copy_(torch.from_numpy(old))

    def write_back(self) -> None:
        """Do nothing: the module is trained in place."""
