"""Where direct training starts: balanced ranges, and the first scale and shift of normalised sums."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from ftnn.errors import FormulaError
from ftnn.formula import Function, name_of
from ftnn.formula._balance import Balance, balanced
from ftnn.nn import Network
from ftnn.nn._activations import Activate, activation_formula, formula_of, inputs_through
from ftnn.nn._feed_forward import FeedForward
from ftnn.nn._inputs import SAMPLES
from ftnn.training._random import Purpose, torch_generator

SCALE = 0.5
"""The first scale of normalised sums: small enough for activations to be nearly linear."""
SHIFT = 1.0
"""The first shift of normalised sums for functions that need inputs of one sign, such as a square."""
TOLERATED = 2.0
"""How far the conditions on balanced ranges may be violated before the inputs are shifted."""
COMMON = 0.2
"""The share of the signal common to all connections above which inputs need both signs."""


def applied(module: nn.Module) -> Iterator[nn.Module]:
    """The modules that a network applies, in order."""
    if type(module) is Network:
        for layer, activation in zip(module.hidden, module.activations, strict=True):
            yield from (layer, Activate(activation))
        yield module.output
    elif type(module) is nn.Sequential:
        for child in module:
            yield from applied(child)
    else:
        yield module


def has_untouched_outputs(net: nn.Module) -> bool:
    """Whether no output layer has been trained, which would need its hidden layers as they are."""
    return all(part.has_untouched_output for part in net.modules() if isinstance(part, Network))


class Start:
    """Draws the hidden layers of a network for normalised training.

    **Arguments:**

    - `modules`: what the network applies, in order.
    - `hidden`: its hidden layers.
    """

    def __init__(self, modules: Sequence[nn.Module], hidden: Sequence[FeedForward], seed: int):
        self._modules, self._hidden, self._seed = modules, hidden, seed

    def draw(self, layer: FeedForward, number: int, x: Tensor) -> None:
        """Draw hidden layer `number`, which receives x, (samples, in)."""
        generator = torch_generator(self._seed, Purpose.hidden, number)
        layer._calibrate(x[:SAMPLES], free_kinds(layer), generator, len(self._hidden))

    def shift(self, norm: nn.BatchNorm1d, number: int) -> None:
        """Set the first scale and shift of a hidden layer's normalised sums for the layer that follows it."""
        norm.weight.fill_(SCALE)
        if number + 1 == len(self._hidden):
            return
        above = self._hidden[number + 1]
        between = self._modules[self._place(self._hidden[number]) + 1 : self._place(above)]
        plain, shifted = (self._balances(above, between, shift) for shift in (0.0, SHIFT))
        # If all connections send the same, so will all units above, unless inputs differ in sign.
        is_common = max(balance.common for balance in plain) > COMMON
        if is_common or _worst(plain) > max(TOLERATED, _worst(shifted)):
            norm.bias.fill_(SHIFT)
        if is_common:
            random = torch_generator(self._seed, Purpose.signs, number)
            signs = 2 * torch.randint(2, norm.weight.shape, generator=random) - 1
            norm.weight.mul_(signs.to(norm.weight))

    def _place(self, layer: nn.Module) -> int:
        return next(place for place, module in enumerate(self._modules) if module is layer)

    def _balances(self, layer: FeedForward, between: Sequence[nn.Module], shift: float) -> list[Balance]:
        """What is measured of the layer's kinds if normalised sums below it are shifted."""
        inputs = inputs_through(*filter(None, map(formula_of, between)), scale=SCALE, shift=shift)
        return [balanced(kind, layer.in_features, inputs, len(self._hidden)) for kind in free_kinds(layer)]


SHALLOW_RATE, RATE, CAREFUL_RATE = 2e-2, 1e-2, 3e-3
"""The learning rate with one layer of functions; with more; and with more than `DEEP`, or functions that
easily reach a pole or explode."""
DEEP = 10
DECAY = 0.1
"""The weight decay for such functions."""
FAR = 24.0
"""A sum that is this far out ends near the bound of an activation, if it has one."""


def defaults_for(net: nn.Module) -> dict[str, float]:
    """The learning rate and the weight decay of direct training.

    Normalised sums are bounded during training, by the size of the mini-batch, but not in the trained
    network: there, outliers that grow exponentially from layer to layer overflow, unless activations bound
    what the functions receive. Poles are as bad. A weight decay keeps such functions nearly straight.
    """
    layers = [module for module in net.modules() if isinstance(module, FeedForward)]
    try:
        balances = [balanced(kind, layer.in_features) for layer in layers for kind in set(free_kinds(layer))]
        careful = any(balance.fragile for balance in balances)
        if len(layers) > 1 and any(balance.explosive for balance in balances):
            careful |= not _is_bounded(net)
    except FormulaError:
        careful = True
    rate = RATE if len(layers) > 1 else SHALLOW_RATE
    if careful or len(layers) > DEEP:
        rate = CAREFUL_RATE
    return {"learning_rate": rate, "weight_decay": DECAY if careful else 0.0}


def _is_bounded(net: nn.Module) -> bool:
    """Whether every activation is bounded."""
    formulas = [formula for formula in map(formula_of, applied(net)) if formula is not None]
    sums = torch.tensor([-2 * FAR, -FAR, FAR, 2 * FAR], dtype=torch.float64)
    ends = [activation_formula(formula)(sums).abs() for formula in formulas]
    return bool(ends) and all(bool(torch.allclose(end[::3], end[1:3], rtol=0.1)) for end in ends)


def _worst(balances: Sequence[Balance]) -> float:
    return max(balance.violation for balance in balances)


def free_kinds(layer: FeedForward) -> list[Function]:
    """The layer's kinds, those of the catalogue without the paper's ranges."""
    return [
        kind if name_of(kind) is None else Function.composed(kind.formula, {}, kind.choices)
        for kind in layer.kinds
    ]
