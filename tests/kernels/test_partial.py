"""Partial matrices: generated code and the reference match sums over connections by NumPy."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.library import opcheck

import ftnn
from ftnn.kernels import signature
from ftnn.kernels.operator import Backend
from ftnn.nn import Partial
from tests.inspect import oracle

NAMES = [name for name in ftnn.catalogue if name != "memory"]
SHAPES = [(1, 1, 1), (5, 7, 3), (33, 19, 11), (70, 40, 21)]
BACKENDS: tuple[Backend, ...] = ("cpu", "reference")


def partial(n: int, m: int, function: Any, share: float = 0.4, **more: Any) -> Partial:
    mask = torch.from_numpy(np.random.default_rng(n * m).random((m, n)) < share)
    layer = Partial(n, m, function, mask.nonzero(), **more)
    if layer.bias is not None:
        with torch.no_grad():
            layer.bias.uniform_(-1, 1)
    return layer


def samples(b: int, n: int, dtype: torch.dtype = torch.float64) -> Tensor:
    x = torch.from_numpy(np.random.default_rng(b).normal(size=(b, n)))
    x[::3, ::2] = 0  # zeros
    return x.to(dtype)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_catalogue_values_are_the_sums_over_connections(name: str, backend: Backend):
    for b, n, m in SHAPES:
        layer = partial(n, m, name, dtype=torch.float64, backend=backend)
        x = samples(b, n)
        torch.testing.assert_close(
            layer(x).detach(), torch.from_numpy(oracle.sums(layer, x.numpy())), rtol=1e-12, atol=1e-12
        )


@pytest.mark.parametrize("name", NAMES)
def test_catalogue_gradients_are_the_sums_of_symbolic_slopes(name: str):
    for b, n, m in SHAPES:
        layer = partial(n, m, name, dtype=torch.float64, backend="cpu")
        x = samples(b, n).requires_grad_()
        error = torch.from_numpy(np.random.default_rng(7).normal(size=(b, m)))
        gradients = torch.autograd.grad(layer(x), [x, *layer.theta.tensors()], error)
        for gradient, by in zip(gradients, ("x", *layer.function.parameters), strict=True):
            each = (
                oracle.cube(layer, layer.function.slope(by), x.detach().numpy()) * error.numpy()[:, :, None]
            )
            each = np.where(np.isnan(oracle.values_of(layer)[layer.function.parameters[0]]), 0, each)
            total = np.nansum(each, 1) if by == "x" else np.nansum(each, 0)
            if by != "x":
                places = layer.connections.numpy()
                total = total[places[:, 0], places[:, 1]]
            np.testing.assert_allclose(gradient.numpy(), total, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("name", ["F06", "F12", "F16"])
def test_float32_matches_float64(name: str):
    layer = partial(40, 21, name, backend="cpu")
    x = samples(70, 40, torch.float32).requires_grad_()
    same = Partial(40, 21, name, layer.connections, dtype=torch.float64, backend="reference")
    same.load_state_dict(layer.state_dict())
    y = x.detach().double().requires_grad_()
    torch.testing.assert_close(layer(x).double(), same(y), rtol=1e-5, atol=1e-5)
    first = torch.autograd.grad(layer(x).sum(), [x, *layer.parameters()])
    second = torch.autograd.grad(same(y).sum(), [y, *same.parameters()])
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-4)


def test_first_and_second_derivatives_match_finite_differences():
    layer = partial(3, 2, "p*sin(q*x + r)*exp(x*p)", 0.8, dtype=torch.float64)
    x = samples(4, 3).requires_grad_()

    def run(x: Tensor, *theta: Tensor) -> Tensor:
        return torch.func.functional_call(layer, dict(zip(names, theta, strict=True)), (x,))

    names = [name for name, _ in layer.named_parameters()]
    theta = [p.detach().clone().requires_grad_() for p in layer.parameters()]
    assert torch.autograd.gradcheck(run, (x, *theta))
    assert torch.autograd.gradgradcheck(run, (x, *theta))


def test_results_do_not_depend_on_the_number_of_threads():
    layer = partial(60, 50, "F12", backend="cpu")
    x = samples(300, 60, torch.float32).requires_grad_()
    before = torch.get_num_threads()
    results: list[tuple[Tensor, ...]] = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            out = layer(x)
            results.append((out, *torch.autograd.grad(out.sum(), [x, *layer.parameters()])))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_layer_without_connections_returns_its_bias(backend: Backend):
    layer = Partial(3, 2, "F12", [], backend=backend)
    x = torch.zeros(4, 3, requires_grad=True)
    out = layer(x)
    assert torch.equal(out, torch.zeros(4, 2))
    out.sum().backward()
    assert x.grad is not None
    assert not x.grad.any()
    assert layer.theta["p"].grad is not None
    assert layer(torch.zeros(0, 3)).shape == (0, 2)


def test_the_chunk_size_of_the_reference_does_not_change_results(monkeypatch: pytest.MonkeyPatch):
    layer = partial(19, 11, "F13", dtype=torch.float64, backend="reference")
    x = samples(33, 19).requires_grad_()
    expected = (layer(x), *torch.autograd.grad(layer(x).sum(), [x, *layer.parameters()]))
    monkeypatch.setattr("ftnn.kernels.eager.reference.CHUNK", 33 * 4)
    result = (layer(x), *torch.autograd.grad(layer(x).sum(), [x, *layer.parameters()]))
    for a, b in zip(expected, result, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-13, atol=1e-13)


def test_nan_reaches_only_connected_outputs():
    layer = Partial(2, 3, "p*x", [(0, 0), (2, 1)], backend="cpu")
    result = layer(torch.tensor([[float("nan"), 1.0]])).isnan()
    assert result.tolist() == [[True, False, False]]


@pytest.mark.parametrize("backend", ["auto", "cpu"])
def test_half_precision_is_computed_in_float32_and_rounded_once(backend: Backend):
    layer = partial(5, 4, "F03", dtype=torch.bfloat16)
    layer.backend = backend
    x = samples(2, 5).bfloat16()
    result = layer(x)
    assert result.dtype == torch.bfloat16
    torch.testing.assert_close(result, layer.float()(x.float()).bfloat16(), rtol=0, atol=0)


def test_operators_with_lists_pass_opcheck():
    layer = partial(7, 3, "F12", dtype=torch.float64)
    matrices = [m.detach().requires_grad_() for m in layer.theta.tensors()]
    x = samples(5, 7).requires_grad_()
    arguments = ([layer.inputs, layer.check()], *signature(layer.function), "auto")
    opcheck(torch.ops.ftnn.transfer.default, (x, matrices, *arguments))
    plain = [m.detach() for m in matrices]
    grad = torch.ones(5, 3, dtype=torch.float64)
    opcheck(torch.ops.ftnn.transfer_backward.default, (grad, x.detach(), plain, *arguments, "x q"))
