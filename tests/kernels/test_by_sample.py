"""Sums that are added up sample by sample have the bits of those that are added up input by input."""

from __future__ import annotations

import numpy as np
import pytest

from ftnn.formula import Function
from ftnn.kernels.codegen.target import DType
from ftnn.kernels.cpu.compiler import kernel
from ftnn.kernels.loops import by_sample
from ftnn.kernels.program import Program, program_of, signature
from tests.kernels.buffers import Array, Bench, Tile
from tests.kernels.test_memory_safety import Canaries

SUITABLE = (
    "w*x",
    "p**2*x",
    "p*x**2 + q*x",
    "p*x**3 + q*x**2 + r*x",
    "rect(p)*x",
    "where(p > 0, q*x, 0)",
    "p**2*x**2",
    "p*min(x, q*x)",
)
UNSUITABLE = (
    "p*x + q",  # not 0 at 0
    "p*rect(q*x + r)",
    "p*sin(q*x)",  # the function takes longer than memory
    "p*x/(1 + x**2)",
    "tanh(x)*p",
)


@pytest.fixture
def canaries():
    canaries = Canaries()
    yield canaries
    canaries.check()


def summed(bench: Bench, program: Program, tile: Tile, values: list[Array], length: int) -> Array:
    """The layer's sums, (samples, out)."""
    span, vectors = by_sample.span(program), values[0].shape[1] // bench.width
    spans = -(-tile.inputs // span)
    sizes, columns = (
        bench.waste(*shape, dtype=np.int32) for shape in ((spans, tile.stride), (spans, tile.stride, span))
    )
    row_values = bench.waste(spans, tile.stride, span)
    counts, indices, listed = tile.lists
    for n in range(spans):
        first = n * span
        bench.call(
            kernel(by_sample.regroup, bench.target, span), by_sample.RegroupArgs,
            inputs=min(span, tile.inputs - first), samples=tile.samples, stride=tile.stride,
            counts=counts[first:], indices=indices[first:], values=listed[first:], sizes=sizes[n],
            columns=columns[n], row_values=row_values[n],
        )  # fmt: skip
    full = vectors * bench.width
    out_length = full + 7
    out = bench.rows(np.full((tile.samples, full), np.nan), out_length)
    bench.call(
        kernel(by_sample.forward_by_sample, program, bench.target), by_sample.BySampleArgs,
        inputs=tile.inputs, vectors=vectors, samples=tile.samples, stride=tile.stride, sizes=sizes,
        columns=columns, row_values=row_values, matrices=bench.table([bench.rows(v, length) for v in values]),
        row_length=length, out=out, out_row_length=out_length,
    )  # fmt: skip
    return bench.unpacked(out, tile.samples, full, out_length)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("formula", SUITABLE)
def test_both_orders_of_loops_give_the_same_bits(canaries: Canaries, formula: str, dtype: DType):
    program = program_of(*signature(Function(formula)))
    assert by_sample.suits(program)
    for inputs, vectors, samples, density in ((1, 1, 1, 1.0), (37, 3, 21, 0.5), (130, 17, 40, 0.2)):
        bench = Bench(canaries.place, dtype)
        tile, length = bench.collect(inputs, samples, density, least=0), vectors * bench.width + 5
        values, _ = bench.matrices(program, inputs, vectors, length)
        expected, _ = bench.forward(program, tile, values, length)
        result = summed(bench, program, tile, values, length)
        assert np.isfinite(result).all()
        assert result.tobytes() == expected.tobytes()


@pytest.mark.parametrize("formula", UNSUITABLE)
def test_other_functions_are_added_up_input_by_input(formula: str):
    assert not by_sample.suits(program_of(*signature(Function(formula))))
