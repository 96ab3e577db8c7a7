"""The arrays that compiled steps work on: data, layers and targets, laid out for kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ftnn.errors import FtnnError, ShapeError
from ftnn.kernels.codegen.target import DType
from ftnn.kernels.cpu.compiler import host
from ftnn.kernels.program import Program, program_of
from ftnn.nn._activations import ActivationFormula

Array = np.ndarray[Any, np.dtype[Any]]

SPARSE = 0.7
"""Data with a smaller share of non-zeros are stored compressed."""
LINEAR = program_of("w*x")
"""A plain weight, as a function."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Inputs, (samples, in): dense, or compressed by rows if most are zero."""

    count: int
    features: int
    values: Array
    """(samples, in); if compressed, the nonzero values, row by row."""
    starts: Array | None = None
    """Where each compressed row begins."""
    columns: Array | None = None
    """The input of each compressed value."""

    @classmethod
    def dense(cls, x: Array, dtype: DType) -> Samples:
        return cls(x.shape[0], x.shape[1], np.require(x, dtype, ["C", "A"]))

    @classmethod
    def of(cls, x: Array, dtype: DType) -> Samples:
        x = np.require(x, dtype, ["C", "A"])
        bits = x.view(np.uint32 if dtype == "float32" else np.uint64)  # compared by bits, so that -0 is not 0
        if x.size == 0 or np.count_nonzero(bits) >= SPARSE * x.size:
            return cls.dense(x, dtype)
        count, features = x.shape
        rows, columns = np.nonzero(bits)
        starts = np.zeros(count + 1, np.int64)
        np.cumsum(np.bincount(rows, minlength=count), out=starts[1:])
        return cls(count, features, x[rows, columns], starts, columns.astype(np.int32))


@dataclass(frozen=True, eq=False)
class Targets:
    """The expected outputs, and the weight of each sample."""

    expected: Array
    """Labels, (samples,) int64; or targets, (samples, out padded to whole vectors)."""
    weights: Array | None
    """(samples,)."""

    @classmethod
    def labels(
        cls, labels: Array | None, classes: int, samples: int, dtype: DType, weights: Array | None
    ) -> Targets:
        if labels is None or np.shape(labels) != (samples,):
            raise ShapeError(f"the softmax needs a label for each of the {samples} samples")
        labels = np.require(labels, np.int64, ["C", "A"])
        check_range("labels", labels, classes)
        return cls(labels, _weights(weights, samples, dtype))

    @classmethod
    def numbers(
        cls, targets: Array | None, outputs: int, samples: int, dtype: DType, weights: Array | None
    ) -> Targets:
        if targets is None or np.shape(targets) != (samples, outputs):
            raise ShapeError(f"the loss needs targets of shape {(samples, outputs)}")
        padded = np.zeros((samples, host(dtype).filled(outputs)), dtype)
        padded[:, :outputs] = targets
        return cls(padded, _weights(weights, samples, dtype))


def _weights(weights: Array | None, samples: int, dtype: DType) -> Array | None:
    if weights is not None and np.shape(weights) != (samples,):
        raise ShapeError(f"expected a weight for each of the {samples} samples")
    return None if weights is None else np.require(weights, dtype, ["C", "A"])


def check_range(name: str, numbers: Array, stop: int) -> None:
    if numbers.size and not (numbers.min() >= 0 and numbers.max() < stop):
        raise FtnnError(f"{name} are {numbers.min()} to {numbers.max()}; expected 0 to {stop - 1}")


@dataclass(frozen=True)
class Normalisation:
    """How a layer's sums are normalised over the mini-batch; see `torch.nn.BatchNorm1d`."""

    momentum: float = 0.1
    eps: float = 1e-5


@dataclass(frozen=True)
class Shape:
    """One layer: its function, size, activation and bias."""

    program: Program
    inputs: int
    outputs: int
    activation: ActivationFormula | None = None
    """None: the sums are the outputs."""
    has_bias: bool = True
    normalisation: Normalisation | None = None
    """With one, outputs are φ(scale·n + bias) of the normalised sums n."""


@dataclass(frozen=True)
class Steps:
    """The outcome of some mini-batches."""

    losses: Array
    """The mean loss of each mini-batch done; the last one may be the one that is not finite."""
    right: int
    """How many samples were classified correctly, each before its own update."""
    finite: bool


