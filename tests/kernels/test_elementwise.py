"""Elementwise kernels evaluate several expressions in one pass, for any number of elements."""

import pytest
import torch
from torch import Tensor

from ftnn.formula import Function
from ftnn.formula._expr import Expr
from ftnn.kernels.cpu import elementwise as module
from ftnn.kernels.cpu.elementwise import Elementwise
from ftnn.kernels.eager.evaluation import evaluate


def expression(text: str) -> Expr:
    return Function(f"{text} + 0*x").written.args[0]  # pyright: ignore[reportAttributeAccessIssue]


EXPRS = tuple(map(expression, ("p**2*q", "sin(p) - q", "exp(-(p - 0.5)**2)", "where(p > q, p, 2)")))


def arrays(rows: int, columns: int, dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(rows, columns, generator=generator, dtype=dtype) for _ in "pq"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(1, 1), (1, 15), (3, 16), (5, 7), (4, 33), (70, 130)])
def test_values_match_torch_for_any_shape(shape: tuple[int, int], dtype: torch.dtype):
    p, q = arrays(*shape, dtype)
    around = [torch.full((p.numel() + 2,), 7.0, dtype=dtype) for _ in EXPRS]
    out = [array[1:-1].view(shape) for array in around]
    Elementwise(EXPRS, ("p", "q"))([p, q], out)
    tolerance = 8 * torch.finfo(dtype).eps
    for value, right in zip(out, evaluate(EXPRS, {"p": p, "q": q}), strict=True):
        torch.testing.assert_close(value, right.expand(shape), rtol=tolerance, atol=tolerance)
    assert all(array[0] == array[-1] == 7 for array in around)  # nothing is written beside the arrays


@pytest.mark.parametrize("shape", [(3, 5), (40, 33)])
def test_a_source_of_one_row_is_the_same_for_all_rows(shape: tuple[int, int]):
    p, q = arrays(*shape, torch.float64)
    (expr, *_), row = EXPRS, q[:1].contiguous()
    out = torch.empty_like(p)
    Elementwise((expr,), ("p", "q"))([p, row], [out])
    torch.testing.assert_close(out, p**2 * row)


@pytest.mark.parametrize("shape", [(3, 5), (40, 33)])
def test_results_may_overwrite_their_sources(shape: tuple[int, int]):
    p, q = arrays(*shape, torch.float32)
    expected = evaluate(EXPRS[:2], {"p": p, "q": q})
    Elementwise(EXPRS[:2], ("p", "q"))([p, q], [q, p])
    torch.testing.assert_close([q, p], expected, rtol=1e-6, atol=1e-6)


def test_results_have_the_same_bits_on_any_number_of_threads(monkeypatch: pytest.MonkeyPatch):
    sources = arrays(70, 33, torch.float32)
    results: list[list[Tensor]] = []
    before = torch.get_num_threads()
    for small, count in ((10**9, 1), (0, 1), (0, 2), (0, 3)):
        monkeypatch.setattr(module, "SMALL", small)
        torch.set_num_threads(count)
        results.append([torch.empty_like(sources[0]) for _ in EXPRS])
        Elementwise(EXPRS, ("p", "q"))(sources, results[-1])
    torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))
