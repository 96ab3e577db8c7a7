"""Networks as lists of kernel calls: buffers, kernels and their arguments are created once.

A network is a list of layers of functions; a linear layer has the function w*x. The rows of matrices are
padded to whole vectors, so kernels never see an odd width. A mini-batch is processed in tiles. With one tile,
each backward kernel updates its parameters at once, and there are no gradient arrays. With several tiles, or
a limit on the norm of all gradients, the gradients are added up first.

Forward kernels are divided among threads by outputs, backward kernels by inputs. Each output and each input
is computed by one thread in a fixed order, so the bits do not depend on the number of threads.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from ftnn.errors import ShapeError
from ftnn.formula._expr import INPUT, ZERO, symbol
from ftnn.kernels.codegen.rewriting import at_zero, kernel_form
from ftnn.kernels.codegen.target import DType
from ftnn.kernels.cpu.compiler import host, kernel
from ftnn.kernels.loops import activations, losses, steps, updates
from ftnn.kernels.loops.copies import CollectArgs, collect
from ftnn.kernels.loops.skipping_backward import BackwardArgs, backward, slopes_of
from ftnn.kernels.loops.skipping_forward import ForwardArgs, forward
from ftnn.kernels.loops.zeros import SubsetSumArgs, subset_sums, subset_sums_size
from ftnn.training._losses import LossFormula
from ftnn.training._rules import RULES, CompiledRule
from ftnn.training.compiled.buffers import (
    Array,
    Layer,
    Samples,
    Shape,
    Steps,
    Targets,
    Workspace,
    address,
    aligned_zeros,
    check_range,
)
from ftnn.training.compiled.runner import Calls

TILE = 256
"""The most samples that are processed at once."""
MOST_STEPS = 4096
"""The most steps in one call of compiled code."""
CHUNK_SECONDS = 0.3
"""How long compiled code runs before it returns to Python."""
WORTH_A_THREAD = 4_000_000
"""The number of connections times samples in a step that makes another thread worthwhile."""
SGD = RULES["sgd"].compiled(0.0)


@dataclass(frozen=True)
class Tile:
    """Some samples of a mini-batch."""

    first: int
    samples: int
    batch: int
    """Samples of the whole mini-batch."""


class CompiledNetwork:
    """Layers of functions under a loss, ready for compiled steps.

    **Arguments:**

    - `shapes`: the layers.
    - `loss`: the loss to minimise.
    - `rule`: the update rule.
    - `clip_norm`: the largest norm of all gradients together (means over the mini-batch); None: no limit.
    """

    def __init__(
        self,
        shapes: Sequence[Shape],
        loss: LossFormula,
        dtype: DType = "float32",
        batch_size: int = 16,
        rule: CompiledRule = SGD,
        clip_norm: float | None = None,
        threads: int | None = None,
    ):
        for below, above in pairwise(shapes):
            if below.outputs != above.inputs:
                raise ShapeError(f"a layer with {below.outputs} outputs feeds one with {above.inputs} inputs")
        self.dtype: DType = dtype
        self.batch_size, self.loss, self.rule = batch_size, loss, rule
        self._target = target = host(dtype)
        self._tile = min(batch_size, TILE)
        self._stride = target.filled(self._tile)
        self._accumulates = batch_size > TILE or clip_norm is not None
        self._update = None if self._accumulates else rule.update
        self.layers = [Layer(shape, dtype, rule.states, gradients=self._accumulates) for shape in shapes]
        self._work = [Workspace(layer, self._stride) for layer in self.layers]
        connections = sum(shape.inputs * shape.outputs for shape in shapes)
        self._threads = threads or max(
            1, min(torch.get_num_threads(), connections * batch_size // WORTH_A_THREAD)
        )
        self._scalars = aligned_zeros(updates.FIRST + len(rule.update.scalars), dtype)
        self._scalar_table = aligned_zeros((MOST_STEPS, len(self._scalars)), dtype)
        self._order = np.zeros(MOST_STEPS * batch_size, np.int64)
        self._losses = np.zeros(MOST_STEPS, np.float64)
        self._progress = np.zeros(len(steps.Progress.names), np.int64)
        self._modes = np.zeros((len(shapes), len(steps.ZerosMode.names)), np.int64)
        vectors = max(target.vectors(layer.width) for layer in self.layers)
        self._subset_sums = aligned_zeros(subset_sums_size(vectors, self._stride, target), dtype)
        outputs = shapes[-1].outputs
        self._exponentials = np.zeros(outputs, np.float64)
        self._is_output = aligned_zeros(self.layers[-1].width, dtype)
        self._is_output[:outputs] = 1
        self._clip_norm = None if clip_norm is None else np.array([clip_norm], np.float64)
        self.step = 0
        """The number of steps that the optimiser has made."""
        self._calls: dict[tuple[Any, ...], tuple[Calls, tuple[Any, ...]]] = {}

    # --- training ---

    def train(
        self,
        samples: Samples,
        targets: Targets,
        order: Array,
        *,
        rate: float | Array,
        clip: float | None = None,
    ) -> Steps:
        """Train on mini-batches of `samples[order]`, in this order, including a short last one.

        **Arguments:**

        - `order`: the indices of the samples, int64.
        - `rate`: the learning rate, for mean gradients over the mini-batch: one, or one for each step.
        - `clip`: the largest allowed size of each parameter's gradient summed over the mini-batch.
        """
        self._check_features(samples)
        order = np.require(order, np.int64, ["C", "A"])
        check_range("order", order, samples.count)
        count = -(-len(order) // self.batch_size)
        rates = np.broadcast_to(np.asarray(rate, np.float64), (count,))
        full = len(order) // self.batch_size
        parts = [(n, min(MOST_STEPS, full - n)) for n in range(0, full, MOST_STEPS)]
        parts += [(full, 1)] if count > full else []
        all_losses, right = [np.zeros(0)], 0
        for first, size in parts:
            rows = order[first * self.batch_size : (first + size) * self.batch_size]
            batch = self.batch_size if first < full else len(rows)
            part = self._steps(samples, targets, rows, batch, rates[first : first + size], clip)
            all_losses.append(part.losses)
            right += part.right
            if not part.finite:
                return Steps(np.concatenate(all_losses), right, False)
        return Steps(np.concatenate(all_losses), right, True)

    def _steps(
        self, samples: Samples, targets: Targets, rows: Array, batch: int, rates: Array, clip: float | None
    ) -> Steps:
        return self._run(self._list(samples, batch, targets), len(rates), rows, batch, rates, clip)

    def _run(
        self, calls: Calls, times: int, rows: Array, batch: int, rates: Array, clip: float | None
    ) -> Steps:
        """Run a list of calls `times` times, for one step per rate."""
        count = len(rates)
        table = self._scalar_table[:count]
        table[:, updates.FACTOR] = 1 / batch
        table[:, updates.CLIP] = np.inf if clip is None else clip
        table[:, updates.FIRST :] = self.rule.scalars(rates, np.arange(self.step + 1, self.step + count + 1))
        self._order[: len(rows)] = rows
        self._progress[:] = steps.Progress(step=-1, right=0, stop=0)
        calls.run(times)
        state = steps.Progress(**dict(zip(steps.Progress.names, map(int, self._progress), strict=True)))
        done = state.step + 1
        self.step += done - state.stop  # a step whose loss is not finite does not update anything
        return Steps(self._losses[:done].copy(), state.right, not state.stop)

    def train_in_chunks(
        self, samples: Samples, targets: Targets, order: Array, *, rates: Array, clip: float | None = None
    ) -> Iterator[Steps]:
        """`train` in chunks of a fraction of a second, with the same result."""
        # Start with a single mini-batch, to measure how long it takes.
        first, size, count = 0, 1, -(-len(order) // self.batch_size)
        while first < count:
            start = time.perf_counter()
            rows = order[first * self.batch_size : (first + size) * self.batch_size]
            chunk = self.train(samples, targets, rows, rate=rates[first : first + size], clip=clip)
            seconds = max(time.perf_counter() - start, 1e-6)
            yield chunk
            if not chunk.finite:
                return
            first += size
            size = min(max(1, min(4 * size, int(size * CHUNK_SECONDS / seconds))), count - first)

    def forget_losses(self) -> None:
        """Try sharing F(0) again, so that an epoch does not depend on the ones before it."""
        self._modes[:] = 0

    def forget_data(self) -> None:
        """Release the samples of earlier training."""
        self._calls.clear()

    def predict(self, samples: Samples, upto: int | None = None) -> Array:
        """The outputs of layer `upto - 1` (default: the last), (samples, out), after its activation."""
        upto = len(self.layers) if upto is None else upto
        self._check_features(samples)
        self.forget_losses()
        result = np.empty((samples.count, self.layers[upto - 1].shape.outputs), self.dtype)
        span = MOST_STEPS * self.batch_size
        for first in range(0, samples.count, span):
            rows = np.arange(first, min(first + span, samples.count), dtype=np.int64)
            full = len(rows) // self.batch_size
            for start, count, batch in (
                (0, full, self.batch_size),
                (full * self.batch_size, 1, len(rows) % self.batch_size),
            ):
                if batch and count:
                    part = np.zeros((count * batch, result.shape[1]), self.dtype)
                    self._order[: count * batch] = rows[start : start + count * batch]
                    self._progress[:] = steps.Progress(step=-1, right=0, stop=0)
                    self._forward_list(samples, batch, upto, part).run(count)
                    result[first + start : first + start + len(part)] = part
        return result

    def _check_features(self, samples: Samples) -> None:
        if samples.features != self.layers[0].shape.inputs:
            raise ShapeError(
                f"the data have {samples.features} features; the first layer has "
                f"{self.layers[0].shape.inputs} inputs"
            )

    # --- lists of calls ---

    def _list(self, samples: Samples, batch: int, targets: Targets, count: int = 1) -> Calls:
        """`count` training steps with mini-batches of `batch` samples."""
        key = (id(samples), id(targets), batch, count)
        if key not in self._calls:
            calls = Calls(self._threads)
            for n in range(count):
                self._step(calls, n, samples, batch, targets)
            self._calls[key] = calls, (samples, targets)  # keeps alive the objects whose ids are in the key
        return self._calls[key][0]

    def _step(self, calls: Calls, number: int, samples: Samples, batch: int, targets: Targets) -> None:
        """The calls of a training step, in order."""
        self._begin(calls)
        for first in range(0, batch, self._tile):
            tile = Tile(first, min(self._tile, batch - first), batch)
            self._forward(calls, samples, tile, len(self.layers), slopes=True)
            self._loss(calls, targets, tile)
            for n in reversed(range(len(self.layers))):
                self._backward(calls, n, tile)
        if self._accumulates:
            self._apply(calls)

    def _forward_list(self, samples: Samples, batch: int, upto: int, result: Array) -> Calls:
        """The calls that predict mini-batches of `batch` samples."""
        calls = Calls(self._threads)
        self._begin(calls)
        for first in range(0, batch, self._tile):
            tile = Tile(first, min(self._tile, batch - first), batch)
            self._forward(calls, samples, tile, upto, slopes=False)
            layer, work = self.layers[upto - 1], self._work[upto - 1]
            calls.call(
                kernel(steps.copy_results, self._target),
                steps.ResultArgs(
                    progress=address(self._progress), batch=batch, first=first, samples=tile.samples,
                    outputs=layer.shape.outputs, source=address(work.rows), row_length=layer.width,
                    result=address(result),
                ),
            )  # fmt: skip
        return calls

    def _begin(self, calls: Calls) -> None:
        args = steps.BeginArgs(
            progress=address(self._progress), table=address(self._scalar_table),
            scalar_count=len(self._scalars), scalars=address(self._scalars), modes=address(self._modes),
            mode_count=len(self._modes),
        )  # fmt: skip
        calls.call(kernel(steps.begin, self._target), args)

    def _forward(self, calls: Calls, samples: Samples, tile: Tile, upto: int, *, slopes: bool) -> None:
        for n in range(upto):
            if n == 0:
                self._gather(calls, samples, tile)
            else:
                self._pass_on(calls, n, tile)
            self._sum(calls, n, tile)
            self._activate(calls, n, tile, slopes=slopes)

    def _lists(self, n: int, first_input: int = 0) -> dict[str, int]:
        work = self._work[n]
        return {
            "stride": self._stride,
            "counts": address(work.counts, first_input),
            "indices": address(work.indices, first_input),
            "values": address(work.values, first_input),
        }

    def _rows(self, tile: Tile) -> dict[str, int]:
        return {
            "progress": address(self._progress),
            "order": address(self._order),
            "batch": tile.batch,
            "first": tile.first,
            "samples": tile.samples,
        }

    def _gather(self, calls: Calls, samples: Samples, tile: Tile) -> None:
        sparse = samples.starts is not None and samples.columns is not None
        code = (
            kernel(steps.gather_sparse, self._target)
            if sparse
            else kernel(steps.gather_dense, self._target, chosen=True)
        )
        args = steps.GatherArgs(
            **self._rows(tile), **self._lists(0), inputs=samples.features, x=address(samples.values),
            row_length=samples.features, starts=0 if samples.starts is None else address(samples.starts),
            columns=0 if samples.columns is None else address(samples.columns),
        )  # fmt: skip
        calls.call(code, args)

    def _pass_on(self, calls: Calls, n: int, tile: Tile) -> None:
        """List the outputs of the layer below, with zeros last if there are many."""
        below, layer = self.layers[n - 1], self.layers[n]
        source = address(self._work[n - 1].rows)
        if self._skips(n):
            args = CollectArgs(
                **self._lists(n), inputs=layer.shape.inputs, samples=tile.samples, x=source, by_input=1,
                by_sample=below.width, least=0, zeros=1, signed=1,
            )  # fmt: skip
            calls.call(kernel(collect, self._target), args)
        else:
            gather = steps.GatherArgs(
                **self._rows(tile), **self._lists(n), inputs=layer.shape.inputs, x=source,
                row_length=below.width, starts=0, columns=0,
            )  # fmt: skip
            calls.call(kernel(steps.gather_dense, self._target, chosen=False), gather)

    def _skips(self, n: int) -> bool:
        """Whether many inputs of a layer above the first are zero."""
        activation = self.layers[n - 1].shape.activation
        return activation is not None and activation.reaches_zero

    def _is_relu(self, n: int) -> bool:
        activation = self.layers[n].shape.activation
        return activation is not None and activation.text == "relu"

    def _blocks(self, count: int) -> list[tuple[int, int]]:
        """`count` vectors or inputs divided among the threads, as (first, number) of each part."""
        parts = min(self._threads, count)
        bounds = [count * n // parts for n in range(parts + 1)]
        return [(first, stop - first) for first, stop in pairwise(bounds)]

    def _sum(self, calls: Calls, n: int, tile: Tile) -> None:
        """The layer's sums. If sharing F(0) between samples may have cost digits, they are computed again."""
        layer, work, mode = self.layers[n], self._work[n], self._modes[n]
        program, lanes = layer.shape.program, self._target.lanes
        code = kernel(forward, program, self._target, self._stride)
        M = steps.ZerosMode.places()

        def args(explicit: int) -> list[ForwardArgs]:
            return [
                ForwardArgs(
                    **self._lists(n), inputs=layer.shape.inputs, vectors=vectors, samples=tile.samples,
                    matrices=calls.table([m[:, first * lanes :] for m in layer.matrices]),
                    row_length=layer.width, u=address(work.sums, first),
                    out=address(work.rows, 0, first * lanes), out_row_length=layer.width, explicit=explicit,
                    lost=address(mode, M.lost),
                )
                for first, vectors in self._blocks(self._target.vectors(layer.width))
            ]  # fmt: skip

        if at_zero(kernel_form(program)) is ZERO:
            calls.split(code, args(0))
            return
        calls.split(code, args(0), address(mode, M.shared))
        calls.call(kernel(steps.decide, self._target), steps.DecideArgs(mode=address(mode)))
        if n == 0:  # the other layers' lists already contain the zeros
            zeros = steps.ZerosArgs(
                samples=tile.samples, inputs=layer.shape.inputs, stride=self._stride,
                counts=address(work.counts), indices=address(work.indices),
            )  # fmt: skip
            calls.call(kernel(steps.list_zeros, self._target), zeros, address(mode, M.explicit))
        calls.split(code, args(1), address(mode, M.explicit))

    def _activate(self, calls: Calls, n: int, tile: Tile, *, slopes: bool) -> None:
        layer, work = self.layers[n], self._work[n]
        activation = layer.shape.activation
        if activation is None and not layer.shape.has_bias:
            return
        value = symbol(INPUT) if activation is None else activation.value
        slope = activation.slope if slopes and activation is not None else None
        code = kernel(activations.activate, value, slope, self._target, has_bias=layer.shape.has_bias)
        args = activations.ActivateArgs(
            samples=tile.samples, vectors=self._target.vectors(layer.width), row_length=layer.width,
            rows=address(work.rows), bias=address(layer.bias), slopes=address(work.slopes),
        )  # fmt: skip
        calls.call(code, args)

    def _loss(self, calls: Calls, targets: Targets, tile: Tile) -> None:
        layer, work = self.layers[-1], self._work[-1]
        args = losses.LossArgs(
            **self._rows(tile), outputs=layer.shape.outputs, vectors=self._target.vectors(layer.width),
            stride=self._stride, rows=address(work.rows), row_length=layer.width,
            expected=address(targets.expected),
            weights=0 if targets.weights is None else address(targets.weights),
            is_output=address(self._is_output), exponentials=address(self._exponentials),
            losses=address(self._losses), g=address(work.g),
        )  # fmt: skip
        formula = self.loss
        code = (
            kernel(losses.softmax, self._target)
            if formula.value is None or formula.slope is None
            else kernel(losses.elementwise_loss, formula.value, formula.slope, self._target)
        )
        calls.call(code, args)
        calls.leave_if(address(self._progress, steps.Progress.places().stop))

    def _backward(self, calls: Calls, n: int, tile: Tile) -> None:
        layer, work, target = self.layers[n], self._work[n], self._target
        if n < len(self.layers) - 1:
            self._error(calls, n, tile)
        if layer.shape.has_bias:
            args = updates.BiasArgs(
                samples=tile.samples, vectors=target.vectors(layer.width), stride=self._stride,
                g=address(work.g), bias=address(layer.bias), states=calls.table(layer.bias_states),
                scalars=address(self._scalars),
                gradient=0 if layer.bias_gradient is None else address(layer.bias_gradient),
                accumulate=int(tile.first > 0),
            )  # fmt: skip
            calls.call(kernel(updates.bias_gradient, target, self._update), args)
        self._gradients(calls, n, tile)

    def _gradients(self, calls: Calls, n: int, tile: Tile) -> None:
        """The gradients of a layer's matrices, or their update, and the error passed down."""
        layer, work, target, update = self.layers[n], self._work[n], self._target, self._update
        program, vectors = layer.shape.program, target.vectors(layer.width)
        if slopes_of(program, by_x=n > 0, by_parameters=True).of_zeros:
            subset_args = SubsetSumArgs(
                vectors=vectors, samples=tile.samples, stride=self._stride, g=address(work.g),
                sums=address(self._subset_sums),
            )  # fmt: skip
            calls.call(kernel(subset_sums, target), subset_args)
        results = [array for arrays in layer.states for array in arrays] if update else layer.gradients
        code = kernel(
            backward, program, target, by_x=n > 0, by_parameters=True, update=update, tile=self._stride
        )
        calls.split(
            code,
            [
                BackwardArgs(
                    **self._lists(n, first), inputs=inputs, vectors=vectors, samples=tile.samples,
                    matrices=calls.table(layer.matrices, first), row_length=layer.width, g=address(work.g),
                    subset_sums=address(self._subset_sums), gradients=calls.table(results, first),
                    gradient_row_length=layer.width, accumulate=int(tile.first > 0),
                    dx=address(work.down, first), dx_row_length=self._stride,
                    # Where a ReLU's output is zero, so is its slope: no error is needed there.
                    dx_at_zero=int(n == 0 or not self._is_relu(n - 1)), scalars=address(self._scalars),
                )
                for first, inputs in self._blocks(layer.shape.inputs)
            ],
        )  # fmt: skip

    def _error(self, calls: Calls, n: int, tile: Tile) -> None:
        """The error at a layer's sums, from the error passed down by the layer above."""
        layer, work, target = self.layers[n], self._work[n], self._target
        if layer.shape.activation is None:
            work.slopes[:] = 1
        args = activations.ErrorArgs(
            samples=tile.samples, vectors=target.vectors(layer.width), stride=self._stride,
            down=address(self._work[n + 1].down), slopes=address(work.slopes), row_length=layer.width,
            g=address(work.g),
        )  # fmt: skip
        calls.call(kernel(activations.error_at_sums, target), args)

    def _apply(self, calls: Calls) -> None:
        """The update, from accumulated gradients."""
        gradients: list[Array] = []
        for layer in self.layers:
            gradients += layer.gradients
            gradients += (
                [layer.bias_gradient] if layer.shape.has_bias and layer.bias_gradient is not None else []
            )
        lanes = self._target.lanes
        if self._clip_norm is not None:
            sizes = [array.size // lanes for array in gradients]
            norm = updates.NormArgs(
                arrays=len(gradients), gradients=calls.table(gradients), sizes=calls.numbers(sizes),
                largest=address(self._clip_norm), scalars=address(self._scalars),
            )  # fmt: skip
            calls.call(kernel(updates.clip_norm, self._target), norm)
        code = kernel(updates.apply_update, self.rule.update, self._target)
        for layer in self.layers:
            parameters = layer.matrices[: len(layer.gradients)]
            for array, gradient, states in zip(parameters, layer.gradients, layer.states, strict=True):
                blocks = self._blocks(layer.shape.inputs)
                calls.split(
                    code, [self._update_args(calls, array, gradient, states, *block) for block in blocks]
                )
            if layer.shape.has_bias and layer.bias_gradient is not None:
                bias = (layer.bias, layer.bias_gradient, layer.bias_states)
                calls.call(code, self._update_args(calls, *bias, 0, 1))

    def _update_args(
        self, calls: Calls, array: Array, gradient: Array, states: Sequence[Array], first: int, rows: int
    ) -> updates.UpdateArgs:
        return updates.UpdateArgs(
            vectors=rows * array.shape[-1] // self._target.lanes, parameters=address(array, first),
            gradients=address(gradient, first), states=calls.table(states, first),
            scalars=address(self._scalars),
        )  # fmt: skip
