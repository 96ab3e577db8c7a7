"""Model files: safetensors with the formulas as text. Loading runs no code and unpickles nothing."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

import safetensors.torch
from torch import Tensor, nn

from ftnn import _atomic
from ftnn.errors import ModelFileError, ShapeError
from ftnn.nn._connections import Connections
from ftnn.nn._descriptions import build, describe_with_ranges
from ftnn.nn._partial import Partial
from ftnn.nn._precision import DTYPES
from ftnn.nn._safetensors import MAX_TENSORS, as_path, digest, read

FORMAT_VERSION = 1
"""The version of the file format; newer files are refused."""


def save(module: nn.Module, path: str | os.PathLike[str], notes: Mapping[str, Any] | None = None) -> None:
    """Write a model to a file that `load` reads on any machine.

    **Arguments:**

    - `module`: an ftnn layer or network, or an `nn.Sequential` of these, linear layers, normalisations
        (`nn.BatchNorm1d`, `nn.LayerNorm`), activations and dropout.
    - `path`: the file; an existing one is replaced atomically.
    - `notes`: a JSON-compatible mapping to store with the model, such as the meaning of its inputs; see
        `notes_of`.
    """
    description = json.dumps(describe_with_ranges(module))
    state = module.state_dict()
    if unset := [name for name, tensor in state.items() if tensor.is_meta]:
        raise ModelFileError(f"the module is on the meta device: {unset[0]} has no values to save")
    try:
        _fit(build(description), state)  # save only what can be loaded again
    except ModelFileError as error:
        raise ModelFileError(f"this {type(module).__name__} cannot be saved: {error}") from error
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in state.items()}
    try:
        notes_text = json.dumps({} if notes is None else dict(notes))
    except Exception as error:  # a user's type may raise anything
        raise ModelFileError(f"notes={notes!r:.80} must be a mapping that JSON can hold: {error}") from error
    metadata = {
        "format": "ftnn",
        "version": str(FORMAT_VERSION),
        "model": description,
        "notes": notes_text,
        "digest": digest(description + notes_text, tensors),
    }
    content = safetensors.torch.save(tensors, metadata)
    _atomic.write_or_explain(as_path(path, ModelFileError), content, ModelFileError)


def load(path: str | os.PathLike[str]) -> nn.Module:
    """The model in a file that `save` wrote, on the CPU. Raises `ModelFileError` for anything else."""
    metadata, tensors = _checked(path)
    try:
        return _fit(build(metadata.get("model", "")), tensors)
    except ModelFileError as error:
        raise ModelFileError(f"{path} has no model that this version can build: {error}") from error


def notes_of(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The notes that were passed to `save`."""
    metadata, _ = _checked(path)
    try:
        notes = json.loads(metadata.get("notes", "{}"))
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} has notes that are not JSON: {error}") from error
    if not isinstance(notes, dict):
        raise ModelFileError(f"{path} has notes that are not a JSON object")
    return notes


def _checked(path: str | os.PathLike[str]) -> tuple[dict[str, str], dict[str, Tensor]]:
    """A file's metadata and tensors, if `save` wrote it and it is intact."""
    metadata, tensors = read(path, ModelFileError, "model file")
    version = metadata.get("version", "")
    if metadata.get("format") != "ftnn" or not re.fullmatch("[1-9][0-9]{0,8}", version):
        raise ModelFileError(f"{path} is a safetensors file, but not a model that ftnn.save wrote")
    if int(version) > FORMAT_VERSION:
        raise ModelFileError(
            f"{path} has format version {version}, from a newer ftnn; "
            f"this one reads versions up to {FORMAT_VERSION}"
        )
    if metadata.get("digest") != digest(metadata.get("model", "") + metadata.get("notes", ""), tensors):
        raise ModelFileError(f"{path} is damaged: its digest does not match its formulas and parameters")
    return metadata, tensors


def _fit(module: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
    """`module` with its tensors replaced by `tensors`, including their dtypes."""
    state = module.state_dict()
    if len(state) > MAX_TENSORS:
        raise ModelFileError(f"it has {len(state)} tensors; the limit is {MAX_TENSORS}")
    for name in sorted({*state, *tensors}):
        if name not in tensors:
            raise ModelFileError(f"{name} is missing")
        if name not in state:
            raise ModelFileError(f"{name} is not in the description")
        expected, stored = tuple(state[name].shape), tuple(tensors[name].shape)
        if stored != expected:
            raise ModelFileError(f"{name} has shape {stored}, but the description says {expected}")
        if not state[name].is_floating_point():  # the places of connections, and counts of batches
            if tensors[name].dtype != state[name].dtype:
                raise ModelFileError(f"{name} is {tensors[name].dtype}, but should be {state[name].dtype}")
        elif tensors[name].dtype not in DTYPES:
            known = ", ".join(map(str, DTYPES))
            raise ModelFileError(f"{name} is {tensors[name].dtype}; expected one of {known}")
    for prefix, part in module.named_modules():
        dtypes = {
            tensors[f"{prefix}.{name}".lstrip(".")].dtype
            for name, tensor in part.state_dict().items()
            if tensor.is_floating_point()
        }
        if isinstance(part, Connections | nn.Linear | nn.BatchNorm1d | nn.LayerNorm) and len(dtypes) > 1:
            raise ModelFileError(f"{prefix or 'the layer'} has tensors of different dtypes: {dtypes}")
    module.load_state_dict(tensors, strict=True, assign=True)
    for prefix, part in module.named_modules():
        if isinstance(part, Partial):
            try:
                part.check()  # compiled code does not check them
            except ShapeError as error:
                raise ModelFileError(f"{prefix or 'the layer'}: {error}") from error
    return module
