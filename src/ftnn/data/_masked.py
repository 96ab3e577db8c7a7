"""A check for NumPy's masked arrays, whose hidden entries torch and most of NumPy would silently use."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from ftnn.errors import DataError

T = TypeVar("T")


def unmasked(data: T, name: str) -> T:
    """`data`. Raises `DataError` if it is a masked array with masked entries, or a list with one."""
    for array in (data, *data) if isinstance(data, list | tuple) else (data,):
        is_masked = isinstance(array, np.ma.MaskedArray)
        masked = int(np.ma.getmaskarray(array).view(bool).sum()) if is_masked else 0
        if masked:
            raise DataError(
                f"{name} has masked entries ({masked} of them), which have no value: "
                "fill them in with .filled(…), or drop their rows"
            )
    return data
