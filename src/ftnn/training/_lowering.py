"""Lowers modules to the layers and activations that compiled steps train, by a registry of module types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from ftnn.kernels import program_of, signature
from ftnn.kernels.program import Program
from ftnn.nn import Memory, MemoryNetwork, Network, Partial, Transfer
from ftnn.nn._activations import MODULES, activation_formula, formula_of
from ftnn.training._normalised import Normalise
from ftnn.training._problem import Array
from ftnn.training.compiled.buffers import LINEAR, Layer, Normalisation, Shape


class NoCompiledFormError(Exception):
    """Names a module that compiled steps do not support."""


class Matrices(Protocol):
    """A layer's parameters and constants as full matrices, (in, out) each."""

    @property
    def program(self) -> Program: ...

    def read(self) -> list[Tensor]: ...

    def write(self, matrices: Sequence[Tensor]) -> None:
        """Copy the parameters, which come first, into the layer."""
        ...


@dataclass(frozen=True)
class _Whole:
    layer: Transfer | Memory

    @property
    def program(self) -> Program:
        return program_of(*signature(self.layer.function))

    def read(self) -> list[Tensor]:
        return self.layer.matrices()

    def write(self, matrices: Sequence[Tensor]) -> None:
        for tensor, matrix in zip(self.layer.theta.tensors(), matrices, strict=False):
            tensor.copy_(matrix)


@dataclass(frozen=True)
class _Weights:
    layer: nn.Linear
    program = LINEAR

    def read(self) -> list[Tensor]:
        return [self.layer.weight.T]

    def write(self, matrices: Sequence[Tensor]) -> None:
        self.layer.weight.T.copy_(matrices[0])


@dataclass(frozen=True)
class _Masked:
    """Some connections, as a full matrix that is 0 elsewhere; this costs as much as a full layer."""

    layer: Partial

    @property
    def program(self) -> Program:
        function = self.layer.function
        names = {*function.parameters, *function.constants}
        mask = next(f"mask{n}" for n in range(len(names) + 1) if f"mask{n}" not in names)
        formula = f"where({mask} > 0, {function.formula}, 0)"
        return program_of(formula, " ".join((*function.constants, mask)))

    def _indices(self) -> tuple[Tensor, Tensor]:
        return self.layer.inputs.long(), self.layer.outputs.long()

    def read(self) -> list[Tensor]:
        self.layer.check()
        lists = dict(zip(self._names(), self.layer.matrices(), strict=True))
        ones = torch.ones(len(self.layer.inputs), dtype=self.layer._first.dtype)
        shape = self.layer.in_features, self.layer.out_features
        return [
            ones.new_zeros(shape).index_put(self._indices(), lists.get(name, ones))
            for name in self.program.matrices
        ]

    def _names(self) -> tuple[str, ...]:
        return *self.layer.function.parameters, *self.layer.function.constants

    def write(self, matrices: Sequence[Tensor]) -> None:
        by_name = dict(zip(self.program.matrices, matrices, strict=False))
        for name, tensor in zip(self.layer.function.parameters, self.layer.theta.tensors(), strict=True):
            tensor.copy_(by_name[name][self._indices()])


@dataclass
class LoweredLayer:
    """A layer with the activation after it."""

    module: Transfer | Partial | Memory | nn.Linear
    matrices: Matrices
    activation: str | None = None
    norm: nn.BatchNorm1d | None = None

    @property
    def shape(self) -> Shape:
        formula = None if self.activation is None else activation_formula(self.activation)
        sizes = self.module.in_features, self.module.out_features
        normalisation = None if self.norm is None else Normalisation(self.norm.momentum or 0.0, self.norm.eps)
        return Shape(self.matrices.program, *sizes, formula, self.module.bias is not None, normalisation)

    def load(self, compiled: Layer) -> None:
        """Copy the module's parameters into a compiled layer."""
        matrices, norm = [_array(matrix) for matrix in self.matrices.read()], self.norm
        bias = None if self.module.bias is None else _array(self.module.bias)
        if norm is None:
            compiled.load(matrices, bias)
            return
        # A bias before the normalisation only moves the mean.
        mean = _array(_buffer(norm.running_mean)) - (0 if bias is None else bias)
        compiled.load(
            matrices, _array(norm.bias), _array(norm.weight), mean, _array(_buffer(norm.running_var))
        )

    @torch.no_grad()
    def store(self, compiled: Layer) -> None:
        """Copy a compiled layer's parameters into the module."""
        matrices, bias = compiled.read()
        self.matrices.write([torch.from_numpy(matrix) for matrix in matrices])
        norm = self.norm
        if norm is None:
            if self.module.bias is not None:
                self.module.bias.copy_(torch.from_numpy(bias))
            return
        scale, mean, variance = (
            torch.from_numpy(array[: len(bias)])
            for array in (compiled.scale, compiled.mean, compiled.variance)
        )
        norm.weight.copy_(scale)
        norm.bias.copy_(torch.from_numpy(bias))
        _buffer(norm.running_mean).copy_(mean if self.module.bias is None else mean + self.module.bias)
        _buffer(norm.running_var).copy_(variance)


