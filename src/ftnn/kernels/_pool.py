"""Threads for kernels: as many as torch may use, kept between calls."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import torch


@lru_cache(maxsize=4)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    # A forked process has none of its parent's threads, hence the process in the key.
    return ThreadPoolExecutor(threads, thread_name_prefix="ftnn")


def run(tasks: Sequence[Callable[[], None]], *, parallel: bool = True) -> None:
    """Run independent tasks; `torch.set_num_threads` says on how many threads."""
    threads = min(torch.get_num_threads(), len(tasks))
    if threads <= 1 or not parallel:
        for task in tasks:
            task()
        return
    # This thread takes its share too: one fewer to wake.
    shares = [tasks[n::threads] for n in range(threads)]
    waiting = [_pool(os.getpid(), threads - 1).submit(_each, share) for share in shares[1:]]
    try:
        _each(shares[0])
    finally:
        for one in waiting:
            one.result()


def _each(tasks: Sequence[Callable[[], None]]) -> None:
    for task in tasks:
        task()
