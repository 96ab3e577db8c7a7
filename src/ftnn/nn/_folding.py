"""Folding: a scale and a shift after a layer become part of its parameters."""

from __future__ import annotations

import copy
from collections import Counter, OrderedDict
from collections.abc import Container, Iterator

import torch
from torch import Tensor, nn

from ftnn.errors import FtnnError, ShapeError
from ftnn.formula import Function
from ftnn.formula._amplitudes import amplitudes, takes_negative
from ftnn.nn._feed_forward import FeedForward, Transfer
from ftnn.nn._partial import Partial

Layer = FeedForward | nn.Linear


def folded(module: nn.Module) -> nn.Module:
    """A copy of a network with its normalisations folded into its layers, as in evaluation mode.

    In an `nn.Sequential`, and in those inside it, every `nn.BatchNorm1d` that directly follows a `Transfer`,
    a `Partial` or an `nn.Linear` becomes part of that layer: its running statistics, scale and bias are
    multiplied into the layer's parameters and added to its bias. This is exact, up to rounding. Where no
    parameters scale the function, as in `logistic(p*x + q)`, the layer gets a `scale` instead. Dropout is
    left out; other modules are copied.

    **Arguments:**

    - `module`: any module. Inputs of normalised layers must be (samples, features).
    """
    module = copy.deepcopy(module)
    children = list(_children(module))
    uses = Counter(child for _, _, child in children)
    last: Layer | None = None
    for parent, name, child in children:
        if isinstance(child, nn.Sequential):
            continue
        affine = None
        if last is not None and type(child) is nn.BatchNorm1d and uses[parent] <= 1:
            affine = affine_of(child, last.out_features)
        if last is not None and affine is not None:
            fold_into(last, *affine)
            delattr(parent, name)
        elif type(child) is nn.Dropout:
            if uses[parent] <= 1:
                delattr(parent, name)
        else:
            is_layer = type(child) in (Transfer, Partial, nn.Linear) and uses[child] == 1
            last = child if isinstance(child, Layer) and is_layer else None
    _renumber(module)
    return module


def _children(module: nn.Module) -> Iterator[tuple[nn.Sequential, str, nn.Module]]:
    """The modules of a sequence, and of those inside it, in order: the sequence, the name in it, the module.

    A sequence precedes its own modules. A module that is used twice occurs twice.
    """
    if isinstance(module, nn.Sequential):
        for name, child in module._modules.items():
            yield module, name, child
            yield from _children(child)


def _renumber(module: nn.Module) -> None:
    """Close the gaps in the names of a sequence's modules, unless the user chose the names."""
    if isinstance(module, nn.Sequential):
        children = list(module._modules.items())
        if all(name.isdecimal() for name, _ in children):
            module._modules = OrderedDict((str(n), child) for n, (_, child) in enumerate(children))
        for child in module:
            _renumber(child)


def affine_of(norm: nn.BatchNorm1d, features: int) -> tuple[Tensor, Tensor] | None:
    """The scale and shift of a normalisation in evaluation mode, (features,) each in float64.

    None if it uses the statistics of each batch, or another dimension than `features`.
    """
    mean, variance = norm.running_mean, norm.running_var
    if mean is None or variance is None or norm.num_features != features:
        return None
    scale = (variance.double() + norm.eps).rsqrt()
    if norm.affine:
        scale = scale * norm.weight.detach().double()
    shift = -mean.double() * scale
    return scale, shift + norm.bias.detach().double() if norm.affine else shift


