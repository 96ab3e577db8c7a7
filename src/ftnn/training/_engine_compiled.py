"""Training in which all of an epoch is compiled code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from ftnn.kernels import program_of, signature
from ftnn.nn import Activation, Memory
from ftnn.nn._feed_forward import FeedForward
from ftnn.training._checkpoint import check_like
from ftnn.training._engine import Snapshot, Steps
from ftnn.training._problem import Array, Loss, Problem
from ftnn.training._settings import Settings

if TYPE_CHECKING:  # Numba is loaded only when something is trained
    from ftnn.training.compiled.buffers import Shape
    from ftnn.training.compiled.network import CompiledNetwork


def shape_of(layer: FeedForward | Memory) -> Shape:
    from ftnn.training.compiled.buffers import Shape

    return Shape(program_of(*signature(layer.function)), layer.in_features, layer.out_features)


def compiled_network(
    layers: Sequence[FeedForward], output: nn.Linear, activation: Activation, loss: Loss, batch_size: int
) -> CompiledNetwork:
    """Hidden layers and the linear one above them, with their parameters, as compiled epochs train them."""
    from ftnn.training.compiled.buffers import Shape
    from ftnn.training.compiled.network import LINEAR, CompiledNetwork

    shapes = [*map(shape_of, layers), Shape(LINEAR, output.in_features, output.out_features)]
    dtype = "float64" if output.weight.dtype == torch.float64 else "float32"
    network = CompiledNetwork(shapes, activation, loss, dtype, batch_size)
    for compiled, layer in zip(network.layers, layers, strict=False):
        bias = None if layer.bias is None else layer.bias.detach().numpy()
        compiled.load([m.detach().numpy() for m in layer.matrices()], bias)
    network.layers[-1].load([output.weight.detach().numpy().T], output.bias.detach().numpy())
    return network


class CompiledEngine:
    """Plain SGD on the CPU."""

    def __init__(
        self,
        layers: Sequence[FeedForward],
        output: nn.Linear,
        activation: Activation,
        problem: Problem,
        settings: Settings,
    ):
        self._layers, self._output, self._problem, self._clip = layers, output, problem, settings.clip
        self._network = compiled_network(layers, output, activation, problem.loss, settings.batch_size)

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
        for compiled, layer in zip(self._network.layers, self._layers, strict=False):
            matrices, bias = compiled.read()
            for tensor, matrix in zip(layer.theta.tensors(), matrices, strict=False):
                tensor.copy_(torch.from_numpy(matrix))
            if layer.bias is not None:
                layer.bias.copy_(torch.from_numpy(bias))
        (weight,), bias = self._network.layers[-1].read()
        self._output.weight.copy_(torch.from_numpy(weight.T))
        self._output.bias.copy_(torch.from_numpy(bias))
