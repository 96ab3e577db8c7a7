"""What has been emitted already, and where it may be used again."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from llvmlite import ir

T = TypeVar("T")


class Memo:
    """Results by what they were computed from, in scopes that nest as basic blocks dominate each other."""

    def __init__(self) -> None:
        # Innermost scope last. Keys name operands by id; an entry holds them, to keep those ids taken.
        self._tables: list[dict[Hashable, tuple[Any, tuple[ir.Value, ...]]]] = [{}]

    @contextmanager
    def scope(self) -> Generator[None]:
        """What is remembered inside is forgotten at the end."""
        self._tables.append({})
        try:
            yield
        finally:
            self._tables.pop()

    def once(self, name: Hashable, operands: tuple[ir.Value, ...], emit: Callable[[], T]) -> T:
        """What `emit` gave for this name and these operands in a scope still open, else `emit()`."""
        key = (name, *map(id, operands))
        for table in reversed(self._tables):
            if key in table:
                return cast("T", table[key][0])
        result = emit()
        self._tables[-1][key] = (result, operands)
        return result

    def constant(self, name: Hashable, make: Callable[[], T]) -> T:
        """The same for what needs no operands, and so can be used everywhere."""
        outermost = self._tables[0]
        if name not in outermost:
            outermost[name] = (make(), ())
        return cast("T", outermost[name][0])
