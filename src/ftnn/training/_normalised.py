"""Normalised training: each hidden unit's sum is normalised over the mini-batch.

What is trained is a copy of the network, its *training form*, with a normalisation after every hidden layer.
Writing it back folds each normalisation into its layer: the result is an ordinary network.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm
from torch.nn.utils.parametrize import is_parametrized

from ftnn.nn import Partial, Transfer
from ftnn.nn._activations import MODULES
from ftnn.nn._feed_forward import FeedForward
from ftnn.nn._folding import affine_of, fold_into
from ftnn.training._problem import Array
from ftnn.training._start import Start, applied, has_untouched_outputs

MOST_MEASURED = 2000
"""The first statistics are measured on at most this many samples."""
_LAYERS = (Transfer, Partial, nn.Linear)
_KNOWN = (*_LAYERS, *MODULES, nn.Identity, nn.Flatten, nn.Dropout)
"""What a network with a training form consists of; anything else might not bear normalised sums."""


class Normalise(nn.BatchNorm1d):
    """`nn.BatchNorm1d` that also trains on mini-batches of one sample: (samples, features), both ways.

    A single sample has no variance, so the running statistics normalise it, and then follow it.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Normalise, (samples, features)."""
        if not self.training or len(input) != 1:
            return super().forward(input)
        mean, variance, batches = self.running_mean, self.running_var, self.num_batches_tracked
        assert mean is not None
        assert variance is not None
        assert batches is not None
        before = mean.clone(), variance.clone()
        with torch.no_grad():
            share = self.momentum or 0.0
            distance = input[0] - before[0]
            mean += share * distance
            variance += share * (distance**2 - before[1])
            batches += 1
        return batch_norm(input, *before, self.weight, self.bias, eps=self.eps)


@dataclass(frozen=True)
class _Pair:
    """A layer of the network and its copy in the training form."""

    layer: FeedForward | nn.Linear
    copy: FeedForward | nn.Linear
    norm: Normalise | None
    """What normalises the copy's sums; None for linear and output layers."""
    has_scale: bool
    """Whether the layer had a scale when training began; if so, it keeps one."""

    def folded(self) -> FeedForward | nn.Linear:
        """A layer that computes what copy and normalisation compute in evaluation mode."""
        layer = copy.deepcopy(self.copy)
        if self.norm is not None:
            affine = affine_of(self.norm, layer.out_features)
            assert affine is not None
            fold_into(layer, *affine)
        if isinstance(layer, FeedForward) and self.has_scale and layer.scale is None:
            layer.scale = nn.Parameter(layer._first.detach().new_ones(layer.out_features))
        return layer


@dataclass(frozen=True)
class TrainingForm:
    """What normalised training trains instead of a network. It shares no tensors with the network."""

    module: nn.Sequential
    pairs: tuple[_Pair, ...]

    @torch.no_grad()
    def write(self) -> None:
        """Fold the form into the network, which then computes what the form computes in evaluation mode.

        Layers without a bias get one. Those whose functions cannot take a scale get `layer.scale`.
        """
        new = [(pair.layer, pair.folded()) for pair in self.pairs]
        try:
            _copy_all(new)
        except KeyboardInterrupt:  # do not leave the network half-written
            _copy_all(new)
            raise


def _copy_all(new: list[tuple[FeedForward | nn.Linear, FeedForward | nn.Linear]]) -> None:
    for layer, source in new:
        if isinstance(layer, FeedForward) and isinstance(source, FeedForward):
            for own, tensor in zip(layer.matrices(), source.matrices(), strict=True):
                own.copy_(tensor)
            layer._ranges = source._ranges
            _set(layer, "bias", source.bias)
            _set(layer, "scale", source.scale)
        else:
            layer.load_state_dict(source.state_dict())


def _set(layer: FeedForward, name: str, value: Tensor | None) -> None:
    """Set a layer's bias or scale, (out,), keeping the parameter's identity if there is one already."""
    own: Tensor | None = getattr(layer, name)
    if own is not None and value is not None:
        own.copy_(value)
    else:
        setattr(layer, name, None if value is None else nn.Parameter(value.detach().clone()))


