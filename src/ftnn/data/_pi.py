"""Digits of π, for the paper's memory experiment."""

import operator
from typing import SupportsIndex

import numpy as np
from numpy.typing import NDArray

from ftnn.errors import DataError

_GUARD = 20  # extra digits, at first


def pi_digits(n: SupportsIndex) -> NDArray[np.int64]:
    """The first `n` decimal digits of π including the leading 3, (n,): 3, 1, 4, 1, 5, ..."""
    try:
        count = 0 if isinstance(n, bool) else operator.index(n)
    except TypeError:
        count = 0
    if count < 1:
        raise DataError(f"the number of digits must be a positive integer, not {n!r}")
    return np.frombuffer(_digits(count, _GUARD).encode("ascii"), np.uint8).astype(np.int64) - ord("0")


def _digits(count: int, guard: int) -> str:
    """The first `count` digits: π rounded to `guard` more digits, without these."""
    import mpmath  # here, to keep `import ftnn` fast

    while True:
        # A separate context leaves the global mpmath precision unchanged, also in other threads.
        context = mpmath.MPContext()
        context.dps = count + guard + 10
        # Not str(int): Python refuses to convert integers of more than 4300 digits.
        text = str(context.nstr(+context.pi, count + guard, strip_zeros=False)).replace(".", "")
        # If rounding carried beyond the guard digits, they are all zeros.
        if text[count:].strip("0"):
            return text[:count]
        guard *= 2
