"""Training by autograd, with any optimiser on any device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from ftnn.errors import FtnnError
from ftnn.training._checkpoint import check_like
from ftnn.training._engine import Snapshot, Steps
from ftnn.training._losses import SOFTMAX, LossFormula
from ftnn.training._optimizers import MakeOptimizer, make, step, trained
from ftnn.training._outcome import classes_of
from ftnn.training._problem import Array, Problem
from ftnn.training._settings import Settings


def sample_losses(outputs: Tensor, y: Tensor, loss: LossFormula) -> tuple[Tensor, int]:
    """The loss of each sample, (samples,), and how many of them are classified correctly."""
    right = int((classes_of(outputs) == y).sum()) if loss.text == SOFTMAX else 0
    return loss.of_samples(outputs, y), right


def clipped(gradients: Sequence[Tensor], clip: float | None) -> Sequence[Tensor]:
    return gradients if clip is None else [gradient.clamp(-clip, clip) for gradient in gradients]


def _wide(tensor: Tensor) -> Tensor:
    """In float32 if it is in half precision, in which Adam's squared gradients and its eps would be 0."""
    return tensor.float() if tensor.dtype == torch.float16 else tensor


@dataclass(frozen=True)
class TorchSteps:
    losses: Array
    right: int
    finite: bool


