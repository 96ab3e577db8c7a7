"""Pruning: what is dead is taken out, and the outputs stay the same."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import nn

from ftnn.errors import FtnnError
from ftnn.formula import Mixed
from ftnn.formula._expr import INPUT
from ftnn.formula._numpy import evaluate
from ftnn.inspect._layers import Array, Listed, fate, layers_of, listed
from ftnn.nn import Partial, Transfer


@torch.no_grad()
def prune(net: nn.Module, least: float = 0.0) -> nn.Module:
    """A copy of `net` without its dead connections, and with equal outputs.

    A layer that has dead ones becomes an [`ftnn.nn.Partial`][]; what they sent, the same for every input, is
    added to its bias. The copy is an ordinary module: it can be trained on, saved and pruned again.

    **Arguments:**

    - `net`: a `Transfer`, a `Network`, or any module that has such layers and no memory.
    - `least`: a layer stays whole if fewer than this share of its connections are dead. A list of connections
        costs more for each than a whole matrix: it is faster where most are gone (0.9), and for a function
        that is computed by matrix products slower where most are there.
    """
    if not 0 <= least <= 1:
        raise FtnnError(f"least={least!r} must be a share, from 0 to 1")
    found = layers_of(net)
    pruned = copy.deepcopy(net)
    for name, layer in found:
        new = _pruned(layer, least)
        if new is None:
            continue
        if not name:
            return new
        parent, _, own = name.rpartition(".")
        setattr(pruned.get_submodule(parent), own, new)
    return pruned


def _pruned(layer: Transfer, least: float) -> Partial | None:
    """The layer without its dead connections; None where it stays as it is."""
    if nn.utils.parametrize.is_parametrized(layer.theta):
        raise FtnnError(
            "a layer's parameters are parametrised; make that permanent first, with "
            "torch.nn.utils.parametrize.remove_parametrizations"
        )
    connections = listed(layer)
    dead = fate(layer, connections).dead
    if not dead.any() or dead.mean() < least:
        return None
    first = next(iter(connections.values.values()))
    sent = _sent(layer, connections, dead)
    alive = torch.from_numpy(np.flatnonzero(~dead)).to(first.device)
    function = layer.function if layer._mixed is None else _unmapped(layer._mixed)
    new = Partial(
        layer.in_features,
        layer.out_features,
        function,
        torch.stack([connections.outputs[alive], connections.inputs[alive]], 1),
        bias=layer.bias is not None or bool(sent.any()),
        device=first.device,
        dtype=first.dtype,
        backend=layer.backend,
    )
    # The new layer has them in the order of outputs, then inputs.
    order = (connections.outputs[alive] * layer.in_features + connections.inputs[alive]).argsort()
    for matrices in (new.theta, new.constants):
        for name in matrices:
            matrices[name].copy_(connections.values[name][alive][order])
    for name in new.theta:
        new.theta[name].requires_grad_(layer.theta[name].requires_grad)
    if new.bias is not None:
        own = np.zeros(layer.out_features) if layer.bias is None else layer.bias.double().cpu().numpy()
        new.bias.copy_(torch.from_numpy(own + sent))
        new.bias.requires_grad_(layer.bias is None or layer.bias.requires_grad)
    return new.train(layer.training)


def _unmapped(mixed: Mixed) -> Mixed:
    """A map of kinds is for a whole matrix; the kinds of those that stay are among the constants."""
    return mixed if isinstance(mixed.assign, str) else Mixed(mixed.functions)


def _sent(layer: Transfer, connections: Listed, dead: Array) -> Array:
    """What dead connections send to each output whatever comes in, (out,) float64."""
    which = torch.from_numpy(np.flatnonzero(dead)).to(connections.inputs.device)
    values = {n: v.double().cpu().numpy() for n, v in connections.pick(which).items()}
    constants = np.broadcast_to(evaluate(layer.function.expr, {INPUT: 0.0, **values}), len(which))
    outputs = connections.outputs[which].cpu().numpy()
    return np.bincount(outputs, weights=constants, minlength=layer.out_features)
