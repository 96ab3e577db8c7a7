"""From timings to rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ftnn.bench._measure import Timing
from ftnn.bench._rows import Row


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
    one = timings[yardstick].median if yardstick is not None else None
    for system, timing in timings.items():
        low, high = timing.quartiles
        yield Row(
            workload,
            function,
            system,
            ms=_rounded(timing.median),
            times_mlp=None if one is None else _rounded(timing.median / one),
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
