"""Networks that compiled code trains: epochs in chunks, and predictions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np

from ftnn.errors import DTypeError, ShapeError
from ftnn.kernels.codegen.target import DType
from ftnn.kernels.loops import steps, updates
from ftnn.training._losses import LossFormula
from ftnn.training._rules import RULES, CompiledRule
from ftnn.training.compiled.buffers import Array, Samples, Shape, Steps, Targets, check_range
from ftnn.training.compiled.runner import Calls
from ftnn.training.compiled.step import TrainingStep

CHUNK_SECONDS = 0.3
"""How long compiled code runs before it returns to Python."""
SGD = RULES["sgd"].compiled(0.0)


class CompiledNetwork(TrainingStep):
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
        super().__init__(shapes, loss, dtype, batch_size, rule, clip_norm, threads)
        self.step = 0
        """The number of steps that the optimiser has made."""

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
        self._check(samples)
        if len(targets.expected) != samples.count:
            raise ShapeError(f"there are {len(targets.expected)} targets for {samples.count} samples")
        order = np.require(order, np.int64, ["C", "A"])
        check_range("order", order, samples.count)
        count = -(-len(order) // self.batch_size)
        rates = np.broadcast_to(np.asarray(rate, np.float64), (count,))
        full = len(order) // self.batch_size
        parts = [(n, min(self._most_steps, full - n)) for n in range(0, full, self._most_steps)]
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
        scalars = self.rule.scalars(rates, np.arange(self.step + 1, self.step + count + 1))
        with np.errstate(over="ignore"):  # too large for float32: the run fails and says so
            table[:, updates.FIRST :] = scalars
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
        self._check(samples)
        self.forget_losses()
        for layer in self.layers:
            layer.fix()
        result = np.empty((samples.count, self.layers[upto - 1].shape.outputs), self.dtype)
        span = self._most_steps * self.batch_size
        for first in range(0, samples.count, span):
            rows = np.arange(first, min(first + span, samples.count), dtype=np.int64)
            full = len(rows) // self.batch_size
            for start, count, batch in (
                (0, full, self.batch_size),
                (full * self.batch_size, 1, len(rows) % self.batch_size),
            ):
                if batch and count:
                    self._order[: count * batch] = rows[start : start + count * batch]
                    self._progress[:] = steps.Progress(step=-1, right=0, stop=0)
                    self._forward_list(samples, batch, upto, result[first + start :]).run(count)
        return result

    def _check(self, samples: Samples) -> None:
        """Refuse samples that kernels would misread."""
        if samples.values.dtype != self.dtype:
            raise DTypeError(f"the data are {samples.values.dtype}; the network is {self.dtype}")
        if samples.features != self.layers[0].shape.inputs:
            raise ShapeError(
                f"the data have {samples.features} features; the first layer has "
                f"{self.layers[0].shape.inputs} inputs"
            )
