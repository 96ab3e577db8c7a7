"""A memo of emitted values, so that each is emitted once per scope."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from llvmlite import ir

T = TypeVar("T")


class Memo:
    """Results by their operands, in scopes that nest the way basic blocks dominate each other."""

    def __init__(self) -> None:
        # Innermost scope last. Keys identify operands by id; entries hold on to them so that ids stay unique.
        self._tables: list[dict[Hashable, tuple[Any, tuple[ir.Value, ...]]]] = [{}]

    @contextmanager
    def scope(self) -> Generator[None]:
        """Forget at the end what was added inside."""
        self._tables.append({})
        try:
            yield
        finally:
            self._tables.pop()

    def once(self, name: Hashable, operands: tuple[ir.Value, ...], emit: Callable[[], T]) -> T:
        """The result for this name and these operands in an open scope, else that of `emit()`."""
        key = (name, *map(id, operands))
        for table in reversed(self._tables):
            if key in table:
                return cast("T", table[key][0])
        result = emit()
        self._tables[-1][key] = (result, operands)
        return result

    def constant(self, name: Hashable, make: Callable[[], T]) -> T:
        """The same for a value without operands, which is visible everywhere."""
        outermost = self._tables[0]
        if name not in outermost:
            outermost[name] = (make(), ())
        return cast("T", outermost[name][0])
