"""Training loops in short bursts: plain PyTorch, and the compiled epoch of ftnn."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from ftnn.bench._data import Data, samples
from ftnn.bench._measure import Burst
from ftnn.errors import FtnnError
from ftnn.training._losses import loss_formula
from ftnn.training._lowering import lower
from ftnn.training._optimizers import MakeOptimizer
from ftnn.training._rules import RULES
from ftnn.training.compiled.buffers import Targets
from ftnn.training.compiled.network import CompiledNetwork

RATE = 0.01
"""Small, so that no function leaves its initial range while it is measured."""
CLIP = 1000.0
"""The default of `ftnn.training`; the torch loops do not clip."""


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=RATE, foreach=True)


def adam(parameters: Any) -> torch.optim.Optimizer:
    """The fastest Adam in torch."""
    return torch.optim.Adam(parameters, lr=1e-3, fused=True)


def torch_loop(
    model: Any, data: Data, batch: int, make_optimizer: MakeOptimizer, parameters: Any = None
) -> Burst:
    """Mini-batch training in torch: fetch, forward, backward, update.

    **Arguments:**

    - `model`: the network, compiled or not.
    - `parameters`: the network's parameters, if `model` cannot list them.
    """
    x, labels, order = data.tensors()
    optimizer = make_optimizer(model.parameters() if parameters is None else parameters)

    def burst(first: int, steps: int) -> None:
        at = data.start(first, steps, batch)
        for start in range(at, at + steps * batch, batch):
            rows = order[start : start + batch]
            loss = cross_entropy(model(x[rows]), labels[rows])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()

    return burst


def compiled_epoch(
    model: nn.Sequential, data: Data, batch: int, rule: str = "sgd", rate: float = RATE
) -> Burst:
    """The same training of `ftnn layer - sigmoid - linear` by SGD in ftnn's compiled epoch."""
    layers, inputs = lower(model), samples(data)
    network = CompiledNetwork(
        [layer.shape for layer in layers],
        loss_formula("softmax"),
        batch_size=batch,
        rule=RULES[rule].compiled(0.0),
    )
    for target, layer in zip(network.layers, layers, strict=True):
        layer.load(target)
    targets = Targets.labels(data.labels, layers[-1].shape.outputs, inputs.count, "float32", None)

    def burst(first: int, steps: int) -> None:
        at = data.start(first, steps, batch)
        steps_done = network.train(inputs, targets, data.order[at : at + steps * batch], rate=rate, clip=CLIP)
        if not steps_done.finite:  # an epoch that stopped early would look fast
            raise FtnnError("the loss was not finite during the measurement")

    return burst
