"""A network as a function of one vector of parameters, with its exact Jacobian.

A parameter acts on the outputs through its own layer's sums only. So its row of the Jacobian is a product:
the slope of the outputs with respect to these sums, which one pass from the last layer to the first computes
for all samples, times ∂F/∂p, which the formula's own derivative gives. Samples are the last axis everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from ftnn.errors import FtnnError
from ftnn.formula._expr import INPUT
from ftnn.kernels import EachConnection, evaluate, program_of, signature
from ftnn.nn import Partial, Transfer
from ftnn.nn._activations import MODULES, activation_formula, formula_of
from ftnn.nn._feed_forward import FeedForward
from ftnn.nn._reduce import products_of_others
from ftnn.training._start import applied

Values = dict[str, Tensor]
"""The value of every parameter of the network, by name."""
Slopes = tuple[str, ...]
"""With respect to what the functions of a layer are differentiated: parameters and perhaps x."""
Rows = dict[str, Tensor]
"""Where the Jacobian's rows of each trained parameter go, by name: (*shape, outputs, samples) views."""


SAMPLES = 4096
"""The most samples of a forward pass of which only the outputs are wanted."""


class Part(Protocol):
    """A module of the network, with what its derivatives need from the forward pass."""

    def forward(self, values: Values, x: Tensor) -> tuple[Tensor, Any]:
        """(in, samples) → (out, samples), and what `backward` needs of this pass."""
        ...

    def backward(self, values: Values, kept: Any, error: Tensor, rows: Rows) -> Tensor | None:
        """Fill in the rows of the part's own parameters.

        `error` is the slope of the network's outputs with respect to the part's, (out, outputs, samples).
        Returns the slope with respect to its inputs, (in, outputs, samples); None if nobody needs it.
        """
        ...


@dataclass(frozen=True)
class _Kept:
    """What a layer of functions keeps of a forward pass."""

    slopes: Tensor
    """(slopes, connections, samples)"""
    sums: Tensor
    """(out, samples)"""
    factors: Tensor | None
    """Those of product units, (in, out, samples)."""


