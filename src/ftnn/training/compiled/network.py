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
from ftnn.kernels.codegen.target import DType
from ftnn.kernels.cpu.compiler import Code, host, kernel
from ftnn.kernels.loops.copies import MapArgs
from ftnn.kernels.loops.skipping_backward import BackwardArgs, backward, slopes_of
from ftnn.kernels.loops.skipping_forward import ForwardArgs, forward
from ftnn.kernels.loops.zeros import SubsetSumArgs, subset_sums, subset_sums_size
from ftnn.kernels.program import program_of
from ftnn.training.compiled import MAX_BATCH, epoch
from ftnn.training.compiled.buffers import (
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
    aligned_zeros,
    check_range,
    checked_targets,
    limit,
    plain,
    steps_of,
)

LINEAR = program_of("w*x")
"""The output layer's function."""
CHUNK_SECONDS = 0.3
"""How long compiled code runs before Python looks up."""


class CompiledNetwork:
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
        self._target = target = host(dtype)
        self.dtype: DType = dtype
        self.batch_size = batch_size
        self.layers = [Layer(shape, dtype) for shape in shapes]
        self.activation: Activation = activation
        self.loss: Loss = loss
        self._stride = stride = target.filled(batch_size)
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
        self._count, self._index = aligned_zeros(totals[0], np.int32), aligned_zeros(totals[1], np.int32)
        self._value, self._out = aligned_zeros(totals[1], dtype), aligned_zeros(totals[2], dtype)
        self._bias, self._g_sum = aligned_zeros(totals[3], dtype), aligned_zeros(totals[3], dtype)
        self._g, self._down = aligned_zeros(totals[4], dtype), aligned_zeros(totals[5], dtype)
        self._lost, self._settings = np.zeros(1, np.int64), aligned_zeros(2, dtype)
        self._explicit = np.zeros(len(shapes), np.int64)
        self._subset_sums = aligned_zeros(
            max(
                subset_sums_size(target.vectors(layer.width), stride, target) if self._of_zeros(n) else 0
                for n, layer in enumerate(self.layers)
            ),
            dtype,
        )
        self._sums = aligned_zeros(int(max(sizes[:, 4])), dtype)
        for n, layer in enumerate(self.layers):
            layer.bias = self._bias[self._at[n, 3] : self._at[n + 1, 3]]
        act = activation_code(activation, dtype)
        self._act_args = np.array(MapArgs(vectors=0, source=0, target=0), np.int64)
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
        return slopes_of(program, by_x=n > 0, by_parameters=True).of_zeros

    def _set_up(self, n: int) -> None:
        """Compile a layer's kernels and write down what they are called with."""
        layer, target, at = self.layers[n], self._target, self._at[n]
        program, vectors = layer.shape.program, target.vectors(layer.width)
        sums_kernel = kernel(forward, program, target, self._stride)
        update = kernel(
            backward, program, target, by_x=n > 0, by_parameters=True, update=True, tile=self._stride
        )
        self._codes += (sums_kernel, update)
        self._kernels[n, :2] = sums_kernel.address, update.address
        if self._of_zeros(n):
            self._codes.append(kernel(subset_sums, target))
            self._kernels[n, 2] = self._codes[-1].address
        lists = {
            "counts": self._count.ctypes.data + 4 * at[0],
            "indices": self._index.ctypes.data + 4 * at[1],
            "values": self._value.ctypes.data + target.size * at[1],
        }
        g = self._g.ctypes.data + target.size * at[4]
        forward_args = ForwardArgs(
            inputs=layer.shape.inputs,
            vectors=vectors,
            samples=0,  # those of each mini-batch
            stride=self._stride,
            **lists,
            matrices=layer.table.ctypes.data,
            row_length=layer.width,
            u=self._sums.ctypes.data,
            out=self._out.ctypes.data + target.size * at[2],
            out_row_length=layer.width,
            explicit=0,
            lost=self._lost.ctypes.data,
        )
        backward_args = BackwardArgs(
            inputs=layer.shape.inputs,
            vectors=vectors,
            samples=0,
            stride=self._stride,
            **lists,
            matrices=layer.table.ctypes.data,
            row_length=layer.width,
            g=g,
            subset_sums=self._subset_sums.ctypes.data,
            gradients=0,
            gradient_row_length=0,
            accumulate=0,
            dx=self._down.ctypes.data + target.size * at[5],
            dx_row_length=self._stride,
            # Under a ReLU no error is needed where its output is zero: its slope is zero there.
            dx_at_zero=int(self.activation != "relu"),
            settings=self._settings.ctypes.data,
        )
        subset_args = SubsetSumArgs(
            vectors=vectors, samples=0, stride=self._stride, g=g, sums=self._subset_sums.ctypes.data
        )
        for k, args in enumerate((forward_args, backward_args, subset_args)):
            self._args[n, k, : len(args)] = args

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
        right, done = epoch.train(
            order,
            self.batch_size,
            *samples.arguments(),
            *checked_targets(self.loss, self.dtype, samples.count, outputs, labels, targets, weights),
            LOSSES[self.loss],
            float(rate),
            limit(clip),
            len(self.layers),
            self._sizes,
            self._widths,
            self._stride,
            self._target.lanes,
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
        epoch.predict(
            np.arange(samples.count, dtype=np.int64),
            self.batch_size,
            *samples.arguments(),
            upto,
            len(self.layers),
            self._sizes,
            self._widths,
            self._stride,
            self._target.lanes,
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
