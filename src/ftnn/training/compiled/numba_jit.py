"""Numba for the epoch driver: compiled once per machine, which a line says, and kept in ftnn's cache."""

from __future__ import annotations

import hashlib
import pickle
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numba
from numba.core import caching, event
from numba.core.serialize import dumps

from ftnn.kernels.cpu import cache

_Numbas: Any = caching  # whose methods are typed by what their base classes raise instead of returning


class _Locator(_Numbas._SourceFileBackedLocatorMixin, _Numbas._CacheLocator):
    """Numba asks for a folder, and for what tells one version of the source from another."""

    def __init__(self, function: Any, file: str):
        self._py_file = file
        self._lineno = function.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        return str(cache.cache_folder())

    def ensure_cache_path(self) -> None:
        pass


class _Impl(caching.CompileResultCacheImpl):
    _locator_classes = [_Locator]  # noqa: RUF012


class _Entries:
    """Numba's pickles in ftnn's cache, which vouches for them: reading a pickle is running it."""

    def __init__(self, stamp: object):
        self._stamp = stamp

    def _name(self, key: object) -> str:
        parts = repr((numba.__version__, sys.version, self._stamp, key))
        return f"{hashlib.sha256(parts.encode()).hexdigest()}.driver"

    def load(self, key: object) -> Any:
        pickled = cache.read(self._name(key))
        return None if pickled is None else pickle.loads(pickled)

    def save(self, key: object, data: object) -> None:
        cache.write(self._name(key), dumps(data))


class _Cache(caching.FunctionCache):
    """Numba's cache, whose key holds its version, the source and the CPU. Damage costs time only."""

    _impl_class = _Impl

    def __init__(self, function: Any):
        super().__init__(function)
        self._cache_file = _Entries(self._impl.locator.get_source_stamp())

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # whatever reading a pickle of something else may raise
            return None


class _Announcement(event.Listener):
    """Says once that compilation takes a while."""

    said = False

    def on_start(self, event: Any) -> None:
        ours = event.data["dispatcher"].py_func.__module__ == "ftnn.training.compiled.epoch"
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
