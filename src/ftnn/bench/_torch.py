"""The catalogue in plain torch, and a layer of it."""

# pyright: reportUnknownLambdaType=false
# Lambdas cannot be annotated: all their arguments are tensors.

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ftnn.formula import catalogue, name_of
from ftnn.nn import Transfer

# Arguments: x, then parameters and constants in the catalogue's order. Written by hand, to be independent of
# ftnn and because torch.compile cannot trace ftnn's evaluation. A test compares them with the catalogue.
FORMULAS: dict[str, Callable[..., Tensor]] = {
    "F01": lambda x, p: p**2 * x,
    "F02": lambda x, p: p**3 * x,
    "F03": lambda x, p, q: p * x**2 + q * x,
    "F04": lambda x, p, q, r: p * x**3 + q * x**2 + r * x,
    "F05": lambda x, p, q: p * torch.exp(q * x),
    "F06": lambda x, p, u: torch.relu(p) * u * x,
    "F07": lambda x, p, u: torch.relu(p) * u * x,  # without F07's surrogate gradient, which costs no more
    "F08": lambda x, p, q, u: torch.relu(p * x + q) * u,
    "F09": lambda x, p, q, r: p * torch.relu(q * x + r),
    "F10": lambda x, p, q, u: torch.sigmoid(p * x + q) * u,
    "F11": lambda x, p, q, r: p * torch.sigmoid(q * x + r),
    "F12": lambda x, p, q, r: p * torch.sin(q * x + r),
    "F13": lambda x, p, q, r: p * torch.cos(q * x + r),
    "F14": lambda x, p, q, r: p * torch.sinh(q * x + r),
    "F15": lambda x, p, q, r: p * (torch.cosh(q * x + r) - 1),
    "F16": lambda x, p, q, r: p * torch.tanh(q * x + r),
    "F17": lambda x, p: p**2 * x**2,
    "F18": lambda x, p, u: p**2 * x**2 * u,
    "F19": lambda x, p, q: p**2 * (x - q) ** 2,
    "F20": lambda x, p, q, u: p**2 * (x - q) ** 2 * u,
}
FUNCTIONS = tuple(FORMULAS)


class Broadcast(nn.Module):
    """A layer of functions in plain torch: a (batch, in, out) array of values, then their sum."""

    def __init__(self, like: Transfer):
        """Copies the parameters and constants of a layer of a catalogue function."""
        super().__init__()
        name = name_of(like.function)
        if name not in FORMULAS:
            raise ValueError(f"{like.function.formula!r} is not available in plain torch")
        self._formula = FORMULAS[name]
        self.matrices = nn.ParameterList(m.detach().clone() for m in like.theta.tensors())
        for n, constant in enumerate(like.constants.tensors()):
            self.register_buffer(f"constant_{n}", constant.detach().clone())
        self._constants = len(like.constants)
        self.bias = None if like.bias is None else nn.Parameter(like.bias.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        constants = [self.get_buffer(f"constant_{n}") for n in range(self._constants)]
        out = self._formula(x[:, :, None], *self.matrices, *constants).sum(1)
        return out if self.bias is None else out + self.bias


def layer(function: str, inputs: int, outputs: int, seed: int = 0) -> Transfer:
    """ftnn's layer of a catalogue function, initialised from a seed."""
    transfer = Transfer(inputs, outputs, catalogue[function])
    transfer.reset_parameters(torch.Generator().manual_seed(seed))
    return transfer
