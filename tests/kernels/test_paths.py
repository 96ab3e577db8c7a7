"""`backend="auto"` takes the fastest right path, and every path has derivatives of every order."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import ftnn
from ftnn.errors import FtnnError
from ftnn.kernels import transfer
from ftnn.kernels.cpu import backend
from ftnn.kernels.eager import gemm, reference
from tests.kernels._layers import HERE

FUSED = [name for name, f in ftnn.catalogue.items() if f.plan.kind == "fused" and name != "memory"]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each path was taken."""
    counts: Counter[str] = Counter()

    def counted(label: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            counts[label] += 1
            return function(*args)

        return call

    for module, label in ((gemm, "gemm"), (backend, "cpu"), (reference, "reference")):
        for name in ("transfer", "transfer_backward"):
            suffix = " backward" if name.endswith("backward") else ""
            monkeypatch.setattr(module, name, counted(label + suffix, getattr(module, name)))
    return counts


def run(layer: ftnn.nn.Transfer, dtype: torch.dtype = torch.float32) -> None:
    x = torch.randn(3, layer.in_features, dtype=dtype, requires_grad=True)
    layer(x).sum().backward()


@pytest.mark.parametrize("name", ["F01", "F03", "F17", "p*cos(x) + q"])
def test_a_separable_function_is_matrix_products(taken: Counter[str], name: str):
    run(ftnn.nn.Transfer(4, 5, name))
    assert taken == {"gemm": 1, "gemm backward": 1}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["F05", "F12", "F16"])
def test_another_function_is_generated_code(taken: Counter[str], name: str, dtype: torch.dtype):
    run(ftnn.nn.Transfer(4, 5, name, dtype=dtype), dtype)
    assert taken == {"cpu": 1, "cpu backward": 1}


def test_half_precision_is_computed_by_the_kernels_of_float32(taken: Counter[str]):
    run(ftnn.nn.Transfer(4, 5, "F12", dtype=torch.bfloat16), torch.bfloat16)
    assert taken == {"cpu": 1, "cpu backward": 1}


def test_where_kernels_do_not_reach_is_the_reference(taken: Counter[str]):
    x, matrices = torch.zeros(2, 4, dtype=torch.bfloat16), [torch.zeros(4, 5, dtype=torch.bfloat16)] * 3
    transfer(ftnn.catalogue["F12"], x, matrices)
    assert taken == {"reference": 1}


@pytest.mark.parametrize("name", ["F03", "F12"])
def test_a_path_can_be_named(taken: Counter[str], name: str):
    run(ftnn.nn.Transfer(4, 5, name, backend="cpu"))
    assert taken == {"cpu": 1, "cpu backward": 1}
    taken.clear()
    run(ftnn.nn.Transfer(4, 5, name, backend="reference"))
    assert taken == {"reference": 1, "reference backward": 1}


def test_products_that_would_overflow_are_generated_code(taken: Counter[str]):
    function = ftnn.Function("exp(x + q)")
    x, q = torch.full((2, 3), -120.0), torch.full((3, 2), 120.0)
    torch.testing.assert_close(transfer(function, x, [q]), torch.full((2, 2), 3.0))
    assert taken == {"cpu": 1}


def test_a_path_by_name_that_cannot_be_taken_is_an_error():
    layer = ftnn.nn.Transfer(4, 5, "F12", device="meta", backend="cpu")
    with pytest.raises(FtnnError, match="meta"):
        layer(torch.zeros(1, 4, device="meta"))


def test_all_paths_agree():
    for name in ("F03", "F04", "F17", "F19"):
        function = ftnn.catalogue[name]
        x = torch.randn(9, 20, dtype=torch.float64)
        matrices = [torch.randn(20, 7, dtype=torch.float64) for _ in function.parameters]
        first, *others = (transfer(function, x, matrices, backend) for backend in HERE)
        for other in others:
            torch.testing.assert_close(first, other, rtol=1e-12, atol=1e-12)


# ---- when gradients are wanted, and when not


def test_without_gradients_none_are_computed(taken: Counter[str]):
    layer = ftnn.nn.Transfer(4, 5, "F12")
    with torch.no_grad():
        assert not layer(torch.randn(3, 4)).requires_grad
    with torch.inference_mode():
        layer(torch.randn(3, 4))
    assert taken == {"cpu": 2}


