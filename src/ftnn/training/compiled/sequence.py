"""Memory networks set up for the compiled pass over a sequence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ftnn.errors import ShapeError
from ftnn.kernels.codegen.target import DType
from ftnn.kernels.cpu.compiler import host, kernel
from ftnn.kernels.loops.copies import MapArgs
from ftnn.kernels.loops.recurrent import MemoryArgs, memory_forward, memory_update
from ftnn.training.compiled import epoch
from ftnn.training.compiled.buffers import (
    ACTIVATIONS,
    LOSSES,
    Activation,
    Array,
    Layer,
    Loss,
    Shape,
    Steps,
    activation_code,
    aligned_zeros,
    checked_targets,
    limit,
    plain,
    steps_of,
)


class CompiledMemoryNetwork:
    """A memory layer under a linear one, trained pair by pair over a sequence."""

    def __init__(
        self, memory: Shape, outputs: int, activation: Activation, loss: Loss, dtype: DType = "float32"
    ):
        self.dtype: DType = dtype
        self.activation: Activation = activation
        self.loss: Loss = loss
        target = host(dtype)
        self.hidden = Layer(memory, dtype)
        full = self.hidden.width
        self.hidden.bias = aligned_zeros(full, dtype)
        self.weight, self.bias = aligned_zeros((outputs, full), dtype), aligned_zeros(outputs, dtype)
        """Of the linear layer: (outputs, hidden), filled up with zeros, and (outputs,)."""
        self._cells = aligned_zeros((2, memory.inputs, full), dtype)
        self._x, self._out = aligned_zeros(memory.inputs, dtype), aligned_zeros(outputs, dtype)
        self._u, self._hidden_g, self._down = (aligned_zeros(full, dtype) for _ in range(3))
        self._g, self._g_sum = aligned_zeros(outputs, dtype), aligned_zeros(outputs, dtype)
        self._settings = aligned_zeros(2, dtype)
        self._codes = [
            kernel(memory_forward, memory.program, target),
            kernel(memory_update, memory.program, target),
            activation_code(activation, dtype),
        ]
        self._kernels = np.array([code.address for code in self._codes[:2]], np.int64)
        u = self._u.ctypes.data
        self._act_args = np.array(MapArgs(vectors=target.vectors(full), source=u, target=u), np.int64)
        self._args = np.zeros((2, 16), np.int64)
        for k, sums in enumerate((self._u, self._hidden_g)):
            args = MemoryArgs(
                inputs=memory.inputs,
                vectors=target.vectors(full),
                x=self._x.ctypes.data,
                matrices=self.hidden.table.ctypes.data,
                row_length=full,
                before=0,  # cells change places at each step
                after=0,
                u=sums.ctypes.data,
                settings=self._settings.ctypes.data,
            )
            self._args[k, : len(args)] = args

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
        sequence = plain(sequence, self.dtype)
        if sequence.ndim != 2 or sequence.shape[1] != self.hidden.shape.inputs:
            raise ShapeError(f"the sequence must be (time, {self.hidden.shape.inputs}), not {sequence.shape}")
        losses = np.zeros(len(sequence), np.float64)
        address = self._cells.ctypes.data
        right, done = epoch.train_memory(
            sequence,
            *checked_targets(self.loss, self.dtype, len(sequence), len(self.bias), labels, targets, None),
            LOSSES[self.loss],
            float(rate),
            limit(clip),
            self._kernels,
            self._args,
            self._settings,
            ACTIVATIONS[self.activation],
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
        return steps_of(losses, right, done)
