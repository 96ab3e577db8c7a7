"""A formula may use any name, even one that every torch module has already."""

import copy
import io
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

import ftnn

PLAIN = ["bias", "lambda_", "x2", "weight", "theta", "constants", "E", "gamma", "self", "kind"]
# These are attributes of every nn.Module, or of Matrices itself.
TAKEN = [
    "training",
    "type",
    "half",
    "eval",
    "forward",
    "state_dict",
    "T_destination",
    "dump_patches",
    "to",
    "_parameters",
    "_buffers",
    "_names",
    "tensors",
    "extra_repr",
    "__class__",
    "__dict__",
]
NAMES = [*PLAIN, *TAKEN]
X = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]])


def make(name: str) -> ftnn.nn.Transfer:
    """A layer with the name as a parameter."""
    return ftnn.nn.Transfer(3, 2, f"{name}*x + k*{name}**2")


def make_constant(name: str) -> ftnn.nn.Transfer:
    """A layer with the name as a constant."""
    values = {name: (-2.0, 0.5, 3.0)}
    return ftnn.nn.Transfer(3, 2, ftnn.Function(f"{name}*x*k + {name}", constants=values))


MAKERS = [make, make_constant]
Maker = Callable[[str], ftnn.nn.Transfer]
each_name = pytest.mark.parametrize("name", NAMES)
as_both = pytest.mark.parametrize("maker", MAKERS, ids=["parameter", "constant"])


def oracle(layer: ftnn.nn.Transfer, x: Tensor = X) -> Tensor:
    """The output, by the function's NumPy evaluation."""
    function = layer.function
    values = {
        n: layer.matrix(n).detach().double().numpy() for n in (*function.parameters, *function.constants)
    }
    total = torch.from_numpy(function(x.double().numpy()[:, None, :], **values)).sum(-1)
    return total if layer.bias is None else total + layer.bias.detach().double()


def assert_computes(layer: ftnn.nn.Transfer) -> None:
    torch.testing.assert_close(
        layer(X.to(layer.matrix("k").dtype)).double(), oracle(layer), atol=1e-5, rtol=1e-5
    )


def different(layer: ftnn.nn.Transfer) -> ftnn.nn.Transfer:
    """A layer of the same kind with other values everywhere."""
    other = copy.deepcopy(layer)
    with torch.no_grad():
        for tensor in other.state_dict().values():
            tensor.add_(1.25)
    return other


@each_name
@as_both
def test_a_layer_computes_with_any_parameter_name(name: str, maker: Maker):
    layer = maker(name)
    assert_computes(layer)
    layer(X).sum().backward()
    for parameter in layer.parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().sum() > 0
    assert name in repr(layer)


@each_name
@as_both
def test_state_dict_keys_are_the_parameter_names(name: str, maker: Maker):
    layer = maker(name)
    constants = {f"constants.{n}" for n in layer.function.constants}
    assert set(layer.state_dict()) == {"bias", *(f"theta.{n}" for n in layer.function.parameters), *constants}
    assert {n for n, _ in layer.named_parameters()} == set(layer.state_dict()) - constants
    assert {n for n, _ in layer.named_buffers()} == constants
    assert layer.state_dict()[f"{'constants' if constants else 'theta'}.{name}"].shape == (3, 2)


@each_name
@as_both
@pytest.mark.parametrize("assign", [False, True])
def test_a_state_dict_round_trips(name: str, maker: Maker, assign: bool):
    layer = maker(name)
    other = different(layer)
    assert not torch.equal(other.matrix(name), layer.matrix(name))
    matrices = other.theta if name in other.theta else other.constants
    flag = matrices.training
    other.load_state_dict(layer.state_dict(), assign=assign)
    for key, value in layer.state_dict().items():
        assert torch.equal(other.state_dict()[key], value), key
    assert matrices.training is flag
    assert {n for n, _ in other.named_parameters()} == {n for n, _ in layer.named_parameters()}
    assert all(p.requires_grad for p in other.parameters())
    assert_computes(other)


@each_name
@as_both
def test_copies_and_pickles_are_equal_and_independent(name: str, maker: Maker):
    layer = maker(name)
    buffer = io.BytesIO()
    torch.save(layer, buffer)
    buffer.seek(0)
    for other in (
        copy.deepcopy(layer),
        pickle.loads(pickle.dumps(layer)),
        torch.load(buffer, weights_only=False),
    ):
        assert torch.equal(other(X), layer(X))
        with torch.no_grad():
            other.matrix(name).add_(1)
        assert not torch.equal(other(X), layer(X))


