"""The results: one row per measurement, as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ftnn.bench._measure import Timing

SETTINGS = ("inputs", "width", "batch", "density", "dtype", "passes")
"""What may differ between tasks of one function."""


@dataclass(frozen=True, slots=True)
class Row:
    """One system on one task. Times are per mini-batch, per forward and backward pass, or per epoch (C)."""

    workload: str
    function: str
    system: str
    ms: float | None
    """The median; None if time is not measured."""
    times_mlp: float | None
    """`ms` relative to the plain torch network or layer; None if there is none."""
    low_ms: float | None = None
    """The lower quartile of the repetitions."""
    high_ms: float | None = None
    """The upper quartile."""
    repetitions: int | None = None
    mib: float | None = None
    """Extra peak memory, in MiB (workload D)."""
    batch: int | None = None
    width: int | None = None
    """The number of outputs of the layer."""
    inputs: int | None = None
    """Its number of inputs, if that varies."""
    dtype: str = ""
    passes: str = ""
    """"forward", or "both" with the backward pass, if that varies."""
    density: float | None = None
    """The fraction of non-zero inputs."""
    note: str = ""

    @property
    def task(self) -> tuple[object, ...]:
        """The key of a task: systems are compared within a task."""
        return self.workload, self.function, *(getattr(self, name) for name in SETTINGS)

    def to_dict(self) -> dict[str, Any]:
        """For JSON: the five main fields, and the others if they have a value."""
        main = ("workload", "function", "system", "ms", "times_mlp")
        return {
            name: value for name, value in asdict(self).items() if name in main or value not in (None, "")
        }


def timed(
    workload: str,
    function: str,
    timings: Mapping[str, Timing],
    yardstick: str | None,
    *,
    notes: Mapping[str, str] | None = None,
    **settings: Any,
) -> Iterator[Row]:
    """A row per system, with these `SETTINGS`. Ratios are of medians: they can be verified from the rows."""
    unit = timings[yardstick].median if yardstick is not None else None
    for system, timing in timings.items():
        low, high = timing.quartiles
        yield Row(
            workload,
            function,
            system,
            ms=_rounded(timing.median),
            times_mlp=None if unit is None else _rounded(timing.median / unit),
            low_ms=_rounded(low),
            high_ms=_rounded(high),
            repetitions=len(timing.ms),
            **settings,
            note=(notes or {}).get(system, ""),
        )


def _rounded(value: float) -> float:
    """To four digits, which is finer than the spread."""
    return float(f"{value:.4g}")
