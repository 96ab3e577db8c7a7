"""Threads, processes, and machines without LLVM all compute the same numbers."""

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
from ftnn.kernels.cpu import backend, dense, skipping, threads, tiling
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


def computed(problem: Case) -> list[Tensor]:
    variables = problem.program.differentiable
    forward = backend.transfer(problem.program, problem.x, problem.matrices)
    return [
        forward,
        *backend.transfer_backward(problem.program, problem.grad, problem.x, problem.matrices, variables),
    ]


def large(name: str = "F12", dtype: torch.dtype = torch.float32, density: float = 0.5) -> Case:
    """Large enough for several threads."""
    problem = case(ftnn.catalogue[name], 67, 75, 150, density, dtype)
    assert problem.x.numel() * 75 > tiling.SMALL
    return problem


# ---- the same bits


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["F03", "F09", "F12", "F15"])
def test_results_have_the_same_bits_on_any_number_of_threads(name: str, dtype: torch.dtype):
    problem = large(name, dtype)
    results: list[list[Tensor]] = []
    for count in (1, 2, 3, 5, 1):
        with on_threads(count):
            results.append(computed(problem))
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def forget_launches() -> None:
    for module in (dense, skipping):
        module._forward_launch.cache_clear()
        module._backward_launch.cache_clear()


@pytest.fixture
def own_launches() -> Generator[None]:
    """Launches that are prepared in this test are not used by others."""
    yield
    forget_launches()


@pytest.mark.usefixtures("own_launches")
def test_results_have_the_same_bits_for_any_block_size(monkeypatch: pytest.MonkeyPatch):
    problem = large()
    whole = computed(problem)
    for block, small in ((1, 0), (3, 0), (100, 0), (8, 10**9)):
        monkeypatch.setattr(tiling, "BLOCK_VECTORS", block)
        monkeypatch.setattr(tiling, "SMALL", small)
        forget_launches()
        with on_threads(2):
            assert all(torch.equal(a, b) for a, b in zip(whole, computed(problem), strict=True))


def test_a_sample_has_the_same_bits_alone_as_in_a_batch():
    """Without skipping, a sum over inputs does not depend on the rest of the batch."""
    problem = large(density=1.0)
    whole = backend.transfer(problem.program, problem.x, problem.matrices)
    for rows in (slice(0, 1), slice(63, 66), slice(100, 150)):
        assert torch.equal(backend.transfer(problem.program, problem.x[rows], problem.matrices), whole[rows])


def test_an_output_has_the_same_bits_alone_as_among_others():
    problem = large(density=1.0)
    whole = backend.transfer(problem.program, problem.x, problem.matrices)
    for columns in (slice(0, 1), slice(16, 32), slice(3, 75)):
        part = backend.transfer(problem.program, problem.x, [m[:, columns] for m in problem.matrices])
        assert torch.equal(part, whole[:, columns])


# ---- how many threads


@pytest.mark.parametrize("count", [1, 2, 3])
def test_kernels_use_as_many_threads_as_torch(count: int, monkeypatch: pytest.MonkeyPatch):
    seen: list[int] = []

    def start(team: Any, address: int, threads: int, flags: int) -> None:
        seen.append(threads)
        team(address)

    monkeypatch.setattr(threads, "_torch_threads", lambda: start)
    problem = large()
    with on_threads(count):
        results = computed(problem)
    assert set(seen) == ({count} if count > 1 else set())
    with on_threads(1):
        assert all(torch.equal(a, b) for a, b in zip(results, computed(problem), strict=True))


def test_small_layers_run_in_the_calling_thread(monkeypatch: pytest.MonkeyPatch):
    def start(*_: object) -> None:
        raise AssertionError("no other thread should start")

    monkeypatch.setattr(threads, "_torch_threads", lambda: start)
    function, x = ftnn.catalogue["F12"], torch.rand(4, 5)
    with on_threads(3):
        matrices = [torch.rand(5, 6) for _ in function.parameters]
        assert backend.transfer(Program(function), x, matrices).shape == (4, 6)


def test_a_thread_pool_replaces_unavailable_openmp_threads(monkeypatch: pytest.MonkeyPatch):
    problem = large()
    with on_threads(3):
        expected = computed(problem)
        monkeypatch.setattr(threads, "_torch_threads", lambda: None)
        assert all(torch.equal(a, b) for a, b in zip(computed(problem), expected, strict=True))


