"""Mini-batches from a DataLoader or any other iterable of (x, y) or (x, y, weights)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ftnn.errors import DataError, ShapeError
from ftnn.training._checks import quoted
from ftnn.training._problem import Problem, as_array, make_problem

AT_ONCE = 64
"""How many mini-batches are fetched before the engine trains on them."""


def first_batch(batches: Any) -> tuple[Any, Any, Any]:
    """The first mini-batch, which shows the sizes."""
    if not isinstance(batches, Iterable):
        raise DataError(f"without y, x must be an iterable of mini-batches (x, y); got {quoted(batches)}")
    if isinstance(batches, Iterator) and count_of(batches) is None:  # the first mini-batch would be lost
        raise DataError(
            f"x={quoted(batches)} is an iterator, which can be used only once; pass a DataLoader or a list "
            "of mini-batches"
        )
    for batch in batches:
        return _parts(batch)
    raise DataError("the iterable has no mini-batches")


def _parts(batch: Any) -> tuple[Any, Any, Any]:
    """x, y, and the weights of the samples or None."""
    if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
        raise DataError(f"expected mini-batches (x, y) or (x, y, weights), got {quoted(batch)}")
    return batch[0], batch[1], batch[2] if len(batch) == 3 else None


def count_of(batches: Any) -> int | None:
    """The number of mini-batches, if known."""
    try:
        return len(batches)
    except (TypeError, NotImplementedError):
        return None


def pieces(problem: Problem, size: int, epoch: int) -> Iterator[Problem]:
    """Groups of mini-batches, joined: full ones of `size` samples, and possibly a short last one."""
    waiting: list[Problem] = []
    is_empty = True
    for number, batch in enumerate(problem.batches):
        is_empty = False
        try:
            piece = _piece(problem, batch, size)
        except (DataError, ShapeError) as error:
            raise type(error)(f"mini-batch {number}, counted from 0: {error}") from error
        waiting.append(piece)
        if len(piece.x) < size or len(waiting) == AT_ONCE:
            yield _joined(waiting)
            waiting = []
    if is_empty:
        raise DataError(
            f"the iterable has no mini-batches in epoch {epoch}; an iterator can be used only once: pass a "
            "DataLoader or a list"
        )
    if waiting:
        yield _joined(waiting)


def _piece(problem: Problem, batch: Any, size: int) -> Problem:
    """A checked mini-batch of at most `size` samples."""
    x, y, weights = _parts(batch)
    if (weights is None) != (problem.weights is None):
        raise DataError(f"{'no ' * (weights is None)}weights, unlike the first one")
    piece = make_problem(
        rows(x), y, inputs=problem.x.shape[1], outputs=problem.outputs, dtype=problem.x.dtype.name,
        loss=problem.loss, weights=weights,
    )  # fmt: skip
    if len(piece.x) > size:
        raise DataError(f"{len(piece.x)} samples; expected at most {size}, the size of the first one")
    return piece


def rows(x: Any) -> Any:
    """(samples, in), from samples of any shape, such as images."""
    array = as_array(x, "x")
    return array.reshape(len(array), -1) if array.ndim > 2 else array


def _joined(parts: list[Problem]) -> Problem:
    x, y = (np.concatenate([getattr(part, name) for part in parts]) for name in ("x", "y"))
    weights = [part.weights for part in parts if part.weights is not None]
    return replace(parts[0], x=x, y=y, weights=np.concatenate(weights) if weights else None)
