"""Digits of π, which the paper's memory functions learn by heart."""

import operator
from typing import SupportsIndex

import numpy as np
from numpy.typing import NDArray

from ftnn.errors import DataError

_GUARD = 20  # digits beyond the wanted ones, at first


def pi_digits(n: SupportsIndex) -> NDArray[np.int64]:
    """The first `n` decimal digits of π from the leading 3, (n,): 3, 1, 4, 1, 5, ..."""
    try:
        count = 0 if isinstance(n, bool) else operator.index(n)
    except TypeError:
        count = 0
    if count < 1:
        raise DataError(f"pi_digits({n!r}): the number of digits must be an integer of at least 1")
    return np.frombuffer(_digits(count, _GUARD).encode("ascii"), np.uint8).astype(np.int64) - ord("0")


def _digits(count: int, guard: int) -> str:
    """The first `count` digits, found by rounding π to `guard` more and cutting these off."""
    import mpmath  # here, because `import ftnn` is to be quick

    while True:
        # A context of our own: the caller's mpmath precision stays as it is, in other threads too.
        context = mpmath.MPContext()
        context.dps = count + guard + 10
        # Not str(int): Python refuses to write integers of more than 4300 digits.
        text = str(context.nstr(+context.pi, count + guard, strip_zeros=False)).replace(".", "")
        # Rounding reaches past the guard digits only when it has carried through all of them and left zeros.
        if text[count:].strip("0"):
            return text[:count]
        guard *= 2