def test_concurrent_python_threads_compute_the_same_bits():
    cases = [large("F12"), large("F16"), large("F09")]
    alone = [computed(problem) for problem in cases]
    wrong: list[str] = []

    def work(n: int) -> None:
        for _ in range(3):
            results = computed(cases[n % 3])
            if not all(torch.equal(a, b) for a, b in zip(results, alone[n % 3], strict=True)):
                wrong.append(str(n))

    with on_threads(2):
        workers = [threading.Thread(target=work, args=(n,)) for n in range(6)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
    assert not wrong
    assert not any(worker.is_alive() for worker in workers)


def test_concurrent_threads_can_compile_the_same_new_formula():
    formula, results = "p*sin(q*x + 0.123456)*1.5", list[Tensor]()
    x, barrier = torch.linspace(-1, 1, 12).reshape(3, 4), threading.Barrier(5)
    matrices = [torch.full((4, 2), 0.5), torch.full((4, 2), 2.0)]

    def work() -> None:
        barrier.wait()
        results.append(ftnn.kernels.transfer(ftnn.Function(formula), x, matrices))

    workers = [threading.Thread(target=work) for _ in range(5)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    expected = (0.5 * torch.sin(2 * x + 0.123456) * 1.5).sum(1, keepdim=True).expand(3, 2)
    assert len(results) == 5
    for one in results:
        torch.testing.assert_close(one, expected)


# ---- other processes


class Transferred(Dataset[Tensor]):
    """A dataset whose items are computed by a layer in the worker process."""

    def __init__(self, problem: Case):
        self.problem = problem

    def __len__(self) -> int:
        return 4

    def __getitem__(self, n: int) -> Tensor:
        torch.set_num_threads(1 + n % 2)
        results = computed(self.problem)
        assert torch.utils.data.get_worker_info() is not None
        return torch.cat([t.flatten() for t in results])


@pytest.mark.filterwarnings("ignore:.*fork.*")  # torch and recent Pythons warn about forks
def test_forked_data_loader_workers_compute_the_same_bits():
    problem = large()
    with on_threads(2):
        alone = torch.cat([t.flatten() for t in computed(problem)])  # starts the threads of the parent
        loader = DataLoader(
            Transferred(problem), batch_size=None, num_workers=2, multiprocessing_context="fork", timeout=60
        )
        results = list(loader)
    assert len(results) == 4
    assert all(torch.equal(one, alone) for one in results)


def shifted(problem: Case, n: int) -> Tensor:
    return backend.transfer(problem.program, problem.x + n, problem.matrices)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_joblib_workers_compute_the_same_bits(backend: str):
    joblib: Any = pytest.importorskip("joblib")
    formula, problem = ftnn.catalogue["F16"].formula, large("F16")
    parallel = joblib.Parallel(n_jobs=2, backend=backend)
    results = parallel(joblib.delayed(_layer)(formula, problem.x + n, problem.matrices) for n in range(3))
    for n, one in enumerate(results):
        assert torch.equal(one, shifted(problem, n))


def _layer(formula: str, x: Tensor, matrices: list[Tensor]) -> Tensor:
    return ftnn.kernels.transfer(ftnn.Function(formula), x, matrices)


FORKED = """
import multiprocessing, torch, ftnn

def work():
    layer = ftnn.nn.Transfer(67, 75, "F12")
    assert torch.get_num_threads() == 2 and layer(torch.randn(300, 67)).isfinite().all()

torch.set_num_threads(2)
torch.sin(torch.randn(2_000_000))  # starts torch's threads before ftnn's kernels are loaded
child = multiprocessing.get_context("fork").Process(target=work)
child.start()
child.join(60)
print(child.exitcode)
if child.exitcode is None:
    child.kill()
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="forks a process that has threads")
def test_a_multiprocessing_fork_does_not_hang_on_missing_openmp_threads():
    process = subprocess.run(
        [sys.executable, "-c", FORKED], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert process.stdout == "0\n", process.stderr


RAW_FORK = """
import os, signal, torch, ftnn

torch.set_num_threads(2)
torch.sin(torch.randn(2_000_000))  # starts torch's threads before ftnn's kernels are loaded
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
def test_a_raw_os_fork_does_not_hang_on_missing_openmp_threads():
    process = subprocess.run(
        [sys.executable, "-c", RAW_FORK], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert process.stdout == "0\n", process.stderr


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
def test_without_llvm_plain_torch_is_used_with_one_warning():
    process = subprocess.run(
        [sys.executable, "-c", WITHOUT], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines() == ["FtnnError", "UserWarning True True"]
