"""Modules as JSON, and back: what a model file says beside its numbers."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn

from ftnn.errors import ModelFileError
from ftnn.formula import Function, Mixed
from ftnn.kernels import BACKENDS
from ftnn.nn._connections import Connections
from ftnn.nn._memory import Memory
from ftnn.nn._network import MemoryNetwork, Network
from ftnn.nn._partial import Partial
from ftnn.nn._transfer import Transfer

Description = dict[str, Any]
"""A module's `type`, and what its constructor is given."""
T = TypeVar("T")


def describe(module: nn.Module) -> Description:
    if type(module) not in _KINDS:
        raise ModelFileError(
            f"a file cannot hold a {type(module).__name__}; it can hold {', '.join(_BY_NAME)}. "
            "For other modules save module.state_dict()."
        )
    if any(".parametrizations." in f".{name}" for name in module.state_dict()):
        raise ModelFileError(
            "the module is parametrised; make that permanent first, with "
            "torch.nn.utils.parametrize.remove_parametrizations, or save module.state_dict()"
        )
    parameters = dict(module.named_parameters(remove_duplicate=False))
    if len(set(parameters.values())) < len(parameters):
        raise ModelFileError(
            "the module has a parameter in two places, and a file would make two of it; "
            "save module.state_dict()"
        )
    return {"type": type(module).__name__, **_KINDS[type(module)][0](module)}


def build(text: str) -> nn.Module:
    """The module that a text describes, on the device meta: no memory is taken, no random number drawn."""
    try:
        with torch.device("meta"):
            return _build(json.loads(text))
    except Exception as error:  # whatever a stranger wrote: of any type, nested to any depth
        raise ModelFileError(str(error) or type(error).__name__) from error


def _build(description: Any) -> nn.Module:
    kind = _take(description, "type", str)
    if kind not in _BY_NAME:
        raise ModelFileError(f"the type {kind!r} is not known; known are {', '.join(_BY_NAME)}")
    return _BY_NAME[kind](description)


def _take(description: Any, name: str, kind: type[T]) -> T:
    """What a description says under `name`, if it is of that type."""
    value = description.get(name) if isinstance(description, dict) else None
    if not isinstance(value, kind):
        raise ModelFileError(f"{name!r} should be of type {kind.__name__} in {description!s:.200}")
    return value


def _describe_function(function: Function) -> Description:
    return {"formula": function.formula, "init": function.init, "constants": function.choices}


def _build_function(description: Any) -> Function:
    return Function(
        _take(description, "formula", str),
        init=_take(description, "init", dict),
        constants=_take(description, "constants", dict),
    )


def _describe_functions(layer: Connections) -> Description:
    described = [_describe_function(kind) for kind in layer.kinds]
    if layer._mixed is None:
        return {"function": described[0]}
    # Which entry is of which kind stands in the constants; how it was assigned matters to resetting only.
    assign = layer._mixed.assign
    return {"mixed": described, "assign": assign if isinstance(assign, str) else assign.tolist()}


def _build_functions(description: Any) -> Function | Mixed:
    if "mixed" not in description:
        return _build_function(_take(description, "function", dict))
    kinds = [_build_function(kind) for kind in _take(description, "mixed", list)]
    return Mixed(kinds, description.get("assign"))


def _describe_layer(layer: Connections) -> Description:
    return {
        "in_features": layer.in_features,
        "out_features": layer.out_features,
        "bias": layer.bias is not None,
        "backend": layer.backend,
        **_describe_functions(layer),
    }


def _layer_arguments(description: Any) -> dict[str, Any]:
    kinds = {"in_features": int, "out_features": int, "bias": bool, "backend": str}
    plain = {name: _take(description, name, kind) for name, kind in kinds.items()}
    return {**plain, "function": _build_functions(description)}


def _describe_partial(layer: Partial) -> Description:
    return {**_describe_layer(layer), "connections": len(layer.inputs)}  # which ones, the tensors say


def _build_partial(description: Any) -> Partial:
    return Partial(**_layer_arguments(description), connections=_take(description, "connections", int))


