"""A network's outputs in float64."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ftnn.nn import Network
from ftnn.nn._activations import activation_formula


def forward(network: Network, x: Tensor) -> Tensor:
    """The outputs in float64.

    The rounding of a matrix product depends on its number of rows. In float64 this has no visible effect and
    costs little, so that predictions for a sample do not depend on the other samples.
    """
    dtype = network.output.weight.dtype
    for layer, activation in zip(network.layers, network.activations, strict=True):
        by_product = layer.function.plan.kind == "gemm"
        x = activation_formula(activation)(_in_float64(layer, x) if by_product else layer(x.to(dtype)))
    return _in_float64(network.output, x)


def _in_float64(module: nn.Module, x: Tensor) -> Tensor:
    state = {name: tensor.double() for name, tensor in module.state_dict().items()}
    return torch.func.functional_call(module, state, (x.double(),))
