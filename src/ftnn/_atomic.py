"""Files written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Replace a file by a new one beside it that takes its name: whoever reads sees the old or the new, never half.

    **Arguments:**

    - `path`: the file; its folder must be there.
    - `content`: all of it.
    - `durable`: wait until it is on the disk, so that not even a power cut leaves half.

    Raises `OSError`, and then the old file is as it was.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        # mkstemp makes files for their owner only; this one gets what any new file would get.
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    current = os.umask(0o022)
    os.umask(current)
    return current
