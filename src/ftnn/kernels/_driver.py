"""Networks set up for the compiled epoch: buffers, kernels and their blocks of arguments, made once.

A network is a list of layers of functions; its linear output layer is one more, with the function w*x.
Matrices are held with rows filled up to whole vectors, so kernels never see an odd width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ftnn.errors import FtnnError
from ftnn.formula._expr import INPUT, call, symbol
from ftnn.kernels import _epoch, _templates
from ftnn.kernels._llvm import Code, compiled, lanes
from ftnn.kernels._program import Program, program
from ftnn.kernels._templates import BackwardArgs, ForwardArgs, MemoryArgs
from ftnn.kernels._vector import DType

Activation = Literal["logistic", "relu", "tanh"]
Loss = Literal["softmax", "squared"]
Array = np.ndarray[Any, np.dtype[Any]]

LINEAR = program("w*x")
"""The output layer's function."""
MAX_BATCH = 1024
CHUNK_SECONDS = 0.3
"""How long compiled code runs before Python looks up."""
SPARSE = 0.5
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
        x = np.ascontiguousarray(x, dtype=dtype)
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
        parts = [[n, n * stride, stride * w, w, stride * w, n * stride] for n, w in zip(inputs, self._widths, strict=True)]
        sizes = np.array(parts, np.int64)
        self._at = np.vstack([np.zeros((1, 6), np.int64), np.cumsum(sizes, 0)])
        totals = self._at[-1]
        self._count, self._index = _room(totals[0], np.int32), _room(totals[1], np.int32)
        self._value, self._out = _room(totals[1], dtype), _room(totals[2], dtype)
        self._bias, self._g_sum = _room(totals[3], dtype), _room(totals[3], dtype)
        self._g, self._down = _room(totals[4], dtype), _room(totals[5], dtype)
        self._lost, self._settings = np.zeros(1, np.int64), _room(2, dtype)
        self._skip = np.ones(len(shapes), np.int64)
        self._sums = _room(int(max(sizes[:, 4])), dtype)
        for n, layer in enumerate(self.layers):
            layer.bias = self._bias[self._at[n, 3] : self._at[n + 1, 3]]
        act = _activation_code(activation, dtype)
        self._act_args = np.array([0, 0, 0, width], np.int64)
        self._codes: list[Code] = [act]
        self._act_kernel = act.address
        self._kernels, self._args = np.zeros((len(shapes), 2), np.int64), np.zeros((len(shapes), 2, 32), np.int64)
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
        head = (shape.inputs, layer.width // width, 0, self._stride, *lists, layer.table.ctypes.data, layer.width)
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
        losses = np.zeros(-(-len(order) // self.batch_size), np.float64)
        right, done = _epoch.train(
            np.ascontiguousarray(order, np.int64),
            self.batch_size,
            *samples.arguments(),
            np.empty(0, np.int64) if labels is None else np.ascontiguousarray(labels, np.int64),
            np.empty((0, 0), self.dtype) if targets is None else np.ascontiguousarray(targets, self.dtype),
            np.empty(0, self.dtype) if weights is None else np.ascontiguousarray(weights, self.dtype),
            _LOSSES[self.loss],
            float(rate),
            float("inf") if clip is None else float(clip),
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
        finite = done == len(losses)
        return Steps(losses[: done + (not finite)], int(right), finite)

    def train_in_chunks(self, samples: Samples, order: Array, **settings: Any) -> Iterator[Steps]:
        """`train` in pieces of a fraction of a second, with the same result: in between, Python can look up."""
        import time

        steps, batch = 8, self.batch_size
        first = 0
        while first < len(order):
            start = time.perf_counter()
            done = self.train(samples, order[first : first + steps * batch], **settings)
            first += steps * batch
            yield done
            if not done.finite:
                return
            seconds = max(time.perf_counter() - start, 1e-6)
            steps = max(1, min(4 * steps, int(steps * CHUNK_SECONDS / seconds)))

    def predict(self, samples: Samples, upto: int | None = None) -> Array:
        """The outputs of layer `upto - 1` (default: the last), (samples, out); of hidden ones after the activation."""
        upto = len(self.layers) if upto is None else upto
        result = np.empty((samples.count, self.layers[upto - 1].shape.outputs), self.dtype)
        # One layer more than wanted, so that an activation follows the last one: the kernels stop in time.
        _epoch.predict(
            np.arange(samples.count, dtype=np.int64),
            self.batch_size,
            *samples.arguments(),
            upto,
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

    def __init__(self, memory: Shape, outputs: int, activation: Activation, loss: Loss, dtype: DType = "float32"):
        self.dtype: DType = dtype
        self.activation: Activation = activation
        self.loss: Loss = loss
        width = lanes(dtype)
        self.hidden = Layer(memory, dtype)
        self.output = Layer(Shape(LINEAR, memory.outputs, outputs), dtype)
        hidden_width, out_width = self.hidden.width, self.output.width
        self.hidden.bias, self.output.bias = _room(hidden_width, dtype), _room(out_width, dtype)
        self._cells = _room((2, memory.inputs, hidden_width), dtype)
        self._x = _room(memory.inputs, dtype)
        self._u, self._hidden_g = _room(hidden_width, dtype), _room(hidden_width, dtype)
        self._stride = stride = width
        n = memory.outputs
        self._count, self._index = np.ones(n, np.int32), _room(n * stride, np.int32)
        self._value, self._down = _room(n * stride, dtype), _room(n * stride, dtype)
        self._out, self._g = _room(stride * out_width, dtype), _room(stride * out_width, dtype)
        self._g_sum, self._sums = _room(out_width, dtype), _room(stride * out_width, dtype)
        self._lost, self._settings = np.zeros(1, np.int64), _room(2, dtype)
        self._codes = [
            compiled(_templates.memory_forward(memory.program, dtype, width)),
            compiled(_templates.memory_update(memory.program, dtype, width)),
            compiled(_templates.forward(LINEAR, dtype, width, stride)),
            compiled(
                _templates.backward(LINEAR, dtype, width, by_x=True, by_parameters=True, update=True, tile=stride)
            ),
            _activation_code(activation, dtype),
        ]
        self._kernels = np.array([code.address for code in self._codes[:4]], np.int64)
        self._act_args = np.array([hidden_width // width, self._u.ctypes.data, self._u.ctypes.data, width], np.int64)
        self._args = np.zeros((4, 32), np.int64)
        head = (memory.inputs, hidden_width // width, self._x.ctypes.data, self.hidden.table.ctypes.data, hidden_width)
        for k, sums in enumerate((self._u, self._hidden_g)):
            self._args[k, : len(MemoryArgs)] = (*head, 0, 0, sums.ctypes.data, self._settings.ctypes.data)
        lists = (self._count.ctypes.data, self._index.ctypes.data, self._value.ctypes.data)
        linear = (n, out_width // width, 1, stride, *lists, self.output.table.ctypes.data, out_width)
        self._args[2, : len(ForwardArgs)] = (
            *linear,
            self._sums.ctypes.data,
            self._out.ctypes.data,
            out_width,
            self._lost.ctypes.data,
        )
        self._args[3, : len(BackwardArgs)] = (
            *linear,
            self._g.ctypes.data,
            self._g_sum.ctypes.data,
            *(0, 0, 0),
            self._down.ctypes.data,
            stride,
            1,
            self._settings.ctypes.data,
        )

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
        sequence = np.ascontiguousarray(sequence, self.dtype)
        losses = np.zeros(len(sequence), np.float64)
        address = self._cells.ctypes.data
        cells = np.array([address, address + self._cells[0].nbytes], np.int64)
        right, done = _epoch.train_memory(
            sequence,
            np.empty(0, np.int64) if labels is None else np.ascontiguousarray(labels, np.int64),
            _LOSSES[self.loss],
            float(rate),
            float("inf") if clip is None else float(clip),
            self.hidden.shape.outputs,
            self.hidden.width,
            self.output.shape.outputs,
            self.output.width,
            self._stride,
            lanes(self.dtype),
            self._kernels,
            self._args,
            self._lost,
            self._settings,
            _ACTIVATIONS[self.activation],
            self._codes[4].address,
            self._act_args,
            cells,
            self._x,
            self._u,
            self.hidden.bias,
            self._hidden_g,
            self._count,
            self._index,
            self._value,
            self._out,
            self.output.bias,
            self._g,
            self._g_sum,
            self._down,
            np.empty((0, 0), self.dtype) if targets is None else np.ascontiguousarray(targets, self.dtype),
            np.empty(0, self.dtype),
            losses,
        )
        if len(sequence) % 2:  # what was written last is what the next pass starts from
            self._cells[:] = self._cells[::-1].copy()
        finite = done == len(losses)
        return Steps(losses[: done + (not finite)], int(right), finite)
