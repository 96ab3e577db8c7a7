"""Parses comma-separated lists."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from ftnn.errors import FtnnError

N = TypeVar("N", int, float)


def names(option: str, text: str) -> list[str]:
    """The parts of an option's value. An empty list is an error: it never means everything."""
    parts = split(text)
    if not parts:
        raise FtnnError(f"{option} {text!r} is empty; leave the option out for its default")
    return parts


def split(text: str) -> list[str]:
    """Split at commas, except inside brackets."""
    return [part.strip() for part in re.split(r",(?![^\[\(]*[\]\)])", text) if part.strip()]


def numbers(
    option: str, text: str, kind: Callable[[str], N], low: float | None = None, also: str = ""
) -> list[N]:
    """The numbers in an option's value. `also`: other valid values, for the error message."""
    name = "whole number" if kind is int else "number"
    least = "" if low is None else f" of {low:g} or more"
    values: list[N] = []
    for part in names(option, text):
        try:
            value = kind(part)
            if not abs(value) < 1e6 or (low is not None and value < low):
                raise ValueError
        except ValueError:
            raise FtnnError(
                f"{option} {text}: {part!r} is not a {name}{least}; "
                f"expected {also}{name}s separated by commas"
            ) from None
        values.append(value)
    return values


def seed_numbers(text: str) -> list[int]:
    return numbers("--seeds", text, int, low=0)
