"""Workload C: an epoch of the memory function over digits of π, pair by pair, one thread."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from ftnn.bench._measure import Burst, Effort, measure, threads
from ftnn.bench._rows import Row, timed
from ftnn.bench._systems import EAGER, FTNN, Systems
from ftnn.data import pi_digits
from ftnn.nn import Memory
from ftnn.training._losses import loss_formula
from ftnn.training._lowering import lower
from ftnn.training.compiled.buffers import Samples, Targets
from ftnn.training.compiled.sequence import CompiledMemoryNetwork

DIGITS = 10
RATE = 2.0**-4
LONGEST = 2.0
"""Seconds; a longer eager epoch is measured in part and scaled up."""


@dataclass(frozen=True, slots=True)
class MemorySize:
    units: int = 256
    pairs: int = 400


MEMORY = MemorySize()


@dataclass(frozen=True)
class _Task:
    memory: Memory
    output: nn.Linear
    x: Tensor
    """(pairs, 10): the digits, one-hot."""
    labels: Tensor
    """(pairs,): the next digit."""


def _task(size: MemorySize) -> _Task:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        memory, output = Memory(DIGITS, size.units, "memory"), nn.Linear(size.units, DIGITS)
    digits = torch.from_numpy(pi_digits(size.pairs + 1))
    return _Task(memory, output, one_hot(digits[:-1], DIGITS).float(), digits[1:])


def compiled_epochs(task: _Task) -> Burst:
    """A step is an epoch."""
    layers = lower(nn.Sequential(task.memory, nn.Sigmoid(), task.output))
    memory, output = (layer.shape for layer in layers)
    network = CompiledMemoryNetwork(memory, output, loss_formula("softmax"))
    for compiled, layer in zip(network.layers, layers, strict=True):
        layer.load(compiled)
    sequence = Samples.dense(task.x.numpy(), "float32")
    labels = Targets.labels(task.labels.numpy(), DIGITS, sequence.count, "float32", None)

    def burst(first: int, steps: int) -> None:
        for _ in range(steps):
            network.train_sequence(sequence, labels, rate=RATE)

    return burst


class _EagerMemory(nn.Module):
    """The memory function in plain torch: x is (in,), the remembered signals are (in, units)."""

    def __init__(self, task: _Task):
        super().__init__()
        self.p, self.q, self.r = (nn.Parameter(m.detach().clone()) for m in task.memory.theta.tensors())
        self.bias = nn.Parameter(torch.zeros(task.memory.out_features))
        self.output = nn.Linear(task.output.in_features, DIGITS)
        self.output.load_state_dict(task.output.state_dict())

    def forward(self, x: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
        signals = torch.tanh(self.p * x[:, None] + self.q * before + self.r)
        return self.output(torch.sigmoid(signals.sum(0) + self.bias)), signals.detach()


def eager_epochs(task: _Task, pairs: int) -> Burst:
    """A step is an epoch of the first `pairs` pairs."""
    model: Any = _EagerMemory(task)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, foreach=True)

    def burst(first: int, steps: int) -> None:
        for _ in range(steps):
            signals = torch.zeros_like(model.p)
            for x, label in zip(task.x[:pairs], task.labels[:pairs], strict=True):
                out, signals = model(x, signals)
                loss = cross_entropy(out, label)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()

    return burst


def _measurable(task: _Task, pairs: int) -> int:
    """The number of pairs for the eager loop: all, unless that would take too long."""
    few = min(pairs, 20)
    trial = eager_epochs(task, few)
    trial(0, 1)
    start = time.perf_counter()
    trial(0, 1)
    per_pair = (time.perf_counter() - start) / few
    return pairs if per_pair * pairs <= LONGEST else max(few, int(LONGEST / per_pair))


def memory_rows(function: str, effort: Effort, systems: Systems, size: MemorySize = MEMORY) -> Iterator[Row]:
    """Rows of workload C, which has only the memory function; `ms` is for an epoch."""
    with threads(1):
        task = _task(size)
        part = _measurable(task, size.pairs)
        timings = measure({FTNN: compiled_epochs(task), EAGER: eager_epochs(task, part)}, effort)
        timings[EAGER] = timings[EAGER].scaled(size.pairs / part)
        notes = {EAGER: f"scaled from {part} of {size.pairs} pairs"} if part < size.pairs else {}
        yield from timed("C", "memory", timings, None, batch=1, width=size.units, notes=notes)
