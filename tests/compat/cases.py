"""A layer of every catalogue function, and its expected output by NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ftnn import catalogue
from ftnn.kernels import Backend
from ftnn.nn import Memory, Transfer

INS, OUTS, TIME = 12, 3, 3
NAMES = tuple(catalogue)


class Sums(nn.Module):
    """A layer with one argument and one result.

    For `Memory`, a row is a sequence, (batch, TIME, in), and the state is left out.
    """

    def __init__(self, layer: Transfer | Memory):
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        """(batch, in) → (batch, out), or (batch, TIME, in) → (batch, TIME, out)."""
        if isinstance(self.layer, Memory):
            return self.layer(x.transpose(0, 1))[0].transpose(0, 1)
        return self.layer(x)


@dataclass(frozen=True)
class Case:
    """One function of the catalogue."""

    name: str

    @cached_property
    def is_memory(self) -> bool:
        return catalogue[self.name].has_memory

    def module(self, dtype: torch.dtype = torch.float64, backend: Backend = "auto") -> Sums:
        """A layer with the paper's initial parameters, from a fixed seed; its bias is not 0."""
        kind = Memory if self.is_memory else Transfer
        options: dict[str, Any] = {"through_time": True} if self.is_memory else {}
        layer = kind(INS, OUTS, self.name, dtype=torch.float64, backend=backend, **options)
        layer.reset_parameters(torch.Generator().manual_seed(1))
        assert layer.bias is not None
        layer.bias.data += torch.arange(OUTS) / 8
        return Sums(layer).to(dtype)

    def x(self, batch: int = 4, dtype: torch.dtype = torch.float64, seed: int = 2) -> Tensor:
        """Inputs with some zeros."""
        shape = (batch, TIME, INS) if self.is_memory else (batch, INS)
        x = torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2 - 1
        return torch.where(x.abs() < 0.1, 0.0, x).to(dtype)

    def oracle(self, module: Sums, x: Tensor, replaced: dict[str, Tensor] | None = None) -> Tensor:
        """The expected output, by NumPy in float64; `replaced` has other values for some parameters."""
        function, layer = catalogue[self.name], module.layer
        tensors = {**dict(layer.named_parameters()), **dict(layer.named_buffers()), **(replaced or {})}
        arrays = {key.split(".")[-1]: t.detach().double().numpy() for key, t in tensors.items()}
        bias = arrays.pop("bias")
        inputs = x.detach().double().numpy()
        if not self.is_memory:
            values = np.broadcast_to(function(inputs[:, :, None], **arrays), (len(x), INS, OUTS))
            return torch.from_numpy(values.sum(1) + bias)
        cell, sums = np.zeros((len(x), INS, OUTS)), list[Any]()
        for t in range(TIME):
            cell = function(inputs[:, t, :, None], C=cell, **arrays)
            sums.append(cell.sum(1) + bias)
        return torch.from_numpy(np.stack(sums, 1))


CASES = {name: Case(name) for name in NAMES}


class Together(nn.Module):
    """All cases in one module, for checks that are slow to start."""

    def __init__(self, dtype: torch.dtype, backend: Backend = "auto"):
        super().__init__()
        self.all = nn.ModuleDict({name: case.module(dtype, backend) for name, case in CASES.items()})

    def forward(self, x: Tensor, sequence: Tensor) -> tuple[Tensor, ...]:
        """(batch, in) and (batch, TIME, in) → the output of each."""
        return tuple(module(sequence if CASES[name].is_memory else x) for name, module in self.all.items())
