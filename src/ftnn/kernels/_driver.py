"""Networks set up for the compiled epoch: buffers, kernels and their blocks of arguments, made once.

A network is a list of layers of functions; its linear output layer is one more, with the function w*x.
Matrices are held with rows filled up to whole vectors, so kernels never see an odd width.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ftnn.errors import FtnnError, ShapeError
from ftnn.formula._expr import INPUT, call, symbol
from ftnn.kernels import _epoch, _templates
from ftnn.kernels._llvm import Code, compiled, lanes
from ftnn.kernels._program import Program, program
from ftnn.kernels._templates import LEAST_INPUTS, BackwardArgs, ForwardArgs, MemoryArgs
from ftnn.kernels._vector import DType

Activation = Literal["logistic", "relu", "tanh"]
Loss = Literal["softmax", "squared"]
Array = np.ndarray[Any, np.dtype[Any]]

LINEAR = program("w*x")
"""The output layer's function."""
MAX_BATCH = 1024
CHUNK_SECONDS = 0.3
"""How long compiled code runs before Python looks up."""
SPARSE = 0.7
"""Data with a smaller share of non-zeros are held compressed."""

_ACTIVATIONS: dict[Activation, int] = {"logistic": _epoch.LOGISTIC, "relu": _epoch.RELU, "tanh": _epoch.TANH}
_LOSSES: dict[Loss, int] = {"softmax": _epoch.SOFTMAX, "squared": _epoch.SQUARED}


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
        x = _plain(x, dtype)
        count, features = x.shape
        none = np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, dtype)
        if x.size == 0 or np.count_nonzero(x) >= SPARSE * x.size:
            return cls(count, features, x, *none)
        rows, columns = np.nonzero(x)
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


def _plain(array: Array, dtype: Any) -> Array:
    """An array of the kind that compiled code was compiled for: writable too, though it writes to none."""
    return np.require(array, dtype, ["C", "A", "W"])


