"""Machine code on disk, in files that nobody but this user can have written: what is read here is run.

What keeps other users out is owner and mode: the folder and every file must be ours, and writable by nobody
else. Both are checked on what was opened, never on a path, so nothing can be swapped in between, whoever may
write to the folders above. The digest in front of each entry then guards against files that are ours but not
what we put there. It covers the entry's name, so that no file is run in place of another, and is keyed with a
secret kept in the folder, so that no entry can be made up by someone who can only get files into it. (Someone
who can also replace the secret can replace our shell's start-up file.)

`FTNN_CACHE` names the folder (default: `ftnn` in the user's cache).
"""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
import sys
import warnings
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

_HAS_OWNERS = hasattr(os, "geteuid")  # elsewhere, the user's profile is his own by default
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_SECRET, _SECRET_BYTES = "secret", 32
_DIGEST_BYTES = 32


class _UntrustedError(Exception):
    """Others may have written it."""


def cache_folder() -> Path:
    """Where compiled kernels are kept. Raises `RuntimeError` where nobody knows the user's home."""
    if named := os.environ.get("FTNN_CACHE"):
        return Path(named)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "ftnn"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "ftnn"
    named = os.environ.get("XDG_CACHE_HOME", "")
    # Its specification: a relative path is invalid, and ignored.
    return (Path(named) if os.path.isabs(named) else Path.home() / ".cache") / "ftnn"


def read(name: str) -> bytes | None:
    """The content of an entry, if it is there and ours. One that is damaged counts as missing."""
    with _trusting(), _opened(create=False) as folder:
        content = _content(folder, name)
        digest, body = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        secret = _content(folder, _SECRET)
        if len(secret) == _SECRET_BYTES and hmac.compare_digest(digest, _digest(secret, name, body)):
            return body
    return None


def write(name: str, body: bytes, readable: tuple[str, bytes] | None = None) -> None:
    """Keep an entry, and perhaps a second file for people, whole or not at all.

    A cache that cannot be written costs time in the next process, and nothing else.
    """
    with _trusting(), _opened(create=True) as folder:
        if readable is not None:
            _replace(folder, *readable)
        _replace(folder, name, _digest(_secret(folder), name, body) + body)


_said: set[str] = set()


@contextmanager
def _trusting() -> Generator[None]:
    """Goes on after whatever is wrong with the cache; says once if somebody else could write there."""
    try:
        yield
    except (OSError, RuntimeError):
        pass
    except _UntrustedError as error:
        if str(error) not in _said:
            _said.add(str(error))
            warnings.warn(
                f"{error}: ftnn does not use it, and compiles instead; take it back (chown, chmod go-w), "
                "remove it, or name another folder in FTNN_CACHE",
                stacklevel=2,
            )


class _Folder:
    """An open folder, to whose files names are relative. Where there are no such things, its path."""

    def __init__(self, path: Path, descriptor: int | None):
        self.path = path
        self.descriptor = descriptor

    def open(self, name: str, flags: int) -> int:
        where = name if self.descriptor is not None else self.path / name
        return os.open(where, flags | _NO_LINK, 0o600, dir_fd=self.descriptor)

    def replace(self, source: str, target: str) -> None:
        if self.descriptor is None:
            os.replace(self.path / source, self.path / target)
        else:
            os.replace(source, target, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    def unlink(self, name: str) -> None:
        if self.descriptor is None:
            os.unlink(self.path / name)
        else:
            os.unlink(name, dir_fd=self.descriptor)


@contextmanager
def _opened(*, create: bool) -> Generator[_Folder]:
    path = cache_folder()
    if create:
        _make(path)
    if not _HAS_OWNERS:
        yield _Folder(path, None)
        return
    link = os.lstat(path)
    if stat.S_ISLNK(link.st_mode) and link.st_uid not in (0, os.geteuid()):
        raise _UntrustedError(f"the kernel cache {path} is another user's link")
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _check(os.fstat(descriptor), f"the kernel cache {path}")
        yield _Folder(path, descriptor)
    finally:
        os.close(descriptor)


def _make(path: Path) -> None:
    """The folder, and those above it that are missing, for this user alone whatever the umask."""
    if path.is_dir():
        return
    _make(path.parent)
    with suppress(FileExistsError):
        path.mkdir(0o700)
        path.chmod(0o700)


def _check(status: os.stat_result, what: str) -> None:
    if _HAS_OWNERS and status.st_uid != os.geteuid():
        raise _UntrustedError(f"{what} belongs to another user")
    if _HAS_OWNERS and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _UntrustedError(f"{what} can be written by other users")


def _content(folder: _Folder, name: str) -> bytes:
    with open(folder.open(name, os.O_RDONLY), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise FileNotFoundError(name)
        _check(status, f"the file {folder.path / name}")
        return file.read()


def _replace(folder: _Folder, name: str, content: bytes) -> None:
    """Write a file elsewhere and move it to its place: a reader sees all of it or nothing."""
    temporary = f".{name}.{os.urandom(8).hex()}"
    try:
        with open(folder.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            if _HAS_OWNERS:
                os.fchmod(file.fileno(), 0o600)
            file.write(content)
        folder.replace(temporary, name)
    except BaseException:
        with suppress(OSError):
            folder.unlink(temporary)
        raise


def _secret(folder: _Folder) -> bytes:
    """The folder's secret, made if there is none. Of two made at once, the last one stays."""
    for _ in range(2):
        with suppress(OSError):
            secret = _content(folder, _SECRET)
            if len(secret) == _SECRET_BYTES:
                return secret
        _replace(folder, _SECRET, os.urandom(_SECRET_BYTES))
    return _content(folder, _SECRET)


def _digest(secret: bytes, name: str, body: bytes) -> bytes:
    return hashlib.blake2b(name.encode() + b"\0" + body, key=secret, digest_size=_DIGEST_BYTES).digest()
