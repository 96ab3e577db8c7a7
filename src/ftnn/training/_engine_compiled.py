"""Training in which all of an epoch is compiled code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import nn

from ftnn.kernels import program_of, signature
from ftnn.kernels.codegen.target import DType
from ftnn.nn import Memory
from ftnn.nn._activations import activation_formula
from ftnn.nn._feed_forward import FeedForward
from ftnn.training._checkpoint import check_like
from ftnn.training._engine import Snapshot, Steps
from ftnn.training._problem import Array, Problem
from ftnn.training._settings import Settings
from ftnn.training.compiled.buffers import LINEAR, Layer, Shape
from ftnn.training.compiled.network import CompiledNetwork


def shape_of(layer: FeedForward | Memory | nn.Linear, activation: str | None = None) -> Shape:
    """What compiled steps need to know of a layer and the activation behind it."""
    program = LINEAR if isinstance(layer, nn.Linear) else program_of(*signature(layer.function))
    formula = None if activation is None else activation_formula(activation)
    return Shape(program, layer.in_features, layer.out_features, formula, layer.bias is not None)


def dtype_of(output: nn.Linear) -> DType:
    return "float64" if output.weight.dtype == torch.float64 else "float32"


def load(compiled: Layer, layer: FeedForward | Memory | nn.Linear) -> None:
    """Copy a module's parameters into a compiled layer."""
    matrices = [layer.weight.T] if isinstance(layer, nn.Linear) else layer.matrices()
    bias = None if layer.bias is None else layer.bias.detach().numpy()
    compiled.load([matrix.detach().numpy() for matrix in matrices], bias)


@torch.no_grad()
def write_back(compiled: Layer, layer: FeedForward | Memory | nn.Linear) -> None:
    """Copy a compiled layer's parameters into a module."""
    matrices, bias = compiled.read()
    tensors = [layer.weight.T] if isinstance(layer, nn.Linear) else layer.theta.tensors()
    for tensor, matrix in zip(tensors, matrices, strict=False):
        tensor.copy_(torch.from_numpy(matrix))
    if layer.bias is not None:
        layer.bias.copy_(torch.from_numpy(bias))


class CompiledEngine:
    """Any update rule, on the CPU."""

    def __init__(
        self,
        layers: Sequence[FeedForward],
        output: nn.Linear,
        activations: Sequence[str],
        problem: Problem,
        settings: Settings,
    ):
        self._modules = (*layers, output)
        self._problem, self._clip = problem, settings.clip
        shapes = [
            shape_of(layer, activation)
            for layer, activation in zip(self._modules, (*activations, None), strict=True)
        ]
        self._network = CompiledNetwork(
            shapes,
            problem.formula,
            dtype_of(output),
            settings.batch_size or 1,
            settings.rule,
            settings.clip_norm,
        )
        for compiled, layer in zip(self._network.layers, self._modules, strict=True):
            load(compiled, layer)

    def epoch(self, order: Array, rates: Array) -> Iterator[Steps]:
        self._network.forget_losses()
        problem = self._problem
        return self._network.train_in_chunks(
            problem.samples(problem.x), problem.targets, order, rates=rates, clip=self._clip
        )

    def outputs(self, x: Array) -> Array:
        return self._network.predict(self._problem.samples(x))

    def hidden(self, x: Array) -> Array:
        return self._network.predict(self._problem.samples(x), upto=len(self._modules) - 1)

    def _arrays(self) -> Iterator[tuple[str, Array]]:
        for n, layer in enumerate(self._network.layers):
            for name, array in layer.arrays():
                yield f"{n}{'' if name.startswith(' ') else '.'}{name}", array

    def snapshot(self) -> Snapshot:
        arrays = {name: array.copy() for name, array in self._arrays()}
        return arrays | ({"step": np.array([self._network.step])} if self._network.rule.states else {})

    def restore(self, snapshot: Snapshot) -> None:
        own = dict(self._arrays())
        has_step = "step" in snapshot
        check_like(snapshot, own | ({"step": np.array([0])} if self._network.rule.states else {}))
        for name, array in own.items():
            array[:] = snapshot[name]
        if has_step:
            self._network.step = int(snapshot["step"][0])

    def write_back(self) -> None:
        for compiled, layer in zip(self._network.layers, self._modules, strict=True):
            write_back(compiled, layer)
