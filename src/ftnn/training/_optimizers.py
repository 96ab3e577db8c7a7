"""Creates and checks a user's optimisers, and describes them so that they can be compared."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn, optim

from ftnn.errors import FtnnError
from ftnn.training._checks import quoted

MakeOptimizer = Callable[[list[nn.Parameter]], optim.Optimizer]


def trained(module: nn.Module) -> list[nn.Parameter]:
    """The trainable parameters of a module, in order."""
    return [p for p in module.parameters() if p.requires_grad]


def make(optimizer: Any, parameters: list[nn.Parameter]) -> optim.Optimizer:
    """The optimiser that a user's function makes from these parameters."""
    try:
        instance = optimizer(parameters)
    except Exception as error:
        raise FtnnError(f"optimizer={quoted(optimizer)} failed to make an optimizer: {error}") from error
    if not isinstance(instance, optim.Optimizer):
        raise FtnnError(
            f"optimizer={quoted(optimizer)} must make a torch.optim.Optimizer from a list of parameters, "
            f"such as functools.partial(torch.optim.Adam, lr=0.01); it returned {quoted(instance)}"
        )
    closure = inspect.signature(instance.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise FtnnError(
            f"{type(instance).__name__} evaluates the loss itself (its step needs a closure), which fit does "
            "not support"
        )
    known = set(map(id, parameters))
    if any(id(p) not in known for group in instance.param_groups for p in group["params"]):
        raise FtnnError(
            f"optimizer={quoted(optimizer)} returned an optimizer for parameters that it did not receive"
        )
    return instance


def step(instance: optim.Optimizer) -> None:
    """Make one step. Only this shows what an optimiser does not support: `SparseAdam`, dense gradients."""
    try:
        instance.step()
    except Exception as error:
        raise FtnnError(f"the optimizer {type(instance).__name__} failed to make a step: {error}") from error


def describe(instance: optim.Optimizer, parameters: Sequence[nn.Parameter]) -> dict[str, Any]:
    """Everything that determines an optimiser's steps, as JSON: its class, attributes and groups."""
    numbers = {id(parameter): number for number, parameter in enumerate(parameters)}
    groups: list[dict[str, Any]] = []
    for group in instance.param_groups:
        members = [numbers[id(parameter)] for parameter in group["params"]]
        indices = "all" if members == list(range(len(parameters))) else members
        groups.append({"parameters": indices, **_as_json({n: v for n, v in group.items() if n != "params"})})
    attributes = {
        name: value
        for name, value in vars(instance).items()
        if not name.startswith("_") and name not in ("defaults", "state", "param_groups")
    }
    name = f"{type(instance).__module__}.{type(instance).__qualname__}"
    return {"class": name, **_as_json(attributes), "groups": groups}


def _as_json(value: Any) -> Any:
    """A value as JSON; other types are represented by something that does not change between processes."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(name): _as_json(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(part) for part in value]
    kind = value if callable(value) and hasattr(value, "__qualname__") else type(value)
    return f"{kind.__module__}.{kind.__qualname__}"