def _build_memory(description: Any) -> Memory:
    # ftnn 0.1 took any backend here and used none of them.
    arguments: dict[str, Any] = {**_layer_arguments(description), "backend": "auto"}
    return Memory(**arguments, through_time=_take(description, "through_time", bool))


def _describe_network(net: Network) -> Description:
    return {
        "in_features": net.in_features,
        "out_features": net.out_features,
        "activation": net.activation if isinstance(net.activation, str) else list(net.activation),
        "hidden": [layer.out_features for layer in net.layers],
        "functions": [_describe_functions(layer) for layer in net.layers],
        "backends": [layer.backend for layer in net.layers],
        # How many each layer has, where it is partial.
        "connections": [len(layer.inputs) if isinstance(layer, Partial) else None for layer in net.layers],
    }


def _build_network(description: Any) -> Network:
    sizes = [_take(description, name, int) for name in ("in_features", "out_features")]
    functions = [_build_functions(function) for function in _take(description, "functions", list)]
    one_for_all = isinstance(description, dict) and isinstance(description.get("activation"), str)
    activation: Any = _take(description, "activation", str if one_for_all else list)
    net = Network(sizes[0], _take(description, "hidden", list), sizes[1], functions, activation)
    for layer, backend in zip(net.layers, _take(description, "backends", list), strict=True):
        if backend not in BACKENDS:
            raise ModelFileError(f"the backend {backend!r} is not known; known are {', '.join(BACKENDS)}")
        layer.backend = backend
    for number, count in enumerate(description.get("connections") or ()):
        if count is not None:
            whole = net.layers[number]
            function = whole.function if whole._mixed is None else whole._mixed
            sizes = whole.in_features, whole.out_features
            net.hidden[number] = Partial(*sizes, function, count, backend=whole.backend)
    return net


def _describe_memory_network(net: MemoryNetwork) -> Description:
    return {
        "in_features": net.in_features,
        "hidden": net.memory.out_features,
        "out_features": net.out_features,
        "activation": net.activation,
        "through_time": net.memory.through_time,
        **_describe_functions(net.memory),
    }


def _build_memory_network(description: Any) -> MemoryNetwork:
    sizes = [_take(description, name, int) for name in ("in_features", "hidden", "out_features")]
    activation: Any = _take(description, "activation", str)
    through_time = _take(description, "through_time", bool)
    return MemoryNetwork(
        *sizes, function=_build_functions(description), activation=activation, through_time=through_time
    )


def _describe_sequential(module: nn.Sequential) -> Description:
    return {"modules": [[name, describe(child)] for name, child in module.named_children()]}


def _build_sequential(description: Any) -> nn.Sequential:
    children = _take(description, "modules", list)
    return nn.Sequential(OrderedDict((name, _build(child)) for name, child in children))


def _build_linear(description: Any) -> nn.Linear:
    sizes = [_take(description, name, int) for name in ("in_features", "out_features")]
    return nn.Linear(*sizes, bias=_take(description, "bias", bool))


# The kinds of modules that a file may hold: how each is described, and how it is built again.
_KINDS: dict[type[nn.Module], tuple[Callable[[Any], Description], Callable[[Any], nn.Module]]] = {
    Transfer: (_describe_layer, lambda description: Transfer(**_layer_arguments(description))),
    Memory: (lambda layer: {**_describe_layer(layer), "through_time": layer.through_time}, _build_memory),
    Partial: (_describe_partial, _build_partial),
    Network: (_describe_network, _build_network),
    MemoryNetwork: (_describe_memory_network, _build_memory_network),
    nn.Sequential: (_describe_sequential, _build_sequential),
    nn.Linear: (
        lambda m: {"in_features": m.in_features, "out_features": m.out_features, "bias": m.bias is not None},
        _build_linear,
    ),
    nn.Flatten: (
        lambda m: {"start_dim": m.start_dim, "end_dim": m.end_dim},
        lambda description: nn.Flatten(*(_take(description, n, int) for n in ("start_dim", "end_dim"))),
    ),
    **{
        kind: (lambda m: {}, lambda description, kind=kind: kind())
        for kind in (nn.Sigmoid, nn.ReLU, nn.Tanh, nn.Identity)
    },
}
_BY_NAME = {kind.__name__: build for kind, (_, build) in _KINDS.items()}
