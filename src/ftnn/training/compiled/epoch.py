# Numba finds out the types of what compiled functions are given; they are not said twice.
# pyright: reportMissingParameterType=false, reportUnknownParameterType=false, reportUnusedParameter=false
"""The training epoch around the kernels: compiled once per machine by Numba, for all functions.

It knows no function. Each layer's kernels come as addresses and blocks of arguments, prepared in
`network.py`; what is left to do here is to gather a mini-batch, to call the kernels in order, and the small
loops between them: bias, activation slopes, the loss. Arrays of all layers lie one behind the other in a flat
one, with offsets.

Names: S samples of a mini-batch, `lists` the samples of each input (see `kernels/loops`), `out` a layer's
outputs (S, width), `g` the error at its sums (vectors, stride, lanes), `down` the error it sends down (in,
stride).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ftnn.kernels.loops.copies import MapArgs
from ftnn.kernels.loops.recurrent import MemoryArgs
from ftnn.kernels.loops.skipping_backward import BackwardArgs
from ftnn.kernels.loops.skipping_forward import ForwardArgs
from ftnn.kernels.loops.zeros import SubsetSumArgs
from ftnn.training.compiled.numba_jit import jit

LOGISTIC, RELU, TANH = 0, 1, 2
SOFTMAX, SQUARED = 0, 1
# The places of what changes from call to call in blocks of arguments.
FORWARD_SAMPLES, FORWARD_EXPLICIT = ForwardArgs.places().samples, ForwardArgs.places().explicit
BACKWARD_SAMPLES, SUBSET_SAMPLES = BackwardArgs.places().samples, SubsetSumArgs.places().samples
MAP_VECTORS, MAP_SOURCE, MAP_TARGET = MapArgs.places()
MEMORY_BEFORE, MEMORY_AFTER = MemoryArgs.places().before, MemoryArgs.places().after
EXPLICIT = 64
"""For how many mini-batches a layer adds F(0) to each zero, once sharing it may have cost digits."""

_jit = jit(boundscheck=False)

# Sums in whatever order the compiler finds fastest: always the same one on the same CPU.
_jit_sums = jit(boundscheck=False, fastmath={"reassoc", "contract"})


def _call_at(typing: Any, address: Any, args: Any) -> Any:
    """Call the kernel at an address."""

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(64).as_pointer()])
        kernel = builder.inttoptr(values[0], kind.as_pointer())
        builder.call(kernel, [builder.inttoptr(values[1], ir.IntType(64).as_pointer())])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


_call: Any = intrinsic(_call_at)


@_jit
def call_kernel(address: int, args: int) -> None:
    """Call the kernel at an address with the arguments at an address."""
    _call(address, args)


@_jit
def gather(rows, dense, starts, columns, values, n_in, stride, count, index, value):
    """The first layer's lists of a mini-batch: from compressed rows if there are any, else from dense."""
    samples = rows.shape[0]
    if starts.shape[0] == 0:
        for s in range(samples):
            row = rows[s]
            for j in range(n_in):
                value[j * stride + s] = dense[row, j]
        for j in range(n_in):
            count[j] = samples
            for s in range(samples):
                index[j * stride + s] = s
    else:
        count[:n_in] = 0
        for s in range(samples):
            row = rows[s]
            for k in range(starts[row], starts[row + 1]):
                j = columns[k]
                place = j * stride + count[j]
                index[place] = s
                value[place] = values[k]
                count[j] += 1


@_jit
def list_zeros(samples, n, stride, count, index):
    """The samples that are in no list, behind those that are."""
    for j in range(n):
        base, place, end = j * stride, 0, j * stride + count[j]
        for s in range(samples):  # lists are in order
            if place < count[j] and index[base + place] == s:
                place += 1
            else:
                index[end] = s
                end += 1


@_jit
def pass_on(out, samples, n, width, stride, skip, count, index, value):
    """The next layer's lists from this layer's outputs: zeros last where they are skipped."""
    for j in range(n):
        base = j * stride
        listed = 0
        if skip:
            for s in range(samples):
                y = out[s * width + j]
                if y != 0 or math.copysign(1.0, y) < 0:  # -0 is not 0
                    index[base + listed] = s
                    value[base + listed] = y
                    listed += 1
            count[j] = listed
        else:
            count[j] = samples
            for s in range(samples):
                index[base + s] = s
                value[base + s] = out[s * width + j]
    if skip:
        list_zeros(samples, n, stride, count, index)


@_jit
def add_bias(out, samples, width, bias):
    for s in range(samples):
        for o in range(width):
            out[s * width + o] += bias[o]


@_jit
def error_before(activation, error, y):
    """The error before an activation whose value is y: times its slope there."""
    if activation == LOGISTIC:
        return error * (y * (1 - y))
    if activation == TANH:
        return error * (1 - y * y)
    # No product: an infinite error at a silent unit is none. NaN stays NaN.
    return error if y > 0 else y * 0