@dataclass(frozen=True)
class _Functions:
    """`scale·(F ⊙ x) + b`, with the values of all connections, (connections, samples), in memory."""

    layer: FeedForward
    prefix: str
    slopes: Slopes

    @cached_property
    def _each(self) -> EachConnection:
        program = program_of(*signature(self.layer.function))
        expressions = (program.expr, *(program.slopes[name] for name in self.slopes))
        return EachConnection(expressions, program.matrices, self._inputs)

    @property
    def is_single(self) -> bool:
        """Whether there is just one connection, as in a formula to be fitted to data."""
        return len(self._inputs) == self.layer.out_features == 1 and self.layer.scale is None

    @cached_property
    def _constants(self) -> list[Tensor]:
        return [self.layer.constants[n].cpu().double().contiguous() for n in self.layer.function.constants]

    @cached_property
    def _inputs(self) -> Tensor:
        """The input of each connection."""
        if isinstance(self.layer, Partial):
            return self.layer.inputs.long().cpu()
        return torch.arange(self.layer.in_features).repeat_interleave(self.layer.out_features)

    @cached_property
    def _outputs(self) -> Tensor | None:
        """The output of each connection of a list; None if all exist."""
        return self.layer.outputs.long().cpu() if isinstance(self.layer, Partial) else None

    def forward(self, values: Values, x: Tensor) -> tuple[Tensor, _Kept]:
        layer = self.layer
        parameters = [values[f"{self.prefix}theta.{name}"] for name in layer.function.parameters]
        computed = self._each(x, [*parameters, *self._constants])
        each, slopes = computed[0], computed[1:]
        factors = None
        if layer.reduce == "product":
            factors = self._whole(each, 1.0)
            sums = factors.prod(0)
        elif self._outputs is None:
            whole = each.view(layer.in_features, layer.out_features, -1)
            sums = whole[0] if layer.in_features == 1 else whole.sum(0)
        else:
            sums = x.new_zeros(layer.out_features, x.shape[1]).index_add_(0, self._outputs, each)
        out = sums if layer.scale is None else sums * values[f"{self.prefix}scale"][:, None]
        if layer.bias is not None:
            out = out + values[f"{self.prefix}bias"][:, None]
        return out, _Kept(slopes, sums, factors)

    def _whole(self, each: Tensor, missing: float) -> Tensor:
        """(connections, …) → (in, out, …)."""
        shape = (self.layer.in_features, self.layer.out_features, *each.shape[1:])
        if self._outputs is None:
            return each.view(shape)
        return each.new_full(shape, missing).index_put((self._inputs, self._outputs), each)

    def _listed(self, whole: Tensor) -> Tensor:
        """(in, out, …) → (connections, …)."""
        return whole.flatten(0, 1) if self._outputs is None else whole[self._inputs, self._outputs]

    def backward(self, values: Values, kept: _Kept, error: Tensor, rows: Rows) -> Tensor | None:
        layer, prefix = self.layer, self.prefix
        if f"{prefix}bias" in rows:
            rows[f"{prefix}bias"].copy_(error)
        if layer.scale is not None:
            if f"{prefix}scale" in rows:
                torch.mul(error, kept.sums[:, None], out=rows[f"{prefix}scale"])
            error = error * values[f"{prefix}scale"][:, None, None]
        # The slope of the outputs with respect to each connection, (connections, outputs, samples).
        if self._outputs is None:
            weights = error.expand(layer.in_features, *error.shape).flatten(0, 1)
        else:
            weights = error[self._outputs]
        if kept.factors is not None:
            weights = weights * self._listed(products_of_others(kept.factors, 0))[:, None]
        slopes = dict(zip(self.slopes, kept.slopes, strict=True))
        for name, slope in slopes.items():
            if name != INPUT:
                torch.mul(weights, slope[:, None], out=rows[f"{prefix}theta.{name}"].view(weights.shape))
        if INPUT not in slopes:
            return None
        each = weights * slopes[INPUT][:, None]
        if self._outputs is None:
            return each.view(layer.in_features, layer.out_features, *each.shape[1:]).sum(1)
        down = each.new_zeros(layer.in_features, *each.shape[1:])
        return down.index_add_(0, self._inputs, each)


@dataclass(frozen=True)
class _Linear:
    layer: nn.Linear
    prefix: str

    def forward(self, values: Values, x: Tensor) -> tuple[Tensor, Any]:
        out = values[f"{self.prefix}weight"] @ x
        if self.layer.bias is not None:  # pyright: ignore[reportUnnecessaryComparison]
            out += values[f"{self.prefix}bias"][:, None]
        return out, x

    def backward(self, values: Values, kept: Any, error: Tensor, rows: Rows) -> Tensor:
        if f"{self.prefix}weight" in rows:
            torch.mul(error[:, None], kept[None, :, None], out=rows[f"{self.prefix}weight"])
        if f"{self.prefix}bias" in rows:
            rows[f"{self.prefix}bias"].copy_(error)
        down = values[f"{self.prefix}weight"].T @ error.flatten(1)
        return down.view(-1, *error.shape[1:])


@dataclass(frozen=True)
class _Activation:
    text: str

    def forward(self, values: Values, x: Tensor) -> tuple[Tensor, Any]:
        return activation_formula(self.text)(x), x

    def backward(self, values: Values, kept: Any, error: Tensor, rows: Rows) -> Tensor:
        (slope,) = evaluate((activation_formula(self.text).slope,), {INPUT: kept})
        return error * slope.expand_as(kept)[:, None]


@dataclass(frozen=True)
class Pass:
    """A forward pass, with what the Jacobian needs of it."""

    theta: Tensor
    values: Values
    outputs: Tensor
    """(outputs, samples)"""
    kept: list[Any]


