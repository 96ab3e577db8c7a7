"""Optimisers that a user gives: made, checked, and described so that two can be told apart."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn, optim

from ftnn.errors import FtnnError
from ftnn.training._arguments import quoted

MakeOptimizer = Callable[[list[nn.Parameter]], optim.Optimizer]


def make(optimizer: Any, parameters: list[nn.Parameter]) -> optim.Optimizer:
    """The optimiser that a user's function makes of these parameters."""
    try:
        made = optimizer(parameters)
    except Exception as error:
        raise FtnnError(f"optimizer={quoted(optimizer)} failed to make an optimizer: {error}") from error
    if not isinstance(made, optim.Optimizer):
        raise FtnnError(
            f"optimizer={quoted(optimizer)} must make a torch.optim.Optimizer of a list of parameters, such "
            f"as functools.partial(torch.optim.Adam, lr=0.01); it made {quoted(made)}"
        )
    closure = inspect.signature(made.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise FtnnError(
            f"{type(made).__name__} evaluates the loss itself (step needs a closure), which fit cannot offer"
        )
    own = set(map(id, parameters))
    if any(id(p) not in own for group in made.param_groups for p in group["params"]):
        raise FtnnError(f"optimizer={quoted(optimizer)} made an optimizer of parameters it was not given")
    return made


def step(made: optim.Optimizer) -> None:
    """One step. What an optimiser cannot do (`SparseAdam` takes no dense gradients) it says only here."""
    try:
        made.step()
    except Exception as error:
        raise FtnnError(f"the optimizer {type(made).__name__} failed to make a step: {error}") from error


def describe(made: optim.Optimizer, parameters: Sequence[nn.Parameter]) -> dict[str, Any]:
    """What decides an optimiser's steps, as JSON: its class, its own attributes, and all of its groups."""
    numbers = {id(parameter): number for number, parameter in enumerate(parameters)}
    groups: list[dict[str, Any]] = []
    for group in made.param_groups:
        members = [numbers[id(parameter)] for parameter in group["params"]]
        shown = "all" if members == list(range(len(parameters))) else members
        groups.append({"parameters": shown, **_plain({n: v for n, v in group.items() if n != "params"})})
    attributes = {
        name: value
        for name, value in vars(made).items()
        if not name.startswith("_") and name not in ("defaults", "state", "param_groups")
    }
    name = f"{type(made).__module__}.{type(made).__qualname__}"
    return {"class": name, **_plain(attributes), "groups": groups}


def _plain(value: Any) -> Any:
    """A value as JSON; of what JSON cannot hold, what stays the same from one process to the next."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    kind = value if callable(value) and hasattr(value, "__qualname__") else type(value)
    return f"{kind.__module__}.{kind.__qualname__}"
