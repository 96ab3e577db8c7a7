"""Compiled code reads and writes only its own buffers, and single kernels compute the right values."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ftnn.formula import Function
from ftnn.kernels.codegen.target import DType
from ftnn.kernels.program import program_of
from tests.kernels.buffers import WASTE, Array, Bench, all_kernels

ROOT = Path(__file__).parents[2]
PATTERN, MARGIN = 0xA5, 512


class Canaries:
    """Places arrays in the middle of larger ones that are filled with a pattern."""

    def __init__(self) -> None:
        self._all: list[tuple[Array, int]] = []

    def place(self, array: Array) -> Array:
        whole = np.full(array.nbytes + 2 * MARGIN, PATTERN, np.uint8)
        self._all.append((whole, array.nbytes))
        view = whole[MARGIN : MARGIN + array.nbytes].view(array.dtype).reshape(array.shape)
        view[...] = array
        return view

    def check(self) -> None:
        for whole, size in self._all:
            assert (whole[:MARGIN] == PATTERN).all(), "written before a buffer"
            assert (whole[MARGIN + size :] == PATTERN).all(), "written behind a buffer"


@pytest.fixture
def canaries():
    canaries = Canaries()
    yield canaries
    canaries.check()


@pytest.mark.slow
def test_no_kernel_writes_outside_its_buffers(canaries: Canaries):
    all_kernels(canaries.place)


def test_canaries_detect_a_write_outside_a_buffer():
    canaries = Canaries()
    array = canaries.place(np.zeros(4))
    np.lib.stride_tricks.as_strided(array, (5,))[4] = 1
    with pytest.raises(AssertionError, match="behind"):
        canaries.check()


def guarded(what: str, side: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.kernels.guarded", what, side]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="mprotect is called as on Linux")
@pytest.mark.parametrize("side", ["behind", "before"])
def test_nothing_is_read_or_written_outside_of_buffers(side: str):
    process = guarded("everything", side)
    assert process.stdout.split() == ["kernels", "driver", "torch"], process.stderr
    assert process.returncode == 0, process.stderr


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="mprotect is called as on Linux")
def test_reading_a_guarded_page_kills_the_process():
    process = guarded("nothing", "behind")
    assert process.returncode < 0
    assert process.stdout == ""


# ---- values of single kernels


def close(result: Array, expected: Array, dtype: DType) -> None:
    tolerance = 1e-5 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(
        result, expected, rtol=tolerance, atol=tolerance * float(np.abs(expected).max())
    )


def evaluated(function: Function, x: Array, values: list[Array]) -> tuple[Array, dict[str, Array]]:
    """F and its slopes for all (in, samples, out), in float64."""
    from ftnn.formula._numpy import evaluate

    at: dict[str, Any] = {"x": x.astype(np.float64)[:, :, None]}
    at |= {n: v.astype(np.float64)[:, None, :] for n, v in zip(function.parameters, values, strict=True)}
    shape = (*x.shape, values[0].shape[1])
    slopes = {n: np.broadcast_to(evaluate(function.slope(n), at), shape) for n in ("x", *function.parameters)}
    return np.broadcast_to(evaluate(function.expr, at), shape), slopes


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 5, 21), (4, 2, 16)])
def test_kernels_for_small_layers_compute_sums_and_gradients(
    canaries: Canaries, dtype: DType, sizes: tuple[int, int, int]
):
    function = Function("p*sin(q*x + r)")
    parts = Bench(canaries.place, dtype).small(program_of(function.formula), *sizes)
    value, slopes = evaluated(function, parts["x"].T, parts["values"])
    close(parts["out"], value.sum(0), dtype)
    close(parts["dx"], (slopes["x"] * parts["g"][None]).sum(2).T, dtype)
    for name, gradient in zip(function.parameters, parts["gradients"], strict=True):
        close(gradient, (slopes[name] * parts["g"][None]).sum(1), dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("density", "least"), [(0.4, 2), (0.4, 99), (0.0, 2), (1.0, 2)])
def test_skipping_kernels_compute_sums_gradients_and_updates(
    canaries: Canaries, dtype: DType, density: float, least: int
):
    function = Function("p*sin(q*x + r)")
    program, bench = program_of(function.formula), Bench(canaries.place, dtype)
    tile = bench.collect(6, 13, density, least)
    length = 2 * bench.width + 3
    values, _ = bench.matrices(program, 6, 2, length)
    value, slopes = evaluated(function, tile.x, values)
    out, lost = bench.forward(program, tile, values, length)
    assert lost == (density == 0.4 and least == 2)  # too few inputs to rule out lost digits
    close(out, value.sum(0), dtype)
    out, lost = bench.forward(program, tile, values, length, explicit=True)
    assert lost == 0
    close(out, value.sum(0), dtype)

    g, down, gradients, _ = bench.backward(program, tile, values, length, update=False)
    close(down, (slopes["x"] * g[None]).sum(2), dtype)
    for name, gradient in zip(function.parameters, gradients, strict=True):
        close(gradient, (slopes[name] * g[None]).sum(1), dtype)

    g, down, updated, _ = bench.backward(program, tile, values, length, update=True)
    close(down, (slopes["x"] * g[None]).sum(2), dtype)
    clipped = 0
    for name, old, new in zip(function.parameters, values, updated, strict=True):
        step = (slopes[name] * g[None]).sum(1)
        clipped += int((np.abs(step) > 0.125).sum())
        close(new, old - 0.25 * np.clip(step, -0.125, 0.125), dtype)
    assert 0 < clipped < updated[0].size * 3


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_lists_hold_the_nonzero_samples_then_the_others(canaries: Canaries, dtype: DType):
    bench = Bench(canaries.place, dtype)
    for density, least in ((0.5, 2), (0.5, 99), (0.0, 2), (1.0, 2), (0.9, 3)):
        tile = bench.collect(9, 21, density, least)
        count, index, value = tile.lists
        for j, row in enumerate(tile.x):
            zeros = np.flatnonzero(row == 0)
            if len(zeros) < least:
                expected, listed = np.arange(21), 21
            else:
                expected, listed = np.concatenate([np.flatnonzero(row), zeros]), 21 - len(zeros)
            assert count[j] == listed
            assert (index[j, :21] == expected).all()
            assert (value[j, :listed] == row[expected[:listed]]).all()
            assert (index[j, 21:] == int(WASTE)).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_errors_are_packed_by_vector_and_summed_over_every_subset_of_four(canaries: Canaries, dtype: DType):
    bench = Bench(canaries.place, dtype)
    tile = bench.collect(1, 19)
    g, packed, sums = bench.pack(tile, 3)
    blocks = g.reshape(19, 3, bench.width).transpose(1, 0, 2)
    assert (packed[:, :19] == blocks).all()
    assert np.isnan(packed[:, 19:]).all()
    assert sums.shape[1] == 8  # two blocks of sixteen samples
    for group in range(8):
        for subset in range(16):
            members = [4 * group + n for n in range(4) if subset >> n & 1 and 4 * group + n < 19]
            close(sums[:, group, subset], blocks[:, members].sum(1, dtype=np.float64), dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_memory_kernels_compute_a_step_and_its_update(canaries: Canaries, dtype: DType):
    function = Function("tanh(p*x + q*C + r)")
    bench = Bench(canaries.place, dtype)
    seen = bench.memory(program_of(function.formula), 4, 2)
    p, q, r = (v.astype(np.float64) for v in seen["values"])
    x, state = seen["x"].astype(np.float64)[:, None], seen["state"].astype(np.float64)
    value = np.tanh(p * x + q * state + r)
    close(seen["after"], value, dtype)
    close(seen["sums"], value.sum(0), dtype)
    slope = seen["errors"] * (1 - value**2)
    for old, new, inner in zip((p, q, r), seen["updated"], (x, state, 1.0), strict=True):
        close(new, old - 0.25 * np.clip(slope * inner, -0.125, 0.125), dtype)


@pytest.mark.parametrize("name", ["tanh", "rect"])
def test_the_elementwise_kernel_computes_its_function(canaries: Canaries, name: str):
    source, target = Bench(canaries.place, "float32").elementwise(name, 3)
    expected = np.tanh(source.astype(np.float64)) if name == "tanh" else np.maximum(source, 0)
    close(target, expected, "float32")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_forward_kernel_reports_a_pole_at_zero(canaries: Canaries, dtype: DType):
    program, bench = program_of("p/x"), Bench(canaries.place, dtype)
    for density, least, lost in ((0.5, 2, 1), (0.5, 99, 0), (1.0, 2, 0)):
        tile = bench.collect(6, 13, density, least)
        values, _ = bench.matrices(program, 6, 2, 2 * bench.width)
        assert bench.forward(program, tile, values, 2 * bench.width)[1] == lost
