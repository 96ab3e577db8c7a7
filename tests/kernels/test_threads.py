"""Threads, processes, and machines without LLVM: the same numbers everywhere."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

import ftnn
from ftnn.kernels.cpu import backend, threads, tiling
from ftnn.kernels.program import Program
from tests.kernels.yardstick import Case, case

ROOT = Path(__file__).parents[2]


@contextmanager
def on_threads(count: int) -> Generator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def computed(given: Case) -> list[Tensor]:
    wanted = given.program.differentiable
    forward = backend.transfer(given.program, given.x, given.matrices)
    return [forward, *backend.transfer_backward(given.program, given.grad, given.x, given.matrices, wanted)]


def large(name: str = "F12", dtype: torch.dtype = torch.float32, density: float = 0.5) -> Case:
    """Large enough for several threads to take part."""
    given = case(ftnn.catalogue[name], 67, 75, 150, density, dtype)
    assert given.x.numel() * 75 > tiling.SMALL
    return given


# ---- the same bits


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["F03", "F09", "F12", "F15"])
def test_the_number_of_threads_does_not_change_a_bit(name: str, dtype: torch.dtype):
    given = large(name, dtype)
    found: list[list[Tensor]] = []
    for count in (1, 2, 3, 5, 1):
        with on_threads(count):
            found.append(computed(given))
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_blocks_and_what_counts_as_small_do_not_change_a_bit(monkeypatch: pytest.MonkeyPatch):
    given = large()
    whole = computed(given)
    for block, small in ((1, 0), (3, 0), (100, 0), (8, 10**9)):
        monkeypatch.setattr(tiling, "BLOCK_VECTORS", block)
        monkeypatch.setattr(tiling, "SMALL", small)
        with on_threads(2):
            assert all(torch.equal(a, b) for a, b in zip(whole, computed(given), strict=True))


def test_a_sample_alone_has_the_bits_that_it_has_among_others():
    """Where nothing is skipped: a sum over inputs does not know what else is in the batch."""
    given = large(density=1.0)
    whole = backend.transfer(given.program, given.x, given.matrices)
    for rows in (slice(0, 1), slice(63, 66), slice(100, 150)):
        assert torch.equal(backend.transfer(given.program, given.x[rows], given.matrices), whole[rows])


def test_outputs_alone_have_the_bits_that_they_have_among_others():
    given = large(density=1.0)
    whole = backend.transfer(given.program, given.x, given.matrices)
    for columns in (slice(0, 1), slice(16, 32), slice(3, 75)):
        part = backend.transfer(given.program, given.x, [m[:, columns] for m in given.matrices])
        assert torch.equal(part, whole[:, columns])


# ---- how many threads


@pytest.mark.parametrize("count", [1, 2, 3])
def test_torch_says_how_many_threads_there_are(count: int, monkeypatch: pytest.MonkeyPatch):
    seen: list[int] = []

    def start(team: Any, address: int, threads: int, flags: int) -> None:
        seen.append(threads)
        team(address)

    monkeypatch.setattr(threads, "_torch_threads", lambda: start)
    given = large()
    with on_threads(count):
        found = computed(given)
    assert set(seen) == ({count} if count > 1 else set())
    with on_threads(1):
        assert all(torch.equal(a, b) for a, b in zip(found, computed(given), strict=True))


def test_what_is_not_worth_it_stays_in_this_thread(monkeypatch: pytest.MonkeyPatch):
    def start(*_: object) -> None:
        raise AssertionError("no other thread was wanted")

    monkeypatch.setattr(threads, "_torch_threads", lambda: start)
    function, x = ftnn.catalogue["F12"], torch.rand(4, 5)
    with on_threads(3):
        matrices = [torch.rand(5, 6) for _ in function.parameters]
        assert backend.transfer(Program(function), x, matrices).shape == (4, 6)


def test_a_pool_of_our_own_serves_where_torchs_threads_cannot_be_had(monkeypatch: pytest.MonkeyPatch):
    given = large()
    with on_threads(3):
        expected = computed(given)
        monkeypatch.setattr(threads, "_torch_threads", lambda: None)
        assert all(torch.equal(a, b) for a, b in zip(computed(given), expected, strict=True))


def test_several_python_threads_at_once_compute_the_same():
    cases = [large("F12"), large("F16"), large("F09")]
    alone = [computed(given) for given in cases]
    wrong: list[str] = []

    def work(n: int) -> None:
        for _ in range(3):
            found = computed(cases[n % 3])
            if not all(torch.equal(a, b) for a, b in zip(found, alone[n % 3], strict=True)):
                wrong.append(str(n))

    with on_threads(2):
        workers = [threading.Thread(target=work, args=(n,)) for n in range(6)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
    assert not wrong
    assert not any(worker.is_alive() for worker in workers)


def test_threads_that_meet_a_formula_for_the_first_time_all_get_it():
    formula, found = "p*sin(q*x + 0.123456)*1.5", list[Tensor]()
    x, barrier = torch.linspace(-1, 1, 12).reshape(3, 4), threading.Barrier(5)
    matrices = [torch.full((4, 2), 0.5), torch.full((4, 2), 2.0)]

    def work() -> None:
        barrier.wait()
        found.append(ftnn.kernels.transfer(ftnn.Function(formula), x, matrices))

    workers = [threading.Thread(target=work) for _ in range(5)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    wanted = (0.5 * torch.sin(2 * x + 0.123456) * 1.5).sum(1, keepdim=True).expand(3, 2)
    assert len(found) == 5
    for one in found:
        torch.testing.assert_close(one, wanted)


# ---- other processes


class Transferred(Dataset[Tensor]):
    """A dataset whose items pass through a layer, in whatever process asks for them."""

    def __init__(self, given: Case):
        self.given = given

    def __len__(self) -> int:
        return 4

    def __getitem__(self, n: int) -> Tensor:
        torch.set_num_threads(1 + n % 2)
        found = computed(self.given)
        assert torch.utils.data.get_worker_info() is not None
        return torch.cat([t.flatten() for t in found])


@pytest.mark.filterwarnings("ignore:.*fork.*")  # torch and newer Pythons warn of forks
def test_forked_workers_of_a_data_loader_compute_the_same():
    given = large()
    with on_threads(2):
        alone = torch.cat([t.flatten() for t in computed(given)])  # the parent has its threads by now
        loader = DataLoader(
            Transferred(given), batch_size=None, num_workers=2, multiprocessing_context="fork", timeout=60
        )
        found = list(loader)
    assert len(found) == 4
    assert all(torch.equal(one, alone) for one in found)


def shifted(given: Case, n: int) -> Tensor:
    return backend.transfer(given.program, given.x + n, given.matrices)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_joblib_computes_the_same(backend: str):
    joblib: Any = pytest.importorskip("joblib")
    formula, given = ftnn.catalogue["F16"].formula, large("F16")
    parallel = joblib.Parallel(n_jobs=2, backend=backend)
    found = parallel(joblib.delayed(_layer)(formula, given.x + n, given.matrices) for n in range(3))
    for n, one in enumerate(found):
        assert torch.equal(one, shifted(given, n))


def _layer(formula: str, x: Tensor, matrices: list[Tensor]) -> Tensor:
    return ftnn.kernels.transfer(ftnn.Function(formula), x, matrices)


FORKED = """
import multiprocessing, torch, ftnn

