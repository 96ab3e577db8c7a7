"""Every workload runs at a small size and yields valid rows. No times are asserted."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from ftnn.bench import Effort, Row, Systems, markdown
from ftnn.bench._data import sparse
from ftnn.bench._layer import LayerSize, SmallSizes, float64_rows, layer_rows, small_rows
from ftnn.bench._loop import BasisSize, LoopSize, basis_rows, loop_rows
from ftnn.bench._memory import MemorySize, memory_rows
from ftnn.bench._peak import PeakSize, extra_bytes, is_available, peak_rows
from ftnn.bench._sequence import SequenceSize, sequence_rows
from ftnn.bench._start import start_rows
from ftnn.bench._systems import present
from ftnn.bench._training import (
    AdamSize,
    GrowthSize,
    LargeSize,
    StepSize,
    adam_rows,
    growth_rows,
    large_rows,
    step_rows,
)

SHORT = Effort(rounds=2, least_rounds=1, burst_seconds=0.0, task_seconds=0.0)
PLAIN = Systems(compile=False, kans=())
DATA = sparse(0.2, inputs=9, count=70)
FIRST = ["workload", "function", "system", "ms", "times_mlp"]


@cache
def step() -> list[Row]:
    return list(step_rows("F12", SHORT, PLAIN, StepSize(width=5, batch=4), DATA))


@cache
def layer() -> list[Row]:
    return list(layer_rows("F12", SHORT, PLAIN, LayerSize(inputs=7, width=5, batch=4)))


@cache
def memory() -> list[Row]:
    return list(memory_rows("memory", SHORT, PLAIN, MemorySize(units=5, pairs=6)))


@cache
def loop() -> list[Row]:
    return list(loop_rows("F03", SHORT, PLAIN, LoopSize(width=5, batches=(4, 8)), DATA))


@cache
def growth() -> list[Row]:
    size = GrowthSize(batches=(1, 4), widths=(3, 5), densities=(0.1, 1.0), base=StepSize(width=5, batch=4))
    return list(growth_rows("F12", SHORT, PLAIN, size, DATA))


@cache
def adam() -> list[Row]:
    return list(adam_rows("F12", SHORT, PLAIN, AdamSize(width=5, batches=(4, 8)), DATA))


@cache
def large() -> list[Row]:
    return list(large_rows("F03", SHORT, PLAIN, LargeSize(width=6, batch=8), DATA))


@cache
def bases() -> list[Row]:
    return list(basis_rows("fourier", SHORT, PLAIN, BasisSize(width=5, batch=4), DATA))


@cache
def small() -> list[Row]:
    return list(small_rows("F12", SHORT, PLAIN, SmallSizes(layers=((1, 5, 3), (2, 2, 3)))))


@cache
def float64() -> list[Row]:
    return list(float64_rows("F12", SHORT, PLAIN, LayerSize(inputs=7, width=5, batch=4)))


@cache
def sequence() -> list[Row]:
    return list(sequence_rows("memory", SHORT, PLAIN, SequenceSize(features=3, batch=2, steps=4)))


@cache
def start() -> list[Row]:
    return list(start_rows("F07", SHORT, PLAIN))


TIMED: dict[str, tuple[Callable[[], list[Row]], set[str], str | None, int]] = {
    "A": (step, {"ftnn", "mlp", "eager"}, "mlp", 1),
    "B": (layer, {"ftnn", "linear", "eager"}, "linear", 1),
    "C": (memory, {"ftnn", "eager"}, None, 1),
    "E": (loop, {"ftnn", "linear", "eager"}, "linear", 2),
    "F": (adam, {"ftnn", "mlp"}, "mlp", 2),
    "G": (large, {"ftnn", "one thread", "mlp"}, "mlp", 1),
    "bases": (bases, {"ftnn", "mlp"}, "mlp", 1),
    "small": (small, {"ftnn", "eager"}, "eager", 8),
    "float64": (float64, {"ftnn", "float32", "eager"}, "float32", 1),
    "time": (sequence, {"ftnn", "rnn", "steps"}, "rnn", 1),
    "start": (start, {"ftnn", "warm"}, None, 1),
    "growth": (growth, {"ftnn", "mlp"}, "mlp", 5),  # of the six, the base occurs twice
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TIMED)
def test_a_workload_times_every_system_on_every_task(name: str):
    make, systems, yardstick, tasks = TIMED[name]
    rows = make()
    assert {row.workload for row in rows} == {name}
    by_task: dict[Any, dict[str, Row]] = {}
    for row in rows:
        by_task.setdefault(row.task, {})[row.system] = row
    assert len(by_task) == tasks
    for task in by_task.values():
        assert set(task) == systems
        for row in task.values():
            assert row.ms is not None
            assert row.low_ms is not None
            assert row.high_ms is not None
            assert 0 < row.low_ms <= row.ms <= row.high_ms
            assert row.repetitions in (1, 2)
            if yardstick is None:
                assert row.times_mlp is None
            else:
                one = task[yardstick].ms
                assert one is not None
                assert row.times_mlp == pytest.approx(row.ms / one, rel=2e-3)
    if yardstick is not None:
        assert all(task[yardstick].times_mlp == 1 for task in by_task.values())


@pytest.mark.parametrize("name", TIMED)
def test_json_rows_start_with_the_five_main_keys(name: str):
    for row in TIMED[name][0]():
        content = json.loads(json.dumps(row.to_dict(), allow_nan=False))
        assert list(content)[:5] == FIRST
        assert isinstance(content["ms"], float)
        assert None not in [value for key, value in content.items() if key not in FIRST]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["A", "B", "C", "E"])
def test_a_workload_restores_the_number_of_threads(name: str):
    make: Any = TIMED[name][0]
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        make.__wrapped__()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_long_epoch_is_measured_in_part_and_noted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ftnn.bench._memory.LONGEST", 0.0)
    rows = list(memory_rows("memory", SHORT, PLAIN, MemorySize(units=5, pairs=40)))
    assert {row.system: row.note for row in rows} == {"ftnn": "", "eager": "scaled from 20 of 40 pairs"}


@pytest.mark.slow  # two processes, and each loads all there is
@pytest.mark.skipif(not is_available(), reason="the system does not say what a process holds")
def test_extra_memory_is_measured_in_a_fresh_process():
    size = PeakSize(features=256, batch=128, eager_batch=64)
    rows = {row.system: row for row in peak_rows("F12", SHORT, PLAIN, size)}
    assert set(rows) == {"ftnn", "eager"}
    for row in rows.values():
        assert row.ms is None
        assert row.times_mlp is None
        assert row.mib is not None
    assert rows["eager"].note == "scaled from a batch of 64"
    eager = rows["eager"].mib or 0
    assert eager > 32  # one array over batch, inputs and outputs, and it holds more than one
    assert (rows["ftnn"].mib or 0) < eager


@pytest.mark.skipif(not is_available(), reason="the system does not say what a process holds")
def test_extra_memory_excludes_outputs_and_gradients(monkeypatch: pytest.MonkeyPatch):
    held = iter([1000, 10_000_000])  # before, and the highest

    def fake_memory(name: str) -> int:
        return next(held)

    monkeypatch.setattr("ftnn.bench._peak._memory", fake_memory)
    # p, q, r and their layer's bias, x, and the output, at 4 bytes
    results = 4 * (3 * 16 * 16 + 16 + 8 * 16 + 8 * 16)
    assert extra_bytes("ftnn", "F12", 16, 8) == 10_000_000 - 1000 - results


def test_memory_is_left_out_if_the_system_does_not_report_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ftnn.bench._peak.is_available", lambda: False)
    assert list(peak_rows("F12", SHORT, PLAIN)) == []


def test_an_epoch_that_stops_early_is_an_error():
    data = replace(DATA, x=DATA.x * float("nan"))
    with pytest.raises(Exception, match="not finite"):
        list(step_rows("F12", SHORT, PLAIN, StepSize(width=5, batch=4), data))


def test_missing_systems_are_noted(monkeypatch: pytest.MonkeyPatch):
    def nowhere(name: str) -> None:
        return None

    monkeypatch.setattr(shutil, "which", nowhere)
    monkeypatch.setattr("ftnn.bench._systems.find_spec", nowhere)
    systems, notes = present(Systems())
    assert systems == PLAIN
    missing = ("torch.compile", "pykan", "fast-kan", "efficient-kan")
    assert [name in note for name, note in zip(missing, notes, strict=True)] == [True] * 4
    assert present(PLAIN) == (PLAIN, [])


@pytest.mark.slow
@pytest.mark.skipif(present(Systems(kans=()))[0] == PLAIN, reason="no C++ compiler")
def test_torch_compile_is_measured():
    # In a separate process: torch.compile causes warnings, which are errors here.
    program = """
from ftnn.bench import Effort, Systems
from ftnn.bench._layer import LayerSize, layer_rows
effort = Effort(rounds=1, least_rounds=1, burst_seconds=0, task_seconds=0)
size = LayerSize(inputs=7, width=5, batch=4)
for function in ("F12", "F03"):
    print(*(row.system for row in layer_rows(function, effort, Systems(kans=()), size)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["ftnn", "linear", "eager", "compile"] * 2


def test_markdown_tables_have_equal_columns():
    rows = step() + memory() + growth()
    lines = [line for line in markdown(rows).splitlines() if line.startswith("|")]
    assert sum(line.startswith("|---") for line in lines) == 3
    assert {line.count("|") for line in lines} == {7, 5, 9}  # each table's own
    for name in ("A", "C", "growth"):
        assert f"## {name}: " in markdown(rows)
    assert "`p*sin(q*x + r)`" in markdown(rows)
