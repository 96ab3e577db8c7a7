"""Skipping zeros loses no digits, forward or backward, in layers and in compiled training."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import ftnn
from ftnn import Function
from ftnn.kernels import program_of, signature
from ftnn.kernels.cpu import skipping
from ftnn.kernels.cpu.compiler import host
from ftnn.nn._activations import activation_formula
from ftnn.training._losses import loss_formula
from ftnn.training.compiled.buffers import LINEAR, Samples, Shape, Targets
from ftnn.training.compiled.network import CompiledNetwork
from tests.kernels.yardstick import TOLERANCE, Case, case, excess, expected, yardsticks

pytestmark = pytest.mark.usefixtures("kernels_for_large_layers")

DTYPES = (torch.float32, torch.float64)


def computed(problem: Case) -> list[Tensor]:
    """The result and all gradients, by generated kernels."""
    from ftnn.kernels.cpu import backend

    variables = problem.program.differentiable
    out = backend.transfer(problem.program, problem.x, problem.matrices)
    return [
        out,
        *backend.transfer_backward(problem.program, problem.grad, problem.x, problem.matrices, variables),
    ]


def check(problem: Case) -> None:
    variables = problem.program.differentiable
    for result, right, yard in zip(
        computed(problem), expected(problem, variables), yardsticks(problem, variables), strict=True
    ):
        assert excess(result, right, yard) <= 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [2, 5, 16, 64, 65, 130])
@pytest.mark.parametrize("inputs", [1, 3, 16, 50])
def test_small_values_keep_their_digits_if_the_value_at_zero_is_large(
    inputs: int, batch: int, dtype: torch.dtype
):
    problem = case(Function("1/(x**2 + p**2)", init={"p": (1e-4, 2e-4)}), inputs, 17, batch, dtype=dtype)
    problem.x.zero_()
    problem.x[batch // 2] = 1
    check(problem)


def test_a_sample_has_the_same_result_alone_as_in_a_batch():
    layer = ftnn.nn.Transfer(16, 4, "1/(x**2 + p**2)", bias=False)
    with torch.no_grad():
        layer.theta["p"].fill_(1e-4)
    x = torch.zeros(8, 16)
    x[3] = 1
    assert torch.allclose(layer(x)[3], layer(x[3:4])[0], rtol=1e-6)
    assert torch.allclose(layer(x)[3], torch.full((4,), 16.0), rtol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [2, 7, 16, 63, 64, 200])
def test_gradients_of_zeros_keep_their_digits_beside_large_errors(batch: int, dtype: torch.dtype):
    problem = case(Function("p*exp(q*x)", init={"p": (1, 1), "q": (-20, -20)}), 16, 33, batch, dtype=dtype)
    problem.x.zero_()
    problem.x[batch // 3] = 1
    problem.grad.fill_(1e-3)
    problem.grad[batch // 3] = 1e5
    check(problem)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("density", [0.02, 0.2, 0.45])
@pytest.mark.parametrize("seed", range(4))
def test_wildly_scaled_parameters_and_errors_stay_within_the_tolerance(
    seed: int, density: float, dtype: torch.dtype
):
    random = torch.Generator().manual_seed(seed)
    problem = case(ftnn.catalogue["F12"], 40, 21, 70, density, dtype, seed)
    for tensor in (*problem.matrices, problem.grad):
        tensor *= torch.exp(4 * torch.randn(tensor.shape, generator=random, dtype=dtype))
    check(problem)


# ---- when zeros share one evaluation


def was_shared(problem: Case) -> bool:
    """Whether the forward kernel reports that sharing F(0) lost no digits."""
    target, out = host("float32"), torch.empty(len(problem.x), problem.grad.shape[1])
    _, outcome = skipping._forward(
        problem.program,
        target,
        problem.x,
        (0, len(problem.x)),
        problem.matrices,
        out,
        zeros=False,
        explicit=False,
    )
    assert outcome.finite
    return not outcome.lost


@pytest.mark.slow
def test_zeros_of_mnist_images_share_one_evaluation():
    images = torch.from_numpy(ftnn.data.mnist().train_images[:64])
    for name in ("F05", "F08", "F09", "F10", "F11", "F12", "F14", "F15", "F16"):
        problem = case(ftnn.catalogue[name], 784, 32, 64)
        assert was_shared(Case(problem.program, images, problem.matrices, problem.grad)), name


def test_zeros_beside_one_full_sample_are_evaluated_explicitly():
    problem = case(ftnn.catalogue["F12"], 20, 16, 8)
    problem.x[1:] = 0
    assert not was_shared(problem)


def test_layers_whose_zeros_are_explicit_begin_so_the_next_time(monkeypatch: pytest.MonkeyPatch):
    """The mode follows from the data alone, so the bits do not depend on what came before."""
    explicit, shared = case(ftnn.catalogue["F12"], 20, 16, 8), case(ftnn.catalogue["F12"], 20, 16, 8, 0.2)
    explicit.x[1:] = 0
    explicit.matrices[:] = shared.matrices
    attempts: list[bool] = []
    forward = skipping._forward

    def counted(*arguments: Any) -> Any:
        attempts.append(arguments[-1])
        return forward(*arguments)

    monkeypatch.setattr(skipping, "_forward", counted)
    monkeypatch.setattr(skipping, "_EXPLICIT", set[int]())

    def run(problem: Case) -> torch.Tensor:
        attempts.clear()
        out = torch.empty(len(problem.x), 16)
        assert skipping.forward(problem.program, host("float32"), problem.x, problem.matrices, out)
        return out

    first = run(explicit)
    assert attempts == [False, True]
    assert torch.equal(run(explicit), first)
    assert attempts == [True]
    after = run(shared)
    assert attempts == [True, False]
    assert torch.equal(run(shared), after)
    assert attempts == [False]


def test_zeros_at_a_pole_are_evaluated_explicitly():
    problem = case(Function("p/x"), 20, 16, 8, 0.2)
    assert not was_shared(problem)
    result, right = computed(problem)[0], expected(problem, ("x", "p"))[0]
    assert torch.equal(result.isfinite(), right.isfinite())


# ---- the sign of zero


def test_negative_zero_differs_from_zero_at_a_pole():
    layer = ftnn.nn.Transfer(16, 2, "q*tanh(p/x)", bias=False)
    with torch.no_grad():
        layer.theta["p"].fill_(1)
        layer.theta["q"].fill_(1)
    x = torch.zeros(8, 16)
    x[3, 5] = -0.0
    assert layer(x)[3].tolist() == layer(x[3:4])[0].tolist() == [14.0, 14.0]


@torch.no_grad()
def test_memory_cells_keep_the_sign_of_zero():
    cell = ftnn.nn.Memory(1, 1, "p*x + 0*C", bias=False)
    cell.theta["p"].fill_(-1)
    _, state = cell(torch.zeros(1, 1, 1), torch.full((1, 1, 1), -1.0))
    assert math.copysign(1, float(state)) == -1


# ---- compiled training


def trained(formula: str, x: np.ndarray, targets: np.ndarray, start: dict[str, float]) -> list[np.ndarray]:
    program = program_of(*signature(Function(formula)))
    network = CompiledNetwork(
        [Shape(program, x.shape[1], 1, activation_formula("relu")), Shape(LINEAR, 1, 1)],
        loss_formula("squared"),
        "float32",
        16,
    )
    ones = np.ones((x.shape[1], 1), np.float32)
    network.layers[0].load([ones * start[name] for name in program.matrices], None)
    network.layers[1].load([np.ones((1, 1), np.float32)], np.zeros(1, np.float32))
    expected_outputs = Targets.numbers(targets, 1, len(x), "float32", None)
    network.train(Samples.of(x, "float32"), expected_outputs, np.arange(len(x)), rate=1e-3)
    return [m.copy() for m in network.layers[0].read()[0]]


def test_a_compiled_step_keeps_small_gradients_beside_a_large_value_at_zero():
    """One mini-batch with one row of ones among zeros, against the same step in float64."""
    x = np.zeros((16, 20), np.float32)
    x[3] = 1
    targets = np.linspace(0, 1, 16, dtype=np.float32)[:, None] * 1e-3
    start = {"p": 1.0, "q": 20.0}
    p, q = trained("p*exp(-(q*x))", x, targets, start)

    tensors = {n: torch.full((20, 1), v, dtype=torch.float64, requires_grad=True) for n, v in start.items()}
    weight = torch.ones(1, 1, dtype=torch.float64)
    values = tensors["p"] * torch.exp(-(tensors["q"] * torch.from_numpy(x).double()[:, :, None]))
    loss = 0.5 * ((torch.relu(values.sum(1)) @ weight - torch.from_numpy(targets).double()) ** 2).sum() / 16
    loss.backward()
    for name, updated in (("p", p), ("q", q)):
        gradient = tensors[name].grad
        assert gradient is not None
        right = (tensors[name] - 1e-3 * gradient).detach().numpy()
        np.testing.assert_allclose(updated, right, rtol=TOLERANCE[torch.float32])
