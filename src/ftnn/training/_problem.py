"""What is to be learned, checked once."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from ftnn.errors import DataError, ShapeError

if TYPE_CHECKING:
    from ftnn.kernels._buffers import Samples

Array = np.ndarray[Any, np.dtype[Any]]
Loss = Literal["softmax", "squared"]


@dataclass(frozen=True)
class Problem:
    """Samples with what is wanted of them, and perhaps some to test on."""

    x: Array
    """(samples, in), in the network's dtype."""
    y: Array
    """(samples,) int64 labels, or (samples, out) targets."""
    loss: Loss
    outputs: int
    weights: Array | None = None
    test_x: Array | None = None
    test_y: Array | None = None

    def below(self, x: Array, test_x: Array | None) -> Problem:
        """The same problem for a layer that sees `x` in place of the inputs."""
        return replace(self, x=x, test_x=test_x)

    def samples(self, x: Array) -> Samples:
        """`x` as compiled epochs read it. For the problem's own this is made once: it takes long."""
        if x is self.x:
            return self._samples
        return self._test_samples if x is self.test_x else _held(x)

    @cached_property
    def _samples(self) -> Samples:
        return _held(self.x)

    @cached_property
    def _test_samples(self) -> Samples:
        assert self.test_x is not None
        return _held(self.test_x)

    @property
    def labels(self) -> Array | None:
        return self.y if self.loss == "softmax" else None

    @property
    def targets(self) -> Array | None:
        return self.y if self.loss == "squared" else None

    def digest(self) -> str:
        """Of all that was given."""
        digest = hashlib.sha256(f"{self.loss} {self.outputs}".encode())
        for array in (self.x, self.y, self.weights, self.test_x, self.test_y):
            if array is not None:
                digest.update(f"{array.dtype} {array.shape}".encode())
                digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


def _held(x: Array) -> Samples:
    from ftnn.kernels._buffers import Samples  # loads Numba, which only compiled epochs need

    return Samples.of(x, "float64" if x.dtype == np.float64 else "float32")


def make_problem(
    x: Any,
    y: Any,
    *,
    inputs: int,
    outputs: int,
    dtype: str,
    loss: Loss | None,
    weights: Any = None,
    test: tuple[Any, Any] | None = None,
) -> Problem:
    """Check and convert what a user gave. Without a `loss`: softmax for whole numbers, else squared."""
    x = _samples(x, "x", inputs, dtype)
    y = _array(y, "y")
    if loss is None:
        loss = "softmax" if y.dtype.kind in "iub" else "squared"
    y = _wanted(y, "y", len(x), loss, outputs, dtype)
    if len(x) == 0:
        raise DataError("x has no samples; at least one is needed")
    if weights is not None:
        weights = _array(weights, "sample weights").astype(dtype)
        if weights.shape != (len(x),) or not np.isfinite(weights).all() or (weights < 0).any():
            raise DataError(
                f"sample weights must be {len(x)} finite numbers of 0 or more, not of shape {weights.shape}"
            )
    problem = Problem(x, y, loss, outputs, weights)
    if test is None:
        return problem
    test_x = _samples(test[0], "the test x", inputs, dtype)
    return replace(
        problem,
        test_x=test_x,
        test_y=_wanted(_array(test[1], "the test y"), "the test y", len(test_x), loss, outputs, dtype),
    )


def _array(given: Any, name: str) -> Array:
    array = given.detach().cpu().numpy() if isinstance(given, torch.Tensor) else np.asarray(given)
    if array.dtype.kind not in "iubf":
        raise DataError(f"{name} must be numbers, not {array.dtype}")
    return array


def _samples(given: Any, name: str, inputs: int, dtype: str) -> Array:
    array = _array(given, name)
    if array.ndim != 2 or array.shape[1] != inputs:
        raise ShapeError(
            f"{name} must have the shape (samples, {inputs}), one column for each input of the network; "
            f"it has {array.shape}"
        )
    array = np.ascontiguousarray(array, dtype=dtype)
    if not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0]
        raise DataError(
            f"{name} has a {array[row, column]} in row {row}, column {column}; only finite numbers can be "
            "learned from: fill in or drop such rows"
        )
    return array


def _wanted(y: Array, name: str, samples: int, loss: Loss, outputs: int, dtype: str) -> Array:
    if len(y) != samples or y.ndim == 0:
        raise ShapeError(f"{name} has {len(y) if y.ndim else 'no'} rows for {samples} samples")
    if loss == "softmax":
        if y.ndim != 1 or y.dtype.kind not in "iub":
            raise DataError(
                f"{name} must be one whole-numbered label for each sample, not {y.dtype} of shape {y.shape}"
            )
        if samples and (y.min() < 0 or y.max() >= outputs):
            raise DataError(
                f"{name} has labels from {y.min()} to {y.max()}; the network has {outputs} outputs, "
                f"so allowed are 0 to {outputs - 1}"
            )
        return y.astype(np.int64)
    y = (y[:, None] if y.ndim == 1 else y).astype(dtype)
    if y.shape[1] != outputs:
        raise ShapeError(f"{name} has {y.shape[1]} columns, but the network has {outputs} outputs")
    if not np.isfinite(y).all():
        raise DataError(f"{name} has numbers that are not finite")
    return y
