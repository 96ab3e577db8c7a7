"""Descriptions of modules as JSON, and the modules built from them."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ftnn.errors import ModelFileError
from ftnn.formula import Function, Mixed
from ftnn.kernels import BACKENDS
from ftnn.nn._connections import Connections
from ftnn.nn._feed_forward import Transfer
from ftnn.nn._memory import Memory
from ftnn.nn._network import MemoryNetwork, Network
from ftnn.nn._partial import Partial

Description = dict[str, Any]
"""A module's `type` and the arguments of its constructor."""


def describe(module: nn.Module) -> Description:
    if type(module) not in _KINDS:
        raise ModelFileError(
            f"a model file cannot hold a {type(module).__name__}; expected one of {', '.join(_BY_NAME)}. "
            "For other modules, save module.state_dict()."
        )
    if any(".parametrizations." in f".{name}" for name in module.state_dict()):
        raise ModelFileError(
            "the module is parametrised; first make that permanent with "
            "torch.nn.utils.parametrize.remove_parametrizations, or save module.state_dict()"
        )
    parameters = dict(module.named_parameters(remove_duplicate=False))
    if len(set(parameters.values())) < len(parameters):
        raise ModelFileError(
            "the module shares a parameter, which a model file would duplicate; save module.state_dict()"
        )
    return {"type": type(module).__name__, **_KINDS[type(module)][0](module)}


def build(text: str) -> nn.Module:
    """The module that a text describes, on the meta device: takes no memory and draws no random numbers."""
    try:
        with torch.device("meta"):
            return _build(json.loads(text))
    except Exception as error:  # an untrusted description may be of any type, nested to any depth
        raise ModelFileError(str(error) or type(error).__name__) from error


def _build(description: Any) -> nn.Module:
    kind = _fields(description, type=str)["type"]
    if kind not in _BY_NAME:
        raise ModelFileError(f"unknown type {kind!r}; expected one of {', '.join(_BY_NAME)}")
    return _BY_NAME[kind](description)


def _fields(description: Any, **kinds: type) -> dict[str, Any]:
    """The named fields of a description, checked for their types."""
    fields: dict[str, Any] = {}
    for name, kind in kinds.items():
        fields[name] = description.get(name) if isinstance(description, dict) else None
        if not isinstance(fields[name], kind):
            raise ModelFileError(f"{name!r} should be of type {kind.__name__} in {description!s:.200}")
    return fields


def _describe_functions(layer: Connections) -> Description:
    described = [{"formula": f.formula, "init": f.init, "constants": f.choices} for f in layer.kinds]
    if layer._mixed is None:
        return {"function": described[0]}
    # The constants hold the kind of each entry; the assignment matters only for resetting.
    assign = layer._mixed.assign
    return {"mixed": described, "assign": assign if isinstance(assign, str) else assign.tolist()}


def _build_function(description: Any) -> Function:
    return Function(**_fields(description, formula=str, init=dict, constants=dict))


def _build_functions(description: Any) -> Function | Mixed:
    if "mixed" not in description:
        return _build_function(_fields(description, function=dict)["function"])
    kinds = [_build_function(kind) for kind in _fields(description, mixed=list)["mixed"]]
    return Mixed(kinds, description.get("assign"))


def _describe_layer(layer: Connections) -> Description:
    return {**_describe_linear(layer), "backend": layer.backend, **_describe_functions(layer)}


def _layer_arguments(description: Any, **more: type) -> dict[str, Any]:
    fields = _fields(description, in_features=int, out_features=int, bias=bool, backend=str, **more)
    return {**fields, "function": _build_functions(description)}


def _build_memory(description: Any) -> Memory:
    # ftnn 0.1 accepted any backend here and ignored it.
    arguments = _layer_arguments(description, through_time=bool)
    arguments["backend"] = "auto"
    return Memory(**arguments)


def _describe_network(net: Network) -> Description:
    return {
        "in_features": net.in_features,
        "out_features": net.out_features,
        "activation": net.activation if isinstance(net.activation, str) else list(net.activation),
        "hidden": [layer.out_features for layer in net.layers],
        "functions": [_describe_functions(layer) for layer in net.layers],
        "backends": [layer.backend for layer in net.layers],
        # The number of connections of each partial layer.
        "connections": [len(layer.inputs) if isinstance(layer, Partial) else None for layer in net.layers],
    }


def _build_network(description: Any) -> Network:
    one_for_all = isinstance(description, dict) and isinstance(description.get("activation"), str)
    kind = str if one_for_all else list
    fields = _fields(description, in_features=int, out_features=int, activation=kind, hidden=list)
    lists = _fields(description, functions=list, backends=list)
    net = Network(**fields, function=[_build_functions(function) for function in lists["functions"]])
    for layer, backend in zip(net.layers, lists["backends"], strict=True):
        if backend not in BACKENDS:
            raise ModelFileError(f"unknown backend {backend!r}; expected one of {', '.join(BACKENDS)}")
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
    sizes = _fields(description, in_features=int, hidden=int, out_features=int)
    options = _fields(description, activation=str, through_time=bool)
    return MemoryNetwork(**sizes, **options, function=_build_functions(description))


def _describe_sequential(module: nn.Sequential) -> Description:
    return {"modules": [[name, describe(child)] for name, child in module.named_children()]}


def _build_sequential(description: Any) -> nn.Sequential:
    children = _fields(description, modules=list)["modules"]
    return nn.Sequential(OrderedDict((name, _build(child)) for name, child in children))


def _describe_linear(module: Any) -> Description:
    sizes = {"in_features": module.in_features, "out_features": module.out_features}
    return {**sizes, "bias": module.bias is not None}


# The modules that a file can hold: how each is described, and how it is built from its description.
_KINDS: dict[type[nn.Module], tuple[Callable[[Any], Description], Callable[[Any], nn.Module]]] = {
    Transfer: (_describe_layer, lambda d: Transfer(**_layer_arguments(d))),
    Memory: (lambda m: {**_describe_layer(m), "through_time": m.through_time}, _build_memory),
    Partial: (
        lambda m: {**_describe_layer(m), "connections": len(m.inputs)},  # the tensors say which
        lambda d: Partial(**_layer_arguments(d, connections=int)),
    ),
    Network: (_describe_network, _build_network),
    MemoryNetwork: (_describe_memory_network, _build_memory_network),
    nn.Sequential: (_describe_sequential, _build_sequential),
    nn.Linear: (
        _describe_linear,
        lambda d: nn.Linear(**_fields(d, in_features=int, out_features=int, bias=bool)),
    ),
    nn.Flatten: (
        lambda m: {"start_dim": m.start_dim, "end_dim": m.end_dim},
        lambda d: nn.Flatten(**_fields(d, start_dim=int, end_dim=int)),
    ),
    **{
        kind: (lambda m: {}, lambda d, kind=kind: kind())
        for kind in (nn.Sigmoid, nn.ReLU, nn.Tanh, nn.Identity)
    },
}
_BY_NAME = {kind.__name__: build for kind, (_, build) in _KINDS.items()}
