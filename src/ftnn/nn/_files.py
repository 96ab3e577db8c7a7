"""Models as data: safetensors with the formulas as text. Loading runs no code and unpickles nothing."""

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
from ftnn.nn._descriptions import build, describe
from ftnn.nn._partial import Partial
from ftnn.nn._precision import DTYPES
from ftnn.nn._safetensors import MOST_TENSORS, as_path, digest, read

FORMAT_VERSION = 1
"""Of the file format; a file of a newer one is refused."""


def save(module: nn.Module, path: str | os.PathLike[str], notes: Mapping[str, Any] | None = None) -> None:
    """Write a model to a file that `load` reads on any machine.

    **Arguments:**

    - `module`: a layer or network of ftnn, or an `nn.Sequential` of these with linear layers and activations.
    - `path`: where to; an existing file is replaced only when the new one is whole.
    - `notes`: anything that JSON can hold, to be kept with it, such as what its inputs mean; see `notes_of`.
    """
    description = json.dumps(describe(module))
    state = module.state_dict()
    if unset := [name for name, tensor in state.items() if tensor.is_meta]:
        raise ModelFileError(f"the module is on the device meta: {unset[0]} has no values to save")
    try:
        _fit(build(description), state)  # what could not be loaded again is not saved
    except ModelFileError as error:
        raise ModelFileError(f"this {type(module).__name__} cannot be saved: {error}") from error
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in state.items()}
    try:
        kept = json.dumps({} if notes is None else dict(notes))
    except Exception as error:  # whatever a stranger's type raises
        raise ModelFileError(f"notes={notes!r:.80} must be a mapping that JSON can hold: {error}") from error
    metadata = {
        "format": "ftnn",
        "version": str(FORMAT_VERSION),
        "model": description,
        "notes": kept,
        "digest": digest(description + kept, tensors),
    }
    content = safetensors.torch.save(tensors, metadata)
    _atomic.write_or_explain(as_path(path, ModelFileError), content, ModelFileError)


def load(path: str | os.PathLike[str]) -> nn.Module:
    """The model in a file that `save` wrote, on the CPU. Raises `ModelFileError` for anything else."""
    metadata, tensors = _checked(path)
    try:
        return _fit(build(metadata.get("model", "")), tensors)
    except ModelFileError as error:
        raise ModelFileError(f"{path} holds no model that this version can build: {error}") from error


def notes_of(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What `save` was given as notes."""
    metadata, _ = _checked(path)
    try:
        notes = json.loads(metadata.get("notes", "{}"))
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} has notes that are not JSON: {error}") from error
    if not isinstance(notes, dict):
        raise ModelFileError(f"{path} has notes that are no JSON object")
    return notes


def _checked(path: str | os.PathLike[str]) -> tuple[dict[str, str], dict[str, Tensor]]:
    """What is in a file, if it is one that `save` wrote and nobody changed."""
    metadata, tensors = read(path, ModelFileError, "model file")
    version = metadata.get("version", "")
    if metadata.get("format") != "ftnn" or not re.fullmatch("[1-9][0-9]{0,8}", version):
        raise ModelFileError(f"{path} is a safetensors file, but not a model that ftnn.save wrote")
    if int(version) > FORMAT_VERSION:
        raise ModelFileError(
            f"{path} has the format version {version}, from a newer ftnn; "
            f"this one reads versions up to {FORMAT_VERSION}"
        )
    if metadata.get("digest") != digest(metadata.get("model", "") + metadata.get("notes", ""), tensors):
        raise ModelFileError(
            f"{path} was changed after it was saved: its digest does not fit its formulas and parameters"
        )
    return metadata, tensors


def _fit(module: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
    """`module` with `tensors` in place of its own, dtype and all."""
    state = module.state_dict()
    if len(state) > MOST_TENSORS:
        raise ModelFileError(f"it has {len(state)} tensors; at most {MOST_TENSORS} are allowed")
    for name in sorted({*state, *tensors}):
        if name not in tensors:
            raise ModelFileError(f"{name} is missing")
        if name not in state:
            raise ModelFileError(f"{name} belongs to nothing in the description")
        expected, stored = tuple(state[name].shape), tuple(tensors[name].shape)
        if stored != expected:
            raise ModelFileError(f"{name} has the shape {stored}, but the description says {expected}")
        if not state[name].is_floating_point():  # where connections stand
            if tensors[name].dtype != state[name].dtype:
                raise ModelFileError(f"{name} is {tensors[name].dtype}, but should be {state[name].dtype}")
        elif tensors[name].dtype not in DTYPES:
            raise ModelFileError(
                f"{name} is {tensors[name].dtype}, in which no layer computes; "
                f"expected one of {', '.join(map(str, DTYPES))}"
            )
    for prefix, part in module.named_modules():
        own = {
            tensors[f"{prefix}.{name}".lstrip(".")].dtype
            for name, tensor in part.state_dict().items()
            if tensor.is_floating_point()
        }
        if isinstance(part, Connections | nn.Linear) and len(own) > 1:
            raise ModelFileError(f"{prefix or 'the layer'} has tensors of different dtypes: {own}")
    module.load_state_dict(tensors, strict=True, assign=True)
    for prefix, part in module.named_modules():
        if isinstance(part, Partial):
            try:
                part.check()  # compiled code would follow them anywhere
            except ShapeError as error:
                raise ModelFileError(f"{prefix or 'the layer'}: {error}") from error
    return module
