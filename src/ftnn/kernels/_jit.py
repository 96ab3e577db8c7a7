"""Numba for the epoch driver: compiled once per machine, which a line says, and kept in ftnn's cache."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numba
from numba.core import caching, event

from ftnn.kernels._llvm import cache_folder

_Numbas: Any = caching  # whose methods are typed by what their base classes raise instead of returning


class _Locator(_Numbas._SourceFileBackedLocatorMixin, _Numbas._CacheLocator):
    """`driver` in ftnn's cache: the package may be read-only, and the user's Numba cache is not ours."""

    def __init__(self, function: Any, file: str):
        self._py_file = file
        self._lineno = function.__code__.co_firstlineno
        self._folder = cache_folder() / "driver" / self.get_suitable_cache_subpath(file)

    def get_cache_path(self) -> str:
        return str(self._folder)


class _Entries(caching.CompileResultCacheImpl):
    _locator_classes = [_Locator]  # noqa: RUF012


class _Cache(caching.FunctionCache):
    """Numba's cache, whose key holds its version, the source and the CPU. Damage costs time only."""

    _impl_class = _Entries

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # whatever reading a damaged pickle may raise
            with suppress(Exception):
                self.flush()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        with suppress(OSError):
            super().save_overload(sig, data)


class _Announcement(event.Listener):
    """Says once that compilation takes a while."""

    said = False

    def on_start(self, event: Any) -> None:
        ours = event.data["dispatcher"].py_func.__module__ == "ftnn.kernels._epoch"
        if ours and not self.said:
            self.said = True
            print(
                "ftnn: compiling the training loop for this machine, once (about 10 s)",
                file=sys.stderr,
                flush=True,
            )

    def on_end(self, event: Any) -> None:
        pass


ANNOUNCEMENT = _Announcement()
event.register("numba:compile", ANNOUNCEMENT)


def jit(**options: Any) -> Callable[[Any], Any]:
    """`numba.njit` without the interpreter's lock, with our cache."""

    def decorate(function: Any) -> Any:
        dispatcher: Any = numba.njit(nogil=True, error_model="numpy", **options)(function)
        with suppress(OSError, RuntimeError):  # no folder to write to
            dispatcher._cache = _Cache(function)
        return dispatcher

    return decorate
