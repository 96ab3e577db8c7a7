"""NumPy's masked arrays: most of NumPy, and all of torch, would silently read what the mask hides."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from ftnn.errors import DataError

T = TypeVar("T")


def unmasked(given: T, name: str) -> T:
    """What was given, unless it is a masked array that masks something, or a list with such arrays in it."""
    for part in (given, *given) if isinstance(given, list | tuple) else (given,):
        hidden = int(np.ma.getmaskarray(part).view(bool).sum()) if isinstance(part, np.ma.MaskedArray) else 0
        if hidden:
            raise DataError(
                f"{name} has masked entries ({hidden} of them), which stand for no number: "
                "fill them in, with .filled(…), or drop their rows"
            )
    return given
