"""float64 functions in extended precision: x86's long double has eleven more bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.kernels._harness import F64

Extended = NDArray[np.longdouble]

needed = pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="long double is double here")
"""Marks tests that need it."""
PI_LOW = 1.2246467991473532e-16
"""π minus float64's π."""


def gauss(x: Extended) -> Extended:
    """The square is split into an exact part and a small one."""
    x = np.clip(x, -40, 40)
    high = x.astype(np.float32).astype(np.longdouble)
    low = x - high
    return np.exp(-high * high) * np.exp(-low * (x + high))


def erf(x: Extended) -> Extended:
    """2/√π·e^(-x²)·Σ 2^n·x^(2n+1)/(2n+1)!!, a sum without cancellation."""
    size = np.minimum(np.abs(x), 9)
    term = size.copy()
    total = term.copy()
    for n in range(1, 300):
        term *= 2 * size * size / (2 * n + 1)
        total += term
    return np.copysign(2 / np.sqrt(np.longdouble(np.pi) + np.longdouble(PI_LOW)) * gauss(size) * total, x)


def softplus(x: Extended) -> Extended:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


TRUE: dict[str, Callable[[Extended], Any]] = {
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "cot": lambda x: 1 / np.tan(x),
    "sec": lambda x: 1 / np.cos(x),
    "csc": lambda x: 1 / np.sin(x),
    "exp": np.exp,
    "log": np.log,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "coth": lambda x: 1 / np.tanh(x),
    "sech": lambda x: 1 / np.cosh(x),
    "csch": lambda x: 1 / np.sinh(x),
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "softplus": softplus,
    "gauss": gauss,
    "erf": erf,
}
"""Each function."""


def ulps(got: F64, true: Extended) -> F64:
    """The error in units in the last place of the true value; infinite where inf or NaN differ."""
    with np.errstate(all="ignore"):
        rounded = true.astype(np.float64)
        unit = np.ldexp(np.longdouble(1), np.maximum(np.frexp(true)[1] - 53, -1074))
        distance = (np.abs(got - true) / unit).astype(np.float64)
    special = ~np.isfinite(rounded) | ~np.isfinite(got)
    same = (rounded == got) | (np.isnan(rounded) & np.isnan(got))
    return np.where(special, np.where(same, 0.0, np.inf), distance)


def around(values: Any, count: int) -> F64:
    """All float64 next to each of these values."""
    middle = np.atleast_1d(np.array(values, np.float64)).view(np.int64)[:, None]
    return (middle + np.arange(-count, count + 1)).ravel().view(np.float64)


def sample(density: int = 1) -> F64:
    """float64 of all sizes, including infinities and NaN, and those around critical values."""
    rng = np.random.default_rng(0)
    quarters = np.arange(1, 8400 * density) * (np.pi / 2)
    # Near larger multiples of π/2, in the range of the hot path and beyond.
    turns = np.floor(np.exp(rng.uniform(np.log(8400), np.log(2**50), 40_000 * density)))
    logs = np.arange(1, 4400) * (np.log(2) / 4)  # where reductions by ln 2 switch to the next multiple
    critical = [0.25, 0.5, 0.9, 0.92, 1, 2.0**-1022, 6, 8.9, 16, 18.7, 19.06, 22, 27.3, 28, 36.7, 37.5, 708.4]
    critical += [709.7827, 710, 710.4758, 710.7, 744.44, 745.133, 745.8, 747, 2.0**27 * np.pi, 2.0**52]
    half = np.concatenate(
        [
            np.arange(2000, dtype=np.int64).view(np.float64),
            around(critical, 300),
            around(logs, 3),
            around(quarters, 2),
            around(turns * (np.pi / 2), 1),
            np.linspace(0, 4, 60_001 * density),
            np.linspace(0, 800, 60_001 * density),
            np.exp(rng.uniform(-40, 20, 60_000 * density)),
        ]
    )
    everywhere = rng.integers(-(2**63), 2**63 - 1, 100_000 * density).view(np.float64)
    return np.concatenate([everywhere, half, -half, [np.inf, -np.inf, np.nan]])
