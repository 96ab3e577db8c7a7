"""The layers of functions in a module, and their connections as lists."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ftnn.errors import FtnnError
from ftnn.formula import name_of
from ftnn.formula._expr import INPUT
from ftnn.inspect._bounds import ANY_INPUT, Array, between, bounds
from ftnn.nn import Memory, Partial, Transfer

BLOCK = 2**18
"""Connections whose bounds are held at once."""


def layers_of(net: nn.Module) -> list[tuple[str, Transfer]]:
    """Every layer of functions and its name in `net` (empty for `net` itself), in order.

    Refuses what has none, and layers that remember.
    """
    if not isinstance(net, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise FtnnError(f"a layer or network is looked into, not {type(net).__name__}")
    for name, part in net.named_modules():
        if isinstance(part, Memory):
            where = f"{name} of this {type(net).__name__}" if name else "this"
            raise FtnnError(
                f"{where} is a Memory layer, whose connections depend on what they sent before, too; what "
                "can be looked into is Transfer, Partial, Network, and modules that have these and no memory"
            )
    found = [(name, part) for name, part in net.named_modules() if isinstance(part, Transfer)]
    if not found:
        raise FtnnError(
            f"this {type(net).__name__} has no layer of functions; what can be looked into is Transfer, "
            "Partial, Network, and modules that have these"
        )
    return found


def described(layer: Transfer) -> str:
    """What stands on a layer's connections: the catalogue's name and the formula, of each kind."""

    def one(kind: Any) -> str:
        name = name_of(kind)
        return kind.formula if name is None else f"{name}: {kind.formula}"

    return "; ".join(map(one, layer.kinds))


@dataclass(frozen=True)
class Listed:
    """A layer's connections, one after the other, in the order in which its matrices lie in memory."""

    inputs: Tensor
    """(connections,) int64, where each comes from."""
    outputs: Tensor
    """(connections,) int64, where it goes."""
    values: dict[str, Tensor]
    """Each parameter and constant, (connections,)."""

    def __len__(self) -> int:
        return len(self.inputs)

    def pick(self, which: Any) -> dict[str, Tensor]:
        return {name: value[which] for name, value in self.values.items()}


def listed(layer: Transfer) -> Listed:
    names = (*layer.function.parameters, *layer.function.constants)
    values = {name: m.detach().reshape(-1) for name, m in zip(names, layer.matrices(), strict=True)}
    if isinstance(layer, Partial):
        layer.check()
        return Listed(layer.inputs.long(), layer.outputs.long(), values)
    device = next(iter(values.values())).device
    inputs = torch.arange(layer.in_features, device=device).repeat_interleave(layer.out_features)
    outputs = torch.arange(layer.out_features, device=device).repeat(layer.in_features)
    return Listed(inputs, outputs, values)


@dataclass(frozen=True)
class Fate:
    """What is true of a layer's connections for all inputs of some range, (connections,) each."""

    dead: Array
    """One value for every input, and no gradient for any."""
    silent: Array
    """One value for every input, but not dead: some parameter may still move."""


def fate(layer: Transfer, connections: Listed, x: tuple[Array, Array] | None = None) -> Fate:
    """Which connections are dead or silent, proved by bounds.

    **Arguments:**

    - `x`: the least and the largest input of each connection, (connections,) each; if not given, every finite
        input counts.
    """
    function = layer.function
    dead, silent = (np.zeros(len(connections), dtype=bool) for _ in range(2))
    for part in _blocks(len(connections)):
        values = {n: v[part].double().cpu().numpy() for n, v in connections.values.items()}
        range_ = ANY_INPUT if x is None else between(x[0][part], x[1][part])
        constant = bounds(function.expr, values, range_).constant
        constant = constant & bounds(function.slope(INPUT), values, range_).zero
        still = constant
        for name in function.parameters:
            if np.any(still):
                still = still & bounds(function.slope(name), values, range_).zero
        dead[part], silent[part] = still, constant & ~still
    return Fate(dead, silent)


def _blocks(count: int) -> Iterator[slice]:
    return (slice(first, min(first + BLOCK, count)) for first in range(0, count, BLOCK))
