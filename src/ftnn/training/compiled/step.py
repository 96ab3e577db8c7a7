"""A training step of a network, written as a list of kernel calls: buffers, kernels, arguments.

A network is a list of layers of functions; a linear layer is one with the function w*x. Matrices are held
with rows filled up to whole vectors, so kernels never see an odd width. A mini-batch passes through in tiles.
With one tile, each backward kernel updates its parameters at once, and there are no gradient arrays. With
several tiles, or a limit on the norm of all gradients, these are added up first.

Threads share forward kernels out by outputs and backward kernels by inputs. Each output and each input is
computed by one thread in a fixed order, so the bits do not depend on how many there are.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from ftnn.kernels.loops import activations, by_sample, losses, normalisation, steps, updates
from ftnn.kernels.loops.copies import CollectArgs, collect
from ftnn.kernels.loops.forms import slopes_of
from ftnn.kernels.loops.skipping_backward import BackwardArgs, backward
from ftnn.kernels.loops.skipping_forward import ForwardArgs, forward
from ftnn.kernels.loops.zeros import EXPLICIT, SHARED, SubsetSumArgs, subset_sums, subset_sums_size
from ftnn.training._losses import LossFormula
from ftnn.training._rules import CompiledRule
from ftnn.training.compiled.buffers import (
    Array,
    Layer,
    ListsBySample,
    Samples,
    Shape,
    Targets,
    Workspace,
    address,
    aligned_zeros,
)
from ftnn.training.compiled.runner import Calls

TILE = 256
"""The most samples that are processed at once."""
MOST_STEPS, MOST_SAMPLES = 4096, 2**20
"""The most steps, and samples, in one call of compiled code."""
CACHE = 2**15
"""The bytes of sums that stay in the first-level cache."""
WORTH_A_THREAD = 4_000_000
"""The number of connections times samples in a step that makes another thread worthwhile."""


@dataclass(frozen=True)
class Tile:
    """Some samples of a mini-batch."""

    first: int
    samples: int
    batch: int
    """Samples of the whole mini-batch."""


class TrainingStep:
    """Layers of functions under a loss, and the calls that train them."""

    def __init__(
        self,
        shapes: Sequence[Shape],
        loss: LossFormula,
        dtype: DType,
        batch_size: int,
        rule: CompiledRule,
        clip_norm: float | None,
        threads: int | None,
    ):
        for below, above in pairwise(shapes):
            if below.outputs != above.inputs:
                raise ShapeError(f"a layer with {below.outputs} outputs feeds one with {above.inputs} inputs")
        self.dtype: DType = dtype
        self.batch_size, self.loss, self.rule = batch_size, loss, rule
        self._target = target = host(dtype)
        normalises = any(shape.normalisation is not None for shape in shapes)
        self._tile = batch_size if normalises else min(batch_size, TILE)
        self._stride = target.filled(self._tile)
        self._accumulates = batch_size > self._tile or clip_norm is not None
        self._update = None if self._accumulates else rule.update
        self.layers = [Layer(shape, dtype, rule.states, gradients=self._accumulates) for shape in shapes]
        self._work = [Workspace(layer, self._stride, self._span(layer)) for layer in self.layers]
        connections = sum(shape.inputs * shape.outputs for shape in shapes)
        self._threads = threads or max(
            1, min(torch.get_num_threads(), connections * batch_size // WORTH_A_THREAD)
        )
        self._scalars = aligned_zeros(updates.FIRST + len(rule.update.scalars), dtype)
        self._most_steps = max(1, min(MOST_STEPS, MOST_SAMPLES // batch_size))
        self._scalar_table = aligned_zeros((self._most_steps, len(self._scalars)), dtype)
        self._order = np.zeros(self._most_steps * batch_size, np.int64)
        self._losses = np.zeros(self._most_steps, np.float64)
        self._progress = np.zeros(len(steps.Progress.names), np.int64)
        self._modes = np.zeros((len(shapes), len(steps.ZerosMode.names)), np.int64)
        vectors = max(target.vectors(layer.width) for layer in self.layers)
        self._subset_sums = aligned_zeros(subset_sums_size(vectors, self._stride, target), dtype)
        outputs = shapes[-1].outputs
        self._exponentials = np.zeros(outputs, np.float64)
        self._is_output = aligned_zeros(self.layers[-1].width, dtype)
        self._is_output[:outputs] = 1
        self._clip_norm = None if clip_norm is None else np.array([clip_norm], np.float64)
        self._calls: dict[tuple[Any, ...], tuple[Calls, tuple[Any, ...]]] = {}

    def _span(self, layer: Layer) -> int | None:
        """How many inputs to sum up at once, sample by sample; None: input by input, in the cache."""
        program, size = layer.shape.program, self._stride * layer.width * self._target.size
        return by_sample.span(program) if size > CACHE and by_sample.suits(program) else None

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
            if slopes:
                self._normalise(calls, n, tile)
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
        rows = self._work[n - 1].rows
        if self._skips(n):
            parts = [
                CollectArgs(
                    **self._lists(n, first), inputs=inputs, samples=tile.samples,
                    x=address(rows, 0, first), by_input=1, by_sample=below.width, least=0, zeros=1, signed=1,
                )
                for first, inputs in self._blocks(layer.shape.inputs)
            ]  # fmt: skip
            calls.split(kernel(collect, self._target), parts)
        else:
            gather = steps.GatherArgs(
                **self._rows(tile), **self._lists(n), inputs=layer.shape.inputs, x=address(rows),
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

        if work.lists is not None:
            self._sum_by_sample(calls, n, tile, work.lists)
            return
        if at_zero(kernel_form(program)) is ZERO:
            calls.split(code, args(SHARED))
            return
        calls.split(code, args(SHARED), address(mode, M.shared))
        calls.call(kernel(steps.decide, self._target), steps.DecideArgs(mode=address(mode)))
        if n == 0:  # the other layers' lists already contain the zeros
            zeros = steps.ZerosArgs(
                samples=tile.samples, inputs=layer.shape.inputs, stride=self._stride,
                counts=address(work.counts), indices=address(work.indices),
            )  # fmt: skip
            calls.call(kernel(steps.list_zeros, self._target), zeros, address(mode, M.explicit))
        calls.split(code, args(EXPLICIT), address(mode, M.explicit))

    def _sum_by_sample(self, calls: Calls, n: int, tile: Tile, lists: ListsBySample) -> None:
        """The same sums, for many samples and outputs of a cheap function."""
        layer, work, lanes = self.layers[n], self._work[n], self._target.lanes
        inputs, spans = layer.shape.inputs, range(len(lists.sizes))
        regrouped = [
            by_sample.RegroupArgs(
                **self._lists(n, each * lists.span), inputs=min(lists.span, inputs - each * lists.span),
                samples=tile.samples, sizes=address(lists.sizes, each), columns=address(lists.columns, each),
                row_values=address(lists.values, each),
            )
            for each in spans
        ]  # fmt: skip
        calls.split(kernel(by_sample.regroup, self._target, lists.span), regrouped)
        parts = [
            by_sample.BySampleArgs(
                inputs=inputs, vectors=vectors, samples=tile.samples, stride=self._stride,
                sizes=address(lists.sizes), columns=address(lists.columns), row_values=address(lists.values),
                matrices=calls.table([m[:, first * lanes :] for m in layer.matrices]),
                row_length=layer.width, out=address(work.rows, 0, first * lanes), out_row_length=layer.width,
            )
            for first, vectors in self._blocks(self._target.vectors(layer.width))
        ]  # fmt: skip
        calls.split(kernel(by_sample.forward_by_sample, layer.shape.program, self._target), parts)

    def _normalise(self, calls: Calls, n: int, tile: Tile) -> None:
        layer, work, lanes = self.layers[n], self._work[n], self._target.lanes
        how = layer.shape.normalisation
        if how is None:
            return
        code = kernel(
            normalisation.normalise, self._target, momentum=how.momentum, eps=how.eps, alone=tile.batch == 1
        )
        parts = [
            normalisation.NormaliseArgs(
                samples=tile.samples, vectors=vectors, row_length=layer.width,
                rows=address(work.rows, 0, first * lanes), normal=address(work.normal, 0, first * lanes),
                inverse=address(work.inverse, first * lanes), mean=address(layer.mean, first * lanes),
                variance=address(layer.variance, first * lanes),
            )
            for first, vectors in self._blocks(self._target.vectors(layer.width))
        ]  # fmt: skip
        calls.split(code, parts)

    def _activate(self, calls: Calls, n: int, tile: Tile, *, slopes: bool) -> None:
        """The outputs and, for training, slopes; predictions are normalised by the running statistics."""
        layer, work = self.layers[n], self._work[n]
        activation, normalises = layer.shape.activation, layer.shape.normalisation is not None
        if activation is None and not (layer.shape.has_bias or normalises):
            return
        value = symbol(INPUT) if activation is None else activation.value
        slope = activation.slope if slopes and activation is not None else None
        has_bias = layer.shape.has_bias or normalises
        code = kernel(
            activations.activate, value, slope, self._target, has_bias=has_bias, has_scale=normalises
        )
        sums, scale, bias = work.normal, layer.scale, layer.bias
        if normalises and not slopes:
            sums, scale, bias = work.rows, layer.fixed_scale, layer.fixed_bias
        lanes = self._target.lanes
        parts = [
            activations.ActivateArgs(
                samples=tile.samples, vectors=vectors, row_length=layer.width,
                sums=address(sums, 0, first * lanes), rows=address(work.rows, 0, first * lanes),
                bias=address(bias, first * lanes), scale=address(scale, first * lanes),
                slopes=address(work.slopes, 0, first * lanes),
            )
            for first, vectors in self._blocks(self._target.vectors(layer.width))
        ]  # fmt: skip
        calls.split(code, parts)

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
        if layer.shape.normalisation is not None:
            self._normalised_error(calls, n, tile)
        elif layer.shape.has_bias:
            args = updates.BiasArgs(
                samples=tile.samples, vectors=target.vectors(layer.width), stride=self._stride,
                g=address(work.g), bias=address(layer.bias), states=calls.table(layer.bias_states),
                scalars=address(self._scalars),
                gradient=0 if layer.bias_gradient is None else address(layer.bias_gradient),
                accumulate=int(tile.first > 0),
            )  # fmt: skip
            calls.call(kernel(updates.bias_gradient, target, self._update), args)
        self._gradients(calls, n, tile)

    def _normalised_error(self, calls: Calls, n: int, tile: Tile) -> None:
        """The error at the sums from the error after normalisation, and the update of scale and bias."""
        layer, work, lanes = self.layers[n], self._work[n], self._target.lanes
        code = kernel(normalisation.normalised_error, self._target, self._update, alone=tile.batch == 1)

        def of(gradient: Array | None, first: int) -> int:
            return 0 if gradient is None else address(gradient, first * lanes)

        parts = [
            normalisation.NormalisedErrorArgs(
                samples=tile.samples, vectors=vectors, stride=self._stride, row_length=layer.width,
                g=address(work.g, first), normal=address(work.normal, 0, first * lanes),
                inverse=address(work.inverse, first * lanes), bias=address(layer.bias, first * lanes),
                scale=address(layer.scale, first * lanes),
                bias_states=calls.table(layer.bias_states, first * lanes),
                scale_states=calls.table(layer.scale_states, first * lanes),
                bias_gradient=of(layer.bias_gradient, first), scale_gradient=of(layer.scale_gradient, first),
                scalars=address(self._scalars),
            )
            for first, vectors in self._blocks(self._target.vectors(layer.width))
        ]  # fmt: skip
        calls.split(code, parts)

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
        down = self._work[n + 1].down
        parts = [
            activations.ErrorArgs(
                samples=tile.samples, vectors=vectors, stride=self._stride,
                down=address(down, first * target.lanes), row_length=layer.width,
                slopes=address(work.slopes, 0, first * target.lanes), g=address(work.g, first),
            )
            for first, vectors in self._blocks(target.vectors(layer.width))
        ]  # fmt: skip
        calls.split(kernel(activations.error_at_sums, target), parts)

    def _apply(self, calls: Calls) -> None:
        """The update, from accumulated gradients."""
        gradients = [
            gradient
            for layer in self.layers
            for gradient in (*layer.gradients, *(gradient for _, gradient, _ in layer.vectors()))
        ]
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
            for vector in layer.vectors():
                calls.call(code, self._update_args(calls, *vector, 0, 1))

    def _update_args(
        self, calls: Calls, array: Array, gradient: Array, states: Sequence[Array], first: int, rows: int
    ) -> updates.UpdateArgs:
        return updates.UpdateArgs(
            vectors=rows * array.shape[-1] // self._target.lanes, parameters=address(array, first),
            gradients=address(gradient, first), states=calls.table(states, first),
            scalars=address(self._scalars),
        )  # fmt: skip