@torch.no_grad()
def fold_into(layer: Layer, scale: Tensor, shift: Tensor) -> None:
    """Change a layer in place so that it computes `scale·y + shift`, where y is its present output.

    Where the parameters of an output's functions can take the scale, they do; other outputs use
    `layer.scale`, which is created if needed, as is the bias.

    **Arguments:**

    - `scale`, `shift`: (out_features,) each, finite.
    """
    for name, vector in (("scale", scale), ("shift", shift)):
        if tuple(vector.shape) != (layer.out_features,):
            raise ShapeError(f"{name} must have shape ({layer.out_features},), not {tuple(vector.shape)}")
        if not bool(torch.isfinite(vector).all()):
            raise FtnnError(f"{name} must be finite to be folded into a layer")
    weights = layer.weight if isinstance(layer, nn.Linear) else layer._first
    scale, shift = (vector.detach().to(weights.device, torch.float64) for vector in (scale, shift))
    if isinstance(layer, nn.Linear):
        _multiply(layer.weight, scale[:, None])
    else:
        _scale_functions(layer, scale)
    if layer.bias is None:
        layer.bias = nn.Parameter(shift.to(weights.dtype))
    else:
        layer.bias.copy_(layer.bias.double() * scale + shift)


def adapt(module: nn.Module, names: Container[str]) -> None:
    """Add and remove biases and scales of layers, so that `module` can load a `state_dict` with these names.

    Folding creates them where they are needed: two states of the same network may differ in this.
    """
    for prefix, layer in module.named_modules():
        if isinstance(layer, FeedForward):
            for part, first in (("bias", 0.0), ("scale", 1.0)):
                is_named = (f"{prefix}.{part}" if prefix else part) in names
                if is_named and getattr(layer, part) is None:
                    vector = layer._first.detach().new_full((layer.out_features,), first)
                    setattr(layer, part, nn.Parameter(vector))
                elif not is_named:
                    setattr(layer, part, None)


def _scale_functions(layer: FeedForward, scale: Tensor) -> None:
    """Multiply each output's sum by its scale, (out,)."""
    if nn.utils.parametrize.is_parametrized(layer.theta):
        raise FtnnError(
            "a layer's parameters are parametrised; first make that permanent with "
            "torch.nn.utils.parametrize.remove_parametrizations"
        )
    # In a product, every factor would take the scale: only the layer can.
    exponents = [amplitudes(kind) if layer.reduce == "sum" else {} for kind in layer.kinds]
    can_take = torch.ones_like(scale, dtype=torch.bool)
    for number, (kind, powers) in enumerate(zip(layer.kinds, exponents, strict=True)):
        can_take &= _can_take(kind, powers, scale) | ~_occurs(layer, number)
    taken, rest = torch.where(can_take, scale, 1.0), torch.where(can_take, 1.0, scale)
    if isinstance(layer, Partial):
        taken = taken[layer.outputs.long()]
    for number, powers in enumerate(exponents):
        for name, power in powers.items():
            factor = taken.sign() * taken.abs() ** power  # for each output, or each connection of a list
            if layer._kind_name is not None:
                factor = torch.where(layer.constants[layer._kind_name] == number, factor, 1.0)
            _multiply(layer.theta[name], factor)
    if bool((rest != 1).any()):
        if layer.scale is None:
            layer.scale = nn.Parameter(layer._first.new_ones(layer.out_features))
        _multiply(layer.scale, rest)


def _occurs(layer: FeedForward, number: int) -> Tensor:
    """Whether each output has a connection of a kind, (out,)."""
    if layer._kind_name is None:
        return layer._first.new_ones(layer.out_features, dtype=torch.bool)
    is_kind = layer.constants[layer._kind_name] == number
    if not isinstance(layer, Partial):
        return is_kind.any(0)
    return is_kind.new_zeros(layer.out_features).index_fill(0, layer.outputs.long()[is_kind], True)


def _can_take(function: Function, exponents: dict[str, float], scale: Tensor) -> Tensor:
    """Whether the function's own parameters can take each scale, (out,)."""
    if not exponents:
        return torch.zeros_like(scale, dtype=torch.bool)
    can = scale > 0
    if takes_negative(function, exponents):
        can = can | (scale < 0)
    return can | (scale == 0) if set(exponents.values()) == {1.0} else can


def _multiply(parameter: Tensor, factor: Tensor) -> None:
    parameter.copy_(parameter.double() * factor)
