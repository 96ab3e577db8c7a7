"""Digits of π, which the paper's memory functions memorise."""

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
        raise DataError(f"pi_digits({n!r}): the number of digits must be an integer of at least 1")
    return np.frombuffer(_digits(count, _GUARD).encode("ascii"), np.uint8).astype(np.int64) - ord("0")


def _digits(count: int, guard: int) -> str:
    """The first `count` digits, by rounding π to `guard` more digits and cutting these off."""
    import mpmath  # here, to keep `import ftnn` fast

    while True:
        # A separate context: the caller's mpmath precision stays unchanged, also in other threads.
        context = mpmath.MPContext()
        context.dps = count + guard + 10
        # Not str(int): Python refuses to write integers of more than 4300 digits.
        text = str(context.nstr(+context.pi, count + guard, strip_zeros=False)).replace(".", "")
        # Rounding changes more than the guard digits only if it carried through all of them and left zeros.
        if text[count:].strip("0"):
            return text[:count]
        guard *= 2
