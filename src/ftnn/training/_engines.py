"""Two ways to run an epoch, with one result: compiled code, or torch's autograd."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from ftnn.errors import FtnnError
from ftnn.kernels import cpu_available, program, signature
from ftnn.nn import Activation, Partial, Transfer
from ftnn.nn._connections import Connections
from ftnn.nn._network import ACTIVATIONS
from ftnn.training._arguments import one_of, quoted
from ftnn.training._checkpoint import CheckpointError
from ftnn.training._optimizers import MakeOptimizer, make, step
from ftnn.training._outcome import classes_of
from ftnn.training._problem import Array, Problem

EngineName = Literal["auto", "compiled", "torch"]
ENGINES: tuple[EngineName, ...] = ("auto", "compiled", "torch")
Snapshot = dict[str, Array]


class Steps(Protocol):
    """What some mini-batches did."""

    @property
    def losses(self) -> Array: ...
    @property
    def right(self) -> int: ...
    @property
    def finite(self) -> bool: ...


class Engine(Protocol):
    """Some hidden layers and the linear one above them, being trained on a problem."""

    name: str

    def epoch(self, order: Array, rate: float) -> Iterator[Steps]:
        """Run over the samples in this order, in chunks of a fraction of a second."""
        ...

    def outputs(self, x: Array) -> Array:
        """What the linear layer gives, (samples, out)."""
        ...

    def hidden(self, x: Array) -> Array:
        """What the last hidden layer gives after its activation, (samples, width)."""
        ...

    def snapshot(self) -> Snapshot:
        """A copy of all that an epoch changes."""
        ...

    def restore(self, snapshot: Snapshot) -> None: ...

    def write_back(self) -> None:
        """Bring the modules up to date."""
        ...


class Settings(Protocol):
    """What engines need to know of a run."""

    @property
    def batch_size(self) -> int: ...
    @property
    def clip(self) -> float | None: ...
    @property
    def momentum(self) -> float: ...
    @property
    def weight_decay(self) -> float: ...


def choose(name: EngineName, module: nn.Module, settings: Settings, optimizer: MakeOptimizer | None) -> str:
    """The engine to take: compiled where it can do what is asked."""
    one_of("engine", name, ENGINES)
    if optimizer is not None and not callable(optimizer):
        raise FtnnError(f"optimizer={quoted(optimizer)} must be a function that makes one of parameters")
    reason = _why_not_compiled(module, settings, optimizer)
    if name == "compiled" and reason:
        raise FtnnError(f'engine="compiled" cannot be used: {reason}; engine="torch" can')
    return "torch" if name == "torch" or reason else "compiled"


def _why_not_compiled(module: nn.Module, settings: Settings, optimizer: MakeOptimizer | None) -> str:
    parameters = list(module.parameters())
    if optimizer is not None:
        return "it is plain SGD, and an optimizer was given"
    if settings.momentum or settings.weight_decay:
        return "it has no momentum and no weight decay"
    if settings.batch_size > 1024:
        return f"its mini-batches have at most 1024 samples, not {settings.batch_size}"
    if any(p.device.type != "cpu" or p.dtype not in (torch.float32, torch.float64) for p in parameters):
        return "it computes float32 and float64 on the CPU"
    if not all(p.requires_grad for p in parameters):
        return "some parameters are frozen"
    if any(nn.utils.parametrize.is_parametrized(part) for part in module.modules()):
        return "some parameters are parametrised"
    if any(isinstance(part, Connections) and part.bias is None for part in module.modules()):
        return "a layer has no bias"
    if any(isinstance(part, Partial) for part in module.modules()):
        return "a layer is only partially connected"
    return "" if cpu_available() else "LLVM cannot be loaded"


def trained(layers: Sequence[nn.Module], output: nn.Linear) -> list[nn.Parameter]:
    """The parameters that an engine with these layers trains, in order."""
    return [p for module in (*layers, output) for p in module.parameters() if p.requires_grad]


def check_like(found: Snapshot, wanted: Snapshot) -> None:
    """Refuses arrays, from a checkpoint say, that are not those of this run in name, shape or dtype."""
    for name in sorted({*found, *wanted}):
        kinds = [
            f"{a.dtype} {a.shape}" if a is not None else "missing"
            for a in (found.get(name), wanted.get(name))
        ]
        if kinds[0] != kinds[1]:
            raise CheckpointError(f"the checkpoint's array {name!r} is {kinds[0]}; expected {kinds[1]}")


class CompiledEngine:
    """All of an epoch in compiled code."""

    name = "compiled"

    def __init__(
        self,
        layers: Sequence[Transfer],
        output: nn.Linear,
        activation: Activation,
        problem: Problem,
        settings: Settings,
    ):
        # Numba is loaded only when something is trained.
        from ftnn.kernels import _driver
        from ftnn.kernels._buffers import Shape

        self._layers, self._output, self._problem, self._clip = layers, output, problem, settings.clip
        shapes = [
            Shape(program(*signature(layer.function)), layer.in_features, layer.out_features)
            for layer in layers
        ]
        shapes.append(Shape(_driver.LINEAR, output.in_features, output.out_features))
        dtype = "float64" if output.weight.dtype == torch.float64 else "float32"
        self._network = _driver.Network(shapes, activation, problem.loss, dtype, settings.batch_size)
        for mine, layer in zip(self._network.layers, layers, strict=False):
            bias = None if layer.bias is None else layer.bias.detach().numpy()
            mine.load([m.detach().numpy() for m in layer.matrices()], bias)
        self._network.layers[-1].load([output.weight.detach().numpy().T], output.bias.detach().numpy())

    def epoch(self, order: Array, rate: float) -> Iterator[Steps]:
        self._network.forget_losses()
        return self._network.train_in_chunks(
            self._problem.samples(self._problem.x),
            order,
            rate=rate,
            clip=self._clip,
            labels=self._problem.labels,
            targets=self._problem.targets,
            weights=self._problem.weights,
        )

    def outputs(self, x: Array) -> Array:
        return self._network.predict(self._problem.samples(x))

    def hidden(self, x: Array) -> Array:
        return self._network.predict(self._problem.samples(x), upto=len(self._layers))

    def _arrays(self) -> Iterator[tuple[str, Array]]:
        for n, layer in enumerate(self._network.layers):
            for name, matrix in zip(layer.shape.program.parameters, layer.matrices, strict=False):
                yield f"{n}.{name}", matrix
            yield f"{n} bias", layer.bias

    def snapshot(self) -> Snapshot:
        return {name: array.copy() for name, array in self._arrays()}

    def restore(self, snapshot: Snapshot) -> None:
        own = dict(self._arrays())
        check_like(snapshot, own)
        for name, array in own.items():
            array[:] = snapshot[name]

    @torch.no_grad()
    def write_back(self) -> None:
        for mine, layer in zip(self._network.layers, self._layers, strict=False):
            matrices, bias = mine.read()
            for tensor, matrix in zip(layer.theta.tensors(), matrices, strict=False):
                tensor.copy_(torch.from_numpy(matrix))
            if layer.bias is not None:
                layer.bias.copy_(torch.from_numpy(bias))
        (weight,), bias = self._network.layers[-1].read()
        self._output.weight.copy_(torch.from_numpy(weight.T))
        self._output.bias.copy_(torch.from_numpy(bias))


class _TorchSteps:
    def __init__(self, losses: list[float], right: int, finite: bool):
        self.losses = np.array(losses)
        self.right = right
        self.finite = finite


class TorchEngine:
    """Autograd: any optimiser, any device. Slower, and the oracle of the other."""

    name = "torch"
    chunk = 32

    def __init__(
        self,
        layers: Sequence[Transfer],
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
                loss, good = self._step(rows[start : start + batch], rate)
                losses.append(loss)
                if not np.isfinite(loss):
                    yield _TorchSteps(losses, right, False)
                    return
                right += good
            yield _TorchSteps(losses, right, True)

    def _step(self, rows: Tensor, rate: float) -> tuple[float, int]:
        out, wanted = self._output(self._hidden(self._x[rows])), self._y[rows]
        if self._problem.loss == "softmax":
            losses = nn.functional.cross_entropy(out, wanted, reduction="none")
            right = int((classes_of(out) == wanted).sum())
        else:
            losses, right = 0.5 * ((out - wanted) ** 2).sum(1), 0
        if self._weights is not None:
            losses = losses * self._weights[rows]
        total = losses.sum()
        mean = float(total.detach()) / len(rows)
        if np.isfinite(mean):
            self._update(torch.autograd.grad(total, self._parameters), len(rows), rate)
        return mean, right

    @torch.no_grad()
    def _update(self, grads: Sequence[Tensor], samples: int, rate: float) -> None:
        settings = self._settings
        clipped = [g if settings.clip is None else g.clamp(-settings.clip, settings.clip) for g in grads]
        if self._optimizer is not None:
            for parameter, grad in zip(self._parameters, clipped, strict=True):
                parameter.grad = grad / samples
            self._scale_rates(rate)
            step(self._optimizer)
            self._optimizer.zero_grad(set_to_none=True)
            return
        for number, (parameter, grad) in enumerate(zip(self._parameters, clipped, strict=True)):
            if settings.weight_decay:
                grad = grad + samples * settings.weight_decay * parameter
            if settings.momentum:
                grad = self._velocity[number].mul_(settings.momentum).add_(grad)
            parameter.sub_(grad, alpha=rate / samples)

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

    def snapshot(self) -> Snapshot:
        kept = {f"p{n}": p.detach() for n, p in enumerate(self._parameters)}
        kept |= {f"v{n}": v for n, v in enumerate(self._velocity)}
        for n, parameter in enumerate(self._parameters):
            for key, value in (self._optimizer.state[parameter] if self._optimizer else {}).items():
                if not isinstance(value, Tensor):
                    raise FtnnError(f"the optimizer's state {key!r} is no tensor: its state cannot be kept")
                kept[f"o{n}.{key}"] = value
        return {name: tensor.cpu().numpy().copy() for name, tensor in kept.items()}

    @torch.no_grad()
    def restore(self, snapshot: Snapshot) -> None:
        own = {f"p{n}": p.detach() for n, p in enumerate(self._parameters)}
        own |= {f"v{n}": v for n, v in enumerate(self._velocity)}
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
        found = {name: name[1:].partition(".") for name in snapshot if name.startswith("o")}
        known = {str(n): parameter for n, parameter in enumerate(self._parameters)}
        return {name: (known[n], key) for name, (n, _, key) in found.items() if n in known and key}

    def write_back(self) -> None:
        """Nothing to do: the modules are what is trained."""


def make_engine(
    name: str,
    layers: Sequence[Transfer],
    output: nn.Linear,
    activation: Activation,
    problem: Problem,
    settings: Any,
    optimizer: MakeOptimizer | None,
    first_rate: float | None = None,
) -> Engine:
    """`first_rate`: what the stage's learning rate begins with, even if the run is resumed at another."""
    if name == "compiled":
        return CompiledEngine(layers, output, activation, problem, settings)
    return TorchEngine(layers, output, activation, problem, settings, optimizer, first_rate)
