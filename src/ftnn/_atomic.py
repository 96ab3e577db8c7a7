"""Files written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path


def write(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Replace a file by a new one that takes its name: a reader sees the old or the new, never half.

    **Arguments:**

    - `path`: the file; its folder must be there. A link is followed, and the file's permissions are kept.
    - `content`: all of it.
    - `durable`: wait until it is on the disk, so that not even a power cut leaves half.

    Raises `OSError`, and then the old file is as it was.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():  # /dev/null, a pipe: to be written to, and not replaced
        target.write_bytes(content)
        return
    temporary = target.parent / f".{target.name}.{os.urandom(8).hex()}"
    with open(temporary, "xb") as file:
        try:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
            file.close()
            with contextlib.suppress(OSError):
                shutil.copymode(
                    target, temporary
                )  # who may read the old file may read the new one, no others
            os.replace(temporary, target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def write_or_explain(path: Path, content: bytes, error: type[Exception], what: str = "") -> None:
    """As `write`, but a failure is an `error` that names the file; `what` it is may stand before its name."""
    try:
        write(path, content)
    except (OSError, ValueError) as found:
        reason = (found.strerror if isinstance(found, OSError) else None) or found
        raise error(f"cannot write {what}{path}: {reason}; what was there is unchanged") from found
