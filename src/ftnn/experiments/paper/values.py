"""What experiments have in common: lists of values, and names of parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from ftnn.errors import FtnnError
from ftnn.formula import Function

T = TypeVar("T")


def distinct(name: str, values: Sequence[T]) -> list[T]:
    """Each value once. A text is refused: its characters are not what was meant."""
    if isinstance(values, str):
        raise FtnnError(f"{name} is {values!r}; expected a list of values")
    return list(dict.fromkeys(values))


def first_layer(function: Function) -> dict[str, str]:
    """For each parameter and constant of a function, the name of its matrix in the first hidden layer."""
    stored = {name: f"hidden.0.theta.{name}" for name in function.parameters}
    return stored | {name: f"hidden.0.constants.{name}" for name in function.constants}
