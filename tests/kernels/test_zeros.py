"""Skipping zeros costs no digits: forward or backward, by itself or in compiled training."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

import ftnn
from ftnn import Function
from ftnn.kernels import program_of, signature
from ftnn.kernels.cpu import skipping
from ftnn.training.compiled.buffers import Shape
from ftnn.training.compiled.network import LINEAR, CompiledNetwork, Samples
from tests.kernels.yardstick import TOLERANCE, Case, case, excess, expected, yardsticks

DTYPES = (torch.float32, torch.float64)


def computed(given: Case) -> list[Tensor]:
    """The result and all gradients, by generated code."""
    from ftnn.kernels.cpu import backend

    wanted = given.program.differentiable
    out = backend.transfer(given.program, given.x, given.matrices)
    return [out, *backend.transfer_backward(given.program, given.grad, given.x, given.matrices, wanted)]


def check(given: Case) -> None:
    wanted = given.program.differentiable
    for found, right, yard in zip(
        computed(given), expected(given, wanted), yardsticks(given, wanted), strict=True
    ):
        assert excess(found, right, yard) <= 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [2, 5, 16, 64, 65, 130])
@pytest.mark.parametrize("inputs", [1, 3, 16, 50])
def test_a_small_value_beside_a_large_one_at_zero_keeps_its_digits(
    inputs: int, batch: int, dtype: torch.dtype
):
    given = case(Function("1/(x**2 + p**2)", init={"p": (1e-4, 2e-4)}), inputs, 17, batch, dtype=dtype)
    given.x.zero_()
    given.x[batch // 2] = 1
    check(given)


def test_a_rows_result_does_not_depend_on_its_batch():
    layer = ftnn.nn.Transfer(16, 4, "1/(x**2 + p**2)", bias=False)
    with torch.no_grad():
        layer.theta["p"].fill_(1e-4)
    x = torch.zeros(8, 16)
    x[3] = 1
    assert torch.allclose(layer(x)[3], layer(x[3:4])[0], rtol=1e-6)
    assert torch.allclose(layer(x)[3], torch.full((4,), 16.0), rtol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [2, 7, 16, 63, 64, 200])
def test_the_gradient_of_zeros_is_not_drowned_by_that_of_other_samples(batch: int, dtype: torch.dtype):
    given = case(Function("p*exp(q*x)", init={"p": (1, 1), "q": (-20, -20)}), 16, 33, batch, dtype=dtype)
    given.x.zero_()
    given.x[batch // 3] = 1
    given.grad.fill_(1e-3)
    given.grad[batch // 3] = 1e5
    check(given)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("density", [0.02, 0.2, 0.45])
@pytest.mark.parametrize("seed", range(4))
def test_wild_parameters_and_errors_stay_within_the_bound(seed: int, density: float, dtype: torch.dtype):
    random = torch.Generator().manual_seed(seed)
    given = case(ftnn.catalogue["F12"], 40, 21, 70, density, dtype, seed)
    for tensor in (*given.matrices, given.grad):
        tensor *= torch.exp(4 * torch.randn(tensor.shape, generator=random, dtype=dtype))
    check(given)


# ---- which of the two ways is taken


def was_shared(given: Case) -> bool:
    """Whether the listed kernel itself found sharing F(0) harmless."""
    from ftnn.kernels.cpu.compiler import host
    from ftnn.kernels.cpu.tiling import columns

    target, out = host("float32"), torch.empty(len(given.x), given.grad.shape[1])
    parts = columns(given.matrices, target)
    tiles = skipping._tiles(given.program, given.x, 0, len(given.x), target, given.matrices, zeros=False)
    assert tiles is not None
    return skipping._forward(given.program, target, tiles, parts, out, explicit=False)


@pytest.mark.slow
def test_images_share_what_zeros_send():
    images = torch.from_numpy(ftnn.data.mnist().train_images[:64])
    for name in ("F05", "F08", "F09", "F10", "F11", "F12", "F14", "F15", "F16"):
        given = case(ftnn.catalogue[name], 784, 32, 64)
        assert was_shared(Case(given.program, images, given.matrices, given.grad)), name


def test_one_full_row_among_empty_ones_does_not():
    given = case(ftnn.catalogue["F12"], 20, 16, 8)
    given.x[1:] = 0
    assert not was_shared(given)


def test_a_value_at_zero_that_is_not_finite_is_not_shared():
    given = case(Function("p/x"), 20, 16, 8, 0.2)
    assert not was_shared(given)
    found, right = computed(given)[0], expected(given, ("x", "p"))[0]
    assert torch.equal(found.isfinite(), right.isfinite())


# ---- signs


def test_negative_zero_is_not_taken_for_zero():
    layer = ftnn.nn.Transfer(16, 2, "q*tanh(p/x)", bias=False)
    with torch.no_grad():
        layer.theta["p"].fill_(1)
        layer.theta["q"].fill_(1)
    x = torch.zeros(8, 16)
    x[3, 5] = -0.0
    assert layer(x)[3].tolist() == layer(x[3:4])[0].tolist() == [14.0, 14.0]


@torch.no_grad()
def test_memory_remembers_the_sign_of_zero():
    cell = ftnn.nn.Memory(1, 1, "p*x + 0*C", bias=False)
    cell.theta["p"].fill_(-1)
    _, state = cell(torch.zeros(1, 1, 1), torch.full((1, 1, 1), -1.0))
    assert math.copysign(1, float(state)) == -1


# ---- compiled training


def trained(formula: str, x: np.ndarray, targets: np.ndarray, start: dict[str, float]) -> list[np.ndarray]:
    found = program_of(*signature(Function(formula)))
    network = CompiledNetwork(
        [Shape(found, x.shape[1], 1), Shape(LINEAR, 1, 1)], "relu", "squared", "float32", 16
    )
    ones = np.ones((x.shape[1], 1), np.float32)
    network.layers[0].load([ones * start[name] for name in found.matrices], None)
    network.layers[1].load([np.ones((1, 1), np.float32)], np.zeros(1, np.float32))
    network.train(Samples.of(x, "float32"), np.arange(len(x)), rate=1e-3, targets=targets)
    return [m.copy() for m in network.layers[0].read()[0]]


def test_a_compiled_step_learns_from_small_values_beside_large_ones_at_zero():
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
    for name, found in (("p", p), ("q", q)):
        gradient = tensors[name].grad
        assert gradient is not None
        right = (tensors[name] - 1e-3 * gradient).detach().numpy()
        np.testing.assert_allclose(found, right, rtol=TOLERANCE[torch.float32])