@each_name
@as_both
def test_modes_dtypes_and_freezing_apply_to_every_matrix(name: str, maker: Maker):
    layer = maker(name)
    assert layer.eval().training is False
    assert layer.train().training is True
    assert [part.training for part in layer.modules()] == [True] * 3
    for dtype in (torch.float64, torch.bfloat16, torch.float32):
        layer.to(dtype)
        assert {tensor.dtype for tensor in layer.state_dict().values()} == {dtype}
    assert_computes(layer)
    layer.requires_grad_(False)
    assert not any(p.requires_grad for p in layer.parameters())
    assert not layer(X).requires_grad


@each_name
def test_an_optimizer_updates_a_parameter_of_any_name(name: str):
    layer = make(name)
    before = layer.matrix(name).detach().clone()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    layer(X).square().sum().backward()
    expected = before - 0.1 * layer.theta[name].grad.T  # pyright: ignore[reportOptionalMemberAccess]
    optimizer.step()
    torch.testing.assert_close(layer.matrix(name).detach(), expected)


@each_name
@as_both
def test_functional_call_replaces_the_tensors_for_one_call(name: str, maker: Maker):
    layer = maker(name)
    other = different(layer)
    before = layer(X)
    assert torch.equal(torch.func.functional_call(layer, dict(other.state_dict()), (X,)), other(X))
    assert torch.equal(layer(X), before)


@each_name
def test_resetting_a_parameter_of_any_name_is_reproducible(name: str):
    layer = make(name)
    layer.reset_parameters(torch.Generator().manual_seed(3))
    first = layer.matrix(name).detach().clone()
    layer.reset_parameters()
    assert not torch.equal(layer.matrix(name), first)
    layer.reset_parameters(torch.Generator().manual_seed(3))
    assert torch.equal(layer.matrix(name), first)


@each_name
@as_both
def test_a_parameter_of_any_name_is_saved_and_loaded(name: str, maker: Maker, tmp_path: Path):
    layer = different(maker(name))
    ftnn.save(layer, tmp_path / "model")
    other = ftnn.load(tmp_path / "model")
    assert isinstance(other, ftnn.nn.Transfer)
    assert torch.equal(other.matrix(name), layer.matrix(name))
    assert torch.equal(other(X), layer(X))
    assert other.theta.training is True


class Doubled(nn.Module):
    def forward(self, w: Tensor) -> Tensor:
        return 2 * w

    def right_inverse(self, w: Tensor) -> Tensor:
        return w / 2


@pytest.mark.parametrize("name", PLAIN)
def test_a_parameter_can_be_parametrised(name: str):
    layer = make(name)
    before = layer(X).detach()
    parametrize.register_parametrization(layer.theta, name, Doubled())
    assert f"theta.parametrizations.{name}.original" in layer.state_dict()
    torch.testing.assert_close(layer(X), before)  # right_inverse keeps the value
    with torch.no_grad():
        layer.theta.parametrizations[name].original.mul_(3)  # pyright: ignore
    assert_computes(layer)
    layer(X).sum().backward()
    assert layer.theta.parametrizations[name].original.grad is not None  # pyright: ignore
    assert torch.equal(copy.deepcopy(layer)(X), layer(X))
    parametrize.remove_parametrizations(layer.theta, name)
    assert set(layer.state_dict()) == set(make(name).state_dict())
    assert_computes(layer)


@pytest.mark.parametrize("name", TAKEN)
def test_a_name_that_torch_cannot_parametrise_is_refused_without_side_effects(name: str):
    # torch would add a property of that name to the module's class, and break the module.
    layer = make(name)
    before = layer(X)
    with pytest.raises((AttributeError, TypeError)):
        parametrize.register_parametrization(layer.theta, name, Doubled())
    assert torch.equal(layer(X), before)
    assert set(layer.state_dict()) == {"bias", f"theta.{name}", "theta.k"}


def test_only_parameters_can_be_assigned_to_a_parameter_matrix():
    layer = make("p")
    layer.theta.p = nn.Parameter(torch.ones(3, 2))
    assert torch.equal(layer.matrix("p"), torch.ones(2, 3))
    for wrong in (torch.ones(3, 2), 1.0):
        with pytest.raises(TypeError, match="cannot assign"):
            layer.theta.p = wrong
    assert torch.equal(layer.matrix("p"), torch.ones(2, 3))


def test_matrices_behave_like_a_mapping():
    theta = ftnn.nn.Transfer(3, 2, "F12").theta
    assert list(theta) == ["p", "q", "r"]
    assert len(theta) == 3
    assert "q" in theta
    assert "x" not in theta
    assert [tensor.shape for tensor in theta.tensors()] == [(3, 2)] * 3
