"""The formulas in plain torch agree with the catalogue."""

from collections.abc import Iterable

import pytest
import torch
from torch import Tensor, nn

from ftnn.bench._torch import FUNCTIONS, Broadcast, layer
from ftnn.formula import catalogue
from ftnn.nn import Transfer


def test_all_functions_except_memory_exist_in_plain_torch():
    assert set(FUNCTIONS) == set(catalogue) - {"memory"}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_plain_torch_gives_the_values_and_gradients_of_the_catalogue(function: str):
    own = layer(function, 6, 5).double()
    own.backend = "reference"
    plain = Broadcast(own)
    x = torch.rand(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) + 0.1
    error = torch.rand(4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    if function == "F07":  # else its decreed slope by p would show
        assert bool((own.theta["p"] > 0).all())
    expected = _passes(own, own.theta.tensors(), own.bias, x, error)
    actual = _passes(plain, plain.matrices, plain.bias, x, error)
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, b)


def _passes(
    module: nn.Module, matrices: Iterable[Tensor], bias: Tensor | None, x: Tensor, error: Tensor
) -> list[Tensor]:
    """The output, and the gradients by x, the matrices and the bias."""
    assert bias is not None
    inputs = x.clone().requires_grad_()
    out: Tensor = module(inputs)
    return [out, *torch.autograd.grad(out, [inputs, *matrices, bias], error)]


def test_a_function_not_in_plain_torch_is_refused():
    with pytest.raises(ValueError, match="plain torch"):
        Broadcast(Transfer(2, 2, "p*x**7"))


def test_a_layer_is_initialised_the_same_each_time():
    a, b = layer("F08", 3, 4), layer("F08", 3, 4)
    for left, right in zip(a.state_dict().values(), b.state_dict().values(), strict=True):
        assert torch.equal(left, right)
