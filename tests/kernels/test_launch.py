"""Launches: prepared once, they run on any arrays of the right sizes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from ftnn.kernels.codegen.target import DType
from ftnn.kernels.cpu.columns import check_call
from ftnn.kernels.cpu.compiler import host, kernel
from ftnn.kernels.cpu.launch import Preparation, array
from ftnn.kernels.cpu.threads import Call
from ftnn.kernels.loops.copies import TransposeArgs, transpose


def transposing(source: int, target: int, rows: int, columns: int) -> Call:
    """target (columns, rows) = source (rows, columns), transposed, in float32."""
    args = TransposeArgs(
        rows=columns,
        columns=rows,
        width=rows,
        source=source,
        source_by_row=1,
        source_by_column=columns,
        target=target,
        target_by_row=rows,
    )
    return kernel(transpose, host("float32")), args


@pytest.mark.parametrize("parallel", [True, False])
def test_a_launch_runs_on_whatever_arrays_it_is_given(parallel: bool):
    rows, columns = 5, 7
    launch = Preparation()
    between = launch.scratch(4 * rows * columns)
    launch.then([[transposing(array(0), between, rows, columns)]], parallel=parallel)
    halves = [
        # Back again, the first three columns of the copy and then the others.
        [transposing(between, array(1), 3, rows)],
        [transposing(between + 4 * 3 * rows, array(2), columns - 3, rows)],
    ]
    launch.then(halves, parallel=parallel)
    run = launch.launch()
    for seed in range(3):
        x = np.random.default_rng(seed).normal(size=(rows, columns)).astype(np.float32)
        first, second = np.empty((rows, 3), np.float32), np.empty((rows, columns - 3), np.float32)
        run(*(each.ctypes.data for each in (x, first, second)))
        np.testing.assert_array_equal(np.hstack([first, second]), x)


def test_a_table_holds_places_and_results():
    launch = Preparation()
    addresses = launch.table([array(0) + 8, array(1), 42])
    flags = launch.table([0, 0])
    assert flags == addresses + 3 * 8
    launch.then([[check_call(host("float32"), array(1), 3, flags + 8)]], parallel=False)
    run = launch.launch()
    for last, found in ((1.0, 0), (np.nan, 1), (2.0, 0)):  # a flag is not carried over to the next run
        unused, numbers = np.zeros(4), np.array([0, 1, last], np.float32)
        results = run(unused.ctypes.data, numbers.ctypes.data)
        assert results[:5].tolist() == [unused.ctypes.data + 8, numbers.ctypes.data, 42, 0, found]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [1, 3, 15, 16, 17, 64, 65, 200])
def test_a_check_finds_every_number_that_is_not_finite(size: int, dtype: DType):
    launch = Preparation()
    flag = launch.table([0])
    launch.then([[check_call(host(dtype), array(0), size, flag)]], parallel=False)
    run = launch.launch()

    def found(numbers: Sequence[float] | np.ndarray) -> int:
        return int(run(np.asarray(numbers, dtype).ctypes.data)[0])

    numbers = np.random.default_rng(size).normal(size=size)
    assert found(numbers) == 0
    for place in range(size):
        for bad in (np.nan, np.inf, -np.inf):
            assert found(np.where(np.arange(size) == place, bad, numbers)) == 1
