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
from ftnn.kernels import evaluate as evaluate_tensors
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
    layers = _inputs_of_layers(net, torch.from_numpy(np.ascontiguousarray(x)))
    for number, (layer, inputs) in enumerate(layers):
        if not bool(torch.isfinite(inputs).all()):
            return None  # what comes before it is the cause, and is no function
        found = _not_finite(layer, inputs, share, is_first=number == 0)
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


def _not_finite(layer: FeedForward, x: Tensor, of_all: float, *, is_first: bool) -> str | None:
    """What of a layer is not finite at which of these inputs, a share of all, in words.

    Judged in the layer's own dtype: parts of a formula may overflow although its values are small.
    """
    sums, slopes_are_finite = _computed(layer, x, is_first=is_first)
    bad = ~sums.isfinite().all(1)
    if not bool(bad.any()):
        if slopes_are_finite:
            return None
        by = layer.function.parameters if is_first else (INPUT, *layer.function.parameters)
        return next(filter(None, (_first_place(layer, x, name, of_all) for name in by)), None)
    found = _first_place(layer, x[bad], "", of_all * float(bad.double().mean()))
    if found is not None:
        return found
    how = "product" if layer.reduce == "product" else "sum"
    return f"{_TOO_LARGE}: the {how} of {layer.in_features} values of {_label(layer)} is beyond {_dtype(x)}"


_TOO_LARGE = "smaller inputs or initial ranges, or a formula that grows less"


def _dtype(x: Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")


def _label(layer: FeedForward) -> str:
    return "; ".join(name_of(kind) or kind.formula for kind in layer.kinds)


def _computed(layer: FeedForward, x: Tensor, *, is_first: bool) -> tuple[Tensor, bool]:
    """A layer's sums, (samples, out), and whether the slopes that training needs are finite."""
    x = x.clone().requires_grad_(not is_first)
    trained = [tensor for tensor in (x, *layer.parameters()) if tensor.requires_grad]
    with torch.enable_grad():
        sums = layer(x)
        slopes = torch.autograd.grad(sums.sum(), trained, materialize_grads=True) if trained else ()
    return sums.detach(), all(bool(slope.isfinite().all()) for slope in slopes)


def _first_place(layer: FeedForward, x: Tensor, name: str, of_all: float) -> str | None:
    """The first place where a layer's function, or its slope by `name`, is not finite, in words."""
    function, label = layer.function, _label(layer)
    expr = function.slope(name) if name else function.expr
    what = f"the slope of {label} by {name}" if name else label
    names = (*function.parameters, *function.constants)
    whole = {name: layer.matrix(name).detach() for name in names}  # (out, in)
    step = max(1, VALUES // (layer.in_features * layer.out_features))
    for start in range(0, len(x), step):
        own = {INPUT: x[start : start + step, None, :], **whole}
        values = {name: value.double().cpu().numpy() for name, value in own.items()}
        shape = (len(values[INPUT]), layer.out_features, layer.in_features)
        sent = np.broadcast_to(evaluate_tensors((expr,), own)[0].double().cpu().numpy(), shape)
        exact = np.broadcast_to(evaluate(expr, values), shape)
        missing = np.broadcast_to(np.isnan(values[names[0]]), shape)  # a list has no such connection
        bad = ~(np.isfinite(sent) & np.isfinite(exact)) & ~missing
        if bad.any():
            outside = is_outside(expr, values, exact) & ~missing
            place = np.unravel_index((outside if outside.any() else bad).argmax(), shape)
            at = {name: np.broadcast_to(value, shape)[place] for name, value in values.items()}
            example = ", ".join(f"{name} = {value:.3g}" for name, value in at.items())
            if not outside.any():
                return f"{_TOO_LARGE}: {what} is {sent[place]:.3g} in {_dtype(x)} at {example}"
            tried = (~missing).sum() * (start / step + 1)  # no earlier sample fails
            share = (
                f"{percent:.0f}%"
                if (percent := 100 * of_all * outside.sum() / tried) >= 1
                else "less than 1%"
            )
            remedy = "a formula that is defined for all inputs, or other initial ranges"
            return f"{remedy}: {what} is NaN for {share} of connections and inputs, as at {example}"
    return None
