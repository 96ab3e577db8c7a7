"""Helpers shared by the experiments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from ftnn.errors import FtnnError
from ftnn.formula import Function

T = TypeVar("T")


def distinct(name: str, values: Sequence[T]) -> list[T]:
    """The values without duplicates. Refuses a string, which would be split into characters."""
    if isinstance(values, str):
        raise FtnnError(f"{name} is {values!r}; expected a list of values")
    return list(dict.fromkeys(values))


def first_layer(function: Function) -> dict[str, str]:
    """The `state_dict` names of a function's parameters and constants in the first hidden layer."""
    names = {name: f"hidden.0.theta.{name}" for name in function.parameters}
    return names | {name: f"hidden.0.constants.{name}" for name in function.constants}
