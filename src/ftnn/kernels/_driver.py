"""Networks set up for the compiled epoch: buffers, kernels and their blocks of arguments, made once.

A network is a list of layers of functions; its linear output layer is one more, with the function w*x.
Matrices are held with rows filled up to whole vectors, so kernels never see an odd width.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ftnn.errors import FtnnError, ShapeError
from ftnn.kernels import _epoch, _templates
from ftnn.kernels._buffers import (
    ACTIVATIONS,
    LOSSES,
    Activation,
    Array,
    Layer,
    Loss,
    Samples,
    Shape,
    Steps,
    activation_code,
    check_range,
    limit,
    plain,
    room,
    steps_of,
    wanted,
)
from ftnn.kernels._llvm import Code, compiled, lanes
from ftnn.kernels._program import program
from ftnn.kernels._templates import BackwardArgs, ForwardArgs, SubsetSumArgs
from ftnn.kernels._vector import DType

LINEAR = program("w*x")
"""The output layer's function."""
MAX_BATCH = 1024
CHUNK_SECONDS = 0.3
"""How long compiled code runs before Python looks up."""


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
        self._count, self._index = room(totals[0], np.int32), room(totals[1], np.int32)
        self._value, self._out = room(totals[1], dtype), room(totals[2], dtype)
        self._bias, self._g_sum = room(totals[3], dtype), room(totals[3], dtype)
        self._g, self._down = room(totals[4], dtype), room(totals[5], dtype)
        self._lost, self._settings = np.zeros(1, np.int64), room(2, dtype)
        self._explicit = np.zeros(len(shapes), np.int64)
        self._subset_sums = room(
            max(
                _templates.subset_sums_size(layer.width // width, stride, width) if self._of_zeros(n) else 0
                for n, layer in enumerate(self.layers)
            ),
            dtype,
        )
        self._sums = room(int(max(sizes[:, 4])), dtype)
        for n, layer in enumerate(self.layers):
            layer.bias = self._bias[self._at[n, 3] : self._at[n + 1, 3]]
        act = activation_code(activation, dtype)
        self._act_args = np.array([0, 0, 0, width], np.int64)
        self._codes: list[Code] = [act]
        self._act_kernel = act.address
        self._kernels, self._args = (
            np.zeros((len(shapes), 3), np.int64),
            np.zeros((len(shapes), 3, 32), np.int64),
        )
        for n in range(len(shapes)):
            self._set_up(n)

    def _of_zeros(self, n: int) -> bool:
        """Whether samples whose x is zero have a gradient in layer n."""
        program = self.layers[n].shape.program
        return _templates.slopes_of(program, by_x=n > 0, by_parameters=True).of_zeros

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
        self._kernels[n, :2] = forward.address, update.address
        if self._of_zeros(n):
            self._codes.append(compiled(_templates.subset_sums(dtype, width)))
            self._kernels[n, 2] = self._codes[-1].address
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
            0,
            self._lost.ctypes.data,
        )
        # Under a ReLU no error is wanted where its output is zero: its slope is zero there.
        dx_at_zero = int(self.activation != "relu")
        g = self._g.ctypes.data + size * at[4]
        self._args[n, 1, : len(BackwardArgs)] = (
            *head,
            g,
            self._subset_sums.ctypes.data,
            *(0, 0, 0),
            self._down.ctypes.data + size * at[5],
            self._stride,
            dx_at_zero,
            self._settings.ctypes.data,
        )
        self._args[n, 2, : len(SubsetSumArgs)] = (
            layer.width // width,
            0,
            self._stride,
            g,
            self._subset_sums.ctypes.data,
        )

    def _common(self) -> tuple[Any, ...]:
        return (
            self._at,
            self._kernels,
            self._args,
            self._lost,
            self._explicit,
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
        order, outputs = plain(order, np.int64), self.layers[-1].shape.outputs
        check_range("order", order, samples.count)
        losses = np.zeros(-(-len(order) // self.batch_size), np.float64)
        right, done = _epoch.train(
            order,
            self.batch_size,
            *samples.arguments(),
            *wanted(self.loss, self.dtype, samples.count, outputs, labels, targets, weights),
            LOSSES[self.loss],
            float(rate),
            limit(clip),
            len(self.layers),
            self._sizes,
            self._widths,
            self._stride,
            lanes(self.dtype),
            *self._common(),
            self._settings,
            ACTIVATIONS[self.activation],
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
        return steps_of(losses, right, done)

    def _check_features(self, samples: Samples) -> None:
        if samples.features != self.layers[0].shape.inputs:
            raise ShapeError(
                f"the first layer has {self.layers[0].shape.inputs} inputs, the data {samples.features}"
            )

    def forget_losses(self) -> None:
        """Try sharing F(0) again, so that an epoch does not depend on the ones before it."""
        self._explicit[:] = 0

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
        self.forget_losses()
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
            ACTIVATIONS[self.activation],
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
