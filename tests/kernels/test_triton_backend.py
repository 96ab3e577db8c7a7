"""The Triton backend: kernels compile for a GPU (none is needed), work in layers, and fail clearly."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import ftnn
from ftnn import Function, catalogue
from ftnn.formula._derive import simplify
from ftnn.formula._ops import OPS
from ftnn.kernels import signature, transfer
from ftnn.kernels.program import program_of
from ftnn.kernels.triton import source
from ftnn.kernels.triton.source import DType
from tests.formula import rows
from tests.kernels import interpreted
from tests.kernels._layers import FEED_FORWARD, function_of, tensors
from tests.kernels.interpreted import compiled

pytestmark = pytest.mark.slow

# ---- compiled for a GPU, but never run on one


def sources(function: Function, dtype: DType) -> list[str]:
    program = program_of(*signature(function))
    backward = source.by_matrices(program, program.parameters, dtype)
    return [source.forward(program, dtype), source.by_input(program, dtype), backward]


def check_compiles(texts: list[str], dtype: DType) -> None:
    for text in texts:
        size, has_atomics = compiled(interpreted.machine_code, text, dtype)
        assert size > 0
        assert not has_atomics


@pytest.fixture(scope="module", autouse=True)
def _cache_of_triton(tmp_path_factory: pytest.TempPathFactory):  # pyright: ignore[reportUnusedFunction]
    """An empty cache, removed at the end; the other process inherits this setting."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        yield


@pytest.mark.parametrize("name", ["F07", "F12"])
def test_kernels_compile_for_a_gpu_and_have_no_atomics(name: str):
    check_compiles(sources(catalogue[name], "float32"), "float32")


@pytest.mark.slow
@pytest.mark.parametrize("name", FEED_FORWARD)
def test_catalogue_compiles_for_a_gpu_in_float64_without_atomics(name: str):
    check_compiles(sources(catalogue[name], "float64"), "float64")


@pytest.mark.parametrize("op", OPS)
def test_every_operation_compiles_for_a_gpu(op: str):
    check_compiles([interpreted.map_source(simplify(rows.applied(op)), "float32")], "float32")


# ---- in layers, with torch's own tools


def second_derivatives(formula: str) -> None:
    from torch.autograd import gradcheck, gradgradcheck
    from torch.library import opcheck

    function = function_of(formula)
    x, matrices = tensors(function, 2, 2, 2, low=0.1, seed=3)

    def run(x: Tensor, *matrices: Tensor) -> Tensor:
        return transfer(function, x, matrices, "triton")

    assert gradcheck(run, (x, *matrices), atol=1e-8, rtol=1e-6)
    assert gradgradcheck(run, (x, *matrices), atol=1e-8, rtol=1e-6)
    opcheck(torch.ops.ftnn.transfer.default, (x, matrices, [], *signature(function), "triton"))


@pytest.mark.parametrize("formula", ["F07", "F12"])
def test_first_and_second_derivatives_match_finite_differences(formula: str):
    interpreted.interpreted(second_derivatives, formula)


def trained(backend: Any, whole: bool) -> list[Any]:
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        ftnn.nn.Transfer(2, 5, "F16", backend=backend), ftnn.nn.Transfer(5, 1, "F12", backend=backend)
    )
    run: Any = torch.compile(net, backend="aot_eager", fullgraph=True) if whole else net
    optimiser = torch.optim.SGD(net.parameters(), 0.1)
    x = torch.randn(3, 7, 2)  # leading dimensions are arbitrary
    for _ in range(3):
        optimiser.zero_grad()
        ((run(x) - x.sum(-1, keepdim=True)) ** 2).mean().backward()
        optimiser.step()
    return [parameter.detach().numpy() for parameter in net.parameters()]


@pytest.mark.parametrize("whole", [False, True])
def test_a_network_trains_as_with_the_reference_also_under_torch_compile(whole: bool):
    result = interpreted.interpreted(trained, "triton", whole)
    for one, other in zip(result, trained("reference", False), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_only_requested_gradients_are_computed():
    interpreted.interpreted(only_some_gradients)


def only_some_gradients() -> None:
    function = catalogue["F04"]
    x, (p, q, r) = tensors(function)
    expected = torch.autograd.grad(transfer(function, x, [p, q, r], "reference").sum(), [q])
    q.grad = None
    transfer(function, x.detach(), [p.detach(), q, r.detach()], "triton").sum().backward()
    torch.testing.assert_close(q.grad, expected[0])


# ---- where it cannot run


def fails_with(prepare: str) -> str:
    program = f"import os\nos.environ['TRITON_INTERPRET'] = '0'\nimport sys, torch\n{prepare}\nimport ftnn\n"
    program += "ftnn.nn.Transfer(2, 3, 'F12', backend='triton')(torch.zeros(1, 2))"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=dict(os.environ)
    )
    assert run.returncode != 0
    return run.stderr.splitlines()[-1]


def test_without_triton_the_error_says_what_to_install():
    last = fails_with("sys.modules['triton'] = None")
    assert last.startswith("ftnn.errors.FtnnError: ")
    assert 'pip install "ftnn[triton]"' in last


@pytest.mark.parametrize("late", ["", "import triton; os.environ['TRITON_INTERPRET'] = '1'"])
def test_on_the_cpu_without_the_interpreter_the_error_says_so(late: str):
    last = fails_with(late)
    assert last.startswith("ftnn.errors.FtnnError: ")
    assert "TRITON_INTERPRET=1" in last


def half() -> str:
    x, *matrices = (torch.zeros(2, 2, dtype=torch.bfloat16) for _ in range(4))
    with pytest.raises(ftnn.errors.DTypeError) as caught:
        ftnn.kernels.transfer(ftnn.catalogue["F12"], x, matrices, "triton")
    return str(caught.value)


def test_half_precision_raises():
    """The kernels raise; a half-precision layer computes in float32."""
    assert "bfloat16" in interpreted.interpreted(half)


def test_auto_does_not_import_triton():
    program = (
        "import sys, torch, ftnn\n"
        "ftnn.nn.Transfer(2, 3, 'F12')(torch.zeros(1, 2)).sum().backward()\n"
        "assert 'ftnn.kernels.triton.launch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, "TRITON_INTERPRET": "1"})


def test_an_operation_that_triton_lacks_raises():
    with rows.table_with(replace(OPS["sin"], triton="tl.sine")), pytest.raises(ValueError, match=r"tl\.sine"):
        source.check_spellings()


def test_generated_sources_contain_no_user_text():
    for result in sources(Function("p * x**2+(q)*x"), "float32"):
        assert "F = p*x**2 + q*x, float32" in result.splitlines()[0]
