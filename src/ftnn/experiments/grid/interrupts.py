"""Ctrl-C at a moment that suits the program."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def uninterrupted() -> Generator[None]:
    """Hold Ctrl-C back until the block has ended. Processes started in the block never receive it."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Ctrl-C only interrupts the main thread
        return
    pressed: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    try:
        # New processes inherit the mask. It does not protect this one: another thread may take the signal.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    finally:
        signal.signal(signal.SIGINT, handler)
    if pressed and callable(handler):
        handler(signal.SIGINT, None)
