"""Memory networks: a memory layer below a linear one, trained pair by pair over a sequence."""

from __future__ import annotations

import numpy as np

from ftnn.kernels.codegen.target import DType
from ftnn.kernels.cpu.compiler import kernel
from ftnn.kernels.loops.recurrent import MemoryArgs, memory_forward, memory_update
from ftnn.training._losses import LossFormula
from ftnn.training._rules import CompiledRule
from ftnn.training.compiled.buffers import (
    Array,
    Samples,
    Shape,
    Steps,
    Targets,
    address,
    aligned_zeros,
)
from ftnn.training.compiled.network import SGD, CompiledNetwork
from ftnn.training.compiled.runner import Calls
from ftnn.training.compiled.step import Tile


class CompiledMemoryNetwork(CompiledNetwork):
    """Each step is one pair, after which the new and the previous memory cells swap places."""

    def __init__(
        self,
        memory: Shape,
        output: Shape,
        loss: LossFormula,
        dtype: DType = "float32",
        rule: CompiledRule = SGD,
    ):
        super().__init__([memory, output], loss, dtype, batch_size=1, rule=rule, threads=1)
        self._cells = aligned_zeros((2, memory.inputs, self.layers[0].width), dtype)
        self._turn = 0
        """Which half of the cells holds the previous values, while a list of calls is built."""

    @property
    def cells(self) -> Array:
        """The memory that the next pass starts from, (in, out), if it keeps its state."""
        return self._cells[0, :, : self.layers[0].shape.outputs]

    def train_sequence(
        self,
        sequence: Samples,
        targets: Targets,
        *,
        rate: float,
        clip: float | None = None,
        keep_state: bool = False,
    ) -> Steps:
        """One pass over a sequence, (time, in), from an empty memory unless `keep_state`."""
        assert sequence.starts is None  # the memory layer sees zeros too
        if not keep_state:
            self._cells[:] = 0
        result = self.train(sequence, targets, np.arange(sequence.count), rate=rate, clip=clip)
        if len(result.losses) % 2:  # the next pass starts from the cells written last
            self._cells[:] = self._cells[::-1].copy()
        return result

    def _steps(
        self, samples: Samples, targets: Targets, rows: Array, batch: int, rates: Array, clip: float | None
    ) -> Steps:
        """Two steps at a time, and possibly one more."""
        even = len(rates) // 2 * 2
        parts: list[Steps] = []
        if even:
            pairs = self._list(samples, batch, targets, 2)
            parts.append(self._run(pairs, even // 2, rows[:even], batch, rates[:even], clip))
        if len(rates) > even and all(part.finite for part in parts):
            one = self._list(samples, batch, targets)
            parts.append(self._run(one, 1, rows[even:], batch, rates[even:], clip))
        losses = np.concatenate([part.losses for part in parts])
        return Steps(losses, sum(part.right for part in parts), parts[-1].finite)

    def _step(self, calls: Calls, number: int, samples: Samples, batch: int, targets: Targets) -> None:
        self._turn = number % 2
        super()._step(calls, number, samples, batch, targets)

    def _lists(self, n: int, first_input: int = 0) -> dict[str, int]:
        """The memory layer reads its input directly, with stride 1."""
        return super()._lists(n, first_input) | ({"stride": 1} if n == 0 else {})

    def _args(self, calls: Calls, u: Array, u_stride: int) -> MemoryArgs:
        layer = self.layers[0]
        states = [array for arrays in layer.states for array in arrays]
        return MemoryArgs(
            inputs=layer.shape.inputs, vectors=self._target.vectors(layer.width),
            x=address(self._work[0].values), matrices=calls.table(layer.matrices), row_length=layer.width,
            before=address(self._cells, self._turn), after=address(self._cells, 1 - self._turn),
            u=address(u), u_stride=u_stride, states=calls.table(states), scalars=address(self._scalars),
        )  # fmt: skip

    def _sum(self, calls: Calls, n: int, tile: Tile) -> None:
        if n > 0:
            super()._sum(calls, n, tile)
            return
        args = self._args(calls, self._work[0].rows, self._target.lanes)
        calls.call(kernel(memory_forward, self.layers[0].shape.program, self._target), args)

    def _gradients(self, calls: Calls, n: int, tile: Tile) -> None:
        if n > 0:
            super()._gradients(calls, n, tile)
            return
        args = self._args(calls, self._work[0].g, self._stride * self._target.lanes)
        code = kernel(memory_update, self.layers[0].shape.program, self._target, self.rule.update)
        calls.call(code, args)
