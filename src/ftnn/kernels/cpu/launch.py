"""Launches: kernel calls that are prepared once for arrays of given sizes, and run for any such arrays.

While a launch is prepared, arrays have no addresses yet: `array(n) + offset` stands for a byte of the n-th.
Running it copies the list of calls, and adds the arrays' addresses wherever such a place stands. That takes a
few NumPy operations; a Python loop over the arguments of all calls would take longer than small kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ftnn.kernels.cpu import threads
from ftnn.kernels.cpu.threads import Call

_ARRAY = 2**48
"""The distance between the places of two arrays. Sizes, offsets and flags are smaller."""
_OWN, _SCRATCH, _FIRST = 1, 2, 3
"""Arrays of every launch: its own numbers, and its scratch memory. Those of its caller follow."""
_ALIGNMENT = 64
Numbers = np.ndarray[Any, np.dtype[np.int64]]


def array(number: int) -> int:
    """The place of an array, by its position among the arguments of the launch."""
    return (_FIRST + number) * _ARRAY


@dataclass(frozen=True, eq=False)
class Launch:
    """Prepared calls."""

    _numbers: Numbers
    """Tables, then the calls of each phase, with places instead of addresses."""
    _moved: Numbers
    """Where these places are."""
    _arrays: Numbers
    """The array of each."""
    _phases: tuple[tuple[int, int], ...]
    """The offset of each phase's calls, in bytes, and its number of threads."""
    _scratch: int
    """The size of the scratch memory in bytes."""

    def __call__(self, *addresses: int) -> Numbers:
        """Run it on the arrays at these addresses. Returns its tables, and what kernels wrote there."""
        numbers = self._numbers.copy()
        own: int = numbers.__array_interface__["data"][0]
        scratch = torch.empty(self._scratch, dtype=torch.uint8)
        places = np.array((own, scratch.data_ptr(), *addresses), np.int64)
        numbers[self._moved] += places[self._arrays]
        for offset, count in self._phases:
            threads.start(own + offset, count)
        return numbers


class Preparation:
    """Collects the calls of a launch, phase after phase."""

    def __init__(self) -> None:
        self._tables: list[int] = []
        self._tasks: list[tuple[Sequence[Sequence[Call]], int]] = []
        self._scratch = 0

    def table(self, numbers: Sequence[int]) -> int:
        """The place of a table of numbers: places of arrays, or room for results."""
        self._tables += numbers
        return _OWN * _ARRAY + 8 * (len(self._tables) - len(numbers))

    def scratch(self, size: int) -> int:
        """The place of `size` bytes of scratch memory."""
        self._scratch += -self._scratch % _ALIGNMENT + size
        return _SCRATCH * _ARRAY + self._scratch - size

    def then(self, tasks: Sequence[Sequence[Call]], *, parallel: bool) -> None:
        """Add a phase of independent tasks, after all tasks of the phases before it."""
        self._tasks.append((tasks, min(torch.get_num_threads(), len(tasks)) if parallel else 1))

    def launch(self) -> Launch:
        numbers, phases = list(self._tables), list[tuple[int, int]]()
        for tasks, count in self._tasks:
            offset = 8 * len(numbers)
            phases.append((offset, count))
            numbers += threads.flattened(tasks, _OWN * _ARRAY + offset)
        # Kernels' own addresses are real ones, and stay.
        moved = [n for n, number in enumerate(numbers) if number >= _ARRAY]
        arrays = [numbers[n] // _ARRAY for n in moved]
        for n in moved:
            numbers[n] %= _ARRAY
        return Launch(
            np.array(numbers, np.int64),
            np.array(moved, np.int64),
            np.array(arrays, np.int64) - _OWN,
            tuple(phases),
            self._scratch,
        )
