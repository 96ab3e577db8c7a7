"""Safetensors files: read whole and within bounds, with a digest of all that is in them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from ftnn.errors import FtnnError

MOST_TENSORS = 10_000
"""In one file. Far more than any network has, and few enough that a file is read or refused in a second."""


def read(path: Any, error: type[FtnnError], what: str) -> tuple[dict[str, str], dict[str, Tensor]]:
    """A file's metadata and tensors; copies, which stay what they are when the file changes.

    What cannot be read is an `error`, which calls the file a `what`.
    """
    content = _content(path, error)
    try:
        header = _header(content)
        tensors = safetensors.torch.load(content)  # checks the header against what stands behind it
        return dict(header.get("__metadata__", {})), tensors
    except Exception as cause:  # safetensors raises kinds of its own, and torch others
        raise error(
            f"{path} is not a whole {what}: it is damaged, cut short or of another kind ({cause})"
        ) from cause


def as_path(path: Any, error: type[FtnnError]) -> Path:
    try:
        return Path(path)
    except TypeError as cause:
        raise error(f"{path!r:.80} is not a path") from cause


def _content(path: Any, error: type[FtnnError]) -> bytes:
    file = as_path(path, error)
    try:
        if file.exists() and not (file.is_file() or file.is_dir()):  # a device or pipe may have no end
            raise error(f"cannot read {path}: it is not a file")
        return file.read_bytes()
    except FileNotFoundError as cause:
        raise error(f"there is no file {path}") from cause
    except (OSError, ValueError) as cause:
        raise error(f"cannot read {path}: {getattr(cause, 'strerror', None) or cause}") from cause


def _header(content: bytes) -> dict[str, Any]:
    """What stands before the data: their names, and the metadata. Refuses too many before parsing them."""
    size = int.from_bytes(content[:8], "little")
    many = content.count(b'"data_offsets"', 8, 8 + size)
    header: dict[str, Any] = {} if many > MOST_TENSORS else json.loads(content[8 : 8 + size])
    many = max(many, len(header) - 1)
    if many > MOST_TENSORS:
        raise ValueError(f"it has {many} tensors; at most {MOST_TENSORS} are allowed")
    return header


def digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    """Of a text and of every tensor's name, dtype, shape and bytes."""
    total = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        total.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
    return total.hexdigest()
