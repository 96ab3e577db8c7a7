"""Memory networks set up for the compiled pass over a sequence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ftnn.errors import ShapeError
from ftnn.kernels import _epoch, _templates
from ftnn.kernels._buffers import (
    ACTIVATIONS,
    LOSSES,
    Activation,
    Array,
    Layer,
    Loss,
    Shape,
    Steps,
    activation_code,
    limit,
    plain,
    room,
    steps_of,
    wanted,
)
from ftnn.kernels._llvm import compiled, lanes
from ftnn.kernels._templates import MemoryArgs
from ftnn.kernels._vector import DType


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
        self.hidden.bias = room(full, dtype)
        self.weight, self.bias = room((outputs, full), dtype), room(outputs, dtype)
        """Of the linear layer: (outputs, hidden), filled up with zeros, and (outputs,)."""
        self._cells = room((2, memory.inputs, full), dtype)
        self._x, self._out = room(memory.inputs, dtype), room(outputs, dtype)
        self._u, self._hidden_g, self._down = (room(full, dtype) for _ in range(3))
        self._g, self._g_sum = room(outputs, dtype), room(outputs, dtype)
        self._settings = room(2, dtype)
        self._codes = [
            compiled(_templates.memory_forward(memory.program, dtype, width)),
            compiled(_templates.memory_update(memory.program, dtype, width)),
            activation_code(activation, dtype),
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
        sequence = plain(sequence, self.dtype)
        if sequence.ndim != 2 or sequence.shape[1] != self.hidden.shape.inputs:
            raise ShapeError(f"the sequence must be (time, {self.hidden.shape.inputs}), not {sequence.shape}")
        losses = np.zeros(len(sequence), np.float64)
        address = self._cells.ctypes.data
        right, done = _epoch.train_memory(
            sequence,
            *wanted(self.loss, self.dtype, len(sequence), len(self.bias), labels, targets, None),
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
