"""A network as expressions of its inputs x0, x1, …, with every parameter a number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from torch import nn

from ftnn.errors import FtnnError
from ftnn.formula._expr import INPUT, ZERO, Call, Expr, folded, number, plus, postorder, substitute, symbol
from ftnn.inspect._bounds import Array
from ftnn.inspect._layers import described, layers_of, listed
from ftnn.inspect._prune import prune
from ftnn.nn import Network, Transfer

MAX_WRITTEN = 5_000
"""Operations, numbers and names in a network written out: more than any reader, and SymPy, can take."""
MAX_SHARED = 200_000
"""The same where what several units share is counted once."""

Activation = Literal["logistic", "relu", "tanh"]
Stage = Transfer | nn.Linear | Activation


@dataclass(frozen=True)
class Written:
    """A network's outputs as expressions."""

    inputs: tuple[str, ...]
    outputs: tuple[Expr, ...]


def write(net: nn.Module, digits: int | None, *, shared: bool) -> Written:
    """The outputs of `net`, if it is small enough.

    **Arguments:**

    - `digits`: to how many significant digits parameters are rounded; None keeps them exactly.
    - `shared`: whether what several units share is written once.
    """
    if digits is not None and not 1 <= digits <= 17:
        raise FtnnError(f"digits={digits!r} must be from 1 to 17, or None for all")
    layers_of(net)  # refuses what has memory, or no functions
    stages = _stages(prune(net))
    size = _size(stages, shared)
    limit = MAX_SHARED if shared else MAX_WRITTEN
    if size > limit:
        raise FtnnError(
            f"written out, this {type(net).__name__} would have {_about(size)} operations, numbers and "
            f"names; allowed are {limit:,}: take fewer inputs, units or layers, or a function that has x once"
        )
    first = stages[0]
    assert not isinstance(first, str)
    names = tuple(f"x{n}" for n in range(first.in_features))
    units = [symbol(name) for name in names]
    for stage in stages:
        units = _apply(stage, units, digits)
    return Written(names, tuple(units))


def _about(size: float) -> str:
    return f"{int(size):,}" if size < 1e12 else f"about {size:.0e}"


_PLAIN: dict[type[nn.Module], Activation | None] = {
    nn.Sigmoid: "logistic",
    nn.ReLU: "relu",
    nn.Tanh: "tanh",
    nn.Identity: None,
    nn.Flatten: None,
    nn.Dropout: None,
}


def _stages(module: nn.Module) -> list[Stage]:
    """What a module does, step by step."""
    if isinstance(module, Transfer | nn.Linear):
        return [module]
    if isinstance(module, Network):
        stages: list[Stage] = []
        for layer in module.layers:
            stages.append(layer)
            stages.append(module.activation)
        stages.append(module.output)
        return stages
    if isinstance(module, nn.Sequential):
        return [stage for child in module for stage in _stages(child)]
    if type(module) in _PLAIN:
        found = _PLAIN[type(module)]
        return [] if found is None else [found]
    allowed = ", ".join(
        ("Transfer", "Partial", "Network", "Sequential", "Linear", *(t.__name__ for t in _PLAIN))
    )
    raise FtnnError(f"a {type(module).__name__} cannot be written out; what can be is {allowed}")


# --- how large it would be ---


def _leaves(expr: Expr) -> tuple[int, int]:
    """How many x, and how many other parts, `expr` has when nothing is shared."""
    counts: dict[Expr, tuple[int, int]] = {}
    for part in postorder(expr):
        if isinstance(part, Call):
            inner = [counts[arg] for arg in part.args]
            counts[part] = sum(n for n, _ in inner), 1 + sum(n for _, n in inner)
        else:
            counts[part] = (1, 0) if part is symbol(INPUT) else (0, 1)
    return counts[expr]


def _size(stages: Sequence[Stage], shared: bool) -> float:
    """How many parts all outputs have; without sharing, each unit is written out wherever it is used."""
    first = stages[0]
    assert not isinstance(first, str)
    sizes, total = np.ones(first.in_features), 0.0
    for stage in stages:
        if isinstance(stage, str):
            sizes = sizes + 1
        elif isinstance(stage, nn.Linear):
            sizes = np.full(stage.out_features, float(np.sum(sizes + 3)))
        else:
            places = listed(stage)
            inputs, outputs = places.inputs.cpu().numpy(), places.outputs.cpu().numpy()
            own = max(_leaves(kind.expr) for kind in stage.kinds)
            each = own[0] * sizes[inputs] + own[1] + 1
            sizes = np.bincount(outputs, weights=each, minlength=stage.out_features) + 1
        if shared:
            total, sizes = total + float(sizes.sum()), np.ones(len(sizes))
    return total if shared else float(sizes.sum())


# --- writing ---


def _apply(stage: Stage, units: list[Expr], digits: int | None) -> list[Expr]:
    if isinstance(stage, str):
        return [folded(stage, unit) for unit in units]
    if isinstance(stage, nn.Linear):
        weights = stage.weight.detach().double().cpu().numpy()
        out = [
            _sum([folded("mul", _number(w, digits, stage), unit) for w, unit in zip(row, units, strict=True)])
            for row in weights
        ]
    else:
        out = [_sum(found) for found in _sent(stage, units, digits)]
    if stage.bias is None:
        return out
    bias = stage.bias.detach().double().cpu().numpy()
    return [plus(unit, _number(b, digits, stage)) for unit, b in zip(out, bias, strict=True)]


def _sent(layer: Transfer, units: list[Expr], digits: int | None) -> list[list[Expr]]:
    """What is sent to each output, by each of its connections."""
    places = listed(layer)
    values: dict[str, Array] = {n: v.double().cpu().numpy() for n, v in places.values.items()}
    sent: list[list[Expr]] = [[] for _ in range(layer.out_features)]
    for c, (i, o) in enumerate(zip(places.inputs.tolist(), places.outputs.tolist(), strict=True)):
        given = {name: _number(value[c], digits, layer) for name, value in values.items()}
        sent[o].append(substitute(layer.function.expr, {**given, INPUT: units[i]}))
    return sent


def _sum(parts: list[Expr]) -> Expr:
    total = ZERO
    for part in parts:
        total = plus(total, part)
    return total


def rounded(value: float, digits: int | None) -> float:
    return value if digits is None else float(f"{value:.{digits - 1}e}")


def _number(value: Any, digits: int | None, layer: nn.Module) -> Expr:
    if not math.isfinite(value):
        shown = described(layer) if isinstance(layer, Transfer) else type(layer).__name__
        raise FtnnError(f"a parameter of {shown} is {float(value)}; only finite numbers can be written out")
    return number(rounded(float(value), digits))