def aligned_zeros(shape: int | tuple[int, ...], dtype: Any) -> Array:
    """Zeros aligned to a cache line, which makes vector loads fastest."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)


def address(array: Array, *place: int) -> int:
    """The memory address of an array, or of one of its elements."""
    return array.ctypes.data + sum(n * step for n, step in zip(place, array.strides, strict=False))


class Layer:
    """One layer's parameters with the states of their update rule, padded to whole vectors."""

    def __init__(self, shape: Shape, dtype: DType, states: Sequence[str] = (), *, gradients: bool = False):
        self.shape, self.target = shape, host(dtype)
        self.width = self.target.filled(shape.outputs)
        self.matrices = [self._matrix() for _ in shape.program.matrices]
        self.bias = aligned_zeros(self.width, dtype)
        trained = range(len(shape.program.parameters))
        self.states = [[self._matrix() for _ in states] for _ in trained]
        """Indexed by parameter, then by state."""
        self.bias_states = [aligned_zeros(self.width, dtype) for _ in states]
        self.gradients = [self._matrix() for _ in trained] if gradients else []
        """Empty if parameters are updated without them."""
        self.bias_gradient = aligned_zeros(self.width, dtype) if gradients else None
        self._names = tuple(states)
        # Only if sums are normalised:
        self.scale, self.mean, self.variance = (aligned_zeros(self.width, dtype) for _ in range(3))
        self.scale_states = [aligned_zeros(self.width, dtype) for _ in states]
        self.scale_gradient = aligned_zeros(self.width, dtype) if gradients else None
        self.fixed_scale, self.fixed_bias = (aligned_zeros(self.width, dtype) for _ in range(2))
        """Scale and bias of the sums themselves, if running statistics normalise them."""

    def _matrix(self) -> Array:
        return aligned_zeros((self.shape.inputs, self.width), self.target.dtype)

    def vectors(self) -> Iterator[tuple[Array, Array, list[Array]]]:
        """The trained bias and scale, each with its gradient and states; nothing without gradient arrays."""
        normalises = self.shape.normalisation is not None
        if (self.shape.has_bias or normalises) and self.bias_gradient is not None:
            yield self.bias, self.bias_gradient, self.bias_states
        if normalises and self.scale_gradient is not None:
            yield self.scale, self.scale_gradient, self.scale_states

    def fix(self) -> None:
        """Compute the scale and bias for predictions from the running statistics."""
        normalisation = self.shape.normalisation
        if normalisation is not None:
            self.fixed_scale[:] = self.scale / np.sqrt(self.variance + normalisation.eps)
            self.fixed_bias[:] = self.bias - self.mean * self.fixed_scale

    def load(self, matrices: Sequence[Array], bias: Array | None, *statistics: Array) -> None:
        """Copy in parameters and constants, each (in, out), and a bias, (out,).

        `statistics`: scale, mean and variance, if sums are normalised.
        """
        shape = (self.shape.inputs, self.shape.outputs)
        for name, own, matrix in zip(self.shape.program.matrices, self.matrices, matrices, strict=True):
            if matrix.shape != shape:
                raise ShapeError(f"{name} has shape {matrix.shape}; expected {shape}")
            own[:, : self.shape.outputs] = matrix
            # The padding copies a real column, so it behaves like one; its error is always 0.
            own[:, self.shape.outputs :] = matrix[:, -1:]
        self.bias[: self.shape.outputs] = 0 if bias is None else bias
        self.variance[:] = 1
        for own, array in zip((self.scale, self.mean, self.variance), statistics, strict=False):
            own[: self.shape.outputs] = array

    def read(self) -> tuple[list[Array], Array]:
        """Views of the matrices, (in, out) each, and of the bias."""
        n = self.shape.outputs
        return [m[:, :n] for m in self.matrices], self.bias[:n]

    def arrays(self) -> Iterator[tuple[str, Array]]:
        """Everything that a step changes, by name."""
        for name, matrix, states in zip(
            self.shape.program.parameters, self.matrices, self.states, strict=False
        ):
            yield name, matrix
            for state, array in zip(self._names, states, strict=True):
                yield f"{name} {state}", array
        yield " bias", self.bias
        for state, array in zip(self._names, self.bias_states, strict=True):
            yield f" bias {state}", array
        if self.shape.normalisation is not None:
            yield from ((" scale", self.scale), (" mean", self.mean), (" variance", self.variance))
            for state, array in zip(self._names, self.scale_states, strict=True):
                yield f" scale {state}", array


class ListsBySample:
    """The nonzero inputs of each sample, for spans of inputs (see `by_sample.py`)."""

    def __init__(self, inputs: int, stride: int, span: int, dtype: DType):
        self.span, spans = span, -(-inputs // span)
        self.sizes = aligned_zeros((spans, stride), np.int32)
        self.columns = aligned_zeros((spans, stride, span), np.int32)
        self.values = aligned_zeros((spans, stride, span), dtype)


class Workspace:
    """One layer's arrays for the forward and backward passes of a tile of samples."""

    def __init__(self, layer: Layer, stride: int, span: int | None = None):
        shape, target = layer.shape, layer.target
        dtype, inputs, width = target.dtype, shape.inputs, layer.width
        self.counts, self.indices = aligned_zeros(inputs, np.int32), aligned_zeros((inputs, stride), np.int32)
        self.values = aligned_zeros((inputs, stride), dtype)
        self.lists = None if span is None else ListsBySample(inputs, stride, span, dtype)
        """Only if sums are added up sample by sample."""
        self.rows, self.slopes = (aligned_zeros((stride, width), dtype) for _ in range(2))
        self.g = aligned_zeros((target.vectors(width), stride, target.lanes), dtype)
        self.sums = aligned_zeros(self.g.shape, dtype)
        self.down = aligned_zeros((target.filled(inputs), stride), dtype)
        """The error at the inputs."""
        self.normal = self.rows if shape.normalisation is None else aligned_zeros(self.rows.shape, dtype)
        """The normalised sums."""
        self.inverse = aligned_zeros(width, dtype)
