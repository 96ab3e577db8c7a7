"""The inputs that layers expect, for which they choose initial ranges."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import Any

import numpy as np

from ftnn.formula._numpy import Array

POINTS = 32
"""Inputs at which each function is evaluated."""


@dataclass(frozen=True)
class Inputs:
    """The inputs that a layer expects."""

    values: tuple[float, ...]
    """Their quantiles."""
    extremes: tuple[float, ...] = ()
    """The least and the largest, where functions must be finite too."""

    @classmethod
    @cache
    def normal(cls) -> Inputs:
        """Unit normal, which layers expect unless told otherwise."""
        quantiles = [NormalDist().inv_cdf((n + 0.5) / POINTS) for n in range(POINTS)]
        return cls(tuple(value / float(np.std(quantiles)) for value in quantiles))

    @classmethod
    def of(cls, samples: Any) -> Inputs:
        """The distribution of the finite numbers in an array; a unit normal if they are all the same."""
        numbers = np.asarray(samples, np.float64).ravel()
        numbers = numbers[np.isfinite(numbers)]
        if numbers.size == 0 or numbers.min() == numbers.max():
            return cls.normal()
        quantiles = np.quantile(numbers, (np.arange(POINTS) + 0.5) / POINTS)
        if quantiles.min() == quantiles.max():  # almost all are the same
            quantiles = np.linspace(numbers.min(), numbers.max(), POINTS)
        extremes = (float(numbers.min()), float(numbers.max()))
        # Rounded, so that equal data give equal ranges on every machine.
        return cls(tuple(float(f"{value:.6g}") for value in quantiles), extremes)

    @property
    def array(self) -> Array:
        return np.array(self.values)

    @property
    def scale(self) -> float:
        """The root of the mean square, as a power of 2."""
        largest = float(np.abs(self.array).max())
        return 2.0 ** round(math.log2(largest * math.sqrt(float(np.mean((self.array / largest) ** 2)))))


@cache
def assumed() -> dict[str, Inputs]:
    """What layers expect until they are calibrated, in this order: a root may not be finite for
    inputs of both signs."""
    normal = Inputs.normal()
    positive = Inputs.of(np.abs(normal.array))
    return {"standardised": normal, "positive": positive, "negative": Inputs.of(-positive.array)}
