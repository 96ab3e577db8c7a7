"""Why training failed, judged from the network as it ended and from the data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ftnn.formula import name_of
from ftnn.formula._expr import INPUT
from ftnn.formula._measure import is_outside
from ftnn.formula._numpy import evaluate
from ftnn.nn import Memory
from ftnn.nn._feed_forward import FeedForward
from ftnn.nn._modes import evaluating
from ftnn.training._problem import Array, Problem
from ftnn.training._verdict import is_constant

SAMPLES, VALUES = 200, 2**20
"""Samples that are tried, drawn from all or from those that fail, and values of connections at once."""
PIECE = 4096
"""Samples that go through a network at once."""
SMALL, LARGE = 0.01, 20.0
"""Root mean squares of inputs and targets beyond which their scale is the likely cause."""


def cause_in(net: nn.Module, x: Array) -> str | None:
    """What makes the outputs of `net` not finite for samples x, (samples, in); None if nothing does."""
    some = x[np.random.default_rng(0).permutation(len(x))[:SAMPLES]]  # the data may be sorted
    found = _cause_in(net, some, 1.0)
    if found is None and len(x) > SAMPLES:
        bad = x[_fails(net, x)]
        found = _cause_in(net, bad[:SAMPLES], len(bad) / len(x)) if len(bad) else None
    return found


def _cause_in(net: nn.Module, x: Array, share: float) -> str | None:
    """The cause for these samples, which stand for this share of all."""
    for layer, inputs in _inputs_of_layers(net, torch.from_numpy(np.ascontiguousarray(x))):
        if not bool(torch.isfinite(inputs).all()):
            return None  # what comes before it is the cause, and is no function
        found = _not_finite(layer, inputs.double().cpu().numpy(), share)
        if found is not None:
            return found
    return None


@torch.no_grad()
def _fails(net: nn.Module, x: Array) -> Array:
    """For which samples the outputs are not finite, (samples,)."""
    if any(isinstance(part, Memory) for part in net.modules()):
        return np.zeros(len(x), bool)
    first = next(net.parameters())
    with evaluating(net):
        pieces = [
            net(piece.to(first.device, first.dtype))
            for piece in torch.from_numpy(np.ascontiguousarray(x)).split(PIECE)
        ]
    return (~torch.cat(pieces).flatten(1).isfinite().all(1)).cpu().numpy()


def cause_in_data(problem: Problem) -> str | None:
    """What the data lack; None if there is something to learn, or data that are not known as a whole."""
    if problem.batches is not None:
        return None
    if not problem.is_classification and is_constant(problem.y):
        target = ", ".join(f"{value:g}" for value in problem.y[0])
        return f"other targets: all of these are {target}, so there is nothing to learn"
    if len(problem.x) > 1 and is_constant(problem.x):
        return "other inputs: these are the same for all samples, so targets cannot depend on them"
    return None


def scale_of(problem: Problem) -> str | None:
    """What to standardise, with its size; None if inputs and targets are of about unit size."""
    if (size := _root_mean_square(problem.x)) is not None and not SMALL <= size <= LARGE:
        return f"standardised inputs: their root mean square is {size:.2g}"
    if not problem.is_classification and problem.loss in ("squared", "absolute", "huber"):
        size = _root_mean_square(problem.y)
        if size is not None and not SMALL <= size <= LARGE:
            return f"standardised targets: their root mean square is {size:.2g}"
    return None


def _root_mean_square(array: Array) -> float | None:
    """None if all are 0."""
    with np.errstate(over="ignore"):
        size = float(np.sqrt(np.mean(np.square(array, dtype=np.float64))))
    return size if size > 0 else None


@torch.no_grad()
def _inputs_of_layers(net: nn.Module, x: Tensor) -> Iterator[tuple[FeedForward, Tensor]]:
    """The layers of functions in order of evaluation, each with its inputs, (samples, in)."""
    first = next(net.parameters())
    seen: list[tuple[FeedForward, Tensor]] = []

    def note(module: nn.Module, inputs: Any) -> None:
        if isinstance(module, FeedForward):
            seen.append((module, inputs[0].detach().reshape(-1, module.in_features)))

    layers = [part for part in net.modules() if isinstance(part, FeedForward)]
    handles = [layer.register_forward_pre_hook(note) for layer in layers]
    try:
        if not any(isinstance(part, Memory) for part in net.modules()):
            with evaluating(net):
                net(x.to(first.device, first.dtype))
    finally:
        for handle in handles:
            handle.remove()
    yield from seen


def _not_finite(layer: FeedForward, x: Array, of_all: float) -> str | None:
    """Which function of a layer is not finite at which of these inputs, a share of all, in words."""
    function, label = layer.function, "; ".join(name_of(kind) or kind.formula for kind in layer.kinds)
    largest = torch.finfo(layer._first.dtype).max
    names = (*function.parameters, *function.constants)
    whole = [layer.matrix(name).detach().double().cpu().numpy() for name in names]  # (out, in)
    step = max(1, VALUES // (layer.in_features * layer.out_features))
    for start in range(0, len(x), step):
        values = {INPUT: x[start : start + step, None, :], **dict(zip(names, whole, strict=True))}
        shape = (len(values[INPUT]), layer.out_features, layer.in_features)
        sent = np.broadcast_to(evaluate(function.expr, values), shape)
        missing = np.broadcast_to(np.isnan(whole[0]), shape)  # a list has no such connection
        bad = ~(np.abs(sent) <= largest) & ~missing
        if bad.any():
            outside = is_outside(function.expr, values, sent) & ~missing
            place = np.unravel_index((outside if outside.any() else bad).argmax(), shape)
            at = {name: np.broadcast_to(value, shape)[place] for name, value in values.items()}
            example = ", ".join(f"{name} = {value:.3g}" for name, value in at.items())
            if not outside.any():
                remedy = "smaller inputs or initial ranges, or a formula that grows less"
                return f"{remedy}: {label} is {sent[place]:.3g} at {example}"
            tried = (~missing).sum() * (start / step + 1)  # no earlier sample fails
            share = (
                f"{percent:.0f}%"
                if (percent := 100 * of_all * outside.sum() / tried) >= 1
                else "less than 1%"
            )
            remedy = "a formula that is defined for all inputs, or other initial ranges"
            return f"{remedy}: {label} is NaN for {share} of connections and inputs, as at {example}"
    return None