def _room(shape: int | tuple[int, ...], dtype: Any) -> Array:
    """Zeros that start at a cache line, where whole vectors load best."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)


class Layer:
    """One layer's matrices and bias, filled up to whole vectors."""

    def __init__(self, shape: Shape, dtype: DType):
        self.shape = shape
        width = lanes(dtype)
        self.width = -(-shape.outputs // width) * width
        self.matrices = [_room((shape.inputs, self.width), dtype) for _ in shape.program.matrices]
        self.table = np.array([m.ctypes.data for m in self.matrices], np.int64)
        self.bias = np.zeros(0, dtype)  # a view into the network's, set there

    def load(self, matrices: Sequence[Array], bias: Array | None) -> None:
        """Take over parameters and constants, each (in, out), and a bias, (out,)."""
        for own, given in zip(self.matrices, matrices, strict=True):
            own[:, : self.shape.outputs] = given
            # What fills up is a copy of a real column: it behaves as that does, and its error is always 0.
            own[:, self.shape.outputs :] = given[:, -1:]
        self.bias[: self.shape.outputs] = 0 if bias is None else bias

    def read(self) -> tuple[list[Array], Array]:
        """The matrices, (in, out) each, and the bias: views."""
        n = self.shape.outputs
        return [m[:, :n] for m in self.matrices], self.bias[:n]


def _activation_code(activation: Activation, dtype: DType) -> Code:
    name = "rect" if activation == "relu" else activation
    return compiled(_templates.elementwise(call(name, symbol(INPUT)), dtype, lanes(dtype)))


class Network:
    """Layers of functions under a loss, ready for compiled epochs."""

    def __init__(
        self,
        shapes: Sequence[Shape],
        activation: Activation,
        loss: Loss,
        dtype: DType = "float32",
        batch_size: int = 16,
    ):
        if not 1 <= batch_size <= MAX_BATCH:
            raise FtnnError(f"batch_size={batch_size} is not allowed here; allowed are 1 to {MAX_BATCH}")
        width = lanes(dtype)
        self.dtype: DType = dtype
        self.batch_size = batch_size
        self.layers = [Layer(shape, dtype) for shape in shapes]
        self.activation: Activation = activation
        self.loss: Loss = loss
        self._stride = stride = -(-batch_size // width) * width
        self._sizes = np.array([shapes[0].inputs, *(shape.outputs for shape in shapes)], np.int64)
        self._widths = np.array([layer.width for layer in self.layers], np.int64)
        # Where each layer's part begins: count, index and value, out, bias and g_sum, g, down.
        inputs = [shape.inputs for shape in shapes]
        parts = [
            [n, n * stride, stride * w, w, stride * w, n * stride]
            for n, w in zip(inputs, self._widths, strict=True)
        ]
        sizes = np.array(parts, np.int64)
        self._at = np.vstack([np.zeros((1, 6), np.int64), np.cumsum(sizes, 0)])
        totals = self._at[-1]
        self._count, self._index = _room(totals[0], np.int32), _room(totals[1], np.int32)
        self._value, self._out = _room(totals[1], dtype), _room(totals[2], dtype)
        self._bias, self._g_sum = _room(totals[3], dtype), _room(totals[3], dtype)
        self._g, self._down = _room(totals[4], dtype), _room(totals[5], dtype)
        self._lost, self._settings = np.zeros(1, np.int64), _room(2, dtype)
        self._skip = np.zeros(len(shapes), np.int64)
        self.forget_poles()
        self._sums = _room(int(max(sizes[:, 4])), dtype)
        for n, layer in enumerate(self.layers):
            layer.bias = self._bias[self._at[n, 3] : self._at[n + 1, 3]]
        act = _activation_code(activation, dtype)
        self._act_args = np.array([0, 0, 0, width], np.int64)
        self._codes: list[Code] = [act]
        self._act_kernel = act.address
        self._kernels, self._args = (
            np.zeros((len(shapes), 2), np.int64),
            np.zeros((len(shapes), 2, 32), np.int64),
        )
        for n in range(len(shapes)):
            self._set_up(n)

    def _set_up(self, n: int) -> None:
        """Compile a layer's kernels and write down what they are called with."""
        layer, dtype, width = self.layers[n], self.dtype, lanes(self.dtype)
        shape, at = layer.shape, self._at[n]
        forward = compiled(_templates.forward(shape.program, dtype, width, self._stride))
        update = compiled(
            _templates.backward(
                shape.program, dtype, width, by_x=n > 0, by_parameters=True, update=True, tile=self._stride
            )
        )
        self._codes += (forward, update)
        self._kernels[n] = forward.address, update.address
        size = np.dtype(dtype).itemsize
        lists = (
            self._count.ctypes.data + 4 * at[0],
            self._index.ctypes.data + 4 * at[1],
            self._value.ctypes.data + size * at[1],
        )
        head = (
            shape.inputs,
            layer.width // width,
            0,
            self._stride,
            *lists,
            layer.table.ctypes.data,
            layer.width,
        )
        out = self._out.ctypes.data + size * at[2]
        self._args[n, 0, : len(ForwardArgs)] = (
            *head,
            self._sums.ctypes.data,
            out,
            layer.width,
            self._lost.ctypes.data,
        )
        # Under a ReLU no error is wanted where its output is zero: its slope is zero there.
        dx_at_zero = int(self.activation != "relu")
        self._args[n, 1, : len(BackwardArgs)] = (
            *head,
            self._g.ctypes.data + size * at[4],
            self._g_sum.ctypes.data + size * at[3],
            *(0, 0, 0),
            self._down.ctypes.data + size * at[5],
            self._stride,
            dx_at_zero,
            self._settings.ctypes.data,
        )

    def _common(self) -> tuple[Any, ...]:
        return (
            self._at,
            self._kernels,
            self._args,
            self._lost,
            self._skip,
        )

    def train(
        self,
        samples: Samples,
        order: Array,
        *,
        rate: float,
        clip: float | None = None,
        labels: Array | None = None,
        targets: Array | None = None,
        weights: Array | None = None,
    ) -> Steps:
        """Mini-batch SGD over `samples[order]`, in this order.

        **Arguments:**

        - `order`: the samples' numbers, int64; a short last mini-batch is kept.
        - `rate`: the learning rate, for gradients that are means over the mini-batch.
        - `clip`: the largest allowed size of each parameter's gradient summed over the mini-batch.
        - `labels`: for the softmax, (samples,) int64. `targets`: for squared errors, (samples, out).
        - `weights`: of the samples, (samples,).
        """
        self._check_features(samples)
        order = _plain(order, np.int64)
        _check_range("order", order, samples.count)
        losses = np.zeros(-(-len(order) // self.batch_size), np.float64)
        right, done = _epoch.train(
            order,
            self.batch_size,
            *samples.arguments(),
            *_wanted(self, samples.count, self.layers[-1].shape.outputs, labels, targets, weights),
            _LOSSES[self.loss],
            float(rate),
            _limit(clip),
            len(self.layers),
            self._sizes,
            self._widths,
            self._stride,
            lanes(self.dtype),
            *self._common(),
            self._settings,
            _ACTIVATIONS[self.activation],
            self._act_kernel,
            self._act_args,
            self._count,
            self._index,
            self._value,
            self._out,
            self._bias,
            self._g,
            self._g_sum,
            self._down,
            losses,
        )
        return _steps(losses, right, done)

    def _check_features(self, samples: Samples) -> None:
        if samples.features != self.layers[0].shape.inputs:
            raise ShapeError(
                f"the first layer has {self.layers[0].shape.inputs} inputs, the data {samples.features}"
            )

    def forget_poles(self) -> None:
        """Skip zeros again where it pays, whatever F(0) was before."""
        self._skip[:] = [layer.shape.inputs >= LEAST_INPUTS for layer in self.layers]

    def train_in_chunks(self, samples: Samples, order: Array, **settings: Any) -> Iterator[Steps]:
        """`train` in pieces of a fraction of a second, with one result: Python can look up in between."""
        # From one mini-batch on, as nobody knows yet how long it takes.
        first, steps = 0, 1
        while first < len(order):
            start = time.perf_counter()
            done = self.train(samples, order[first : first + steps * self.batch_size], **settings)
            seconds = max(time.perf_counter() - start, 1e-6)
            yield done
            if not done.finite:
                return
            first += steps * self.batch_size
            steps = max(1, min(4 * steps, int(steps * CHUNK_SECONDS / seconds)))

    def predict(self, samples: Samples, upto: int | None = None) -> Array:
        """The outputs of layer `upto - 1` (default: the last), (samples, out).

        Those of hidden layers are what comes after the activation.
        """
        upto = len(self.layers) if upto is None else upto
        self._check_features(samples)
        self.forget_poles()
        result = np.empty((samples.count, self.layers[upto - 1].shape.outputs), self.dtype)
        _epoch.predict(
            np.arange(samples.count, dtype=np.int64),
            self.batch_size,
            *samples.arguments(),
            upto,
            len(self.layers),
            self._sizes,
            self._widths,
            self._stride,
            *self._common(),
            _ACTIVATIONS[self.activation],
            self._act_kernel,
            self._act_args,
            self._count,
            self._index,
            self._value,
            self._out,
            self._bias,
            result,
        )
        return result


class MemoryNetwork:
    """A memory layer under a linear one, trained pair by pair over a sequence."""

    def __init__(
        self, memory: Shape, outputs: int, activation: Activation, loss: Loss, dtype: DType = "float32"
    ):
        self.dtype: DType = dtype
        self.activation: Activation = activation
        self.loss: Loss = loss
        width = lanes(dtype)
        self.hidden = Layer(memory, dtype)
        full = self.hidden.width
        self.hidden.bias = _room(full, dtype)
        self.weight, self.bias = _room((outputs, full), dtype), _room(outputs, dtype)
        """Of the linear layer: (outputs, hidden), filled up with zeros, and (outputs,)."""
        self._cells = _room((2, memory.inputs, full), dtype)
        self._x, self._out = _room(memory.inputs, dtype), _room(outputs, dtype)
        self._u, self._hidden_g, self._down = (_room(full, dtype) for _ in range(3))
        self._g, self._g_sum = _room(outputs, dtype), _room(outputs, dtype)
        self._settings = _room(2, dtype)
        self._codes = [
            compiled(_templates.memory_forward(memory.program, dtype, width)),
            compiled(_templates.memory_update(memory.program, dtype, width)),
            _activation_code(activation, dtype),
        ]
        self._kernels = np.array([code.address for code in self._codes[:2]], np.int64)
        self._act_args = np.array([full // width, self._u.ctypes.data, self._u.ctypes.data], np.int64)
        self._args = np.zeros((2, 16), np.int64)
        head = (memory.inputs, full // width, self._x.ctypes.data, self.hidden.table.ctypes.data, full)
        for k, sums in enumerate((self._u, self._hidden_g)):
            self._args[k, : len(MemoryArgs)] = (*head, 0, 0, sums.ctypes.data, self._settings.ctypes.data)

    def load(
        self, matrices: Sequence[Array], bias: Array | None, weight: Array, output_bias: Array | None
    ) -> None:
        """Take over the memory layer's matrices, (in, hidden), and the linear weight, (outputs, hidden)."""
        self.hidden.load(matrices, bias)
        self.weight[:, : weight.shape[1]] = weight
        self.bias[:] = 0 if output_bias is None else output_bias

    def read(self) -> tuple[list[Array], Array, Array, Array]:
        """What `load` took, as it is now: views."""
        matrices, bias = self.hidden.read()
        return matrices, bias, self.weight[:, : self.hidden.shape.outputs], self.bias

    def train(
        self,
        sequence: Array,
        *,
        rate: float,
        clip: float | None = None,
        labels: Array | None = None,
        targets: Array | None = None,
        keep_state: bool = False,
    ) -> Steps:
        """One pass over a sequence, (time, in), from an empty memory unless the state is kept."""
        if not keep_state:
            self._cells[:] = 0
        sequence = _plain(sequence, self.dtype)
        if sequence.ndim != 2 or sequence.shape[1] != self.hidden.shape.inputs:
            raise ShapeError(f"the sequence must be (time, {self.hidden.shape.inputs}), not {sequence.shape}")
        losses = np.zeros(len(sequence), np.float64)
        address = self._cells.ctypes.data
        right, done = _epoch.train_memory(
            sequence,
            *_wanted(self, len(sequence), len(self.bias), labels, targets, None),
            _LOSSES[self.loss],
            float(rate),
            _limit(clip),
            self._kernels,
            self._args,
            self._settings,
            _ACTIVATIONS[self.activation],
            self._codes[2].address,
            self._act_args,
            np.array([address, address + self._cells[0].nbytes], np.int64),
            self._x,
            self._u,
            self.hidden.shape.outputs,
            self.hidden.bias,
            self._hidden_g,
            self.weight,
            self._out,
            self.bias,
            self._g,
            self._g_sum,
            self._down,
            losses,
        )
        if len(sequence) % 2:  # what was written last is what the next pass starts from
            self._cells[:] = self._cells[::-1].copy()
        return _steps(losses, right, done)


def _wanted(
    network: Network | MemoryNetwork,
    samples: int,
    outputs: int,
    labels: Array | None,
    targets: Array | None,
    weights: Array | None,
) -> tuple[Array, Array, Array]:
    """Labels, targets and weights as compiled code takes them, which does not check: empty where unused."""
    dtype = network.dtype
    given_labels: Array = np.empty(0, np.int64)
    given_targets: Array = np.empty((0, 0), dtype)
    given_weights: Array = np.empty(0, dtype)
    if network.loss == "softmax":
        if labels is None or len(labels) != samples:
            raise ShapeError(f"the softmax needs a label for each of the {samples} samples")
        given_labels = _plain(labels, np.int64)
        _check_range("labels", given_labels, outputs)
    else:
        if targets is None or np.shape(targets) != (samples, outputs):
            raise ShapeError(f"squared errors need targets of the shape {(samples, outputs)}")
        given_targets = _plain(targets, dtype)
    if weights is not None:
        if np.shape(weights) != (samples,):
            raise ShapeError(f"there must be a weight for each of the {samples} samples")
        given_weights = _plain(weights, dtype)
    return given_labels, given_targets, given_weights


def _check_range(name: str, numbers: Array, stop: int) -> None:
    if numbers.size and not (numbers.min() >= 0 and numbers.max() < stop):
        raise FtnnError(f"{name} has numbers {numbers.min()} to {numbers.max()}; allowed are 0 to {stop - 1}")


def _limit(clip: float | None) -> float:
    return float("inf") if clip is None else float(clip)


def _steps(losses: Array, right: int, done: int) -> Steps:
    finite = done == len(losses)
    return Steps(losses[: done + (not finite)], int(right), finite)