def _buffer(tensor: Tensor | None) -> Tensor:
    assert tensor is not None  # `_batch_norm` refuses modules without running statistics
    return tensor


def _array(tensor: Tensor) -> Array:
    return np.asarray(tensor.detach())


Part = LoweredLayer | nn.BatchNorm1d | str
"""A layer, the normalisation of its sums, or an activation by name or formula."""
_LOWERINGS: dict[type[nn.Module], Callable[[Any], list[Part]]] = {}


def lowers(*kinds: type[nn.Module]) -> Callable[[Callable[[Any], list[Part]]], Callable[[Any], list[Part]]]:
    """Register a function that lowers modules of these types to layers and activations, in order."""

    def register(lowering: Callable[[Any], list[Part]]) -> Callable[[Any], list[Part]]:
        _LOWERINGS.update(dict.fromkeys(kinds, lowering))
        return lowering

    return register


def lower(module: nn.Module) -> list[LoweredLayer]:
    """A module's layers, each with the activation after it. Raises `NoCompiledFormError`."""
    layers: list[LoweredLayer] = []
    for part in _parts(module):
        if isinstance(part, LoweredLayer):
            layers.append(part)
        elif isinstance(part, str):
            if not layers:
                raise NoCompiledFormError("an activation that does not follow a layer")
            if layers[-1].activation is not None:
                raise NoCompiledFormError("two activations in a row")
            layers[-1].activation = part
        else:
            last = layers[-1] if layers else None
            if last is None or last.activation or last.norm is not None or isinstance(last.module, Memory):
                raise NoCompiledFormError("a normalisation that does not follow a layer")
            last.norm = part
    if not layers:
        raise NoCompiledFormError("a module without layers")
    return layers


def _parts(module: nn.Module) -> list[Part]:
    lowering = _LOWERINGS.get(type(module))
    if lowering is None:
        name = f"nn.{type(module).__name__}" if type(module).__module__.startswith("torch.nn") else None
        raise NoCompiledFormError(name or type(module).__name__)
    return lowering(module)


@lowers(Transfer, Memory)
def _whole(layer: Transfer | Memory) -> list[Part]:
    return [LoweredLayer(_unscaled(layer), _Whole(layer))]


@lowers(Partial)
def _partial(layer: Partial) -> list[Part]:
    return [LoweredLayer(_unscaled(layer), _Masked(layer))]


def _unscaled(layer: Any) -> Any:
    if getattr(layer, "scale", None) is not None:
        raise NoCompiledFormError("a layer with a scale")
    if getattr(layer, "reduce", "sum") != "sum":
        raise NoCompiledFormError("product units")
    return layer


@lowers(nn.Linear)
def _linear(layer: nn.Linear) -> list[Part]:
    return [LoweredLayer(layer, _Weights(layer))]


@lowers(nn.Sequential)
def _sequential(module: nn.Sequential) -> list[Part]:
    return [part for child in module for part in _parts(child)]


@lowers(Network)
def _network(net: Network) -> list[Part]:
    parts: list[Part] = []
    for layer, activation in zip(net.hidden, net.activations, strict=True):
        parts += [*_parts(layer), activation]
    return [*parts, *_parts(net.output)]


@lowers(MemoryNetwork)
def _memory_network(net: MemoryNetwork) -> list[Part]:
    return [*_parts(net.memory), net.activation, *_parts(net.output)]


@lowers(*MODULES)
def _activation(module: nn.Module) -> list[Part]:
    formula = formula_of(module)
    assert formula is not None
    return [formula]


@lowers(nn.BatchNorm1d, Normalise)
def _batch_norm(module: nn.BatchNorm1d) -> list[Part]:
    if not (module.affine and module.track_running_stats) or module.momentum is None:
        raise NoCompiledFormError("nn.BatchNorm1d without scale and bias, running statistics and momentum")
    return [module]


@lowers(nn.Identity, nn.Flatten)
def _nothing(_: nn.Module) -> list[Part]:
    return []
