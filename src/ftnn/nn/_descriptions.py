"""Descriptions of modules as JSON, and the modules built from them."""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ftnn.errors import ModelFileError
from ftnn.formula import Function, Mixed
from ftnn.formula._ranges import Range, checked_ranges
from ftnn.kernels import BACKENDS
from ftnn.nn._activations import Activate
from ftnn.nn._connections import Connections, size
from ftnn.nn._feed_forward import FeedForward, Transfer
from ftnn.nn._memory import Memory
from ftnn.nn._network import MemoryNetwork, Network
from ftnn.nn._partial import Partial

Description = dict[str, Any]
"""A module's `type` and the arguments of its constructor."""


def describe(module: nn.Module) -> Description:
    if type(module) not in _KINDS:
        raise ModelFileError(
            f"a model file cannot hold modules of type {type(module).__name__}; expected one of "
            f"{', '.join(_BY_NAME)}. For other modules, save module.state_dict()."
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


def describe_with_ranges(module: nn.Module) -> Description:
    """`describe`, and the ranges that each layer was drawn from: not a part of what the module is."""
    ranges = {name: layer._ranges for name, layer in _layers(module).items() if layer._ranges}
    return {**describe(module), "ranges": ranges}


def build(text: str) -> nn.Module:
    """The module that a text describes, on the meta device: takes no memory and draws no random numbers."""
    try:
        with torch.device("meta"):
            description = json.loads(text)
            module = _build(description)
            if "ranges" in description:  # absent in older files
                _restore_ranges(module, _fields(description, ranges=dict)["ranges"])
            return module
    except Exception as error:  # an untrusted description may be of any type, nested to any depth
        raise ModelFileError(str(error) or type(error).__name__) from error


def _build(description: Any) -> nn.Module:
    kind = _fields(description, type=str)["type"]
    if kind not in _BY_NAME:
        raise ModelFileError(f"unknown type {kind!r}; expected one of {', '.join(_BY_NAME)}")
    return _BY_NAME[kind](description)


def _layers(module: nn.Module) -> dict[str, Connections]:
    return {name: part for name, part in module.named_modules() if isinstance(part, Connections)}


def _restore_ranges(module: nn.Module, described: dict[str, Any]) -> None:
    layers = _layers(module)
    for path, kinds in described.items():
        if path not in layers or not isinstance(kinds, list) or len(kinds) != len(layers[path].kinds):
            raise ModelFileError(f"'ranges' should have one entry for each kind of a layer, not {path!r:.80}")
        restored: list[dict[str, Range]] = []
        for kind, ranges in zip(layers[path].kinds, kinds, strict=True):
            if not isinstance(ranges, dict) or set(ranges) != set(kind.parameters):
                names = ", ".join(kind.parameters)
                raise ModelFileError(f"'ranges' of {kind.formula!r} should be of {names}, not {ranges!s:.80}")
            restored.append(checked_ranges(ranges, kind.formula, kind.parameters))
        layers[path]._ranges = tuple(restored)


def _fields(description: Any, **kinds: type) -> dict[str, Any]:
    """The named fields of a description, checked for their types."""
    fields: dict[str, Any] = {}
    for name, kind in kinds.items():
        fields[name] = description.get(name) if isinstance(description, dict) else None
        if not isinstance(fields[name], kind):
            raise ModelFileError(f"{name!r} should be of type {kind.__name__} in {description!s:.200}")
    return fields


def _number(description: Any, name: str, least: float = -math.inf, most: float = math.inf) -> float:
    """A finite number in a description, from `least` to `most`."""
    value = description.get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not least <= value <= most:
        limits = "" if least == -math.inf else f", at least {least:g}"
        limits += "" if most == math.inf else f" and at most {most:g}"
        raise ModelFileError(f"{name!r} should be a finite number{limits} in {description!s:.200}")
    return value


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
    described = {**_describe_linear(layer), "backend": layer.backend, **_describe_functions(layer)}
    is_scaled = isinstance(layer, FeedForward) and layer.scale is not None
    is_product = isinstance(layer, FeedForward) and layer.reduce == "product"
    described |= {"reduce": "product"} if is_product else {}
    return described | ({"scale": True} if is_scaled else {})  # both absent in files without any


def _feed_forward_arguments(description: Any, **more: type) -> dict[str, Any]:
    arguments = _layer_arguments(description, **more)
    arguments |= _fields(description, reduce=str) if "reduce" in description else {}
    return arguments | (_fields(description, scale=bool) if "scale" in description else {})


def _layer_arguments(description: Any, **more: type) -> dict[str, Any]:
    fields = _fields(description, in_features=int, out_features=int, bias=bool, backend=str, **more)
    return {**fields, "function": _build_functions(description)}


def _build_memory(description: Any) -> Memory:
    # ftnn 0.1 accepted any backend here and ignored it.
    arguments = _layer_arguments(description, through_time=bool)
    arguments["backend"] = "auto"
    return Memory(**arguments)


def _describe_network(net: Network) -> Description:
    if any(layer.reduce != "sum" for layer in net.layers):
        raise ModelFileError("a Network with product units cannot be saved; use an nn.Sequential")
    scales = [layer.scale is not None for layer in net.layers]
    return {
        "in_features": net.in_features,
        "out_features": net.out_features,
        "activation": net.activation if isinstance(net.activation, str) else list(net.activation),
        "hidden": [layer.out_features for layer in net.layers],
        "functions": [_describe_functions(layer) for layer in net.layers],
        "backends": [layer.backend for layer in net.layers],
        # The number of connections of each partial layer.
        "connections": [len(layer.inputs) if isinstance(layer, Partial) else None for layer in net.layers],
        **({"scales": scales} if any(scales) else {}),
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
    counts = description.get("connections") or [None] * len(net.layers)
    scales: list[Any] = description.get("scales") or [False] * len(net.layers)
    for number, (whole, count, scale) in enumerate(zip(net.layers, counts, scales, strict=True)):
        if not isinstance(scale, bool):
            raise ModelFileError(f"'scales' should hold true or false, not {scale!r:.80}")
        if count is None and not scale:
            continue
        function = whole.function if whole._mixed is None else whole._mixed
        sizes, backend = (whole.in_features, whole.out_features), whole.backend
        if count is None:
            layer = Transfer(*sizes, function, backend=backend, scale=scale)
        else:
            layer = Partial(*sizes, function, count, backend=backend, scale=scale)
        layer._expects = whole._expects
        net.hidden[number] = layer
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


def _describe_batch_norm(norm: nn.BatchNorm1d) -> Description:
    options = {"affine": norm.affine, "track_running_stats": norm.track_running_stats}
    return {"num_features": norm.num_features, "eps": norm.eps, "momentum": norm.momentum, **options}


def _build_batch_norm(description: Any) -> nn.BatchNorm1d:
    fields = _fields(description, num_features=int, affine=bool, track_running_stats=bool)
    fields["num_features"] = size("num_features", fields["num_features"])
    momentum = None if description.get("momentum") is None else _number(description, "momentum", 0, 1)
    return nn.BatchNorm1d(**fields, eps=_number(description, "eps", 0), momentum=momentum)


def _describe_layer_norm(norm: nn.LayerNorm) -> Description:
    options = {"elementwise_affine": norm.elementwise_affine, "bias": "bias" in norm.state_dict()}
    return {"normalized_shape": list(norm.normalized_shape), "eps": norm.eps, **options}


def _build_layer_norm(description: Any) -> nn.LayerNorm:
    fields = _fields(description, normalized_shape=list, elementwise_affine=bool, bias=bool)
    shape = [size("normalized_shape", n) for n in fields.pop("normalized_shape")]
    if not shape:
        raise ModelFileError("'normalized_shape' should have at least one size")
    return nn.LayerNorm(shape, **fields, eps=_number(description, "eps", 0))


def _build_gelu(description: Any) -> nn.GELU:
    approximate = _fields(description, approximate=str)["approximate"]
    if approximate not in ("none", "tanh"):
        raise ModelFileError(f"'approximate' should be 'none' or 'tanh', not {approximate!r:.80}")
    return nn.GELU(approximate)


# The modules that a file can hold: how each is described, and how it is built from its description.
_KINDS: dict[type[nn.Module], tuple[Callable[[Any], Description], Callable[[Any], nn.Module]]] = {
    Transfer: (_describe_layer, lambda d: Transfer(**_feed_forward_arguments(d))),
    Memory: (lambda m: {**_describe_layer(m), "through_time": m.through_time}, _build_memory),
    Partial: (
        lambda m: {**_describe_layer(m), "connections": len(m.inputs)},  # the tensors say which
        lambda d: Partial(**_feed_forward_arguments(d, connections=int)),
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
    nn.BatchNorm1d: (_describe_batch_norm, _build_batch_norm),
    nn.LayerNorm: (_describe_layer_norm, _build_layer_norm),
    nn.Dropout: (lambda m: {"p": m.p}, lambda d: nn.Dropout(_number(d, "p", 0, 1))),
    Activate: (
        lambda m: {"activation": m.activation},
        lambda d: Activate(**_fields(d, activation=str)),
    ),
    nn.GELU: (lambda m: {"approximate": m.approximate}, _build_gelu),
    nn.LeakyReLU: (
        lambda m: {"negative_slope": m.negative_slope},
        lambda d: nn.LeakyReLU(_number(d, "negative_slope")),
    ),
    nn.ELU: (lambda m: {"alpha": m.alpha}, lambda d: nn.ELU(_number(d, "alpha"))),
    # Whether they work in place changes no result, so files do not hold it.
    **{
        kind: (lambda m: {}, lambda d, kind=kind: kind())
        for kind in (nn.Sigmoid, nn.ReLU, nn.Tanh, nn.SiLU, nn.Softsign, nn.Identity)
    },
}
_BY_NAME = {kind.__name__: build for kind, (_, build) in _KINDS.items()}
