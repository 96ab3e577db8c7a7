"""A network as a function of one vector of parameters, with its exact Jacobian.

A parameter acts on the outputs through its own layer's sums only. So its column of the Jacobian is a product:
the slope of the outputs with respect to these sums, which one pass from the last layer to the first computes
for all samples, times ∂F/∂p, which the formula's own derivative gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from ftnn.errors import FtnnError
from ftnn.formula._expr import INPUT, Expr
from ftnn.kernels import evaluate
from ftnn.nn import Partial, Transfer
from ftnn.nn._activations import MODULES, activation_formula, formula_of
from ftnn.nn._feed_forward import FeedForward
from ftnn.training._start import applied

Values = dict[str, Tensor]
"""The value of every parameter of the network, by name."""
Columns = dict[str, Tensor]
"""Where the Jacobian's columns of each trained parameter go, by name: (samples, outputs, *shape) views."""


class Part(Protocol):
    """A module of the network, with what its derivatives need from the forward pass."""

    def forward(self, values: Values, x: Tensor) -> tuple[Tensor, Any]:
        """(samples, in) → (samples, out), and what `backward` needs of this pass."""
        ...

    def backward(self, values: Values, kept: Any, error: Tensor, columns: Columns, first: bool) -> Tensor:
        """Fill in the columns of the part's own parameters.

        `error` is the slope of the network's outputs with respect to the part's, (samples, outputs, out).
        Returns the slope with respect to its inputs, (samples, outputs, in), unless it is the `first` part.
        """
        ...


@dataclass(frozen=True)
class _Functions:
    """`scale·(F ⊙ x) + b`, with the values of all connections, (samples, in, out), in memory."""

    layer: Transfer
    prefix: str

    def _operands(self, values: Values, x: Tensor) -> Values:
        matrices = {name: values[f"{self.prefix}theta.{name}"] for name in self.layer.theta}
        matrices |= {name: self.layer.constants[name].double() for name in self.layer.constants}
        return {INPUT: x[:, :, None], **matrices}

    def forward(self, values: Values, x: Tensor) -> tuple[Tensor, Any]:
        (each,) = evaluate((self.layer.function.expr,), self._operands(values, x))
        sums = each.expand(len(x), self.layer.in_features, self.layer.out_features).sum(1)
        return _scaled(self.layer, self.prefix, values, sums), (x, sums)

    def backward(self, values: Values, kept: Any, error: Tensor, columns: Columns, first: bool) -> Tensor:
        x, sums = kept
        error = _through_scale(self.layer, self.prefix, values, sums, error, columns)
        names = [name for name in self.layer.theta if f"{self.prefix}theta.{name}" in columns]
        slopes = _slopes(self.layer, names, first, self._operands(values, x))
        weights = error[:, :, None, :]
        for name in names:
            torch.mul(weights, slopes[name][:, None], out=columns[f"{self.prefix}theta.{name}"])
        return error if first else (weights * slopes[INPUT][:, None]).sum(3)


@dataclass(frozen=True)
class _Listed:
    """The same over a list of connections, with the values of all of them, (samples, connections)."""

    layer: Partial
    prefix: str

    def _operands(self, values: Values, x: Tensor) -> Values:
        matrices = {name: values[f"{self.prefix}theta.{name}"] for name in self.layer.theta}
        matrices |= {name: self.layer.constants[name].double() for name in self.layer.constants}
        return {INPUT: x[:, self.layer.inputs.long()], **matrices}

    def forward(self, values: Values, x: Tensor) -> tuple[Tensor, Any]:
        (each,) = evaluate((self.layer.function.expr,), self._operands(values, x))
        outputs = self.layer.outputs.long()
        sums = x.new_zeros(len(x), self.layer.out_features)
        sums.index_add_(1, outputs, each.expand(len(x), len(outputs)))
        return _scaled(self.layer, self.prefix, values, sums), (x, sums)

    def backward(self, values: Values, kept: Any, error: Tensor, columns: Columns, first: bool) -> Tensor:
        x, sums = kept
        error = _through_scale(self.layer, self.prefix, values, sums, error, columns)
        names = [name for name in self.layer.theta if f"{self.prefix}theta.{name}" in columns]
        slopes = _slopes(self.layer, names, first, self._operands(values, x))
        weights = error[:, :, self.layer.outputs.long()]
        for name in names:
            torch.mul(weights, slopes[name][:, None], out=columns[f"{self.prefix}theta.{name}"])
        if first:
            return error
        down = error.new_zeros(*error.shape[:2], self.layer.in_features)
        return down.index_add_(2, self.layer.inputs.long(), weights * slopes[INPUT][:, None])


def _slopes(layer: FeedForward, names: Sequence[str], first: bool, operands: Values) -> Values:
    """∂F/∂name for the parameters and, unless this is the first layer, x; (samples, …connections)."""
    wanted = [*names, *([] if first else [INPUT])]
    expressions: list[Expr] = [layer.function.slopes[name] for name in wanted]
    x, some = operands[INPUT], next(iter(operands[name] for name in layer.theta))
    shape = torch.broadcast_shapes(x.shape, some.shape)
    computed = evaluate(tuple(expressions), operands) if expressions else []
    return {name: slope.expand(shape) for name, slope in zip(wanted, computed, strict=True)}


