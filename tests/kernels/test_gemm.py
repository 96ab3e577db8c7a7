"""Matrix products for separable functions match the reference, and are avoided where factors overflow."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

import ftnn
from ftnn import Function
from ftnn.formula._expr import Expr
from ftnn.kernels import program_of, signature, transfer
from ftnn.kernels.eager import gemm, reference
from ftnn.kernels.program import Program
from tests.formula.separable import SEPARABLE
from tests.kernels._layers import function_of, oracle, tensors


def program_for(formula: str) -> Program:
    return program_of(*signature(function_of(formula)))


def at(
    formula: str, values: dict[str, float], dtype: torch.dtype = torch.float64
) -> tuple[Tensor, list[Tensor]]:
    """One connection with these values."""
    function = Function(formula)

    def single(name: str) -> Tensor:
        return torch.tensor([[values[name]]], dtype=dtype, requires_grad=True)

    return single("x"), [single(name) for name in function.parameters]


def lowest(formula: str) -> float:
    """The lower end of values: non-integer powers need a positive base."""
    return 0.2 if formula in ("p*x**2.5", "p**q*x") else -2.0


# ---- against the reference, relative to the sum of absolute terms


class Sizes:
    """The sums of absolute terms of results and gradients: the scale of rounding errors."""

    def __init__(self, program: Program, x: Tensor, matrices: Sequence[Tensor], grad: Tensor):
        self.x = x.detach()
        self.matrices = {n: m.detach() for n, m in zip(program.matrices, matrices, strict=True)}
        self.grad = grad.abs()
        self.plan = program.plan
        self.program = program

    def h(self, expr: Expr) -> Tensor:
        return reference.evaluate((expr,), {"x": self.x})[0].abs().expand(self.x.shape)

    def g(self, expr: Expr) -> Tensor:
        shape = next(iter(self.matrices.values())).shape
        return reference.evaluate((expr,), self.matrices)[0].abs().expand(shape)

    def whole(self, expr: Expr) -> Tensor:
        """|expr|, (batch, in, out)."""
        values = {"x": self.x[:, :, None], **{n: m[None] for n, m in self.matrices.items()}}
        shape = (*self.x.shape, next(iter(self.matrices.values())).shape[1])
        return reference.evaluate((expr,), values)[0].abs().expand(shape)

    def result(self) -> Tensor:
        total = self.whole(self.program.expr).sum(1)
        for g, h in self.plan.terms:
            total = total + self.h(h) @ self.g(g)
        if self.plan.constant is not None:
            total = total + self.g(self.plan.constant).sum(0)
        if self.plan.common is not None:
            total = total + self.h(self.plan.common).sum(1, keepdim=True)
        return total

    def slope(self, name: str) -> Tensor:
        axis = 2 if name == "x" else 0
        total = (self.whole(self.program.slopes[name]) * self.grad[:, None]).sum(axis)
        for g, h in self.plan.terms:
            if name == "x":
                total = total + (self.grad @ self.g(g).T) * self.h(gemm._slope(h, "x"))
            else:
                total = total + (self.h(h).T @ self.grad) * self.g(gemm._slope(g, name))
        if name == "x" and self.plan.common is not None:
            total = total + self.h(gemm._slope(self.plan.common, "x")) * self.grad.sum(1, keepdim=True)
        if name != "x" and self.plan.constant is not None:
            total = total + self.grad.sum(0) * self.g(gemm._slope(self.plan.constant, name))
        return total


@pytest.mark.parametrize("formula", SEPARABLE)
def test_values_and_gradients_match_the_reference_relative_to_the_sum_of_absolute_terms(formula: str):
    function, program = function_of(formula), program_for(formula)
    x, matrices = tensors(function, 7, 9, 5, low=lowest(formula), high=2.0)
    grad = torch.linspace(-1.5, 1, 35, dtype=torch.float64).reshape(7, 5)
    names = ("x", *program.parameters)
    sizes = Sizes(program, x, matrices, grad)
    with torch.no_grad():
        assert gemm.suits(program, x, matrices)
        value = gemm.transfer(program, x, matrices)
        slopes = gemm.transfer_backward(program, grad, x, matrices, names)
    expected = transfer(function, x, matrices, "reference")
    expected_slopes = torch.autograd.grad(expected, (x, *matrices[: len(program.parameters)]), grad)
    assert ((value - expected).abs() <= 1e-12 * sizes.result()).all()
    for name, slope, other in zip(names, slopes, expected_slopes, strict=True):
        assert ((slope - other).abs() <= 1e-12 * sizes.slope(name)).all(), name


@pytest.mark.parametrize("formula", SEPARABLE)
def test_separable_functions_through_the_operator_match_the_reference(formula: str):
    function = function_of(formula)
    x, matrices = tensors(function, 4, 3, 5, low=lowest(formula), high=2.0)
    inputs = (x, *matrices[: len(function.parameters)])
    result, expected = (transfer(function, x, matrices, backend) for backend in ("auto", "reference"))
    torch.testing.assert_close(result, expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(
        torch.autograd.grad(result.sum(), inputs),
        torch.autograd.grad(expected.sum(), inputs),
        rtol=1e-9,
        atol=1e-9,
    )


@pytest.mark.parametrize("requested", [("x",), ("q",), ("x", "r"), ("p", "r"), ()])
def test_only_the_requested_gradients_are_computed(requested: tuple[str, ...]):
    program = program_for("F04")
    x, matrices = tensors(program.function)
    grad = torch.ones(3, 2, dtype=torch.float64)
    names = ("x", "p", "q", "r")
    with torch.no_grad():
        all_slopes = gemm.transfer_backward(program, grad, x, matrices, names)
        some = gemm.transfer_backward(program, grad, x, matrices, requested)
    assert len(some) == len(requested)
    for name, slope in zip(requested, some, strict=True):
        assert torch.equal(slope, all_slopes[names.index(name)])


def test_surrogate_gradients_survive_the_factorisation():
    for formula, slope in (
        ("rect_ada(p)*x", 2.0),
        ("rect_ada(p)*x**2 + rect_ada(p)", 5.0),
        ("sin(rect_ada(p))*x", 2.0),
        ("where(q > 0, rect_ada(p)*x, 0)", 2.0),
        ("exp(rect_ada(p) + x)", 7.38905609893065),
        ("abs(x)*rect_ada(p)/4", 0.5),
    ):
        x, matrices = at(formula, {"x": 2.0, "p": -0.5, "q": 1.0})
        assert Function(formula).plan.kind == "gemm"
        for backend in ("auto", "reference"):
            out = transfer(Function(formula), x, matrices, backend)
            (result,) = torch.autograd.grad(out, matrices[Function(formula).parameters.index("p")])
            assert result.item() == pytest.approx(slope), (formula, backend)
    x, matrices = at("rect_ada(p)*x", {"x": 2.0, "p": -0.5})
    (by_x,) = torch.autograd.grad(transfer(Function("rect_ada(p)*x"), x, matrices), x)
    assert by_x.item() == 0


# ---- factors that overflow while the function does not

EXTREME: list[tuple[str, dict[str, float]]] = [
    ("p*exp(x + q)", {"x": 800, "q": -800, "p": 2}),
    ("p*exp(x + q)", {"x": -800, "q": 800, "p": 2}),
    ("p*exp(x + q)", {"x": 700, "q": -750, "p": 2}),  # a factor underflows
    ("p*exp(x + q)", {"x": -750, "q": 700, "p": 2}),
    ("p*exp(x + q)**3", {"x": 100, "q": -300, "p": 2}),
    ("p*exp(x + q)*exp(x + r)", {"x": -300, "q": 250, "r": 250, "p": 2}),
    ("p*exp(x - q)*exp(2*x)", {"x": -250, "q": -700, "p": 2}),
    ("p/exp(x + q)", {"x": 800, "q": -800, "p": 2}),
    ("abs(exp(x + q))*p", {"x": 800, "q": -800, "p": 2}),
    ("where(p > 0, exp(x + q), x)", {"x": 800, "q": -800, "p": 2}),
    ("where(p > 0, x, exp(x + q))", {"x": 800, "q": 800, "p": 2}),  # the branch that is not taken overflows
    ("(x - q)**2", {"x": 1e200, "q": 1e200}),
    ("p*(x - q)**2", {"x": 1e160, "q": 1e160 * (1 - 2**-40), "p": 1e-100}),
    ("p**2*(x - q)**2", {"x": -1e160, "q": -1e160 * (1 + 2**-40), "p": 1e-100}),
    ("p*x*q", {"x": 1e-300, "p": 1e200, "q": 1e200}),
    ("p*x/q", {"x": 1e-300, "p": 1e200, "q": 1e-200}),
    ("p/(x*q)", {"x": 1e-310, "p": 2, "q": 1e200}),
    ("p/x", {"x": 1e-310, "p": 1e-300}),
    ("(p*x)**2", {"x": 1e-150, "p": 1e200}),
    ("(p + x)*(q + x)", {"x": -1e200, "p": 1e200, "q": 1e200}),
    ("p*x + p*x**2", {"x": 1e154, "p": 1e-100}),
]


@pytest.mark.parametrize(("formula", "values"), EXTREME)
def test_a_finite_function_stays_finite_if_its_factors_overflow(formula: str, values: dict[str, float]):
    function = Function(formula)
    x, matrices = at(formula, values)
    expected = oracle(function, x, matrices)
    assert expected.isfinite().all()
    result = transfer(function, x, matrices)
    torch.testing.assert_close(result, expected, rtol=1e-12, atol=0)
    slopes = torch.autograd.grad(result, (x, *matrices))
    others = torch.autograd.grad(transfer(function, x, matrices, "reference"), (x, *matrices))
    torch.testing.assert_close(slopes, others, rtol=1e-12, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("formula", "values"),
    [
        ("p*exp(x + q)", {"x": 80, "q": -80, "p": 2}),
        ("p*exp(x + q)", {"x": 60, "q": -100, "p": 2}),
        ("(x - q)**2", {"x": 1e25, "q": 1e25}),
        ("p*(x - q)**2", {"x": 1e25, "q": 1.000001e25, "p": 1e-30}),
    ],
)
def test_a_finite_function_stays_finite_if_its_factors_overflow_in_float32(
    formula: str, values: dict[str, float]
):
    function = Function(formula)
    x, matrices = at(formula, values, torch.float32)
    result = transfer(function, x, matrices)
    torch.testing.assert_close(result.double(), oracle(function, x, matrices), rtol=2e-5, atol=0)


def test_a_layer_stays_finite_if_the_factors_of_its_function_overflow():
    layer = ftnn.nn.Transfer(2, 1, "p*exp(x + q)", bias=False, dtype=torch.float64)
    with torch.no_grad():
        layer.matrix("p")[:] = 1.0
        layer.matrix("q")[:] = torch.tensor([-800.0, -750.0])
    out = layer(torch.tensor([[800.0, 700.0]], dtype=torch.float64))
    assert out.item() == pytest.approx(1 + 1.9287498479639178e-22, rel=1e-15)
    square = ftnn.nn.Transfer(1, 1, "(x - q)**2", bias=False)
    with torch.no_grad():
        square.matrix("q")[:] = 1e25
    assert square(torch.tensor([[1e25]])).item() == 0


def test_an_overflowing_sample_does_not_affect_the_others():
    function = Function("p*exp(x + q)")
    x, matrices = tensors(function, 5, 3, 2)
    with torch.no_grad():
        x[2] = 900.0
        matrices[1][:] = -900.0
    torch.testing.assert_close(transfer(function, x, matrices), oracle(function, x, matrices))


def test_a_quotient_of_equal_parts_is_not_cancelled():
    x, matrices = at("p*x/x", {"x": 0.0, "p": 2.0})
    assert transfer(Function("p*x/x"), x, matrices).isnan().all()
    x, matrices = at("p*x/x", {"x": 3.0, "p": 2.0})
    assert transfer(Function("p*x/x"), x, matrices).item() == 2


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("formula", [f for f in SEPARABLE if lowest(f) < 0])
def test_nan_and_infinity_propagate_as_in_the_reference(formula: str, wrong: float):
    function = function_of(formula)
    x, matrices = tensors(function, 3, 2, 2)
    with torch.no_grad():
        x[1, 1] = wrong
    result, expected = (transfer(function, x, matrices, backend) for backend in ("auto", "reference"))
    torch.testing.assert_close(result[[0, 2]], expected[[0, 2]])
    assert torch.equal(result[1].isfinite(), expected[1].isfinite())


# ---- shapes and dtypes


@pytest.mark.parametrize(("batch", "ins", "outs"), [(0, 3, 2), (1, 1, 1), (0, 1, 1), (3, 1, 2)])
@pytest.mark.parametrize(
    "formula", ["F19", "p*max(x, 0.5)", "p*exp(x + q)", "p + x", "where(p > 0, x, 1)", "p*x + 3"]
)
def test_all_sizes_work_including_an_empty_batch(formula: str, batch: int, ins: int, outs: int):
    function = function_of(formula)
    x, matrices = tensors(function, batch, ins, outs)
    result = transfer(function, x, matrices)
    assert result.shape == (batch, outs)
    torch.testing.assert_close(result, oracle(function, x, matrices))
    grads: Any = torch.autograd.grad(
        result.sum(), (x, *matrices[: len(function.parameters)]), allow_unused=True
    )
    assert grads[0].shape == x.shape


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("formula", ["F03", "F06", "F19", "p*sin(x + r)", "p*exp(x + q)"])
def test_results_have_the_dtype_of_the_input(formula: str, dtype: torch.dtype):
    function = function_of(formula)
    x, matrices = tensors(function, dtype=dtype)
    result = transfer(function, x, matrices)
    assert result.dtype == dtype
    tolerance = 40 * torch.finfo(dtype).eps
    torch.testing.assert_close(result.double(), oracle(function, x, matrices), rtol=tolerance, atol=tolerance)


def test_strided_tensors_are_supported():
    function = function_of("F19")
    x, matrices = tensors(function, 6, 4, 8)
    strided = [m.detach().T.contiguous().T for m in matrices]
    torch.testing.assert_close(transfer(function, x[::2], strided), oracle(function, x[::2], matrices))


def test_a_plan_without_products_is_a_sum():
    function = Function("p + x")
    x, matrices = tensors(function)
    torch.testing.assert_close(transfer(function, x, matrices), matrices[0].sum(0) + x.sum(1, keepdim=True))
