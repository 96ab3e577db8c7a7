"""What a benchmark yields: one row per measurement, as plain data."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any


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


FIRST = ("workload", "function", "system", "ms", "times_mlp")
"""What every row has in JSON, None or not; the rest only where it says something."""


def as_data(row: Row) -> dict[str, Any]:
    return {name: value for name, value in asdict(row).items() if name in FIRST or value not in (None, "")}


def as_json(rows: Iterable[Row]) -> str:
    """One JSON document: the list of rows."""
    return json.dumps([as_data(row) for row in rows], indent=1, allow_nan=False)