@_jit
def error_below(activation, out, down, samples, n, width, stride, lanes, g, g_sum):
    """g of the layer below from the error sent down to its outputs: times the activation's slope.

    Of a saturated logistic the slope goes on shrinking, to where numbers are not normal any more. Such an
    error is taken for none: it moves nothing, and each product with it takes the CPU a hundred cycles.
    """
    least = np.finfo(g.dtype).tiny if activation == LOGISTIC else 0.0
    g_sum[:width] = 0
    for o in range(n):
        vector, lane = o // lanes, o % lanes
        total = g_sum[o]
        for s in range(samples):
            error = error_before(activation, down[o * stride + s], out[s * width + o])
            if abs(error) < least:
                error = 0.0
            g[(vector * stride + s) * lanes + lane] = error
            total += error
        g_sum[o] = total


@_jit
def loss_and_error(loss, out, samples, n, width, stride, lanes, rows, labels, targets, weights, g, g_sum):
    """Σ of the samples' losses, how many are right, and g = ∂Σ/∂(linear output)."""
    total = 0.0
    right = 0
    g_sum[:width] = 0
    for s in range(samples):
        row = rows[s]
        weight = weights[row] if weights.shape[0] else 1.0
        base = s * width
        if loss == SOFTMAX:
            label = labels[row]
            top = out[base]
            best = 0
            finite = math.isfinite(top)
            for o in range(1, n):
                finite = finite and math.isfinite(out[base + o])
                if out[base + o] > top:
                    top = out[base + o]
                    best = o
            right += finite and best == label  # outputs that are not finite name no class
            summed = 0.0
            for o in range(n):
                summed += math.exp(np.float64(out[base + o]) - np.float64(top))
            total += weight * (math.log(summed) - (np.float64(out[base + label]) - np.float64(top)))
            for o in range(n):
                share = math.exp(np.float64(out[base + o]) - np.float64(top)) / summed
                error = weight * (share - (1.0 if o == label else 0.0))
                g[(o // lanes * stride + s) * lanes + o % lanes] = error
                g_sum[o] += error
        else:
            for o in range(n):
                difference = np.float64(out[base + o]) - np.float64(targets[row, o])
                total += 0.5 * weight * difference * difference
                error = weight * difference
                g[(o // lanes * stride + s) * lanes + o % lanes] = error
                g_sum[o] += error
    return total, right


@_jit
def update_bias(bias, g_sum, n, rate, clip):
    for o in range(n):
        step = g_sum[o]
        if step > clip:
            step = clip
        elif step < -clip:
            step = -clip
        bias[o] -= rate * step


@_jit
def forward(
    samples, upto, layers, sizes, widths, stride, lanes, at, kernels, args, lost, explicit, activation,
    act_kernel, act_args, count, index, value, out, bias,
):  # fmt: skip
    """The outputs of layers 0 to `upto - 1` of `layers`, from the first one's lists."""
    for layer in range(upto):
        n, width = sizes[layer + 1], widths[layer]
        args[layer, 0, FORWARD_SAMPLES] = samples
        for _ in range(2):
            if explicit[layer] and layer == 0:  # those of the others are listed by `pass_on`
                list_zeros(samples, sizes[layer], stride, count[at[layer, 0] :], index[at[layer, 1] :])
            args[layer, 0, FORWARD_EXPLICIT] = explicit[layer] > 0
            lost[0] = 0
            call_kernel(kernels[layer, 0], args[layer, 0, :].ctypes.data)
            if lost[0] == 0:
                break
            # Sharing F(0) may have cost digits. What comes next is likely to be of the same kind.
            explicit[layer] = EXPLICIT
        explicit[layer] = max(0, explicit[layer] - 1)
        here = out[at[layer, 2] :]
        add_bias(here, samples, width, bias[at[layer, 3] :])
        if layer < layers - 1:
            act_args[MAP_VECTORS] = samples * width // lanes
            act_args[MAP_SOURCE] = here.ctypes.data
            act_args[MAP_TARGET] = here.ctypes.data
            call_kernel(act_kernel, act_args.ctypes.data)
        if layer < upto - 1:
            pass_on(
                here, samples, n, width, stride, activation == RELU,
                count[at[layer + 1, 0] :], index[at[layer + 1, 1] :], value[at[layer + 1, 1] :],
            )  # fmt: skip


@_jit
def train(
    order, batch, dense, starts, columns, values, labels, targets, weights, loss, rate, clip,
    layers, sizes, widths, stride, lanes, at, kernels, args, lost, explicit, settings, activation, act_kernel,
    act_args, count, index, value, out, bias, g, g_sum, down, losses,
):  # fmt: skip
    """Mini-batch SGD over the samples `order`; the mean loss of each mini-batch goes to `losses`.

    Returns how many samples were classified rightly, and how many mini-batches were done: fewer than asked if
    a loss was not finite, in which case that batch updates nothing.
    """
    right = 0
    steps = (order.shape[0] + batch - 1) // batch
    for step in range(steps):
        rows = order[step * batch : (step + 1) * batch]
        samples = rows.shape[0]
        gather(rows, dense, starts, columns, values, sizes[0], stride, count, index, value)
        forward(
            samples, layers, layers, sizes, widths, stride, lanes, at, kernels, args, lost, explicit,
            activation, act_kernel, act_args, count, index, value, out, bias,
        )  # fmt: skip
        last = layers - 1
        total, good = loss_and_error(
            loss, out[at[last, 2] :], samples, sizes[layers], widths[last], stride, lanes, rows, labels,
            targets, weights, g[at[last, 4] :], g_sum[at[last, 3] :],
        )  # fmt: skip
        losses[step] = total / samples
        if not math.isfinite(total):
            return right, step
        right += good
        settings[0] = rate / samples
        settings[1] = clip
        for layer in range(last, -1, -1):
            args[layer, 1, BACKWARD_SAMPLES] = samples
            update_bias(
                bias[at[layer, 3] :], g_sum[at[layer, 3] :], sizes[layer + 1], settings[0], settings[1]
            )
            if kernels[layer, 2]:
                args[layer, 2, SUBSET_SAMPLES] = samples
                call_kernel(kernels[layer, 2], args[layer, 2, :].ctypes.data)
            call_kernel(kernels[layer, 1], args[layer, 1, :].ctypes.data)
            if layer > 0:
                error_below(
                    activation, out[at[layer - 1, 2] :], down[at[layer, 5] :], samples, sizes[layer],
                    widths[layer - 1], stride, lanes, g[at[layer - 1, 4] :], g_sum[at[layer - 1, 3] :],
                )  # fmt: skip
    return right, steps


@_jit
def predict(
    order, batch, dense, starts, columns, values, upto,
    layers, sizes, widths, stride, lanes, at, kernels, args, lost, explicit, activation, act_kernel, act_args,
    count, index, value, out, bias, result,
):  # fmt: skip
    """The outputs of layer `upto - 1` for the samples `order`, into `result`, (samples, width)."""
    for first in range(0, order.shape[0], batch):
        rows = order[first : first + batch]
        samples = rows.shape[0]
        gather(rows, dense, starts, columns, values, sizes[0], stride, count, index, value)
        forward(
            samples, upto, layers, sizes, widths, stride, lanes, at, kernels, args, lost, explicit,
            activation, act_kernel, act_args, count, index, value, out, bias,
        )  # fmt: skip
        width = widths[upto - 1]
        here = out[at[upto - 1, 2] :]
        for s in range(samples):
            for o in range(sizes[upto]):
                result[first + s, o] = here[s * width + o]


@_jit_sums
def weighted_sums(weight, n, y, out):
    """out = weight[:, :n] @ y[:n]."""
    for o in range(weight.shape[0]):
        total = y[0] * 0
        for j in range(n):
            total += weight[o, j] * y[j]
        out[o] = total


@_jit
def train_memory(
    sequence, labels, targets, weights, loss, rate, clip, kernels, args, settings, activation, act_kernel,
    act_args, cells, x, u, n_hidden, hidden_bias, hidden_g, weight, out, out_bias, g, g_sum, down, losses,
):  # fmt: skip
    """One pass over a sequence, pair by pair: each updates the memory layer and the linear one above it.

    What fills the hidden units up to whole vectors sends nothing on, and gets no error.

    Returns how many of the epoch's own predictions were right, and how many pairs were done.
    """
    right = 0
    row = np.zeros(1, np.int64)
    n_out = weight.shape[0]
    for t in range(sequence.shape[0]):
        x[:] = sequence[t]
        for k in range(2):
            args[k, MEMORY_BEFORE] = cells[t % 2]
            args[k, MEMORY_AFTER] = cells[1 - t % 2]
        call_kernel(kernels[0], args[0, :].ctypes.data)
        for j in range(n_hidden):
            u[j] += hidden_bias[j]
        call_kernel(act_kernel, act_args.ctypes.data)
        weighted_sums(weight, n_hidden, u, out)
        for o in range(n_out):
            out[o] += out_bias[o]
        row[0] = t
        total, good = loss_and_error(
            loss, out, 1, n_out, n_out, 1, 1, row, labels, targets, weights, g, g_sum
        )
        losses[t] = total
        if not math.isfinite(total):
            return right, t
        right += good
        settings[0] = rate
        settings[1] = clip
        rate_, clip_ = settings[0], settings[1]
        down[:] = 0
        for o in range(n_out):
            error = g_sum[o]
            for j in range(n_hidden):
                down[j] += weight[o, j] * error
                weight[o, j] -= rate_ * min(max(error * u[j], -clip_), clip_)
        update_bias(out_bias, g_sum, n_out, rate_, clip_)
        for j in range(n_hidden):
            hidden_g[j] = error_before(activation, down[j], u[j])
        update_bias(hidden_bias, hidden_g, n_hidden, rate_, clip_)
        call_kernel(kernels[1], args[1, :].ctypes.data)
    return right, sequence.shape[0]
