"""`Mixed`: matrices whose entries are different functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

from ftnn.errors import FormulaError, FtnnError, ShapeError
from ftnn.formula._catalogue import as_function
from ftnn.formula._expr import Expr, call, names, number, symbol
from ftnn.formula._function import Function
from ftnn.formula._text import to_text

Assignment = Literal["random", "rows", "columns"]
_ASSIGNMENTS: tuple[Assignment, ...] = ("random", "rows", "columns")

MAX_KINDS = 100
"""The limit on functions in one matrix."""


class Mixed:
    """Several functions in one matrix; each entry is one of these kinds.

    **Arguments:**

    - `functions`: the kinds, each a catalogue name, a formula or a `Function`.
    - `assign`: the kind of each entry. `"random"`: drawn when the layer is created, all kinds equally likely.
        `"rows"`: output i has kind i mod K. `"columns"`: input j has kind j mod K. Or an integer array
        (out, in) of kinds.

    A layer computes them as a single function, `where(kind == 0, F_0, where(kind == 1, F_1, …))`, in which
    `kind` is a constant of each connection. Kinds that use the same parameter name share its matrix, in which
    each entry belongs to one kind.
    """

    def __init__(self, functions: Iterable[str | Function], assign: Assignment | Any = "random"):
        self.functions = tuple(map(as_function, functions))
        if not self.functions:
            raise FtnnError("Mixed needs at least one function")
        if len(self.functions) > MAX_KINDS:
            raise FtnnError(
                f"Mixed has {len(self.functions)} functions; the limit is {MAX_KINDS}, "
                "since every connection evaluates all of them"
            )
        self.assign: Assignment | np.ndarray[Any, Any] = self._checked(assign)
        used = {name for function in self.functions for name in names(function.written)}
        self.kind_name = "kind"
        while self.kind_name in used:
            self.kind_name += "_"
        self.function = _compound(self.functions, self.kind_name)

    def _checked(self, assign: Any) -> Assignment | np.ndarray[Any, Any]:
        if isinstance(assign, str):
            if assign in _ASSIGNMENTS:
                return assign
            raise FtnnError(
                f"unknown assign={assign!r}; expected one of {', '.join(_ASSIGNMENTS)}, "
                "or an integer array (out, in)"
            )
        table = np.asarray(assign)
        if table.ndim != 2 or table.dtype.kind not in "iu":
            raise ShapeError(
                f"assign must be an integer array (out, in), not {table.dtype} with shape {table.shape}"
            )
        if table.size and not (table.min() >= 0 and table.max() < len(self.functions)):
            raise FtnnError(
                f"assign has kinds {table.min()} to {table.max()}; expected 0 to {len(self.functions) - 1}"
            )
        return table.astype(np.int64)

    def kinds(self, in_features: int, out_features: int) -> np.ndarray[Any, Any] | None:
        """The kind of every entry, (out, in); None if kinds are drawn at random."""
        shape = (out_features, in_features)
        if isinstance(self.assign, np.ndarray):
            if self.assign.shape != shape:
                raise ShapeError(
                    f"assign has shape {self.assign.shape}, but the matrix is (out, in) = {shape}"
                )
            return self.assign
        count = len(self.functions)
        if self.assign == "rows":
            return np.broadcast_to(np.arange(out_features)[:, None] % count, shape)
        if self.assign == "columns":
            return np.broadcast_to(np.arange(in_features) % count, shape)
        return None

    def __repr__(self) -> str:
        assign = repr(self.assign) if isinstance(self.assign, str) else f"<{self.assign.shape} array>"
        return f"Mixed([{', '.join(map(repr, self.functions))}], assign={assign})"


def _compound(functions: Sequence[Function], kind_name: str) -> Function:
    parameters = {name for function in functions for name in function.parameters}
    constants = {name for function in functions for name in function.constants}
    if both := parameters & constants:
        name = min(both)
        raise FormulaError(
            f"{name!r} is a parameter of one kind and a constant of another; rename one of them",
            text=", ".join(function.formula for function in functions),
        )
    *rest, last = functions
    expr: Expr = last.written
    for kind, function in reversed(list(enumerate(rest))):
        expr = call("where", call("eq", symbol(kind_name), number(kind)), function.written, expr)
    # The values of a constant depend on the entry's kind, so the layer draws them.
    choices: dict[str, tuple[float, ...]] = dict.fromkeys(sorted(constants), (0.0,))
    if rest:
        choices[kind_name] = tuple(map(float, range(len(functions))))
    try:
        return Function.composed(to_text(expr), {}, choices)
    except FormulaError as error:  # Python's parser has limits too
        raise FtnnError(
            f"these {len(functions)} functions together are too long to mix: {error.message}"
        ) from error
