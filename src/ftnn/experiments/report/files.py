"""Files that commands write with `--out`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ftnn import _atomic
from ftnn.errors import FtnnError


def write_files(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """Write texts by name to a folder, which is created if missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            _atomic.write(folder / name, text.encode())
    except OSError as error:
        raise FtnnError(f"cannot write to {folder}: {error.strerror or error}") from error
    return [folder / name for name in files]