def work():
    layer = ftnn.nn.Transfer(67, 75, "F12")
    assert torch.get_num_threads() == 2 and layer(torch.randn(300, 67)).isfinite().all()

torch.set_num_threads(2)
torch.sin(torch.randn(2_000_000))  # torch has its threads by now, and ftnn's kernels are not loaded yet
child = multiprocessing.get_context("fork").Process(target=work)
child.start()
child.join(60)
print(child.exitcode)
if child.exitcode is None:
    child.kill()
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="forks a process that has threads")
def test_a_fork_before_the_first_layer_does_not_wait_for_threads_that_are_not_there():
    ended = subprocess.run(
        [sys.executable, "-c", FORKED], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert ended.stdout == "0\n", ended.stderr


RAW_FORK = """
import os, signal, torch, ftnn

torch.set_num_threads(2)
torch.sin(torch.randn(2_000_000))  # torch has its threads by now, and ftnn's kernels are not loaded yet
child = os.fork()
if not child:
    signal.alarm(60)
    layer = ftnn.nn.Transfer(67, 75, "F12")
    good = torch.get_num_threads() == 2 and layer(torch.randn(300, 67)).isfinite().all()
    os._exit(0 if good else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="forks a process that has threads")
def test_nor_does_a_raw_fork_which_no_library_knows_of():
    ended = subprocess.run(
        [sys.executable, "-c", RAW_FORK], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert ended.stdout == "0\n", ended.stderr


# ---- without LLVM


WITHOUT = """
import sys, warnings
sys.modules["llvmlite"] = None
import torch, ftnn
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for name in ("F12", "F16", "F03"):
        layer = ftnn.nn.Transfer(5, 4, name, dtype=torch.float64)
        x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
        out = layer(x)
        out.sum().backward()
        other = ftnn.nn.Transfer(5, 4, name, dtype=torch.float64, backend="reference")
        other.load_state_dict(layer.state_dict())
        y = x.detach().clone().requires_grad_()
        again = other(y)
        again.sum().backward()
        torch.testing.assert_close(out, again)
        torch.testing.assert_close(x.grad, y.grad)
        layer.to(torch.float32)(x.detach().float())
    assert not ftnn.kernels.cpu_available()
    try:
        ftnn.nn.Transfer(5, 4, "F12", backend="cpu")(torch.randn(3, 5))
    except ftnn.errors.FtnnError as error:
        print(type(error).__name__)
for warning in caught:
    print(warning.category.__name__, "ftnn" in str(warning.message), "llvmlite" in str(warning.message))
"""


@pytest.mark.slow
def test_without_llvm_plain_torch_serves_and_says_so_once():
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == ["FtnnError", "UserWarning True True"]
