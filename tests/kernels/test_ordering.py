"""Whether factors are moderate enough to be multiplied in any order."""

from __future__ import annotations

import copy
import math

import pytest
import torch

import ftnn
from ftnn.formula._parse import parse
from ftnn.kernels import ordering, program_of, signature
from ftnn.kernels.eager import reference

FACTORS = tuple(map(parse, ("p**2", "p*exp(q)", "q")))


@pytest.mark.parametrize("special", [None, 0.0, -0.0, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("size", [1, 5, 16, 17, 1003])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_generated_code_finds_the_same_extremes_as_torch(
    dtype: torch.dtype, size: int, special: float | None
):
    random = torch.Generator().manual_seed(size)
    p, q = (torch.randn(size, generator=random, dtype=dtype) for _ in range(2))
    if special is not None:
        p[size // 2] = special
    in_torch = ordering.evaluate(FACTORS, {"p": p, "q": q})
    for found, value in zip(ordering._extremes(FACTORS, ("p", "q"), (p, q)), in_torch, strict=True):
        for one, other in zip(found, ordering._extremes_in_torch(value), strict=True):
            assert one == pytest.approx(other, rel=1e-6, nan_ok=True)


@pytest.mark.parametrize(("size", "expected"), [(1.0, True), (100.0, True), (1e20, False)])
def test_parameters_that_fade_are_moderate_unless_something_enlarges_the_product(size: float, expected: bool):
    program = program_of(*signature(ftnn.catalogue["F18"]))
    p, u, x = torch.full((3, 4), 1e-30), torch.ones(3, 4), torch.full((5, 3), size)
    products = (((parse("p"), 2), (parse("x"), 1)),)
    assert ordering.moderate(program, products, x, (p, u)) is expected
    assert ordering.moderate(program, products, torch.ones(5, 3), (1e29 * p, u))
    assert not ordering.moderate(program, products, torch.ones(5, 3), (1e-8 / p, u))  # p**2 overflows


def test_a_layer_with_fading_parameters_does_not_need_the_reference(monkeypatch: pytest.MonkeyPatch):
    def unexpected(*_: object) -> None:
        raise AssertionError("the reference was used")

    torch.manual_seed(0)
    layer, x = ftnn.nn.Transfer(784, 128, "F18"), torch.rand(64, 784)
    x *= torch.rand(64, 784) < 0.2
    with torch.no_grad():
        layer.theta["p"][::3] *= 1e-20
    expected = copy.deepcopy(layer).double()(x.double())
    monkeypatch.setattr(reference, "transfer", unexpected)
    monkeypatch.setattr(reference, "transfer_backward", unexpected)
    out = layer(x)
    out.sum().backward()
    torch.testing.assert_close(out.double(), expected, rtol=1e-4, atol=1e-5)
