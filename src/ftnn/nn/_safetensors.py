"""Safetensors files: read completely, within limits, and protected by a digest."""

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

MAX_TENSORS = 10_000
"""The limit for one file: far more than any network has, and few enough to read or refuse within a second."""


def read(path: Any, error: type[FtnnError], what: str) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Copies of a file's metadata and tensors. Raises `error`, which calls the file a `what`."""
    content = _content(path, error)
    try:
        header = _header(content)
        tensors = safetensors.torch.load(content)  # checks the header against the data
        return dict(header.get("__metadata__", {})), tensors
    except Exception as cause:  # safetensors and torch raise errors of many types
        is_other = isinstance(
            cause, json.JSONDecodeError | UnicodeDecodeError
        )  # their texts mean nothing here
        detail = "" if is_other else f" ({cause})"
        raise error(
            f"{path} is not a valid {what}: it is another kind of file, or damaged or truncated{detail}"
        ) from cause


def as_path(path: Any, error: type[FtnnError]) -> Path:
    try:
        return Path(path)
    except TypeError as cause:
        raise error(f"{path!r:.80} is not a path") from cause


def _content(path: Any, error: type[FtnnError]) -> bytes:
    file = as_path(path, error)
    try:
        if file.exists() and not (file.is_file() or file.is_dir()):  # a device or pipe may be endless
            raise error(f"cannot read {path}: it is not a file")
        return file.read_bytes()
    except FileNotFoundError as cause:
        raise error(f"there is no file {path}") from cause
    except (OSError, ValueError) as cause:
        raise error(f"cannot read {path}: {getattr(cause, 'strerror', None) or cause}") from cause


def _header(content: bytes) -> dict[str, Any]:
    """The names of the tensors, and the metadata. Refuses too many tensors before parsing them."""
    size = int.from_bytes(content[:8], "little")
    count = content.count(b'"data_offsets"', 8, 8 + size)
    header: dict[str, Any] = {} if count > MAX_TENSORS else json.loads(content[8 : 8 + size])
    count = max(count, len(header) - 1)
    if count > MAX_TENSORS:
        raise ValueError(f"it has {count} tensors; the limit is {MAX_TENSORS}")
    return header


def digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    """The SHA-256 of a text and of every tensor's name, dtype, shape and bytes."""
    total = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        total.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
    return total.hexdigest()
