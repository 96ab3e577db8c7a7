"""Generated code for memory functions over a whole sequence, against the reference, step by step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import ftnn
from ftnn.kernels import memory as operator
from ftnn.kernels.cpu import through_time as cpu
from ftnn.nn import Memory

FORMULAS = [
    "memory",
    "p*x + q*C",
    "sin(p*x + C)*q",
    "p*x*C + r",
    "rect_ada(p*x + q*C)*u",
    "where(x > 0, p*x, q*C) + r*exp(-x*x)",
    "p*x + logistic(q)*C + C/(1 + (r*C)**2)",
]
LARGE = (40, 13, 19, 37)
"""Time, batch, in and out: more than one vector of outputs, and enough work for threads."""


def layer_and_reference(formula: str, sizes: tuple[int, int], **options: Any) -> tuple[Memory, Memory]:
    constants = {"u": (-1, 1)} if "u" in formula else {}
    function = (
        ftnn.catalogue["memory"] if formula == "memory" else ftnn.Function(formula, constants=constants)
    )
    torch.manual_seed(1)
    layer = Memory(*sizes, function, **options)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.7)
    other = Memory(*sizes, function, backend="reference", **options)
    other.load_state_dict(layer.state_dict())
    return layer, other


def results(layer: Memory, sizes: tuple[int, ...], dtype: torch.dtype) -> list[Tensor]:
    """Outputs, last state, and the gradients by x, by the state and by all parameters."""
    time, batch, inputs, outputs = sizes
    torch.manual_seed(2)
    x = torch.randn(time, batch, inputs, dtype=dtype, requires_grad=True)
    state = torch.randn(batch, outputs, inputs, dtype=dtype, requires_grad=True)
    y, last = layer(x, state)
    weights = torch.randn(y.shape, dtype=dtype), torch.randn(last.shape, dtype=dtype)  # equal for all strides
    total = (y * weights[0]).sum() + (last * weights[1]).sum()
    wanted = [x, *([state] if layer.through_time else []), *layer.parameters()]
    grads = torch.autograd.grad(total, wanted)
    return [y, last, *grads]


@pytest.mark.parametrize("through_time", [False, True])
@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_generated_code_matches_the_reference(formula: str, dtype: torch.dtype, through_time: bool):
    for sizes in ((1, 1, 1, 1), (7, 5, 3, 19), (3, 2, 4, 16)):
        pair = layer_and_reference(formula, sizes[2:], dtype=dtype, through_time=through_time)
        actual, expected = (results(layer, sizes, dtype) for layer in pair)
        for one, other in zip(actual, expected, strict=True):
            scale = other.abs().max().item()
            rtol = 1e-12 if dtype == torch.float64 else 2e-5
            torch.testing.assert_close(one, other, rtol=rtol, atol=rtol * scale)


def test_generated_code_is_what_computes_it(monkeypatch: pytest.MonkeyPatch):
    calls: list[str] = []
    for name in ("forward", "backward"):
        own = getattr(cpu, name)

        def noted(*args: Any, name: str = name, own: Any = own, **options: Any) -> Any:
            calls.append(name)
            return own(*args, **options)

        monkeypatch.setattr(cpu, name, noted)
    layer, other = layer_and_reference("memory", (3, 4))
    for one in (other, layer):
        one(torch.randn(5, 2, 3))[0].sum().backward()
    assert calls == ["forward", "backward"]


@pytest.mark.parametrize("through_time", [False, True])
@pytest.mark.parametrize("formula", FORMULAS[:4])
def test_first_and_second_derivatives_match_finite_differences(formula: str, through_time: bool):
    layer, _ = layer_and_reference(
        formula, (2, 3), dtype=torch.float64, through_time=through_time, bias=False
    )
    function, matrices = layer.function, [m.detach().requires_grad_() for m in layer.matrices()]
    x = torch.randn(1 if not through_time else 3, 2, 2, dtype=torch.float64, requires_grad=True)
    cell = torch.randn(2, 2, 3, dtype=torch.float64, requires_grad=through_time)

    def run(x: Tensor, cell: Tensor, *matrices: Tensor) -> tuple[Tensor, ...]:
        return operator(function, x, cell, matrices, through_time=through_time, backend="auto")

    assert torch.autograd.gradcheck(run, (x, cell, *matrices))
    assert torch.autograd.gradgradcheck(run, (x, cell, *matrices))


def test_second_derivatives_are_right_if_the_state_depends_on_x():
    layer, other = layer_and_reference("memory", (3, 5), dtype=torch.float64, through_time=True)
    x = torch.randn(4, 2, 3, dtype=torch.float64, requires_grad=True)
    seconds: list[Tensor] = []
    for one in (layer, other):
        state = x.mean(0)[:, None, :] * torch.linspace(-1, 1, 5, dtype=torch.float64)[:, None]
        (slope,) = torch.autograd.grad(one(x, state)[0].square().sum(), x, create_graph=True)
        seconds.append(torch.autograd.grad(slope.square().sum(), x)[0])
    torch.testing.assert_close(seconds[0], seconds[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_number_of_threads_changes_no_bit(dtype: torch.dtype):
    layer, _ = layer_and_reference("memory", LARGE[2:], dtype=dtype, through_time=True)
    before = torch.get_num_threads()
    try:
        outcomes: list[list[Tensor]] = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            outcomes.append(results(layer, LARGE, dtype))
    finally:
        torch.set_num_threads(before)
    for outcome in outcomes[1:]:
        assert all(torch.equal(a, b) for a, b in zip(outcomes[0], outcome, strict=True))


def test_a_batch_does_not_change_the_result_of_a_sample():
    layer, _ = layer_and_reference("memory", (4, 21))
    x = torch.randn(9, 6, 4)
    assert torch.equal(layer(x)[0][:, 2:3], layer(x[:, 2:3].contiguous())[0])


@pytest.mark.parametrize("batch", [1, 3])
def test_neither_the_state_nor_its_gradient_is_overwritten(batch: int):
    """Also where it has the layout of kernels already: one sample, whole vectors of outputs."""
    layer, _ = layer_and_reference("memory", (1, 16), through_time=True)
    x, state = torch.randn(4, batch, 1), torch.randn(batch, 16, 1, requires_grad=True)
    kept = state.detach().clone()
    _, last = layer(x, state)
    weight = torch.randn_like(last)
    kept_weight = weight.clone()
    last.backward(weight)
    assert torch.equal(state, kept)
    assert torch.equal(weight, kept_weight)


def test_no_values_of_single_steps_are_kept_for_the_gradient():
    layer, _ = layer_and_reference("memory", (5, 7), through_time=True, bias=False)
    sizes: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        sizes.append(tensor.numel())
        return tensor

    def unpack(tensor: Tensor) -> Tensor:
        return tensor

    x = torch.randn(50, 3, 5, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        layer(x)
    assert sum(sizes) == x.numel() + 3 * 5 * 7 + 3 * 5 * 7  # x, the initial cells and three matrices


def test_overflow_only_of_a_reordered_product_comes_from_the_reference():
    layer, other = layer_and_reference("p*(x*(q*C))", (2, 3), through_time=True, bias=False)
    with torch.no_grad():
        for one in (layer, other):
            one.matrix("p").fill_(1e30)
            one.matrix("q").fill_(1e30)
    x, state = torch.full((1, 1, 2), 1.0), torch.full((1, 3, 2), 1e-30)
    torch.testing.assert_close(layer(x, state)[0], other(x, state)[0])
    assert layer(x, state)[0].isfinite().all()


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
def test_nan_and_infinity_affect_only_their_own_sample(wrong: float):
    layer, other = layer_and_reference("sin(p*x + C)*q", (3, 5))
    x = torch.randn(4, 3, 3)
    x[1, 1, 2] = wrong
    y = layer(x)[0]
    torch.testing.assert_close(y, other(x)[0], equal_nan=True)
    assert y[1:, 1].isnan().all()
    assert y[:, [0, 2]].isfinite().all()
