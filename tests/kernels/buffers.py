"""Call single kernels on buffers of exactly the size that they may use."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ftnn.formula import Function
from ftnn.formula._expr import INPUT, call, symbol
from ftnn.kernels.codegen.target import Args, DType
from ftnn.kernels.cpu.compiler import Code, host, kernel
from ftnn.kernels.loops import copies, dense, recurrent, skipping_backward, skipping_forward, small, zeros
from ftnn.kernels.program import Program, program_of, signature
from ftnn.training import RULES
from tests.kernels.elementwise import MapArgs, elementwise

Array = np.ndarray[Any, np.dtype[Any]]
Place = Callable[[Array], Array]
"""Copies an array to some memory and returns the copy."""

SGD = RULES["sgd"].compiled(0.0).update
SCALARS = (1.0, 0.125, 0.25)
"""Of a step: the factor of gradients, the clip, and the rate."""
WASTE = -777.25
"""Fills memory that a kernel must not use."""


@dataclass
class Tile:
    """Samples as kernels take them, with waste after each row."""

    x: Array
    """(in, samples)."""
    inputs: int
    samples: int
    stride: int
    lists: tuple[Array, Array, Array]

    def arguments(self) -> dict[str, Any]:
        counts, indices, values = self.lists
        return {
            "inputs": self.inputs, "samples": self.samples, "stride": self.stride, "counts": counts,
            "indices": indices, "values": values,
        }  # fmt: skip


class Bench:
    """Calls kernels with every buffer allocated by `place`."""

    def __init__(self, place: Place, dtype: DType, seed: int = 0):
        self.place, self.dtype, self.target = place, dtype, host(dtype)
        self.width = self.target.lanes
        self.random = np.random.default_rng(seed)
        self._alive: list[Array] = []

    def put(self, array: Any, dtype: Any = None) -> Array:
        placed = self.place(np.ascontiguousarray(array, dtype or self.dtype))
        self._alive.append(placed)
        return placed

    def waste(self, *shape: int, dtype: Any = None) -> Array:
        return self.put(np.full(shape, WASTE), dtype)

    def rows(self, values: Array, length: int) -> Array:
        """Rows with a gap of waste between them and nothing after the last."""
        flat = np.full((len(values) - 1) * length + values.shape[1], WASTE)
        for n, row in enumerate(values):
            flat[n * length : n * length + len(row)] = row
        return self.put(flat)

    def table(self, arrays: Sequence[Array]) -> Array:
        return self.put([a.ctypes.data for a in arrays], np.int64)

    def call(self, code: Code, kind: type[Args], **values: Any) -> None:
        """Call a kernel with its arguments in a buffer too, and nothing after them."""
        numbers = {n: a.ctypes.data if isinstance(a, np.ndarray) else int(a) for n, a in values.items()}
        block = self.put(kind(**numbers), np.int64)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code.address)(block.ctypes.data)

    # --- the kernels ---

    def collect(self, inputs: int, samples: int, density: float = 0.5, least: int = 2) -> Tile:
        stride = self.target.filled(samples)
        x = self.random.normal(size=(inputs, samples)) * (self.random.random((inputs, samples)) < density)
        x = x.astype(self.dtype)
        source = self.rows(x, samples + 3)
        count, index = self.waste(inputs, dtype=np.int32), self.waste(inputs, stride, dtype=np.int32)
        value = self.waste(inputs, stride)
        value[:] = np.nan
        self.call(
            kernel(copies.collect, self.target), copies.CollectArgs, inputs=inputs, samples=samples,
            stride=stride, x=source, by_input=samples + 3, by_sample=1, counts=count, indices=index,
            values=value, least=least, zeros=1, signed=0,
        )  # fmt: skip
        return Tile(x, inputs, samples, stride, (count, index, value))

    def pack(self, tile: Tile, vectors: int) -> tuple[Array, Array, Array]:
        """The errors, the packed errors, and the sums of their subsets."""
        g = self.random.normal(size=(tile.samples, vectors * self.width)).astype(self.dtype)
        source = self.rows(g, vectors * self.width + 5)
        packed = self.waste(vectors, tile.stride, self.width)
        packed[:] = np.nan
        size = {"vectors": vectors, "samples": tile.samples, "stride": tile.stride}
        row_length = vectors * self.width + 5
        code = kernel(copies.pack, self.target)
        self.call(code, copies.PackArgs, **size, source=source, row_length=row_length, g=packed)
        sums = self.waste(zeros.subset_sums_size(vectors, tile.samples, self.target))
        code = kernel(zeros.subset_sums, self.target)
        self.call(code, zeros.SubsetSumArgs, **size, g=packed, sums=sums)
        return g, packed, sums.reshape(vectors, -1, 16, self.width)

    def matrices(
        self, program: Program, inputs: int, vectors: int, length: int
    ) -> tuple[list[Array], list[Array]]:
        values = [
            self.random.uniform(-0.5, 0.5, (inputs, vectors * self.width)).astype(self.dtype)
            for _ in program.matrices
        ]
        return values, [self.rows(v, length) for v in values]

    def forward(
        self, program: Program, tile: Tile, values: list[Array], length: int, *, explicit: bool = False
    ) -> tuple[Array, int]:
        vectors = values[0].shape[1] // self.width
        table = self.table([self.rows(v, length) for v in values])
        sums = self.waste(vectors * tile.stride * self.width)
        out_length = vectors * self.width + 7
        out = self.rows(np.full((tile.samples, vectors * self.width), np.nan), out_length)
        lost = self.put([0], np.int64)
        self.call(
            kernel(skipping_forward.forward, program, self.target), skipping_forward.ForwardArgs,
            **tile.arguments(), vectors=vectors, matrices=table, row_length=length, u=sums, out=out,
            out_row_length=out_length, explicit=explicit, lost=lost,
        )  # fmt: skip
        return self.unpacked(out, tile.samples, vectors * self.width, out_length), int(lost[0])

    def backward(
        self, program: Program, tile: Tile, values: list[Array], length: int, *, update: bool
    ) -> tuple[Array, Array, list[Array], list[Array]]:
        """g, ∂x (in, samples), then each parameter's gradient, or the matrices after the update."""
        vectors = values[0].shape[1] // self.width
        full = vectors * self.width
        g, packed, sums = self.pack(tile, vectors)
        placed = [self.rows(v, length) for v in values]
        gradient_length, dx_length = full + 2, tile.samples + 1
        gradients = [
            self.rows(np.full((tile.inputs, full), np.nan), gradient_length) for _ in program.parameters
        ]
        dx = self.rows(np.full((tile.inputs, tile.samples), np.nan), dx_length)
        options = {"by_x": True, "by_parameters": True, "update": SGD if update else None}
        self.call(
            kernel(skipping_backward.backward, program, self.target, **options),
            skipping_backward.BackwardArgs, **tile.arguments(), vectors=vectors,
            matrices=self.table(placed), row_length=length, g=packed, subset_sums=sums,
            gradients=self.table(gradients), gradient_row_length=gradient_length, accumulate=0, dx=dx,
            dx_row_length=dx_length, dx_at_zero=1, scalars=self.put(SCALARS),
        )  # fmt: skip
        down = self.unpacked(dx, tile.inputs, tile.samples, dx_length)
        if update:
            parts = [self.unpacked(m, tile.inputs, full, length) for m in placed]
        else:
            parts = [self.unpacked(m, tile.inputs, full, gradient_length) for m in gradients]
        return g, down, parts, placed

    def dense(self, program: Program, inputs: int, vectors: int, samples: int, length: int) -> dict[str, Any]:
        """Transposed, forward and backward, with all that went in and came out."""
        width, full = self.width, vectors * self.width
        stride = self.target.filled(samples)
        x = self.random.normal(size=(samples, inputs)).astype(self.dtype)
        source, tile = self.rows(x, inputs + 3), self.waste(inputs, stride)
        self.call(
            kernel(copies.transpose, self.target), copies.TransposeArgs, rows=inputs, columns=samples,
            width=stride, source=source, source_by_row=1, source_by_column=inputs + 3, target=tile,
            target_by_row=stride,
        )  # fmt: skip
        assert (tile[:, :samples] == x.T).all()
        assert (tile[:, samples:] == 0).all()
        values, placed = self.matrices(program, inputs, vectors, length)
        table, out_length = self.table(placed), full + 7
        out = self.rows(np.full((samples, full), np.nan), out_length)
        sums = self.waste(vectors * stride * width)
        common: dict[str, Any] = {
            "inputs": inputs, "vectors": vectors, "samples": samples, "stride": stride, "x": tile,
            "matrices": table, "row_length": length,
        }  # fmt: skip
        forward = kernel(dense.dense_forward, program, self.target)
        self.call(forward, dense.DenseForwardArgs, **common, u=sums, out=out, out_row_length=out_length)
        g = self.random.normal(size=(samples, full)).astype(self.dtype)
        packed = self.waste(vectors, stride, width)
        packed[:, :samples] = g.reshape(samples, vectors, width).swapaxes(0, 1)
        gradients = [self.rows(np.full((inputs, full), np.nan), length) for _ in program.parameters]
        dx = self.waste(inputs, stride)
        backward = kernel(dense.dense_backward, program, self.target, by_x=True, by_parameters=True)
        self.call(
            backward, dense.DenseBackwardArgs, **common, g=packed, gradients=self.table(gradients),
            accumulate=0, dx=dx,
        )  # fmt: skip
        flag = self.put(np.zeros(1), np.int64)
        self.call(
            kernel(copies.check, self.target), copies.CheckArgs, numbers=source.size, source=source, flag=flag
        )
        assert flag[0] == 0
        return {
            "x": x,
            "values": values,
            "g": g,
            "out": self.unpacked(out, samples, full, out_length),
            "dx": dx[:, :samples],
            "gradients": [self.unpacked(m, inputs, full, length) for m in gradients],
        }

    def small(self, program: Program, inputs: int, outputs: int, samples: int) -> dict[str, Any]:
        """Forward and backward, with all that went in and came out."""
        stride = self.target.filled(samples)
        x = self.random.normal(size=(samples, inputs)).astype(self.dtype)
        values = [self.put(self.random.uniform(-0.5, 0.5, (inputs, outputs))) for _ in program.matrices]
        out, dx = self.waste(samples, outputs), self.waste(samples, inputs)
        g = self.put(self.random.normal(size=(samples, outputs)))
        gradients = [self.waste(inputs, outputs) for _ in program.parameters]
        common: dict[str, Any] = {
            "samples": samples, "inputs": inputs, "outputs": outputs, "stride": stride,
            "x": self.rows(x, inputs + 3), "x_by_sample": inputs + 3, "x_by_input": 1,
            "matrices": self.table(values), "gradients": self.table(gradients), "dx": dx, "finite": 0,
        }  # fmt: skip
        forward = kernel(small.small_forward, program, self.target)
        scratch = self.waste(inputs + outputs + small.more_rows(program), stride)
        self.call(forward, small.SmallArgs, **common, scratch=scratch, rows=out)
        backward = kernel(small.small_backward, program, self.target, by_x=True, by_parameters=True)
        scratch = self.waste(inputs + outputs + small.more_rows(program, backward=(True, True)), stride)
        self.call(backward, small.SmallArgs, **common, scratch=scratch, rows=g)
        return {"x": x, "values": values, "g": g, "out": out, "dx": dx, "gradients": gradients}

    def memory(self, program: Program, inputs: int, vectors: int) -> dict[str, Any]:
        """One step of a memory function and its update, with all inputs and outputs."""
        full, length = vectors * self.width, vectors * self.width + 3
        values, placed = self.matrices(program, inputs, vectors, length)
        x = self.put(self.random.normal(size=inputs))
        state = self.random.normal(size=(inputs, full)).astype(self.dtype)
        before, after = self.rows(state, length), self.rows(np.full((inputs, full), np.nan), length)
        sums, errors = self.waste(full), self.put(self.random.normal(size=full))
        table, scalars = self.table(placed), self.put(SCALARS)
        common: dict[str, Any] = {
            "inputs": inputs, "vectors": vectors, "x": x, "matrices": table, "row_length": length,
            "before": before, "u_stride": self.width, "states": 0,
        }  # fmt: skip
        forward = kernel(recurrent.memory_forward, program, self.target)
        update = kernel(recurrent.memory_update, program, self.target, SGD)
        self.call(forward, recurrent.MemoryArgs, **common, after=after, u=sums, scalars=0)
        self.call(update, recurrent.MemoryArgs, **common, after=0, u=errors, scalars=scalars)
        return {
            "x": x,
            "state": state,
            "values": values,
            "errors": errors,
            "sums": sums,
            "after": self.unpacked(after, inputs, full, length),
            "updated": [self.unpacked(m, inputs, full, length) for m in placed],
        }

    def elementwise(self, name: str, vectors: int) -> tuple[Array, Array]:
        source = self.put(self.random.normal(size=vectors * self.width))
        target = self.waste(vectors * self.width)
        code = kernel(elementwise, call(name, symbol(INPUT)), self.target)
        self.call(code, MapArgs, vectors=vectors, source=source, target=target)
        return source, target

    def unpacked(self, flat: Array, rows: int, columns: int, length: int) -> Array:
        """The rows, after checking that nothing was written between them."""
        unpacked = np.empty((rows, columns), flat.dtype)
        for n in range(rows):
            unpacked[n] = flat[n * length : n * length + columns]
            between = flat[n * length + columns : (n + 1) * length]
            assert (between == WASTE).all(), "written between two rows"
        return unpacked


