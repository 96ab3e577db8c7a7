import subprocess
import sys
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.utils._python_dispatch import TorchDispatchMode

from ftnn import Function, catalogue
from ftnn.formula._expr import Expr
from ftnn.formula._ops import OPS
from ftnn.formula._text import to_text
from ftnn.kernels import memory_step, program_of, signature, transfer
from ftnn.kernels.eager import reference
from ftnn.kernels.program import Program
from tests.formula.strategies import depth_of, smooth_formulas, survey
from tests.kernels._layers import FEED_FORWARD, function_of, oracle, tensors


def program_for(formula: str) -> Program:
    return program_of(*signature(function_of(formula)))


def by_reference(function: Function) -> Any:
    def run(x: Tensor, *matrices: Tensor) -> Tensor:
        return transfer(function, x, matrices, "reference")

    return run


def positive(name: str) -> float:
    """Where parameters may start: at a negative p, the slope of F07 is decreed and not true."""
    return 0.1 if name == "F07" else -1.0


# ---- values


@pytest.mark.parametrize(
    "formula", [*FEED_FORWARD, "where(x > p, x, q)/3", "p + 0*x", "p*x*exp(step(x))", "p*min(x, 2)"]
)
def test_it_sums_the_function_over_the_inputs(formula: str):
    function = function_of(formula)
    x, matrices = tensors(function)
    found = transfer(function_of(formula), x, matrices, "reference")
    torch.testing.assert_close(found, oracle(function, x, matrices), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("formula", ["F12", "F15", "where(x > 0, 0.1, 0.3)*p", "max(x, 0.25)*p + 1/3"])
def test_it_computes_in_the_dtype_it_is_given(formula: str, dtype: torch.dtype):
    function = function_of(formula)
    x, matrices = tensors(function, dtype=dtype)
    found = transfer(function_of(formula), x, matrices, "reference")
    assert found.dtype == dtype
    tolerance = 40 * torch.finfo(dtype).eps
    torch.testing.assert_close(found.double(), oracle(function, x, matrices), rtol=tolerance, atol=tolerance)
    found.sum().backward()
    assert x.grad is not None
    assert x.grad.dtype == dtype


@pytest.mark.parametrize("formula", ["p*x + 1/0", "p*x + log(0)", "p*x*sqrt(-1)", "p*x/0", "coth(0)*x*p"])
def test_numbers_that_are_not_finite_are_computed_and_not_refused(formula: str):
    function = Function(formula)
    x, matrices = tensors(function)
    found = transfer(function_of(formula), x, matrices, "reference")
    torch.testing.assert_close(found, oracle(function, x, matrices), equal_nan=True)
    assert not found.isfinite().any()


@pytest.mark.parametrize("number", ["100000000000000000000", "1e300", "-123456789012345678901234567890"])
def test_large_whole_numbers_are_floats(number: str):
    function = Function(f"p*sin(q*x)*{number}")
    x, matrices = tensors(function)
    found = transfer(function_of(function.formula), x, matrices, "reference")
    torch.testing.assert_close(found, oracle(function, x, matrices), rtol=1e-13, atol=0)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", FEED_FORWARD)
def test_what_is_not_finite_comes_out_so_and_only_where_it_belongs(name: str, wrong: float):
    function = catalogue[name]
    x, matrices = tensors(function)
    with torch.no_grad():
        x[1, 2] = wrong
    found = transfer(function_of(name), x, matrices, "reference")
    torch.testing.assert_close(found, oracle(function, x, matrices), equal_nan=True)
    assert found[[0, 2]].isfinite().all()
    if wrong != wrong:
        assert found[1].isnan().all()


# ---- shapes


@pytest.mark.parametrize(("batch", "ins", "outs"), [(0, 3, 2), (1, 1, 1), (1, 5, 1), (4, 1, 3), (2, 3, 1)])
@pytest.mark.parametrize("formula", ["F12", "F03", "p*max(x, 0.5)", "where(p > 0, x, 1)"])
def test_any_size_works_an_empty_batch_too(formula: str, batch: int, ins: int, outs: int):
    function = function_of(formula)
    x, matrices = tensors(function, batch, ins, outs)
    found = transfer(function_of(formula), x, matrices, "reference")
    assert found.shape == (batch, outs)
    torch.testing.assert_close(found, oracle(function, x, matrices))
    grads = torch.autograd.grad(found.sum(), (x, *matrices[: len(function.parameters)]))
    assert [g.shape for g in grads] == [x.shape, *(m.shape for m in matrices[: len(function.parameters)])]
    if batch == 0:
        assert all((g == 0).all() for g in grads)


def test_tensors_need_not_be_contiguous():
    function = catalogue["F12"]
    x, matrices = tensors(function, 6, 4, 8)
    turned = [m.detach().T.contiguous().T for m in matrices]
    assert not turned[0].is_contiguous()
    found = transfer(function_of("F12"), x.detach()[::2].T.contiguous().T, turned, "reference")
    torch.testing.assert_close(found, oracle(function, x[::2], matrices))
    expanded = x.detach()[:1].expand(5, 4)
    torch.testing.assert_close(
        transfer(function_of("F12"), expanded, turned, "reference"), oracle(function, expanded, matrices)
    )


# ---- gradients


@pytest.mark.parametrize("name", FEED_FORWARD)
def test_gradients_of_every_catalogue_function_are_right(name: str):
    function = catalogue[name]
    x, matrices = tensors(function, low=positive(name), seed=3)
    assert gradcheck(by_reference(function), (x, *matrices), atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("name", FEED_FORWARD)
def test_second_derivatives_of_every_catalogue_function_are_right(name: str):
    function = catalogue[name]
    x, matrices = tensors(function, 2, 2, 2, low=positive(name), seed=3)
    assert gradgradcheck(by_reference(function), (x, *matrices), atol=1e-8, rtol=1e-6)


@pytest.mark.slow
def test_gradients_of_two_hundred_drawn_formulas_with_every_operation_in_twenty_of_them():
    def check(expr: Expr) -> None:
        assert depth_of(expr) >= 3
        function = Function(to_text(expr))
        x, matrices = tensors(function, 1, 2, 1)
        assert gradcheck(by_reference(function), (x, *matrices), atol=1e-7, rtol=1e-5)

    formulas, counts = survey(check, least=20, total=200)
    assert len(formulas) >= 200
    assert {op: counts[op] for op in OPS if counts[op] < 20} == {}


@pytest.mark.slow
@settings(max_examples=30)
@given(smooth_formulas())
def test_second_derivatives_of_drawn_formulas_are_right(expr: Expr):
    function = Function(to_text(expr))
    x, matrices = tensors(function, 1, 1, 1)
    assert gradgradcheck(by_reference(function), (x, *matrices), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("needed", ["x", "p", "q", "r", "xq", "pr", "qr", "xpr"])
def test_what_needs_no_gradient_is_given_none_and_the_others_the_same(needed: str):
    function = catalogue["F12"]
    x, matrices = tensors(function)
    expected = torch.autograd.grad(transfer(function, x, matrices, "reference").sum(), (x, *matrices))
    given = [
        t.detach().requires_grad_(name in needed) for name, t in zip("xpqr", (x, *matrices), strict=True)
    ]
    transfer(function, given[0], given[1:], "reference").sum().backward()
    for name, tensor, slope in zip("xpqr", given, expected, strict=True):
        if name in needed:
            torch.testing.assert_close(tensor.grad, slope)
        else:
            assert tensor.grad is None


# ---- the decree


def test_the_decree_of_rect_ada_holds_where_it_differs_from_the_truth():
    x = torch.tensor([[2.0, -3.0], [0.5, 1.0]], dtype=torch.float64, requires_grad=True)
    p = torch.tensor([[-0.5], [0.25]], dtype=torch.float64, requires_grad=True)
    u = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    weight = torch.tensor([[1.0], [10.0]], dtype=torch.float64)
    out = transfer(function_of("F07"), x, [p, u], "reference")
    torch.testing.assert_close(out, torch.tensor([[0.75], [-0.25]], dtype=torch.float64))
    grad_x, grad_p = torch.autograd.grad((weight * out).sum(), (x, p), create_graph=True)
    torch.testing.assert_close(grad_p, u * (x * weight).sum(0)[:, None])  # u·x, though p is negative
    torch.testing.assert_close(grad_x, weight * (p.clamp(min=0) * u).T)  # rect(p)·u: by x, the truth
    # Differentiated again: by p still as decreed, whatever order the derivatives are taken in.
    (again,) = torch.autograd.grad(grad_x.sum(), p, retain_graph=True)
    torch.testing.assert_close(again, u * weight.sum())
    (other,) = torch.autograd.grad(grad_p.sum(), x)
    torch.testing.assert_close(other, weight * u.T)


# ---- memory


def test_one_step_of_memory_is_summed_and_kept():
    function = catalogue["memory"]
    x, matrices = tensors(function)
    cell = torch.linspace(-1, 1, 24, dtype=torch.float64).reshape(3, 4, 2)
    total, new = memory_step(catalogue["memory"], x, cell, matrices)
    p, q, r = matrices
    expected = torch.tanh(p * x[:, :, None] + q * cell + r)
    torch.testing.assert_close(new, expected)
    torch.testing.assert_close(total, expected.sum(1))


@pytest.mark.parametrize("formula", ["memory", "p*x + q*C*sin(r*x) + C", "rect(p*x + q*C)*u + 0.1*C"])
def test_gradients_of_memory_are_right_by_the_cell_too(formula: str):
    function = (
        Function(formula, constants={"u": (-1, 1)})
        if "u" in formula and formula != "memory"
        else function_of(formula)
    )
    x, matrices = tensors(function, 2, 2, 2, seed=1)
    cell = torch.linspace(-0.9, 1, 8, dtype=torch.float64).reshape(2, 2, 2).requires_grad_()

    def run(x: Tensor, cell: Tensor, *matrices: Tensor) -> tuple[Tensor, Tensor]:
        return memory_step(function, x, cell, matrices)

    assert gradcheck(run, (x, cell, *matrices), atol=1e-8, rtol=1e-6)
    assert gradgradcheck(run, (x, cell, *matrices), atol=1e-7, rtol=1e-5)


def test_gradients_go_through_time_from_step_to_step():
    x, matrices = tensors(catalogue["memory"], 2, 2, 2)

    def run(x: Tensor, *matrices: Tensor) -> Tensor:
        cell, outs = x.new_zeros(2, 2, 2), list[Tensor]()
        for _ in range(3):
            total, cell = memory_step(catalogue["memory"], x, cell, matrices)
            outs.append(total)
        return torch.stack(outs)

    assert gradcheck(run, (x, *matrices), atol=1e-8, rtol=1e-6)


# ---- how much it holds


class Largest(TorchDispatchMode):
    """Remembers the most elements that any one operation made."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        # A view (of a block, expanded) holds nothing of its own.
        if isinstance(out, Tensor) and out._base is None and not _is_view(func):
            self.elements = max(self.elements, out.numel())
        return out


def _is_view(func: Any) -> bool:
    return any(a.alias_info is not None for a in func._schema.returns)


@pytest.mark.parametrize("block", [1, 1_000, 10_000, 100_000, 10**9])
@pytest.mark.parametrize("formula", ["F12", "where(x > p, exp(q*x), max(x, p))*r"])
def test_the_result_is_the_same_in_blocks_of_any_size(
    formula: str, block: int, monkeypatch: pytest.MonkeyPatch
):
    function = function_of(formula)
    x, matrices = tensors(function, 5, 6, 7)
    weight = torch.linspace(-1, 1, 35, dtype=torch.float64).reshape(5, 7)
    inputs = (x, *matrices)
    expected = transfer(function_of(formula), x, matrices, "reference")
    slopes = torch.autograd.grad((weight * expected).sum(), inputs)
    monkeypatch.setattr(reference, "BLOCK_BYTES", block)
    found = transfer(function_of(formula), x, matrices, "reference")
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(
        torch.autograd.grad((weight * found).sum(), inputs), slopes, rtol=1e-13, atol=1e-13
    )


@pytest.mark.parametrize(
    ("batch", "ins", "outs"), [(64, 30, 50), (1, 3000, 2), (3000, 4, 2), (2, 3, 3000), (1, 100_000, 1)]
)
def test_no_block_is_larger_than_allowed(batch: int, ins: int, outs: int, monkeypatch: pytest.MonkeyPatch):
    function = catalogue["F12"]
    x, matrices = tensors(function, batch, ins, outs)
    monkeypatch.setattr(reference, "BLOCK_BYTES", 64 * 1024)
    with Largest() as seen:
        out = transfer(function_of("F12"), x, matrices, "reference")
    allowed = 64 * 1024 // 8
    assert seen.elements <= max(allowed, out.numel())  # what comes out is not counted
    with Largest() as seen:
        out.sum().backward()
    assert seen.elements <= max(allowed, *(t.numel() for t in (x, *matrices, out)))


_MEASURE = """
import resource
import torch
from ftnn import catalogue
from ftnn.kernels import transfer

torch.set_num_threads(1)
function = catalogue["F12"]
x = torch.rand(256, 512, requires_grad=True)
matrices = [torch.rand(512, 512, requires_grad=True) for _ in range(3)]
transfer(function, x[:1, :1], [m[:1, :1] for m in matrices], "reference").sum().backward()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
transfer(function, x, matrices, "reference").sum().backward()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


@pytest.mark.slow
def test_it_never_holds_more_than_256_mib_where_whole_arrays_would_take_that_each():
    done = subprocess.run([sys.executable, "-c", _MEASURE], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 256 + 16  # and the gradients
