"""Mini-batches from a DataLoader, or from any other iterable of (x, y)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ftnn.errors import DataError
from ftnn.training._checks import quoted
from ftnn.training._problem import Problem, as_array, make_problem

AT_ONCE = 64
"""Mini-batches that are taken from the iterable before the engine trains on them."""


def first_batch(batches: Any) -> tuple[Any, Any]:
    """The first mini-batch, to learn sizes from."""
    if not isinstance(batches, Iterable):
        raise DataError(f"without y, x must be an iterable of mini-batches (x, y), not {quoted(batches)}")
    for batch in batches:
        return _pair(batch)
    raise DataError("the iterable has no mini-batches")


def _pair(batch: Any) -> tuple[Any, Any]:
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        raise DataError(f"expected mini-batches that are pairs (x, y), got {quoted(batch)}")
    return batch[0], batch[1]


def count_of(batches: Any) -> int | None:
    """How many mini-batches there are, if that is known."""
    try:
        return len(batches)
    except (TypeError, NotImplementedError):
        return None


def pieces(problem: Problem, size: int, epoch: int) -> Iterator[Problem]:
    """Some mini-batches at a time, joined: full ones of `size` samples, and perhaps a short last one."""
    waiting: list[Problem] = []
    is_empty = True
    for batch in problem.batches or ():
        is_empty = False
        x, y = _pair(batch)
        piece = make_problem(
            rows(x), y, inputs=problem.x.shape[1], outputs=problem.outputs, dtype=problem.x.dtype.name,
            loss=problem.loss,
        )  # fmt: skip
        if len(piece.x) > size:
            raise DataError(
                f"a mini-batch has {len(piece.x)} samples; the first had {size}, which is the most"
            )
        waiting.append(piece)
        if len(piece.x) < size or len(waiting) == AT_ONCE:
            yield _joined(waiting)
            waiting = []
    if is_empty:
        raise DataError(
            f"the iterable has no mini-batches in epoch {epoch}; an iterator can be used only once: give a "
            "DataLoader or a list"
        )
    if waiting:
        yield _joined(waiting)


def rows(x: Any) -> Any:
    """(samples, in), from whatever shape a sample has, such as that of an image."""
    array = as_array(x, "x")
    return array.reshape(len(array), -1) if array.ndim > 2 else array


def _joined(parts: list[Problem]) -> Problem:
    return replace(parts[0], x=np.concatenate([p.x for p in parts]), y=np.concatenate([p.y for p in parts]))