def test_frozen_parameters_get_no_gradient_and_the_others_the_same():
    x = torch.randn(6, 17, dtype=torch.float64)
    free, part = (ftnn.nn.Transfer(17, 5, "F12", dtype=torch.float64) for _ in range(2))
    part.load_state_dict(free.state_dict())
    part.theta["q"].requires_grad_(False)
    for layer in (free, part):
        layer(x).square().sum().backward()
    assert part.theta["q"].grad is None
    for name in ("p", "r"):
        torch.testing.assert_close(part.theta[name].grad, free.theta[name].grad)


def test_gradients_accumulate_as_torchs_do():
    layer = ftnn.nn.Transfer(17, 5, "F12", dtype=torch.float64)
    x = torch.randn(6, 17, dtype=torch.float64)
    layer(x).sum().backward()
    once = layer.theta["p"].grad
    assert once is not None
    once = once.clone()
    layer(x).sum().backward()
    torch.testing.assert_close(layer.theta["p"].grad, 2 * once)


# ---- derivatives of derivatives


def arguments(function: ftnn.Function, inputs: int, outputs: int, batch: int) -> tuple[Tensor, ...]:
    """x with a few zeros, and matrices; away from the kinks of the rectifiers."""
    random = torch.Generator().manual_seed(3)
    x = torch.rand(batch, inputs, generator=random, dtype=torch.float64) + 0.2
    matrices = [
        torch.rand(inputs, outputs, generator=random, dtype=torch.float64) + 0.3 for _ in function.parameters
    ]
    matrices += [torch.ones(inputs, outputs, dtype=torch.float64) for _ in function.constants]
    return x, *matrices


@pytest.mark.parametrize("name", FUSED)
def test_first_and_second_derivatives_of_fused_functions_are_those_of_differences(name: str):
    function = ftnn.catalogue[name]
    trained = 1 + len(function.parameters)
    x, *matrices = arguments(function, 3, 2, 4)
    given = [t.requires_grad_() if n < trained else t for n, t in enumerate((x, *matrices))]

    def layer(x: Tensor, *matrices: Tensor) -> Tensor:
        return transfer(function, x, matrices)

    assert torch.autograd.gradcheck(layer, given)
    assert torch.autograd.gradgradcheck(layer, given)


@pytest.mark.parametrize("backend", HERE)
def test_third_derivatives_of_a_network_as_physics_wants_them(backend: Any):
    """u(t) = Σ sin(t + …) of two layers: u''' by autograd against sympy's own third derivative."""
    sympy: Any = pytest.importorskip("sympy")
    first, second = ftnn.Function("p*sin(q*x + r)"), ftnn.Function("p*tanh(x)")
    a = [torch.tensor([[v, w]], dtype=torch.float64) for v, w in ((0.7, 0.4), (1.1, -0.8), (0.2, 0.5))]
    b = [torch.tensor([[0.9], [1.3]], dtype=torch.float64)]
    t = torch.linspace(-1, 1, 9, dtype=torch.float64)[:, None].requires_grad_()
    u = transfer(second, transfer(first, t, a, backend), b, backend)
    for _ in range(3):
        (u,) = torch.autograd.grad(u.sum(), t, create_graph=True)
    s = sympy.Symbol("s")
    columns = zip(*(m[0].tolist() for m in a), b[0][:, 0].tolist(), strict=True)
    whole = sum(w * sympy.tanh(p * sympy.sin(q * s + r)) for p, q, r, w in columns)
    true = sympy.lambdify(s, sympy.diff(whole, s, 3), "math")
    wanted = torch.tensor([[true(v)] for v in t.detach()[:, 0].tolist()], dtype=torch.float64)
    torch.testing.assert_close(u.detach(), wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.slow
def test_a_loss_of_second_derivatives_trains():
    """u'' + u = 0, u(0) = 0, u'(0) = 1: the sine. A step of training lowers the loss."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        ftnn.nn.Transfer(1, 20, "p*tanh(q*x + r)", dtype=torch.float64),
        ftnn.nn.Transfer(20, 1, "F12", dtype=torch.float64),
    )
    t = torch.linspace(0, math.pi, 20, dtype=torch.float64)[:, None].requires_grad_()

    def loss() -> Tensor:
        u = net(t)
        (du,) = torch.autograd.grad(u.sum(), t, create_graph=True)
        (ddu,) = torch.autograd.grad(du.sum(), t, create_graph=True)
        return (ddu + u).square().mean() + u[0].square().sum() + (du[0] - 1).square().sum()

    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    first = float(loss().detach())
    for _ in range(30):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    assert float(loss().detach()) < 0.5 * first
