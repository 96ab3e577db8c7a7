"""Models as data: safetensors with the formulas as text. Loading runs no code and unpickles nothing."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from ftnn.errors import FtnnError, ModelFileError
from ftnn.formula import Function, Mixed
from ftnn.nn._connections import Connections
from ftnn.nn._memory import Memory
from ftnn.nn._network import Network
from ftnn.nn._transfer import Transfer

FORMAT_VERSION = 1
"""Of the file format; a file of a newer one is refused."""

Description = dict[str, Any]


def save(module: nn.Module, path: str | os.PathLike[str]) -> None:
    """Write a model to a file that `load` reads on any machine.

    **Arguments:**

    - `module`: a layer or network of ftnn, or an `nn.Sequential` of these with linear layers and activations.
    - `path`: where to; an existing file is replaced only when the new one is whole.
    """
    description = json.dumps(_describe(module), sort_keys=True)
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in module.state_dict().items()}
    metadata = {
        "format": "ftnn",
        "version": str(FORMAT_VERSION),
        "model": description,
        "digest": _digest(description, tensors),
    }
    _write(Path(path), safetensors.torch.save(tensors, metadata))


def load(path: str | os.PathLike[str]) -> nn.Module:
    """The model in a file that `save` wrote. Raises `ModelFileError` for anything else."""
    path = Path(path)
    metadata, tensors = _read(path)
    version = metadata.get("version", "")
    if metadata.get("format") != "ftnn" or not version.isdecimal():
        raise ModelFileError(f"{path} is a safetensors file, but not a model that ftnn.save wrote")
    if int(version) > FORMAT_VERSION:
        raise ModelFileError(
            f"{path} has the format version {version}, from a newer ftnn; this one reads up to {FORMAT_VERSION}"
        )
    text = metadata.get("model", "")
    if metadata.get("digest") != _digest(text, tensors):
        raise ModelFileError(f"{path} was changed after it was saved: its digest does not fit its formulas and parameters")
    try:
        module = _build(json.loads(text))
    except (FtnnError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} describes no model that this version can build: {error}") from error
    wanted, found = set(module.state_dict()), set(tensors)
    if wanted != found:
        raise ModelFileError(
            f"{path} does not fit its own description: missing are {sorted(wanted - found)}, unexpected {sorted(found - wanted)}"
        )
    try:
        # The file's tensors take the place of the fresh ones, dtype and all.
        module.load_state_dict(tensors, strict=True, assign=True)
    except RuntimeError as error:
        raise ModelFileError(f"{path} does not fit its own description: {error}") from error
    return module


def _digest(description: str, tensors: Mapping[str, Tensor]) -> str:
    """Of the description and every tensor's name, dtype, shape and bytes."""
    digest = hashlib.sha256(description.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _write(path: Path, content: bytes) -> None:
    """All of it or nothing: into a new file beside the old one, which then takes its name."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise ModelFileError(f"cannot write {path}: {error.strerror or error}") from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files for their owner only; a model gets what any new file would get.
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise ModelFileError(f"cannot write {path}: {error.strerror or error}; what was there is unchanged") from error
        raise


def _umask() -> int:
    current = os.umask(0o022)
    os.umask(current)
    return current


def _read(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    try:
        with safetensors.safe_open(str(path), framework="pt") as file:
            return dict(file.metadata() or {}), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError as error:
        raise ModelFileError(f"there is no file {path}") from error
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror or error}") from error
    except Exception as error:  # safetensors raises kinds of its own
        raise ModelFileError(f"{path} is not a whole model file; it is damaged or cut short ({error})") from error


# --- modules as descriptions, and back ---


def _describe_function(function: Function) -> Description:
    return {"formula": function.formula, "init": function.init, "constants": function.choices}


def _build_function(given: Description) -> Function:
    return Function(given["formula"], init=given["init"], constants=given["constants"])


def _describe_functions(layer: Connections) -> Description:
    described = [_describe_function(kind) for kind in layer.kinds]
    if layer._mixed is None:
        return {"function": described[0]}
    # Which entry is of which kind stands in the constants; how they were assigned matters to reset_parameters only.
    assign = layer._mixed.assign
    return {"mixed": described, "assign": assign if isinstance(assign, str) else assign.tolist()}


def _build_functions(given: Description) -> Function | Mixed:
    if "function" in given:
        return _build_function(given["function"])
    return Mixed([_build_function(kind) for kind in given["mixed"]], given["assign"])


def _describe_layer(layer: Connections) -> Description:
    return {
        "in_features": layer.in_features,
        "out_features": layer.out_features,
        "bias": layer.bias is not None,
        "backend": layer.backend,
        **_describe_functions(layer),
    }


def _layer_arguments(given: Description) -> dict[str, Any]:
    plain = {name: given[name] for name in ("in_features", "out_features", "bias", "backend")}
    return {**plain, "function": _build_functions(given)}


def _describe_network(net: Network) -> Description:
    return {
        "in_features": net.in_features,
        "hidden": [layer.out_features for layer in net.layers],
        "out_features": net.out_features,
        "activation": net.activation,
        "backends": [layer.backend for layer in net.layers],
        "functions": [_describe_functions(layer) for layer in net.layers],
    }


def _build_network(given: Description) -> Network:
    functions = [_build_functions(function) for function in given["functions"]]
    net = Network(
        given["in_features"], given["hidden"], given["out_features"], functions, given["activation"]
    )
    for layer, backend in zip(net.layers, given["backends"], strict=True):
        layer.backend = backend
    return net


def _plain(kind: type[nn.Module]) -> tuple[Callable[[Any], Description], Callable[[Description], nn.Module]]:
    return lambda module: {}, lambda given: kind()


# The kinds of modules a file may hold: how each is described, and how it is built again.
_KINDS: dict[type[nn.Module], tuple[Callable[[Any], Description], Callable[[Description], nn.Module]]] = {
    Transfer: (_describe_layer, lambda given: Transfer(**_layer_arguments(given))),
    Memory: (
        lambda layer: {**_describe_layer(layer), "through_time": layer.through_time},
        lambda given: Memory(**_layer_arguments(given), through_time=given["through_time"]),
    ),
    Network: (_describe_network, _build_network),
    nn.Sequential: (
        lambda module: {"modules": [_describe(child) for child in module]},
        lambda given: nn.Sequential(*(_build(child) for child in given["modules"])),
    ),
    nn.Linear: (
        lambda m: {"in_features": m.in_features, "out_features": m.out_features, "bias": m.bias is not None},
        lambda given: nn.Linear(given["in_features"], given["out_features"], given["bias"]),
    ),
    nn.Flatten: (
        lambda m: {"start_dim": m.start_dim, "end_dim": m.end_dim},
        lambda given: nn.Flatten(given["start_dim"], given["end_dim"]),
    ),
    nn.Sigmoid: _plain(nn.Sigmoid),
    nn.ReLU: _plain(nn.ReLU),
    nn.Tanh: _plain(nn.Tanh),
    nn.Identity: _plain(nn.Identity),
}
_BY_NAME = {kind.__name__: (kind, *how) for kind, how in _KINDS.items()}


def _describe(module: nn.Module) -> Description:
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
    return {"type": type(module).__name__, **_KINDS[type(module)][0](module)}


def _build(given: Description) -> nn.Module:
    if given.get("type") not in _BY_NAME:
        raise ModelFileError(f"unknown module {given.get('type')!r}; known are {', '.join(_BY_NAME)}")
    _, _, build = _BY_NAME[given["type"]]
    return build(given)
