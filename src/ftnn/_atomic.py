"""Atomic writing of files."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path


def write(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Replace a file: readers see the old or the new content, never a mixture.

    **Arguments:**

    - `path`: the file, in an existing folder. Links are followed, and the file's permissions are kept.
    - `content`: the whole new content.
    - `durable`: wait until it is on disk, so that even a power failure leaves no partial file.

    Raises `OSError`; the old file is then unchanged.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():  # such as /dev/null or a pipe
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
                shutil.copymode(target, temporary)
            os.replace(temporary, target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def write_or_explain(path: Path, content: bytes, error: type[Exception], what: str = "") -> None:
    """Like `write`, but raises `error` on failure; its message has `what` and the path."""
    try:
        write(path, content)
    except (OSError, ValueError) as cause:
        reason = (cause.strerror if isinstance(cause, OSError) else None) or cause
        raise error(f"cannot write {what}{path}: {reason}; nothing was changed") from cause
