"""Threads of second-order solvers."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread_each() -> Generator[int]:
    """Keep torch to one thread in each thread of Python; gives the number of threads there were."""
    threads = torch.get_num_threads()
    if threads > 1:
        torch.set_num_threads(1)
    try:
        yield threads
    finally:
        if threads > 1:
            torch.set_num_threads(threads)