class VectorForm:
    """A network of layers and activations as a function of one float64 vector of its trained parameters.

    Raises `FtnnError` for modules that it does not know, and for parametrised or shared parameters.
    """

    def __init__(self, net: nn.Module):
        every = dict(net.named_parameters(remove_duplicate=False))
        if len({*map(id, every.values())}) < len(every):
            raise FtnnError('solver="lm" cannot train layers that share a parameter; use solver="lbfgs"')
        if any(is_parametrized(module) for module in net.modules()):
            raise FtnnError('solver="lm" cannot train parametrised modules; use solver="lbfgs"')
        self.trained = {name: p for name, p in every.items() if p.requires_grad}
        self._frozen = {name: p.detach().cpu().double() for name, p in every.items() if not p.requires_grad}
        self.sizes = [p.numel() for p in self.trained.values()]
        self.size = sum(self.sizes)
        names = {id(module): name for name, module in net.named_modules()}
        self._parts: list[Part] = []
        for module in applied(net):
            self._parts += self._part(module, names.get(id(module), ""))
        # The Jacobian of a single function is its slopes.
        first = self._parts[0] if len(self._parts) == 1 else None
        self._is_single = isinstance(first, _Functions) and first.is_single
        self._is_single &= len(self.trained) == len(getattr(first, "slopes", ()))

    def _part(self, module: nn.Module, name: str) -> list[Part]:
        prefix = f"{name}." if name else ""
        if type(module) in (Transfer, Partial):
            assert isinstance(module, FeedForward)
            if isinstance(module, Partial):
                module.check()
            slopes = tuple(n for n in module.function.parameters if f"{prefix}theta.{n}" in self.trained)
            # The inputs of the first part do not change.
            return [_Functions(module, prefix, (*slopes, *([INPUT] if self._parts else [])))]
        if type(module) is nn.Linear:
            return [_Linear(module, prefix)]
        if type(module) in MODULES:
            return [_Activation(formula_of(module) or "")]
        if type(module) in (nn.Identity, nn.Flatten):
            return []
        raise FtnnError(
            f'solver="lm" has no Jacobian for a {type(module).__name__}; use solver="lbfgs" or "direct"'
        )

    def values(self, theta: Tensor) -> Values:
        """Views of a vector, (size,), in the shapes of the parameters; and the frozen parameters."""
        parts = torch.split_with_sizes(theta, self.sizes)
        shaped = zip(self.trained.items(), parts, strict=True)
        return self._frozen | {name: part.view(p.shape) for (name, p), part in shaped}

    def theta(self) -> Tensor:
        """The parameters as they are now, (size,)."""
        return torch.cat([p.detach().cpu().double().flatten() for p in self.trained.values()])

    def forward(self, theta: Tensor, x: Tensor) -> Pass:
        """The outputs for x, (in, samples)."""
        values, kept = self.values(theta), list[Any]()
        for part in self._parts:
            x, own = part.forward(values, x)
            kept.append(own)
        return Pass(theta, values, x, kept)

    def outputs(self, theta: Tensor, x: Tensor) -> Tensor:
        """(samples, in) → (samples, outputs)."""
        return torch.cat([self.forward(theta, part.T.contiguous()).outputs.T for part in x.split(SAMPLES)])

    def jacobian(self, done: Pass) -> Tensor:
        """The Jacobian of the outputs of a pass, (size, outputs, samples)."""
        outputs, samples = done.outputs.shape
        if self._is_single:
            return done.kept[0].slopes[:, None]
        jacobian = done.outputs.new_empty(self.size, outputs, samples)
        blocks = torch.split_with_sizes(jacobian, self.sizes)
        rows = {
            name: block.view(*p.shape, outputs, samples)
            for (name, p), block in zip(self.trained.items(), blocks, strict=True)
        }
        error = torch.eye(outputs, dtype=jacobian.dtype)[:, :, None].expand(outputs, outputs, samples)
        for part, kept in zip(reversed(self._parts), reversed(done.kept), strict=True):
            below = part.backward(done.values, kept, error, rows)
            if below is None:
                break
            error = below
        return jacobian
