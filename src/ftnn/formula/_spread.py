"""Draws that fill space more evenly than random ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ftnn.formula._numpy import Array


def evenly_spread(names: Sequence[str], count: int) -> dict[str, Array]:
    """Numbers in (0, 1) for each name, (count, 1), that fill space more evenly than random ones.

    Kronecker sequences, with the powers of the root of g^(n+1) = g + 1, a generalised golden ratio.
    """
    ratio = 2.0
    for _ in range(60):
        ratio = (1 + ratio) ** (1 / (len(names) + 1))
    steps = np.arange(1, count + 1)[:, None]
    return {name: np.mod(0.5 + steps * ratio ** -(n + 1.0), 1.0) for n, name in enumerate(names)}