def _scaled(layer: FeedForward, prefix: str, values: Values, sums: Tensor) -> Tensor:
    if layer.scale is not None:
        sums = sums * values[f"{prefix}scale"]
    return sums if layer.bias is None else sums + values[f"{prefix}bias"]


def _through_scale(
    layer: FeedForward, prefix: str, values: Values, sums: Tensor, error: Tensor, columns: Columns
) -> Tensor:
    """The columns of bias and scale; returns the slope with respect to the sums."""
    if f"{prefix}bias" in columns:
        columns[f"{prefix}bias"].copy_(error)
    if layer.scale is None:
        return error
    if f"{prefix}scale" in columns:
        torch.mul(error, sums[:, None], out=columns[f"{prefix}scale"])
    return error * values[f"{prefix}scale"]


@dataclass(frozen=True)
class _Linear:
    layer: nn.Linear
    prefix: str

    def forward(self, values: Values, x: Tensor) -> tuple[Tensor, Any]:
        return nn.functional.linear(x, values[f"{self.prefix}weight"], values.get(f"{self.prefix}bias")), x

    def backward(self, values: Values, kept: Any, error: Tensor, columns: Columns, first: bool) -> Tensor:
        if f"{self.prefix}weight" in columns:
            torch.mul(error[..., None], kept[:, None, None, :], out=columns[f"{self.prefix}weight"])
        if f"{self.prefix}bias" in columns:
            columns[f"{self.prefix}bias"].copy_(error)
        return error if first else error @ values[f"{self.prefix}weight"]


@dataclass(frozen=True)
class _Activation:
    text: str

    def forward(self, values: Values, x: Tensor) -> tuple[Tensor, Any]:
        return activation_formula(self.text)(x), x

    def backward(self, values: Values, kept: Any, error: Tensor, columns: Columns, first: bool) -> Tensor:
        (slope,) = evaluate((activation_formula(self.text).slope,), {INPUT: kept})
        return error * slope.expand_as(kept)[:, None]


class VectorForm:
    """A network of layers and activations as a function of one float64 vector of its trained parameters.

    Raises `FtnnError` for modules that it does not know, and for parametrised or shared parameters.
    """

    def __init__(self, net: nn.Module):
        names = {id(module): name for name, module in net.named_modules()}
        self._parts = [part for module in applied(net) for part in _part(module, names.get(id(module), ""))]
        every = dict(net.named_parameters(remove_duplicate=False))
        if len({*map(id, every.values())}) < len(every):
            raise FtnnError('solver="lm" cannot train layers that share a parameter; use solver="lbfgs"')
        if any(is_parametrized(module) for module in net.modules()):
            raise FtnnError('solver="lm" cannot train parametrised modules; use solver="lbfgs"')
        self.trained = {name: p for name, p in every.items() if p.requires_grad}
        self._frozen = {name: p.detach().double() for name, p in every.items() if not p.requires_grad}
        self.size = sum(p.numel() for p in self.trained.values())

    def values(self, theta: Tensor) -> Values:
        """Views of a vector, (size,), in the shapes of the parameters; and the frozen parameters."""
        parts = theta.split([p.numel() for p in self.trained.values()])
        shaped = zip(self.trained.items(), parts, strict=True)
        return self._frozen | {name: part.view(p.shape) for (name, p), part in shaped}

    def theta(self) -> Tensor:
        """The parameters as they are now, (size,)."""
        return torch.cat([p.detach().double().flatten() for p in self.trained.values()])

    def outputs(self, theta: Tensor, x: Tensor) -> Tensor:
        """(samples, in) → (samples, outputs)."""
        values = self.values(theta)
        for part in self._parts:
            x, _ = part.forward(values, x)
        return x

    def jacobian(self, theta: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """The outputs, (samples, outputs), and their Jacobian, (samples, outputs, size)."""
        values, tape = self.values(theta), []
        for part in self._parts:
            x, kept = part.forward(values, x)
            tape.append(kept)
        samples, outputs = x.shape
        jacobian = x.new_zeros(samples, outputs, self.size)
        blocks = jacobian.split([p.numel() for p in self.trained.values()], 2)
        columns = {
            name: block.view(samples, outputs, *p.shape)
            for (name, p), block in zip(self.trained.items(), blocks, strict=True)
        }
        error = torch.eye(outputs, dtype=x.dtype).expand(samples, outputs, outputs)
        for number in reversed(range(len(self._parts))):
            error = self._parts[number].backward(values, tape[number], error, columns, number == 0)
        return x, jacobian


def _part(module: nn.Module, name: str) -> list[Part]:
    prefix = f"{name}." if name else ""
    if type(module) is Transfer:
        return [_Functions(module, prefix)]
    if type(module) is Partial:
        module.check()
        return [_Listed(module, prefix)]
    if type(module) is nn.Linear:
        return [_Linear(module, prefix)]
    if type(module) in MODULES:
        return [_Activation(formula_of(module) or "")]
    if type(module) in (nn.Identity, nn.Flatten):
        return []
    raise FtnnError(
        f'solver="lm" has no Jacobian for a {type(module).__name__}; use solver="lbfgs" or "direct"'
    )
