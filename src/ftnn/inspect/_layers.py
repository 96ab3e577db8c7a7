"""The layers of functions in a module, lists of their connections, and which of these are dead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ftnn.errors import FtnnError
from ftnn.formula import name_of
from ftnn.formula._expr import INPUT
from ftnn.inspect._bounds import ANY_INPUT, Array, between, bounds
from ftnn.nn import Memory, Partial
from ftnn.nn._feed_forward import FeedForward

BLOCK = 2**18
"""Connections whose bounds are computed at once."""


def layers_of(net: nn.Module) -> list[tuple[str, FeedForward]]:
    """The layers of functions in `net`, each with its name (empty for `net` itself), in order.

    Raises `FtnnError` if there are none, or if a layer has memory.
    """
    if not isinstance(net, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise FtnnError(f"expected a layer or network, got {type(net).__name__}")
    for name, module in net.named_modules():
        if isinstance(module, Memory):
            where = f"{name} of this {type(net).__name__}" if name else "this"
            raise FtnnError(
                f"{where} is a Memory layer, whose connections depend on their previous values; {_SUPPORTED}"
            )
    layers = [(name, module) for name, module in net.named_modules() if isinstance(module, FeedForward)]
    if not layers:
        raise FtnnError(f"this {type(net).__name__} has no layer of functions; {_SUPPORTED}")
    return layers


_SUPPORTED = "expected a Transfer, Partial or Network, or a module that contains these and no memory"


def describe(layer: FeedForward) -> str:
    """The function of a layer: catalogue name and formula, for each kind."""
    names = [name_of(kind) for kind in layer.kinds]
    return "; ".join(
        kind.formula if name is None else f"{name}: {kind.formula}"
        for name, kind in zip(names, layer.kinds, strict=True)
    )


@dataclass(frozen=True)
class ConnectionList:
    """A layer's connections, in the memory order of its matrices."""

    inputs: Tensor
    """(connections,) int64: the input of each."""
    outputs: Tensor
    """(connections,) int64: the output of each."""
    values: dict[str, Tensor]
    """Each parameter and constant, (connections,)."""

    def __len__(self) -> int:
        return len(self.inputs)

    def pick(self, indices: Any) -> dict[str, Tensor]:
        return {name: value[indices] for name, value in self.values.items()}


def connection_list(layer: FeedForward) -> ConnectionList:
    names = (*layer.function.parameters, *layer.function.constants)
    values = {name: m.detach().reshape(-1) for name, m in zip(names, layer.matrices(), strict=True)}
    if isinstance(layer, Partial):
        layer.check()
        return ConnectionList(layer.inputs.long(), layer.outputs.long(), values)
    device = next(iter(values.values())).device
    inputs = torch.arange(layer.in_features, device=device).repeat_interleave(layer.out_features)
    outputs = torch.arange(layer.out_features, device=device).repeat(layer.in_features)
    return ConnectionList(inputs, outputs, values)


@dataclass(frozen=True)
class Fate:
    """Which connections of a layer do not respond to inputs in some range, (connections,) each."""

    dead: Array
    """The same value for all inputs, and no gradient for any: nothing can change it."""
    silent: Array
    """The same value for all inputs, but some parameter may still move: dead, but revivable."""


def fate(layer: FeedForward, connections: ConnectionList, x: tuple[Array, Array] | None = None) -> Fate:
    """Which connections are dead or silent, proved by bounds.

    **Arguments:**

    - `x`: the smallest and largest input of each connection, (connections,) each; by default, all finite
        inputs.
    """
    function = layer.function
    dead, silent = (np.zeros(len(connections), dtype=bool) for _ in range(2))
    for first in range(0, len(connections), BLOCK):
        block = slice(first, first + BLOCK)
        values = {n: v[block].double().cpu().numpy() for n, v in connections.values.items()}
        inputs = ANY_INPUT if x is None else between(x[0][block], x[1][block])
        constant = bounds(function.expr, values, inputs).constant
        constant = constant & bounds(function.slope(INPUT), values, inputs).zero
        still = constant
        for name in function.parameters:
            if np.any(still):
                still = still & bounds(function.slope(name), values, inputs).zero
        dead[block], silent[block] = still, constant & ~still
    return Fate(dead, silent)
