"""Durations for people."""

from __future__ import annotations


def clock(seconds: float) -> str:
    """A duration such as 1:05 or 2:03:04."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def left(elapsed: float, done: float) -> float | None:
    """The time that the rest takes, if a share `done` of the work took `elapsed`; None if nothing is done."""
    return elapsed * (1 - done) / done if done > 0 else None


def times(elapsed: float, remaining: float | None) -> str:
    """Both for people: `0:10 elapsed, 0:30 left`."""
    return f"{clock(elapsed)} elapsed" + ("" if remaining is None else f", {clock(remaining)} left")
