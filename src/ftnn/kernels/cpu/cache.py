"""A disk cache of machine code, in files that only this user can have written: its content is executed.

Owner and mode keep other users out: the folder and every file must belong to this user and be writable by
nobody else. Both are checked on the opened file, never on a path, so nothing can be swapped in between,
whoever may write to the folders above. The digest at the start of each entry then detects files that belong
to this user but have other content. It covers the entry's name, so that no file runs in place of another, and
is keyed with a secret kept in the folder, so that nobody who can merely place files there can forge an entry.
(Anyone who can replace the secret can also replace the shell's start-up file.)

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
from dataclasses import dataclass
from pathlib import Path

_HAS_OWNERS = hasattr(os, "geteuid")  # without them, a user's profile is private by default
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_SECRET, _SECRET_BYTES = "secret", 32
_DIGEST_BYTES = 32


class _UntrustedError(Exception):
    """Other users may have written it."""


def cache_folder() -> Path:
    """The folder of compiled kernels. Raises `RuntimeError` if the user has no home directory."""
    if named := os.environ.get("FTNN_CACHE"):
        return Path(named)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "ftnn"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "ftnn"
    named = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification: relative paths are invalid and ignored.
    return (Path(named) if os.path.isabs(named) else Path.home() / ".cache") / "ftnn"


def read(name: str) -> bytes | None:
    """The content of an entry; None if it is missing, damaged or not trusted."""
    with _ignoring_failures(), _opened(create=False) as folder:
        content = _content(folder, name)
        digest, body = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        secret = _content(folder, _SECRET)
        if len(secret) == _SECRET_BYTES and hmac.compare_digest(digest, _digest(secret, name, body)):
            return body
    return None


def write(name: str, body: bytes, readable: tuple[str, bytes] | None = None) -> None:
    """Store an entry, and perhaps a second file for people to read, each atomically.

    If the cache cannot be written, the next process compiles again.
    """
    with _ignoring_failures(), _opened(create=True) as folder:
        if readable is not None:
            _replace(folder, *readable)
        _replace(folder, name, _digest(_secret(folder), name, body) + body)


_warned: set[str] = set()


@contextmanager
def _ignoring_failures() -> Generator[None]:
    """Ignore an unusable cache, with one warning if other users could have written to it."""
    try:
        yield
    except (OSError, RuntimeError):
        pass
    except _UntrustedError as error:
        if str(error) not in _warned:
            _warned.add(str(error))
            warnings.warn(
                f"{error}: ftnn ignores it and compiles again; fix its owner and mode (chown, chmod go-w), "
                "remove it, or set FTNN_CACHE to another folder",
                stacklevel=2,
            )


@dataclass(frozen=True)
class _Folder:
    """An open folder: its files are opened relative to its descriptor or, where there is none, by path."""

    path: Path
    descriptor: int | None

    def _at(self, name: str) -> str | Path:
        return self.path / name if self.descriptor is None else name

    def open(self, name: str, flags: int) -> int:
        return os.open(self._at(name), flags | _NO_LINK, 0o600, dir_fd=self.descriptor)

    def replace(self, source: str, target: str) -> None:
        folders = {"src_dir_fd": self.descriptor, "dst_dir_fd": self.descriptor}
        os.replace(self._at(source), self._at(target), **folders)

    def unlink(self, name: str) -> None:
        os.unlink(self._at(name), dir_fd=self.descriptor)


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
        raise _UntrustedError(f"the kernel cache {path} is a link that belongs to another user")
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _check(os.fstat(descriptor), f"the kernel cache {path}")
        yield _Folder(path, descriptor)
    finally:
        os.close(descriptor)


def _make(path: Path) -> None:
    """Create the folder and its missing parents, private whatever the umask."""
    if path.is_dir():
        return
    _make(path.parent)
    with suppress(FileExistsError):
        path.mkdir(0o700)
        path.chmod(0o700)


def _check(status: os.stat_result, what: str) -> None:
    if not _HAS_OWNERS:
        return
    if status.st_uid != os.geteuid():
        raise _UntrustedError(f"{what} belongs to another user")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _UntrustedError(f"{what} can be written by other users")


def _content(folder: _Folder, name: str) -> bytes:
    with open(folder.open(name, os.O_RDONLY), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise FileNotFoundError(name)
        _check(status, f"the file {folder.path / name}")
        return file.read()


def _replace(folder: _Folder, name: str, content: bytes) -> None:
    """Write a file under another name, then move it into place: readers see all of it or nothing."""
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
    """The folder's secret, created if there is none. If two processes create one, the last wins."""
    for _ in range(2):
        with suppress(OSError):
            secret = _content(folder, _SECRET)
            if len(secret) == _SECRET_BYTES:
                return secret
        _replace(folder, _SECRET, os.urandom(_SECRET_BYTES))
    return _content(folder, _SECRET)


def _digest(secret: bytes, name: str, body: bytes) -> bytes:
    return hashlib.blake2b(name.encode() + b"\0" + body, key=secret, digest_size=_DIGEST_BYTES).digest()
