"""Training whose epochs run entirely in compiled code."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from torch import nn

from ftnn.training._checkpoint import check_like
from ftnn.training._engine import Snapshot, Steps
from ftnn.training._lowering import lower
from ftnn.training._problem import Array, Problem
from ftnn.training._settings import Settings
from ftnn.training.compiled.network import CompiledNetwork


class CompiledEngine:
    """Trains with any update rule, on the CPU."""

    def __init__(self, module: nn.Module, problem: Problem, settings: Settings):
        self._layers, self._problem, self._clip = lower(module), problem, settings.clip
        self._network = CompiledNetwork(
            [layer.shape for layer in self._layers],
            problem.formula,
            problem.dtype,
            min(settings.batch_size or 1, len(problem.x)),  # more would only take memory
            settings.rule,
            settings.largest_norm,
        )
        norms = [layer.norm for layer in self._layers if layer.norm is not None]
        self._counts = [(norm.num_batches_tracked, int(norm.num_batches_tracked or 0)) for norm in norms]
        """How many mini-batches each normalisation has seen, now and at first."""
        for compiled, layer in zip(self._network.layers, self._layers, strict=True):
            layer.load(compiled)

    def epoch(self, order: Array, rates: Array, data: Problem | None = None) -> Iterator[Steps]:
        self._network.forget_losses()
        if data is not None:
            self._network.forget_data()
        problem = data or self._problem
        return self._network.train_in_chunks(
            problem.samples(problem.x), problem.targets, order, rates=rates, clip=self._clip
        )

    def outputs(self, x: Array) -> Array:
        return self._network.predict(self._problem.samples(x))

    def hidden(self, x: Array) -> Array:
        return self._network.predict(self._problem.samples(x), upto=len(self._layers) - 1)

    def _arrays(self) -> dict[str, Array]:
        """Everything that an epoch changes, by name."""
        return {
            f"{n}{name if name.startswith(' ') else f'.{name}'}": array
            for n, layer in enumerate(self._network.layers)
            for name, array in layer.arrays()
        }

    def _step_count(self) -> Snapshot:
        is_used = self._network.rule.depends_on_past or bool(self._counts)
        return {"step": np.array([self._network.step])} if is_used else {}

    def snapshot(self) -> Snapshot:
        return {name: array.copy() for name, array in self._arrays().items()} | self._step_count()

    def restore(self, snapshot: Snapshot) -> None:
        own = self._arrays()
        check_like(snapshot, own | self._step_count())
        for name, array in own.items():
            array[:] = snapshot[name]
        if "step" in snapshot:
            self._network.step = int(snapshot["step"][0])

    def write_back(self) -> None:
        for compiled, layer in zip(self._network.layers, self._layers, strict=True):
            layer.store(compiled)
        for count, first in self._counts:
            if count is not None:
                count.fill_(first + self._network.step)
