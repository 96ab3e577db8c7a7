"""What a benchmark yields: one row per measurement, as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ftnn.bench._measure import Timing


@dataclass(frozen=True, slots=True)
class Row:
    """One system at one task. Times are of a mini-batch, a layer's two passes, or (workload C) an epoch."""

    workload: str
    function: str
    system: str
    ms: float | None
    """The median; None where time is not what is measured."""
    times_mlp: float | None
    """`ms` over that of the plain torch network or layer beside it; None where there is none."""
    low_ms: float | None = None
    """The lower quartile of the repetitions."""
    high_ms: float | None = None
    """The upper quartile."""
    repetitions: int | None = None
    mib: float | None = None
    """Extra peak memory, in MiB (workload D)."""
    batch: int | None = None
    width: int | None = None
    """The outputs of the layer that is compared."""
    density: float | None = None
    """The share of the inputs that are not zero."""
    note: str = ""

    @property
    def task(self) -> tuple[str, str, int | None, int | None, float | None]:
        """What the systems are compared at: rows with the same task stand side by side."""
        return self.workload, self.function, self.batch, self.width, self.density

    def to_dict(self) -> dict[str, Any]:
        """For JSON: what every row has, None or not, and the rest only where it says something."""
        every = ("workload", "function", "system", "ms", "times_mlp")
        return {
            name: value for name, value in asdict(self).items() if name in every or value not in (None, "")
        }


def timed(
    workload: str,
    function: str,
    timings: Mapping[str, Timing],
    yardstick: str | None,
    *,
    batch: int | None = None,
    width: int | None = None,
    density: float | None = None,
    notes: Mapping[str, str] | None = None,
) -> Iterator[Row]:
    """A row for each system; the ratio is one of medians, so that it can be checked from the rows."""
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
            batch=batch,
            width=width,
            density=density,
            note=(notes or {}).get(system, ""),
        )


def _rounded(value: float) -> float:
    """To four digits: more than the spread allows."""
    return float(f"{value:.4g}")
