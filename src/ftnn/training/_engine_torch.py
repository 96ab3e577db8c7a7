"""Training by autograd: any optimiser, any device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from ftnn.errors import FtnnError
from ftnn.nn import Activation
from ftnn.nn._feed_forward import FeedForward
from ftnn.nn._network import ACTIVATIONS
from ftnn.training._checkpoint import check_like
from ftnn.training._engine import Snapshot, Steps
from ftnn.training._optimizers import MakeOptimizer, make, step, trained
from ftnn.training._outcome import classes_of
from ftnn.training._problem import Array, Loss, Problem
from ftnn.training._settings import Settings


def sample_losses(outputs: Tensor, y: Tensor, loss: Loss) -> tuple[Tensor, int]:
    """The loss of each sample, (samples,), and how many of them are classified right."""
    if loss == "softmax":
        losses = nn.functional.cross_entropy(outputs, y, reduction="none")
        return losses, int((classes_of(outputs) == y).sum())
    return 0.5 * ((outputs - y) ** 2).sum(1), 0


def clipped(gradients: Sequence[Tensor], clip: float | None) -> Sequence[Tensor]:
    return gradients if clip is None else [gradient.clamp(-clip, clip) for gradient in gradients]


@dataclass(frozen=True)
class TorchSteps:
    losses: Array
    right: int
    finite: bool


class TorchEngine:
    """Slower than the compiled engine, and the oracle of it."""

    chunk = 32

    def __init__(
        self,
        layers: Sequence[FeedForward],
        output: nn.Linear,
        activation: Activation,
        problem: Problem,
        settings: Settings,
        optimizer: MakeOptimizer | None = None,
        first_rate: float | None = None,
    ):
        self._layers, self._output, self._activate = layers, output, ACTIVATIONS[activation]
        self._problem, self._settings = problem, settings
        self._device = output.weight.device
        self._x, self._y = self._put(problem.x), self._put(problem.y)
        self._weights = None if problem.weights is None else self._put(problem.weights)
        self._parameters = trained(layers, output)
        self._optimizer = None if optimizer is None else make(optimizer, self._parameters)
        self._first_rate = first_rate
        self._velocity = [torch.zeros_like(p) for p in self._parameters] if settings.momentum else []

    def _put(self, array: Array) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._device)

    def _hidden(self, x: Tensor) -> Tensor:
        for layer in self._layers:
            x = self._activate(layer(x))
        return x

    def epoch(self, order: Array, rate: float) -> Iterator[Steps]:
        batch = self._settings.batch_size
        rows = self._put(order)
        for first in range(0, len(order), batch * self.chunk):
            losses: list[float] = []
            right = 0
            for start in range(first, min(first + batch * self.chunk, len(order)), batch):
                loss, right_here = self._step(rows[start : start + batch], rate)
                losses.append(loss)
                if not np.isfinite(loss):
                    yield TorchSteps(np.array(losses), right, False)
                    return
                right += right_here
            yield TorchSteps(np.array(losses), right, True)

    def _step(self, rows: Tensor, rate: float) -> tuple[float, int]:
        outputs = self._output(self._hidden(self._x[rows]))
        losses, right = sample_losses(outputs, self._y[rows], self._problem.loss)
        if self._weights is not None:
            losses = losses * self._weights[rows]
        total = losses.sum()
        mean = float(total.detach()) / len(rows)
        if np.isfinite(mean):
            self._update(torch.autograd.grad(total, self._parameters), len(rows), rate)
        return mean, right

    @torch.no_grad()
    def _update(self, gradients: Sequence[Tensor], samples: int, rate: float) -> None:
        settings = self._settings
        gradients = clipped(gradients, settings.clip)
        if self._optimizer is not None:
            for parameter, gradient in zip(self._parameters, gradients, strict=True):
                parameter.grad = gradient / samples
            self._scale_rates(rate)
            step(self._optimizer)
            self._optimizer.zero_grad(set_to_none=True)
            return
        for number, (parameter, gradient) in enumerate(zip(self._parameters, gradients, strict=True)):
            if settings.weight_decay:
                gradient = gradient + samples * settings.weight_decay * parameter
            if settings.momentum:
                gradient = self._velocity[number].mul_(settings.momentum).add_(gradient)
            parameter.sub_(gradient, alpha=rate / samples)

    def _scale_rates(self, rate: float) -> None:
        """An optimiser keeps its own rates; a schedule of ours, which starts at `first_rate`, scales them."""
        assert self._optimizer is not None
        for group in self._optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
            group["lr"] = group["initial_lr"] * rate / (self._first_rate or rate)

    @torch.no_grad()
    def _in_pieces(self, x: Array, compute: Callable[[Tensor], Tensor]) -> Array:
        pieces = [compute(self._put(x[n : n + 1024])).cpu().numpy() for n in range(0, len(x), 1024)]
        return np.concatenate(pieces)

    def outputs(self, x: Array) -> Array:
        return self._in_pieces(x, lambda piece: self._output(self._hidden(piece)))

    def hidden(self, x: Array) -> Array:
        return self._in_pieces(x, self._hidden)

    def _tensors(self) -> dict[str, Tensor]:
        """The parameters and their velocities, by name."""
        tensors = {f"p{n}": p.detach() for n, p in enumerate(self._parameters)}
        return tensors | {f"v{n}": v for n, v in enumerate(self._velocity)}

    def snapshot(self) -> Snapshot:
        tensors = self._tensors()
        for n, parameter in enumerate(self._parameters):
            for key, value in (self._optimizer.state[parameter] if self._optimizer else {}).items():
                if not isinstance(value, Tensor):
                    raise FtnnError(f"the optimizer's state {key!r} is not a tensor: it cannot be kept")
                tensors[f"o{n}.{key}"] = value
        return {name: tensor.cpu().numpy().copy() for name, tensor in tensors.items()}

    @torch.no_grad()
    def restore(self, snapshot: Snapshot) -> None:
        own = self._tensors()
        of_optimizer = {} if self._optimizer is None else self._optimizer_states(snapshot)
        check_like(
            {name: array for name, array in snapshot.items() if name not in of_optimizer},
            {name: tensor.numpy(force=True) for name, tensor in own.items()},
        )
        for name, tensor in own.items():
            tensor.copy_(torch.from_numpy(snapshot[name]))
        if self._optimizer is not None:
            self._optimizer.state.clear()
            for name, (parameter, key) in of_optimizer.items():
                # A count of steps stays where the optimiser keeps it, on the CPU.
                value = torch.from_numpy(snapshot[name].copy())
                self._optimizer.state[parameter][key] = value.to(parameter.device) if value.dim() else value

    def _optimizer_states(self, snapshot: Snapshot) -> dict[str, tuple[nn.Parameter, str]]:
        """Which entries are of the optimiser, and of which parameter and what they are."""
        parts = {name: name[1:].partition(".") for name in snapshot if name.startswith("o")}
        parameters = {str(n): parameter for n, parameter in enumerate(self._parameters)}
        return {name: (parameters[n], key) for name, (n, _, key) in parts.items() if n in parameters and key}

    def write_back(self) -> None:
        """Nothing to do: the modules are what is trained."""
