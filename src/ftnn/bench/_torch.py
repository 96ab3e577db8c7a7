"""The catalogue as a person would write it in plain torch, with the layer around it."""

# pyright: reportUnknownLambdaType=false
# Lambdas have no room for types: all their arguments are tensors.

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ftnn.formula import catalogue, name_of
from ftnn.nn import Transfer

# Of x, then the parameters and the constant in the catalogue's order. Written out by hand: they must owe
# nothing to ftnn, and torch.compile cannot follow how ftnn evaluates an expression. A test holds them right.
FORMULAS: dict[str, Callable[..., Tensor]] = {
    "F01": lambda x, p: p**2 * x,
    "F02": lambda x, p: p**3 * x,
    "F03": lambda x, p, q: p * x**2 + q * x,
    "F04": lambda x, p, q, r: p * x**3 + q * x**2 + r * x,
    "F05": lambda x, p, q: p * torch.exp(q * x),
    "F06": lambda x, p, u: torch.relu(p) * u * x,
    "F07": lambda x, p, u: torch.relu(p) * u * x,  # not F07's decreed slope, which would cost no more
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
    """A layer of functions in plain torch: the values in a (batch, in, out) array, then their sum."""

    def __init__(self, like: Transfer):
        """With copies of the parameters and constants of a layer whose function is in the catalogue."""
        super().__init__()
        name = name_of(like.function)
        if name not in FORMULAS:
            raise ValueError(f"{like.function.formula!r} is not written out in plain torch")
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
    """ftnn's layer of a catalogue function, drawn from a seed."""
    transfer = Transfer(inputs, outputs, catalogue[function])
    transfer.reset_parameters(torch.Generator().manual_seed(seed))
    return transfer
