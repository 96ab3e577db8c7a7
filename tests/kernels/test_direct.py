"""Plain eager calls leave out torch's dispatcher; everything else goes through the operator. Both agree."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.utils._python_dispatch import TorchDispatchMode

import ftnn
from ftnn.errors import DTypeError, ShapeError
from ftnn.kernels import direct, signature, transfer
from ftnn.kernels.cpu import skipping, small
from tests.kernels._layers import function_of, tensors

FORMULAS = ["F01", "F03", "F06", "F12", "F18", "(p + q)*x", "p*x + q", "p*cos(x) + x**2 + q", "p*exp(x + q)"]


class Seen(TorchDispatchMode):
    """The names of all operators that torch dispatches."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.name())
        return func(*args, **(kwargs or {}))


def through_the_operator(function: Any, x: Tensor, matrices: Sequence[Tensor]) -> Tensor:
    return torch.ops.ftnn.transfer.default(x, list(matrices), [], *signature(function), "auto")


def gradients(out: Tensor, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
    return torch.autograd.grad(out, [t for t in inputs if t.requires_grad], weights)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sizes", [(7, 9, 5), (1, 1, 1), (33, 17, 40), (0, 3, 2)])
@pytest.mark.parametrize("formula", FORMULAS)
def test_a_direct_call_gives_the_bits_of_the_operator(
    formula: str, sizes: tuple[int, int, int], dtype: torch.dtype
):
    function = function_of(formula)
    x, matrices = tensors(function, *sizes, dtype=dtype)
    assert direct.is_plain(x, *matrices)
    out, expected = transfer(function, x, matrices), through_the_operator(function, x, matrices)
    assert torch.equal(out, expected)
    for one, other in zip(gradients(out, (x, *matrices)), gradients(expected, (x, *matrices)), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("formula", ["F01", "F03", "F12", "p*cos(x) + x**2 + q"])
def test_a_bias_is_added_and_has_the_sum_of_the_errors_as_its_gradient(formula: str):
    function = function_of(formula)
    x, matrices = tensors(function)
    bias = torch.tensor([0.5, -2.0], dtype=torch.float64, requires_grad=True)

    def biased(x: Tensor, bias: Tensor, *matrices: Tensor) -> Tensor:
        return transfer(function, x, matrices, bias=bias)

    torch.testing.assert_close(biased(x, bias, *matrices), transfer(function, x, matrices) + bias)
    assert gradcheck(biased, (x, bias, *matrices), atol=1e-8, rtol=1e-6)
    assert gradgradcheck(biased, (x, bias, *matrices), atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("by_x", [True, False])
@pytest.mark.parametrize("sizes", [(70, 33, 21), (1100, 5, 3)])
@pytest.mark.parametrize("formula", ["F09", "F12", "p*cosh(q*x + r)"])
def test_lists_of_the_forward_pass_give_the_backward_pass_the_same_bits(
    formula: str, sizes: tuple[int, int, int], by_x: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(small, "MOST", 0)
    function = function_of(formula)
    x, matrices = tensors(function, *sizes)
    x = (x.detach() * (torch.rand(x.shape, generator=torch.Generator().manual_seed(1)) < 0.2)).requires_grad_(
        by_x
    )
    expected = gradients(transfer(function, x, matrices, "reference"), (x, *matrices))
    without = gradients(through_the_operator(function, x, matrices), (x, *matrices))
    out = transfer(function, x, matrices)

    def listed_again(*_: Any, **__: Any) -> None:
        raise AssertionError("the lists of the forward pass were not used")

    monkeypatch.setattr(skipping, "empty_lists", listed_again)
    slopes = gradients(out, (x, *matrices))
    for slope, other, right in zip(slopes, without, expected, strict=True):
        assert torch.equal(slope, other)
        torch.testing.assert_close(slope, right, rtol=1e-10, atol=1e-10)


def test_gradients_do_not_share_memory():
    function = function_of("(p + q + r)*x + s")
    x, matrices = tensors(function)
    slopes = gradients(transfer(function, x, matrices), (x, *matrices))
    assert len({slope.untyped_storage().data_ptr() for slope in slopes}) == len(slopes)
    assert all(slope.is_contiguous() for slope in slopes)


def test_strided_inputs_matrices_and_errors_are_supported():
    function = function_of("p**2*x**3 + q*x")
    x, matrices = tensors(function, 6, 8, 4)
    inputs = [t.detach().T.contiguous().T.requires_grad_() for t in (x, *matrices)]
    out, expected = transfer(function, inputs[0], inputs[1:]), transfer(function, x, matrices, "reference")
    torch.testing.assert_close(out, expected)
    for one, other in zip(
        torch.autograd.grad(out.T.sum(), inputs),
        torch.autograd.grad(expected.sum(), (x, *matrices)),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_an_input_changed_in_place_after_the_forward_pass_is_an_error():
    layer = ftnn.nn.Transfer(3, 2, "F03")
    x = torch.rand(4, 3)
    out = layer(x)
    x += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_two_backward_passes_through_one_graph_give_the_same_gradients():
    for formula in ("F01", "F03", "F12"):
        function = function_of(formula)
        x, matrices = tensors(function)
        out = transfer(function, x, matrices)
        first = torch.autograd.grad(out.sum(), (x, *matrices), retain_graph=True)
        for one, other in zip(first, torch.autograd.grad(out.sum(), (x, *matrices)), strict=True):
            assert torch.equal(one, other)


def test_hooks_on_tensors_saved_for_the_backward_pass_are_called():
    function = function_of("F04")
    x, matrices = tensors(function)
    packed: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        packed.append(tensor.numel())
        return tensor.clone()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = transfer(function, x, matrices)
    assert packed
    expected = gradients(transfer(function, x, matrices), (x, *matrices))
    for one, other in zip(gradients(out, (x, *matrices)), expected, strict=True):
        assert torch.equal(one, other)


# ---- who else is watching


def test_a_dispatch_mode_sees_the_operator():
    layer, x = ftnn.nn.Transfer(3, 2, "F12"), torch.rand(4, 3)
    with Seen() as mode:
        layer(x)
    assert "ftnn::transfer" in mode.names


def test_a_dispatch_mode_around_the_backward_pass_alone_sees_its_operator():
    layer, x = ftnn.nn.Transfer(3, 2, "F12"), torch.rand(4, 3)
    out = layer(x)
    with Seen() as mode:
        out.sum().backward()
    assert "ftnn::transfer_backward" in mode.names


class Subclass(Tensor):
    pass


def negated(x: Tensor) -> Tensor:
    """-x, which torch computes only when it is needed."""
    return torch._neg_view(x)  # pyright: ignore[reportPrivateImportUsage]


UNUSUAL: list[Callable[[Tensor], Tensor]] = [
    lambda x: x.as_subclass(Subclass),
    negated,
    lambda x: x.to("meta"),
    lambda x: x.to_sparse(),
]


@pytest.mark.parametrize("change", UNUSUAL)
def test_unusual_tensors_are_not_plain(change: Callable[[Tensor], Tensor]):
    x = torch.rand(4, 3)
    assert direct.is_plain(x)
    assert not direct.is_plain(change(x))


def test_nothing_is_plain_under_autocast_forward_mode_and_transforms():
    x = torch.rand(4, 3)
    with torch.autocast("cpu"):
        assert not direct.is_plain(x)
    with forward_ad.dual_level():
        assert not direct.is_plain(x)

    def inside(x: Tensor) -> Tensor:
        assert not direct.is_plain(x)
        return x

    torch.func.vmap(inside)(x)
    with torch.no_grad():
        assert direct.is_plain(x)
    with torch.inference_mode():
        assert direct.is_plain(x, torch.rand(4, 3))


def test_a_negated_view_gives_the_value_of_its_negation():
    layer, x = ftnn.nn.Transfer(3, 2, "F12"), torch.rand(4, 3)
    torch.testing.assert_close(layer(negated(x)), layer(-x))


def test_tensors_that_do_not_fit_raise_the_errors_of_the_operator():
    function = function_of("F03")
    x, matrices = tensors(function)
    with pytest.raises(ShapeError, match="q has shape"):
        transfer(function, x, [matrices[0], matrices[1][:, :1]])
    with pytest.raises(DTypeError, match="p is"):
        transfer(function, x, [matrices[0].float(), matrices[1]])
