"""The reference: values against NumPy, gradients against finite differences, and how much memory it takes."""

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


def lowest(name: str) -> float:
    """The lower end of parameters: for p < 0, F07 has a surrogate gradient."""
    return 0.1 if name == "F07" else -1.0


# ---- values


@pytest.mark.parametrize(
    "formula", [*FEED_FORWARD, "where(x > p, x, q)/3", "p + 0*x", "p*x*exp(step(x))", "p*min(x, 2)"]
)
def test_values_match_numpy(formula: str):
    function = function_of(formula)
    x, matrices = tensors(function)
    result = transfer(function_of(formula), x, matrices, "reference")
    torch.testing.assert_close(result, oracle(function, x, matrices), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("formula", ["F12", "F15", "where(x > 0, 0.1, 0.3)*p", "max(x, 0.25)*p + 1/3"])
def test_results_have_the_dtype_of_the_input(formula: str, dtype: torch.dtype):
    function = function_of(formula)
    x, matrices = tensors(function, dtype=dtype)
    result = transfer(function_of(formula), x, matrices, "reference")
    assert result.dtype == dtype
    tolerance = 40 * torch.finfo(dtype).eps
    torch.testing.assert_close(result.double(), oracle(function, x, matrices), rtol=tolerance, atol=tolerance)
    result.sum().backward()
    assert x.grad is not None
    assert x.grad.dtype == dtype


@pytest.mark.parametrize("formula", ["p*x + 1/0", "p*x + log(0)", "p*x*sqrt(-1)", "p*x/0", "coth(0)*x*p"])
def test_formulas_with_infinite_constants_are_computed(formula: str):
    function = Function(formula)
    x, matrices = tensors(function)
    result = transfer(function_of(formula), x, matrices, "reference")
    torch.testing.assert_close(result, oracle(function, x, matrices), equal_nan=True)
    assert not result.isfinite().any()


@pytest.mark.parametrize("number", ["100000000000000000000", "1e300", "-123456789012345678901234567890"])
def test_large_integers_are_converted_to_floats(number: str):
    function = Function(f"p*sin(q*x)*{number}")
    x, matrices = tensors(function)
    result = transfer(function_of(function.formula), x, matrices, "reference")
    torch.testing.assert_close(result, oracle(function, x, matrices), rtol=1e-13, atol=0)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", FEED_FORWARD)
def test_nan_and_infinity_affect_only_their_own_sample(name: str, wrong: float):
    function = catalogue[name]
    x, matrices = tensors(function)
    with torch.no_grad():
        x[1, 2] = wrong
    result = transfer(function_of(name), x, matrices, "reference")
    torch.testing.assert_close(result, oracle(function, x, matrices), equal_nan=True)
    assert result[[0, 2]].isfinite().all()
    if wrong != wrong:
        assert result[1].isnan().all()


# ---- shapes


@pytest.mark.parametrize(("batch", "ins", "outs"), [(0, 3, 2), (1, 1, 1), (1, 5, 1), (4, 1, 3), (2, 3, 1)])
@pytest.mark.parametrize("formula", ["F12", "F03", "p*max(x, 0.5)", "where(p > 0, x, 1)"])
def test_all_sizes_work_including_an_empty_batch(formula: str, batch: int, ins: int, outs: int):
    function = function_of(formula)
    x, matrices = tensors(function, batch, ins, outs)
    result = transfer(function_of(formula), x, matrices, "reference")
    assert result.shape == (batch, outs)
    torch.testing.assert_close(result, oracle(function, x, matrices))
    grads = torch.autograd.grad(result.sum(), (x, *matrices[: len(function.parameters)]))
    assert [g.shape for g in grads] == [x.shape, *(m.shape for m in matrices[: len(function.parameters)])]
    if batch == 0:
        assert all((g == 0).all() for g in grads)


def test_strided_tensors_are_supported():
    function = catalogue["F12"]
    x, matrices = tensors(function, 6, 4, 8)
    strided = [m.detach().T.contiguous().T for m in matrices]
    assert not strided[0].is_contiguous()
    result = transfer(function_of("F12"), x.detach()[::2].T.contiguous().T, strided, "reference")
    torch.testing.assert_close(result, oracle(function, x[::2], matrices))
    expanded = x.detach()[:1].expand(5, 4)
    torch.testing.assert_close(
        transfer(function_of("F12"), expanded, strided, "reference"), oracle(function, expanded, matrices)
    )


# ---- gradients


@pytest.mark.parametrize("name", FEED_FORWARD)
def test_catalogue_gradients_match_finite_differences(name: str):
    function = catalogue[name]
    x, matrices = tensors(function, low=lowest(name), seed=3)
    assert gradcheck(by_reference(function), (x, *matrices), atol=1e-8, rtol=1e-6)


@pytest.mark.slow
def test_gradients_of_200_random_formulas_match_finite_differences():
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
def test_second_derivatives_of_random_formulas_match_finite_differences(expr: Expr):
    function = Function(to_text(expr))
    x, matrices = tensors(function, 1, 1, 1)
    assert gradgradcheck(by_reference(function), (x, *matrices), atol=1e-6, rtol=1e-4)


# ---- the surrogate gradient


def test_rect_ada_has_its_surrogate_gradient_in_first_and_second_derivatives():
    x = torch.tensor([[2.0, -3.0], [0.5, 1.0]], dtype=torch.float64, requires_grad=True)
    p = torch.tensor([[-0.5], [0.25]], dtype=torch.float64, requires_grad=True)
    u = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    weight = torch.tensor([[1.0], [10.0]], dtype=torch.float64)
    out = transfer(function_of("F07"), x, [p, u], "reference")
    torch.testing.assert_close(out, torch.tensor([[0.75], [-0.25]], dtype=torch.float64))
    grad_x, grad_p = torch.autograd.grad((weight * out).sum(), (x, p), create_graph=True)
    torch.testing.assert_close(grad_p, u * (x * weight).sum(0)[:, None])  # u·x, though p is negative
    torch.testing.assert_close(grad_x, weight * (p.clamp(min=0) * u).T)  # rect(p)·u: by x, the true slope
    # Differentiated again: by p still the surrogate, in whatever order derivatives are taken.
    (again,) = torch.autograd.grad(grad_x.sum(), p, retain_graph=True)
    torch.testing.assert_close(again, u * weight.sum())
    (other,) = torch.autograd.grad(grad_p.sum(), x)
    torch.testing.assert_close(other, weight * u.T)


# ---- memory


def test_memory_step_returns_sums_and_new_cells():
    function = catalogue["memory"]
    x, matrices = tensors(function)
    cell = torch.linspace(-1, 1, 24, dtype=torch.float64).reshape(3, 4, 2)
    total, new = memory_step(catalogue["memory"], x, cell, matrices)
    p, q, r = matrices
    expected = torch.tanh(p * x[:, :, None] + q * cell + r)
    torch.testing.assert_close(new, expected)
    torch.testing.assert_close(total, expected.sum(1))


@pytest.mark.parametrize("formula", ["memory", "p*x + q*C*sin(r*x) + C", "rect(p*x + q*C)*u + 0.1*C"])
def test_memory_step_gradients_match_finite_differences(formula: str):
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


def test_gradients_flow_through_several_memory_steps():
    x, matrices = tensors(catalogue["memory"], 2, 2, 2)

    def run(x: Tensor, *matrices: Tensor) -> Tensor:
        cell, outs = x.new_zeros(2, 2, 2), list[Tensor]()
        for _ in range(3):
            total, cell = memory_step(catalogue["memory"], x, cell, matrices)
            outs.append(total)
        return torch.stack(outs)

    assert gradcheck(run, (x, *matrices), atol=1e-8, rtol=1e-6)


# ---- memory use


class Largest(TorchDispatchMode):
    """Records the largest number of elements that any operation created."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        # A view (an expanded block) has no memory of its own.
        if isinstance(out, Tensor) and out._base is None and not _is_view(func):
            self.elements = max(self.elements, out.numel())
        return out


def _is_view(func: Any) -> bool:
    return any(a.alias_info is not None for a in func._schema.returns)


@pytest.mark.parametrize("block", [1, 1_000, 10_000, 100_000, 10**9])
@pytest.mark.parametrize("formula", ["F12", "where(x > p, exp(q*x), max(x, p))*r"])
def test_the_block_size_does_not_change_results(formula: str, block: int, monkeypatch: pytest.MonkeyPatch):
    function = function_of(formula)
    x, matrices = tensors(function, 5, 6, 7)
    weight = torch.linspace(-1, 1, 35, dtype=torch.float64).reshape(5, 7)
    inputs = (x, *matrices)
    expected = transfer(function_of(formula), x, matrices, "reference")
    slopes = torch.autograd.grad((weight * expected).sum(), inputs)
    monkeypatch.setattr(reference, "BLOCK_BYTES", block)
    result = transfer(function_of(formula), x, matrices, "reference")
    torch.testing.assert_close(result, expected, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(
        torch.autograd.grad((weight * result).sum(), inputs), slopes, rtol=1e-13, atol=1e-13
    )


@pytest.mark.parametrize(
    ("batch", "ins", "outs"), [(64, 30, 50), (1, 3000, 2), (3000, 4, 2), (2, 3, 3000), (1, 100_000, 1)]
)
def test_no_array_exceeds_the_block_size(batch: int, ins: int, outs: int, monkeypatch: pytest.MonkeyPatch):
    function = catalogue["F12"]
    x, matrices = tensors(function, batch, ins, outs)
    monkeypatch.setattr(reference, "BLOCK_BYTES", 64 * 1024)
    with Largest() as seen:
        out = transfer(function_of("F12"), x, matrices, "reference")
    allowed = 64 * 1024 // 8
    assert seen.elements <= max(allowed, out.numel())  # the result itself is not counted
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
def test_peak_memory_stays_below_256_mib():
    done = subprocess.run([sys.executable, "-c", _MEASURE], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 256 + 16  # plus the gradients
