"""Learning-rate schedules: the share of the learning rate that each step of a stage uses."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ftnn.errors import FtnnError
from ftnn.training._checks import quoted

Array = np.ndarray[Any, np.dtype[Any]]
Schedule = str | Callable[[float], float]
"""A name, or a function that maps the progress of a stage, 0 to 1, to a share of the learning rate."""

HALVING = "halving"
"""The paper's Newbob+/Train: the rate is halved after an epoch that hardly improves the loss."""
RISE, FROM, TO = 0.3, 1 / 25, 1e-4 / 25
"""One-cycle: how long the rate rises, and the shares of its peak at which it starts and ends."""
MOST_TRIED = 10_000
"""The most steps at which a user's function is tried before training."""
WARM_UP = 0.05
"""The share of a stage in which the rate rises."""


def _cosine(done: Array) -> Array:
    return 0.5 * (1 + np.cos(math.pi * np.clip(done, 0, 1)))


def _one_cycle(done: Array) -> Array:
    rising = 1 + (FROM - 1) * _cosine(done / RISE)
    falling = TO + (1 - TO) * _cosine((done - RISE) / (1 - RISE))
    return np.where(done < RISE, rising, falling)


def _warm_up(done: Array) -> Array:
    return np.minimum(1.0, done / WARM_UP)


_NAMED: dict[str, Callable[[Array], Array]] = {
    "constant": np.ones_like,
    HALVING: np.ones_like,
    "cosine": _cosine,
    "one-cycle": _one_cycle,
    "warm-up": _warm_up,
    "warm-up cosine": lambda done: _warm_up(done) * _cosine((done - WARM_UP) / (1 - WARM_UP)),
}
NAMES = tuple(_NAMED)


def check_schedule(name: str, value: Any) -> Any:
    if not callable(value) and not (isinstance(value, str) and value in _NAMED):
        raise FtnnError(
            f"{name}={quoted(value)} is unknown; expected one of {', '.join(NAMES)}, or a function of "
            "the progress of training, from 0 to 1"
        )
    return value


def factors(schedule: Schedule, first: int, count: int, total: int) -> Array:
    """The shares of the learning rate for `count` steps of `total`, from step `first` on, (count,).

    The first of all steps uses the schedule's value at 0, the last its value at 1. So do steps beyond it: an
    iterable may have more mini-batches than its length says.
    """
    done = np.minimum(np.arange(first, first + count) / max(total - 1, 1), 1.0)
    if isinstance(schedule, str):
        return _NAMED[schedule](done)
    return np.array([_share(schedule, float(progress)) for progress in done])


def _share(schedule: Callable[[float], float], progress: float) -> float:
    """What a user's function returns, checked."""
    try:
        share = float(schedule(progress))
    except Exception as error:
        raise FtnnError(f"schedule={quoted(schedule)} failed at {progress:g}: {error}") from error
    if not 0 <= share < math.inf:
        raise FtnnError(
            f"schedule={quoted(schedule)} returned {share:g} at {progress:g}; expected a finite number of 0 "
            "or more"
        )
    return share


def try_out(schedule: Schedule, total: int) -> None:
    """Call a user's function at the steps of a stage, or at many of them, so that it cannot fail late."""
    if callable(schedule):
        for progress in np.linspace(0, 1, min(total, MOST_TRIED)):
            _share(schedule, float(progress))


def describe(schedule: Schedule) -> str:
    """Identifies a schedule, as JSON."""
    if isinstance(schedule, str):
        return schedule
    kind = schedule if hasattr(schedule, "__qualname__") else type(schedule)
    shares = factors(schedule, 0, 11, 11)
    return f"{kind.__module__}.{kind.__qualname__} {' '.join(f'{share:.6g}' for share in shares)}"