def training_form(net: nn.Module, x: Array, seed: int | None = None) -> TrainingForm | None:
    """The training form of a network, or None if the network itself must be trained.

    In evaluation mode it computes what the network computes, except that the sums of layers that are as they
    were drawn start with mean 0 and variance 1, unless the output layer has been trained on them.

    There is none for networks without hidden layers of functions, with normalisations of their own or other
    modules that are not layers, activations or dropout, with shared parameters, or with frozen or
    parametrised ones in a hidden layer of functions.

    **Arguments:**

    - `net`: a `Network` or an `nn.Sequential` (also nested) is normalised; others have no training form.
    - `x`: (samples, in), in the network's dtype: normalisations start with the statistics of these samples.
    - `seed`: calibrate hidden layers that are as they were drawn, with parameters drawn from this seed; None:
        keep their parameters.
    """
    modules = list(applied(net))
    hidden = _hidden(modules)
    if not hidden:
        return None
    fresh = {layer for layer in hidden if layer.is_untouched} if has_untouched_outputs(net) else set()
    calibrates = seed is not None and len(fresh) == len(hidden)
    start = Start(modules, hidden, seed or 0) if calibrates else None
    parts: list[nn.Module] = []
    pairs: list[_Pair] = []
    sample = torch.from_numpy(_spread(x)).to(hidden[0]._first.device)
    with torch.no_grad():
        for module in modules:
            part = copy.deepcopy(module).eval()
            parts.append(part)
            norm = None
            if module in hidden:
                assert isinstance(module, FeedForward)
                assert isinstance(part, FeedForward)
                part.bias = part.scale = None
                if start is not None:
                    start.draw(part, hidden.index(module), sample)
                sample = part(sample)
                norm = _normalisation(module, sample, keeps=module not in fresh)
                if start is not None:
                    start.shift(norm, hidden.index(module))
                parts.append(norm.eval())
                sample = norm(sample)
            else:
                sample = part(sample)
            if isinstance(module, _LAYERS) and isinstance(part, _LAYERS):
                has_scale = isinstance(module, FeedForward) and module.scale is not None
                pairs.append(_Pair(module, part, norm, has_scale))
    return TrainingForm(nn.Sequential(*parts).train(), tuple(pairs))


@torch.no_grad()
def calibrate_hidden(net: nn.Module, x: Array, seed: int) -> None:
    """Draw the hidden layers of a network again for training without normalised sums, if they are untouched.

    For the arguments, see `training_form`.
    """
    modules = list(applied(net))
    hidden = _hidden(modules)
    if not hidden or not all(layer.is_untouched for layer in hidden) or not has_untouched_outputs(net):
        return
    start = Start(modules, hidden, seed)
    sample = torch.from_numpy(_spread(x)).to(hidden[0]._first.device)
    for module in modules:
        if isinstance(module, FeedForward) and module in hidden:
            start.draw(module, hidden.index(module), sample)
        sample = copy.deepcopy(module).eval()(sample)


def _hidden(modules: list[nn.Module]) -> list[FeedForward]:
    """The hidden layers of functions; none if they cannot be drawn again and normalised."""
    layers = [module for module in modules if isinstance(module, _LAYERS)]
    hidden: list[FeedForward] = [layer for layer in layers[:-1] if isinstance(layer, FeedForward)]
    parameters = [parameter for layer in layers for parameter in layer.parameters()]
    can = (
        all(type(module) in _KNOWN for module in modules)
        and len({*map(id, parameters)}) == len(parameters)
        and all(parameter.requires_grad for layer in hidden for parameter in layer.parameters())
        and not any(is_parametrized(part) for layer in hidden for part in layer.modules())
    )
    return hidden if can else []


def _spread(x: Array) -> Array:
    """Some of the samples from anywhere in x, whose rows may be sorted by class."""
    return x[np.linspace(0, len(x) - 1, min(len(x), MOST_MEASURED)).astype(np.int64)]


def _normalisation(layer: FeedForward, sums: Tensor, *, keeps: bool) -> Normalise:
    """The normalisation of a layer's sums, which starts from their statistics.

    **Arguments:**

    - `layer`: the network's own.
    - `sums`: (samples, out), without bias and scale.
    - `keeps`: whether the normalisation starts such that the layer's function is kept.
    """
    norm = Normalise(layer.out_features, device=sums.device, dtype=sums.dtype)
    running_mean, running_variance = norm.running_mean, norm.running_var
    assert running_mean is not None
    assert running_variance is not None
    mean, variance = (vector.to(sums.dtype) for vector in _statistics(sums.double()))
    usable = mean.isfinite() & variance.isfinite()  # not if a sample meets a pole
    running_mean.copy_(torch.where(usable, mean, 0.0))
    running_variance.copy_(torch.where(usable, variance, 1.0))
    if keeps:
        bias, scale = (
            torch.full_like(running_mean, number) if vector is None else vector
            for vector, number in ((layer.bias, 0.0), (layer.scale, 1.0))
        )
        norm.weight.copy_(scale.double() * (running_variance.double() + norm.eps).sqrt())
        norm.bias.copy_(bias.double() + scale.double() * running_mean.double())
    return norm


def _statistics(sums: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance, (out,) each, of sums, (samples, out)."""
    return sums.mean(0), sums.var(0, correction=min(1, len(sums) - 1))