class TorchEngine:
    """Slower than the compiled engine, which is tested against it."""

    chunk = 32

    def __init__(
        self,
        module: nn.Module,
        problem: Problem,
        settings: Settings,
        optimizer: MakeOptimizer | None = None,
        first_rate: float | None = None,
    ):
        self._module, self._problem, self._settings = module, problem, settings
        self._mode = module.training
        self._device = next(module.parameters()).device
        self._take(problem)
        self._parameters = trained(module)
        self._statistics = [
            statistic
            for part in module.modules()
            if getattr(part, "track_running_stats", False)  # the normalisations of torch
            for statistic in part.buffers(recurse=False)
        ]
        self._optimizer = None if optimizer is None else make(optimizer, self._parameters)
        self._first_rate = first_rate
        self._rule, self._count = settings.rule, 0
        self._states = [[torch.zeros_like(_wide(p)) for _ in self._rule.states] for p in self._parameters]

    def _take(self, problem: Problem) -> None:
        self._x, self._y = self._put(problem.x), self._put(problem.y)
        self._weights = None if problem.weights is None else self._put(problem.weights)

    def _put(self, array: Array) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._device)

    def epoch(self, order: Array, rates: Array, data: Problem | None = None) -> Iterator[Steps]:
        if data is not None:
            self._take(data)
        batch = self._settings.batch_size or 1
        rows = self._put(order)
        for first in range(0, len(order), batch * self.chunk):
            losses: list[float] = []
            right = 0
            for start in range(first, min(first + batch * self.chunk, len(order)), batch):
                loss, right_here = self._step(rows[start : start + batch], float(rates[start // batch]))
                losses.append(loss)
                if not np.isfinite(loss):
                    yield TorchSteps(np.array(losses), right, False)
                    return
                right += right_here
            yield TorchSteps(np.array(losses), right, True)

    def _step(self, rows: Tensor, rate: float) -> tuple[float, int]:
        outputs = self._in_mode(training=True)(self._x[rows])
        losses, right = sample_losses(outputs, self._y[rows], self._problem.formula)
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
        gradients = [_wide(gradient) / samples for gradient in clipped(gradients, settings.clip)]
        if settings.largest_norm is not None:
            norm = torch.nn.utils.get_total_norm(gradients)
            share = torch.clamp(settings.largest_norm / (norm + 1e-6), max=1.0)
            gradients = [gradient * share for gradient in gradients]
        if self._optimizer is not None:
            for parameter, gradient in zip(self._parameters, gradients, strict=True):
                parameter.grad = gradient.to(parameter.dtype)
            self._scale_rates(rate)
            step(self._optimizer)
            self._optimizer.zero_grad(set_to_none=True)
            return
        self._count += 1
        for parameter, gradient, states in zip(self._parameters, gradients, self._states, strict=True):
            new, after = self._rule.step_on(_wide(parameter), gradient, states, rate, self._count)
            parameter.copy_(new)
            for state, value in zip(states, after, strict=True):
                state.copy_(value)

    def _scale_rates(self, rate: float) -> None:
        """Scale the optimiser's own rates by the schedule, which starts at `first_rate`."""
        assert self._optimizer is not None
        for group in self._optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
            group["lr"] = group["initial_lr"] * rate / (self._first_rate or rate)

    @torch.no_grad()
    def _in_pieces(self, x: Array, compute: Callable[[Tensor], Tensor]) -> Array:
        pieces = [compute(self._put(x[n : n + 1024])).cpu().numpy() for n in range(0, len(x), 1024)]
        return np.concatenate(pieces)

    def outputs(self, x: Array) -> Array:
        return self._in_pieces(x, self._in_mode(training=False))

    def hidden(self, x: Array) -> Array:
        module = self._in_mode(training=False)
        assert isinstance(module, nn.Sequential)
        return self._in_pieces(x, module[:-1])

    def _in_mode(self, *, training: bool) -> nn.Module:
        """The module in training or evaluation mode, which matters to dropout and normalisation."""
        return self._module if self._module.training == training else self._module.train(training)

    def _tensors(self) -> dict[str, Tensor]:
        """The parameters, the states of their update rule and the running statistics, by name."""
        tensors = {f"p{n}": p.detach() for n, p in enumerate(self._parameters)}
        tensors |= {f"b{n}": statistic for n, statistic in enumerate(self._statistics)}
        if self._optimizer is None:
            for n, states in enumerate(self._states):
                tensors |= {f"s{n}.{name}": s for name, s in zip(self._rule.states, states, strict=True)}
        return tensors

    def snapshot(self) -> Snapshot:
        tensors = self._tensors()
        for n, parameter in enumerate(self._parameters):
            for key, value in (self._optimizer.state[parameter] if self._optimizer else {}).items():
                if not isinstance(value, Tensor):
                    raise FtnnError(f"the optimizer's state {key!r} is not a tensor, so it cannot be saved")
                tensors[f"o{n}.{key}"] = value
        arrays = {name: tensor.cpu().numpy().copy() for name, tensor in tensors.items()}
        return arrays | self._step_count()

    def _step_count(self) -> Snapshot:
        is_used = self._optimizer is None and self._rule.depends_on_past
        return {"step": np.array([self._count])} if is_used else {}

    @torch.no_grad()
    def restore(self, snapshot: Snapshot) -> None:
        tensors = self._tensors()
        of_optimizer = {} if self._optimizer is None else self._optimizer_states(snapshot)
        check_like(
            {name: array for name, array in snapshot.items() if name not in of_optimizer},
            {name: tensor.numpy(force=True) for name, tensor in tensors.items()} | self._step_count(),
        )
        self._count = int(snapshot["step"][0]) if "step" in snapshot else 0
        for name, tensor in tensors.items():
            tensor.copy_(torch.from_numpy(snapshot[name]))
        if self._optimizer is not None:
            self._optimizer.state.clear()
            for name, (parameter, key) in of_optimizer.items():
                # Step counts stay on the CPU, where optimisers keep them.
                value = torch.from_numpy(snapshot[name].copy())
                self._optimizer.state[parameter][key] = value.to(parameter.device) if value.dim() else value

    def _optimizer_states(self, snapshot: Snapshot) -> dict[str, tuple[nn.Parameter, str]]:
        """The optimiser's entries in a snapshot, each with its parameter and the name of its state."""
        parts = {name: name[1:].partition(".") for name in snapshot if name.startswith("o")}
        parameters = {str(n): parameter for n, parameter in enumerate(self._parameters)}
        return {name: (parameters[n], key) for name, (n, _, key) in parts.items() if n in parameters and key}

    def write_back(self) -> None:
        """Restore the module's mode; its parameters were trained in place."""
        self._in_mode(training=self._mode)
