"""What compiled epochs work on: data, layers and targets in arrays that kernels can read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ftnn.errors import FtnnError, ShapeError
from ftnn.formula._expr import INPUT, call, symbol
from ftnn.kernels.codegen.target import DType
from ftnn.kernels.cpu.compiler import Code, host, kernel
from ftnn.kernels.loops.copies import elementwise
from ftnn.kernels.program import Program
from ftnn.nn import Activation
from ftnn.training._problem import Loss
from ftnn.training.compiled import epoch

Array = np.ndarray[Any, np.dtype[Any]]

SPARSE = 0.7
"""Data with a smaller share of non-zeros are held compressed."""
ACTIVATIONS: dict[Activation, int] = {"logistic": epoch.LOGISTIC, "relu": epoch.RELU, "tanh": epoch.TANH}
LOSSES: dict[Loss, int] = {"softmax": epoch.SOFTMAX, "squared": epoch.SQUARED}


@dataclass(frozen=True)
class Samples:
    """Inputs, (samples, in): dense, or compressed by rows where most are zero."""

    count: int
    features: int
    dense: Array
    starts: Array
    columns: Array
    values: Array

    @classmethod
    def of(cls, x: Array, dtype: DType) -> Samples:
        x = plain(x, dtype)
        count, features = x.shape
        none = np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, dtype)
        listed = x.view(np.uint32 if dtype == "float32" else np.uint64)  # by its bits: -0 is not 0
        if x.size == 0 or np.count_nonzero(listed) >= SPARSE * x.size:
            return cls(count, features, x, *none)
        rows, columns = np.nonzero(listed)
        starts = np.zeros(count + 1, np.int64)
        np.cumsum(np.bincount(rows, minlength=count), out=starts[1:])
        values = x[rows, columns]
        return cls(count, features, np.empty((0, features), dtype), starts, columns.astype(np.int32), values)

    def arguments(self) -> tuple[Array, Array, Array, Array]:
        return self.dense, self.starts, self.columns, self.values


@dataclass(frozen=True)
class Shape:
    """One layer: its function and size."""

    program: Program
    inputs: int
    outputs: int


@dataclass(frozen=True)
class Steps:
    """What some mini-batches did."""

    losses: Array
    """The mean loss of each mini-batch that was done; the last may be the one that was not finite."""
    right: int
    """How many samples were classified rightly, before their own update."""
    finite: bool


def plain(array: Array, dtype: Any) -> Array:
    """An array of the kind that compiled code was compiled for: writable too, though it writes to none."""
    return np.require(array, dtype, ["C", "A", "W"])


def aligned_zeros(shape: int | tuple[int, ...], dtype: Any) -> Array:
    """Zeros that start at a cache line, where whole vectors load best."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)


class Layer:
    """One layer's matrices and bias, filled up to whole vectors."""

    def __init__(self, shape: Shape, dtype: DType):
        self.shape = shape
        self.width = host(dtype).filled(shape.outputs)
        self.matrices = [aligned_zeros((shape.inputs, self.width), dtype) for _ in shape.program.matrices]
        self.table = np.array([m.ctypes.data for m in self.matrices], np.int64)
        self.bias = np.zeros(0, dtype)  # a view into the network's, set there

    def load(self, matrices: Sequence[Array], bias: Array | None) -> None:
        """Take over parameters and constants, each (in, out), and a bias, (out,)."""
        shape = (self.shape.inputs, self.shape.outputs)
        for name, own, matrix in zip(self.shape.program.matrices, self.matrices, matrices, strict=True):
            if matrix.shape != shape:
                raise ShapeError(f"{name} has shape {matrix.shape}; expected {shape}")
            own[:, : self.shape.outputs] = matrix
            # What fills up is a copy of a real column: it behaves as that does, and its error is always 0.
            own[:, self.shape.outputs :] = matrix[:, -1:]
        self.bias[: self.shape.outputs] = 0 if bias is None else bias

    def read(self) -> tuple[list[Array], Array]:
        """The matrices, (in, out) each, and the bias: views."""
        n = self.shape.outputs
        return [m[:, :n] for m in self.matrices], self.bias[:n]


def activation_code(activation: Activation, dtype: DType) -> Code:
    name = "rect" if activation == "relu" else activation
    return kernel(elementwise, call(name, symbol(INPUT)), host(dtype))


def checked_targets(
    loss: Loss,
    dtype: DType,
    samples: int,
    outputs: int,
    labels: Array | None,
    targets: Array | None,
    weights: Array | None,
) -> tuple[Array, Array, Array]:
    """Labels, targets and weights as compiled code takes them, which does not check: empty where unused."""
    checked: list[Array] = [np.empty(0, np.int64), np.empty((0, 0), dtype), np.empty(0, dtype)]
    if loss == "softmax":
        if labels is None or len(labels) != samples:
            raise ShapeError(f"the softmax needs a label for each of the {samples} samples")
        checked[0] = plain(labels, np.int64)
        check_range("labels", checked[0], outputs)
    else:
        if targets is None or np.shape(targets) != (samples, outputs):
            raise ShapeError(f"squared errors need targets of the shape {(samples, outputs)}")
        checked[1] = plain(targets, dtype)
    if weights is not None:
        if np.shape(weights) != (samples,):
            raise ShapeError(f"there must be a weight for each of the {samples} samples")
        checked[2] = plain(weights, dtype)
    return checked[0], checked[1], checked[2]


def check_range(name: str, numbers: Array, stop: int) -> None:
    if numbers.size and not (numbers.min() >= 0 and numbers.max() < stop):
        raise FtnnError(f"{name} has numbers {numbers.min()} to {numbers.max()}; allowed are 0 to {stop - 1}")


def limit(clip: float | None) -> float:
    return float("inf") if clip is None else float(clip)


def steps_of(losses: Array, right: int, done: int) -> Steps:
    finite = done == len(losses)
    return Steps(losses[: done + (not finite)], int(right), finite)
