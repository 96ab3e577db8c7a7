"""Removal of dead connections without changing the outputs."""

from __future__ import annotations

import copy
from numbers import Real

import numpy as np
import torch
from torch import nn

from ftnn._printable import quoted
from ftnn.errors import FtnnError
from ftnn.formula import Mixed
from ftnn.formula._expr import INPUT
from ftnn.formula._numpy import evaluate
from ftnn.inspect._layers import Array, ConnectionList, connection_list, fate, layers_of
from ftnn.nn import Partial
from ftnn.nn._feed_forward import FeedForward


@torch.no_grad()
def prune(net: nn.Module, least: float = 0.0) -> nn.Module:
    """A copy of `net` without the dead connections that training cannot revive, with equal outputs.

    A layer with such connections becomes an [`ftnn.nn.Partial`][], and their constant values are added to its
    bias; those of product units are multiplied into its scale. The copy is an ordinary module: it can be
    trained, saved and pruned again.

    **Arguments:**

    - `net`: a `Transfer`, a `Network`, or any module that contains such layers and no memory.
    - `least`: a layer stays as it is if less than this share of its connections is dead. A connection in a
        list costs more than one in a whole matrix: pruning pays off if most are dead (0.9), and slows a layer
        down if most are alive and its function is computed by matrix products.
    """
    if not isinstance(least, Real) or not 0 <= least <= 1:
        raise FtnnError(f"least must be a share from 0 to 1, not {quoted(least)}; pruning needs no inputs")
    layers = layers_of(net)
    pruned = copy.deepcopy(net)
    for name, layer in layers:
        new_layer = _pruned(layer, least)
        if new_layer is None:
            continue
        if not name:
            return new_layer
        parent, _, attribute = name.rpartition(".")
        setattr(pruned.get_submodule(parent), attribute, new_layer)
    return pruned


def _pruned(layer: FeedForward, least: float) -> Partial | None:
    """The layer without its dead connections; None if it stays as it is."""
    if nn.utils.parametrize.is_parametrized(layer.theta):
        raise FtnnError(
            "a layer's parameters are parametrised; first make that permanent with "
            "torch.nn.utils.parametrize.remove_parametrizations"
        )
    connections = connection_list(layer)
    dead = fate(layer, connections).dead
    if not dead.any() or dead.mean() < least:
        return None
    first = next(iter(connections.values.values()))
    offsets, factors = np.zeros(layer.out_features), np.ones(layer.out_features)
    if layer.reduce == "product":
        factors = _dead_values(layer, connections, dead)
    else:
        offsets = _dead_values(layer, connections, dead)
    alive = torch.from_numpy(np.flatnonzero(~dead)).to(first.device)
    function = layer.function if layer._mixed is None else layer._mixed
    if isinstance(function, Mixed) and not isinstance(function.assign, str):  # the constants have the kinds
        function = Mixed(function.functions)
    new = Partial(
        layer.in_features,
        layer.out_features,
        function,
        torch.stack([connections.outputs[alive], connections.inputs[alive]], 1),
        bias=layer.bias is not None or bool(offsets.any()),
        scale=layer.scale is not None or bool((factors != 1).any()),
        reduce=layer.reduce,
        device=first.device,
        dtype=first.dtype,
        backend=layer.backend,
    )
    # The new layer orders connections by output, then input.
    order = (connections.outputs[alive] * layer.in_features + connections.inputs[alive]).argsort()
    for matrices in (new.theta, new.constants):
        for name in matrices:
            matrices[name].copy_(connections.values[name][alive][order])
    for name in new.theta:
        new.theta[name].requires_grad_(layer.theta[name].requires_grad)
    if new.scale is not None:
        old_scale = np.ones(layer.out_features) if layer.scale is None else layer.scale.double().cpu().numpy()
        new.scale.copy_(torch.from_numpy(old_scale * factors))
        new.scale.requires_grad_(layer.scale is None or layer.scale.requires_grad)
    if new.bias is not None:
        old_bias = np.zeros(layer.out_features) if layer.bias is None else layer.bias.double().cpu().numpy()
        new.bias.copy_(torch.from_numpy(old_bias + offsets))
        new.bias.requires_grad_(layer.bias is None or layer.bias.requires_grad)
    new._ranges = layer._ranges
    return new.train(layer.training)


def _dead_values(layer: FeedForward, connections: ConnectionList, dead: Array) -> Array:
    """What each output's dead connections add to it, or multiply it by, for any input, (out,) float64."""
    indices = torch.from_numpy(np.flatnonzero(dead)).to(connections.inputs.device)
    parameters = {name: value.double().cpu().numpy() for name, value in connections.pick(indices).items()}
    values = np.broadcast_to(evaluate(layer.function.expr, {INPUT: 0.0, **parameters}), len(indices))
    outputs = connections.outputs[indices].cpu().numpy()
    if layer.reduce == "product":
        products = np.ones(layer.out_features)
        np.multiply.at(products, outputs, values)
        return products
    sums = np.bincount(outputs, weights=values, minlength=layer.out_features)
    return sums if layer.scale is None else sums * layer.scale.double().cpu().numpy()
