"""Operators check every tensor at every call, because generated code does not check its addresses."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

import ftnn
from ftnn.errors import DTypeError, FtnnError, ShapeError
from ftnn.kernels import signature

BACKENDS = ("auto", "cpu", "reference")
X = torch.linspace(-1, 1, 150).reshape(5, 30)


def with_q(layer: nn.Module, q: Tensor, x: Tensor = X) -> Any:
    return torch.func.functional_call(layer, {"theta.q": q}, (x,))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", [(1, 1), (30, 1), (31, 20), (30, 21), (30,), (30, 20, 1), (0, 0)])
def test_a_matrix_of_the_wrong_shape_raises(shape: tuple[int, ...], backend: Any):
    layer = ftnn.nn.Transfer(30, 20, "F12", backend=backend)
    with pytest.raises(ShapeError, match=r"q has shape .*expected \(in, out\) = \(30, 20\)"):
        with_q(layer, torch.ones(shape))


def test_a_matrix_far_too_small_raises_instead_of_crashing():
    with pytest.raises(ShapeError, match="q has shape"):
        with_q(ftnn.nn.Transfer(3000, 3000, "F12"), torch.ones(1, 1), torch.ones(2, 3000))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int32])
def test_a_matrix_of_the_wrong_dtype_raises(dtype: torch.dtype, backend: Any):
    layer = ftnn.nn.Transfer(30, 20, "F12", backend=backend)
    with pytest.raises(DTypeError, match=f"q is {dtype}; expected torch.float32"):
        with_q(layer, torch.ones(30, 20, dtype=dtype))


def test_a_state_dict_assigned_in_another_dtype_raises_when_used():
    layer = ftnn.nn.Transfer(30, 20, "F12")
    state = layer.state_dict()
    state["theta.q"] = state["theta.q"].double()
    layer.load_state_dict(state, assign=True)
    with pytest.raises(DTypeError, match=r"q is torch\.float64"):
        layer(X)


def test_the_result_of_an_unsafe_parametrization_is_checked():
    class Corner(nn.Module):
        def forward(self, q: Tensor) -> Tensor:
            return q[:1, :1]

    layer = ftnn.nn.Transfer(30, 20, "F12")
    parametrize.register_parametrization(layer.theta, "q", Corner(), unsafe=True)
    with pytest.raises(ShapeError, match="q has shape"):
        layer(X)


def test_a_vmapped_matrix_of_the_wrong_shape_raises():
    layer = ftnn.nn.Transfer(30, 20, "F12")

    def one(q: Tensor) -> Any:
        return with_q(layer, q)

    with pytest.raises(ShapeError, match="q has shape"):
        torch.func.vmap(one)(torch.ones(4, 1, 1))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("q", [torch.ones(1), torch.ones(3), torch.ones(2, 1), torch.ones(2).double()])
def test_partial_matrices_are_checked(q: Tensor, backend: Any):
    layer = ftnn.nn.Partial(30, 20, "F12", [(0, 1), (3, 4)], backend=backend)
    with pytest.raises(FtnnError, match=r"q (has shape|is torch)"):
        with_q(layer, q)


def test_memory_matrices_are_checked():
    with pytest.raises(ShapeError, match="q has shape"):
        with_q(ftnn.nn.Memory(30, 20), torch.ones(1, 1), X[None])


# ---- the operators themselves


def called(x: Tensor, *matrices: Tensor) -> Tensor:
    return torch.ops.ftnn.transfer(x, list(matrices), [], *signature(ftnn.catalogue["F12"]), "auto")


def test_the_operator_checks_its_tensors_when_called_directly():
    p = torch.ones(30, 20)
    assert called(X, p, p, p).shape == (5, 20)
    with pytest.raises(FtnnError, match=r"expected 4 tensors \(x, p, q, r\), got 3"):
        called(X, p, p)
    with pytest.raises(ShapeError, match="x has shape"):
        called(X[0], p, p, p)
    with pytest.raises(ShapeError, match=r"p has shape \(29, 20\); expected \(in, out\) = \(30, out\)"):
        called(X, p[:29], p, p)


def test_the_backward_operator_checks_the_gradient():
    p = torch.ones(30, 20)
    for grad in (torch.ones(5, 19), torch.ones(4, 20), torch.ones(5, 20).double()):
        with pytest.raises(FtnnError, match=r"the gradient (has shape|is torch)"):
            torch.ops.ftnn.transfer_backward(
                grad, X, [p, p, p], [], *signature(ftnn.catalogue["F12"]), "auto", "p q"
            )


@pytest.mark.parametrize(
    ("inputs", "bounds"),
    [
        ([0, 30], [0, 2]),
        ([-1, 0], [0, 2]),
        ([0, 1], [0, 3]),
        ([0, 1], [1, 2]),
        ([0, 1], [0, 5, 2]),
        ([0], [0, 2]),
        ([0, 1], []),
    ],
)
def test_lists_with_connections_out_of_range_raise(inputs: list[int], bounds: list[int]):
    p = torch.ones(2)
    places = torch.tensor(inputs, dtype=torch.int32), torch.tensor(bounds, dtype=torch.int64)
    with pytest.raises(ShapeError):
        torch.ops.ftnn.transfer(X, [p, p, p], list(places), *signature(ftnn.catalogue["F12"]), "auto")


def dense_only(make: Callable[[], Tensor], layer: nn.Module) -> None:
    with pytest.raises(DTypeError, match="expected a dense"):
        layer(make())


@pytest.mark.filterwarnings("ignore")  # torch warns that nested and sparse tensors are prototypes
def test_sparse_and_nested_tensors_raise():
    kinds: list[Callable[[], Tensor]] = [
        lambda: X.to_sparse(),
        lambda: X.to_sparse_csr(),
        lambda: X.to_mkldnn(),
        lambda: torch.nested.nested_tensor([X, X]),
        lambda: torch.nested.nested_tensor([X, X], layout=torch.jagged),
    ]
    for make in kinds:
        dense_only(make, ftnn.nn.Transfer(30, 20, "F12"))
        dense_only(make, ftnn.nn.Partial(30, 20, "F03", [(0, 1)]))
        dense_only(make, ftnn.nn.Memory(30, 20))


def test_lazily_negated_tensors_are_resolved():
    negated = torch.complex(X, X).conj().imag
    assert negated.is_neg()
    layer = ftnn.nn.Transfer(30, 20, "F12")
    assert torch.equal(layer(negated), layer(-X))