FORMULAS = (
    "p*sin(q*x + r)",
    "p*x**2 + q*exp(x)",
    "where(x > 0, p, q)*u",
    "p*logistic(q*x + r) + q*cos(x)",
    "p/x",
)


def all_kernels(place: Place) -> None:
    """Call every kernel, in sizes around those of a vector and of a tile."""
    for dtype in ("float32", "float64"):
        bench = Bench(place, dtype)
        for n, (inputs, vectors, samples) in enumerate(
            [(1, 1, 1), (2, 3, 5), (3, 1, 16), (5, 2, 33), (2, 1, 64)]
        ):
            formula = FORMULAS[n % len(FORMULAS)]
            for density, least in ((0.0, 2), (0.5, 2), (0.5, 99), (1.0, 2)):
                program = program_of(formula, "u" if "u" in formula else "")
                length = vectors * bench.width + n
                tile = bench.collect(inputs, samples, density, least)
                values, _ = bench.matrices(program, inputs, vectors, length)
                for explicit in (False, True):
                    bench.forward(program, tile, values, length, explicit=explicit)
                for update in (False, True):
                    bench.backward(program, tile, values, length, update=update)
            dense = program_of(formula, "u" if "u" in formula else "")
            bench.dense(dense, inputs, vectors, samples, vectors * bench.width + n)
            bench.small(dense, inputs, vectors, samples)
            bench.elementwise(("logistic", "tanh", "rect")[n % 3], vectors)
        for inputs, vectors in ((1, 1), (3, 2), (7, 1)):
            bench.memory(program_of(*signature(Function("tanh(p*x + q*C + r)"))), inputs, vectors)
