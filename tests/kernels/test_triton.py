"""Triton kernels, run by Triton's interpreter, match the float64 reference."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import torch
from torch import Tensor

import ftnn
from ftnn import Function, catalogue
from ftnn.formula._expr import call, symbol
from ftnn.formula._ops import OPS, Op
from ftnn.kernels import signature, transfer
from ftnn.kernels.program import program_of
from tests.formula import oracle
from tests.kernels import interpreted
from tests.kernels._layers import FEED_FORWARD, tensors
from tests.kernels.interpreted import by_triton


def weight_for(x: Tensor, matrices: list[Tensor]) -> Tensor:
    """The gradient at the outputs, (batch, out)."""
    shape = (x.shape[0], matrices[0].shape[1])
    return torch.rand(shape, generator=torch.Generator().manual_seed(7), dtype=x.dtype) - 0.5


def by_reference(function: Function, x: Tensor, matrices: list[Tensor], weight: Tensor) -> list[Tensor]:
    """F ⊙ x and its gradients by x and every parameter, in float64."""
    leaves = [t.detach().double().requires_grad_() for t in (x, *matrices)]
    program = program_of(*signature(function))
    out = transfer(function, leaves[0], leaves[1:], "reference")
    return [out.detach(), *torch.autograd.grad(out, leaves[: 1 + len(program.parameters)], weight.double())]


def check(function: Function, x: Tensor, matrices: list[Tensor]) -> None:
    """Triton matches the reference, up to rounding."""
    weight = weight_for(x, matrices)
    result = by_triton(function, x, matrices, weight)
    expected = by_reference(function, x, matrices, weight)
    for one, other in zip(result, expected, strict=True):
        assert one.dtype == x.dtype
        scale = max(1.0, float(other.abs().max())) if other.numel() else 1.0
        tolerance = 100 * torch.finfo(x.dtype).eps * scale
        torch.testing.assert_close(one.double(), other, rtol=0, atol=tolerance)


# ---- values and gradients


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "ins", "outs"), [(1, 17, 129), (33, 3, 1), (3, 33, 17)])
@pytest.mark.parametrize("name", FEED_FORWARD)
def test_catalogue_matches_the_reference_in_float32(name: str, batch: int, ins: int, outs: int):
    check(catalogue[name], *tensors(catalogue[name], batch, ins, outs, torch.float32))


@pytest.mark.parametrize("name", FEED_FORWARD)
def test_catalogue_matches_the_reference_in_float64(name: str):
    check(catalogue[name], *tensors(catalogue[name], 33, 3, 1))


def using(op: Op) -> Function:
    """A function that uses `op`, with arguments that vary with x within the operation's domain."""
    args = [f"({(lo + hi) / 2} + {(hi - lo) / 2}*sin(q{n}*x + r{n}))" for n, (lo, hi) in enumerate(op.domain)]
    if op.name == "where":
        text = f"where({args[0]} < 0, {args[1]}, {args[2]})"
    elif op.is_comparison:
        text = f"where({args[0]} {op.symbol} {args[1]}, {args[0]}, 2)"
    elif op.symbol:
        text = f"({op.symbol.join(args)})" if op.arity == 2 else f"({op.symbol}{args[0]})"
    else:
        text = f"{op.name}({', '.join(args)})"
    return Function(f"p*{text}")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("op", OPS)
def test_every_operation_matches_the_reference_in_value_and_gradient(op: str, dtype: torch.dtype):
    function = using(OPS[op])
    check(function, *tensors(function, 3, 4, 5, dtype))


@pytest.mark.parametrize(
    "formula",
    [
        "p*x**9 + q*x**-3 + x**8",
        "p*abs(x)**q + x**1.5*r",
        "p**x",
        "min(p, 0.25)*x + max(x, -0.5)*max(0.1, 0.2)",
        "p*where(x < q, 1, 0) + where(x != q, 0.1, 0.7)",
        "p*x + 1e39*0*q",
        "p + x",
        "p*x*sin(3)",
        "tl*x + kernel*g + _pow*m_p + t0*total**2 + lambda_",
    ],
)
def test_numbers_powers_and_names_that_could_clash_match_the_reference(formula: str):
    for dtype in (torch.float32, torch.float64):
        check(function := Function(formula), *tensors(function, 3, 4, 5, dtype, low=0.2))


def test_a_mixed_matrix_matches_the_reference():
    layer = ftnn.nn.Transfer(4, 5, ftnn.Mixed(["F12", "F03", "F07"]), dtype=torch.float64)
    check(layer.function, torch.randn(3, 4, dtype=torch.float64), layer.matrices())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("batch", "ins", "outs"), [(0, 3, 2), (1, 1, 1), (1, 1, 3), (33, 65, 129), (64, 32, 64), (65, 33, 65)]
)
def test_empty_batches_and_sizes_at_the_edge_of_a_block_match_the_reference(batch: int, ins: int, outs: int):
    check(catalogue["F12"], *tensors(catalogue["F12"], batch, ins, outs, torch.float32))


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", FEED_FORWARD)
def test_nan_and_infinity_affect_only_their_own_sample(name: str, wrong: float):
    function = catalogue[name]
    x, matrices = tensors(function)
    with torch.no_grad():
        x[1, 2] = wrong
    result = by_triton(function, x, matrices, weight_for(x, matrices))[0]
    expected = transfer(function, x, matrices, "reference").detach()
    torch.testing.assert_close(result, expected, equal_nan=True)
    assert result[[0, 2]].isfinite().all()


def test_a_pole_beyond_the_edge_of_a_block_is_not_summed():
    function = Function("p/(x*q)")  # values read beyond the edge are 0
    check(function, *tensors(function, 3, 2, 5, low=0.5))


def test_rect_ada_has_its_surrogate_gradient():
    x = torch.tensor([[2.0, -3.0]], dtype=torch.float64)
    p, u = (torch.tensor(v, dtype=torch.float64) for v in ([[-0.5], [0.25]], [[1.0], [-1.0]]))
    _, by_x, by_p = by_triton(catalogue["F07"], x, [p, u], torch.ones(1, 1, dtype=torch.float64))
    torch.testing.assert_close(by_p, u * x.T)
    torch.testing.assert_close(by_x, (p.clamp(min=0) * u).T)


# ---- accuracy in float32 of functions that Triton lacks


WIDE = np.concatenate([s * np.logspace(-30, 1.9, 200) for s in (1, -1)])
NARROW = WIDE[np.abs(WIDE) < 1.5]
COMPOSED = {
    "sinh": WIDE,
    "cosh": WIDE,
    "tanh": WIDE,
    "coth": WIDE,
    "csch": WIDE,
    "sech": WIDE,
    "logistic": WIDE,
    "softplus": WIDE,
    "log1p": np.append(np.logspace(-30, 30, 300), -np.logspace(-30, -0.01, 100)),
    "tan": NARROW,
    "cot": NARROW,
    "sec": NARROW,
    "csc": NARROW,
}


@pytest.mark.parametrize("op", COMPOSED)
def test_composed_functions_are_accurate_near_zero_and_do_not_overflow_early(op: str):
    at = COMPOSED[op].astype(np.float32)
    result = interpreted.evaluate(call(op, symbol("a")), {"a": at}, "float32").astype(np.float64)
    with mpmath.workdps(50):
        expected = np.array([float(oracle.MEANING[op](mpmath.mpf(float(a)))) for a in at])
    # 8 units in the last place; denormals inevitably lose digits.
    assert (np.abs(result - expected) <= 8 * 2.0**-23 * np.abs(expected) + 2.0**-126).all()


@pytest.mark.parametrize("op", ["sinh", "cosh"])
def test_hyperbolic_functions_are_finite_up_to_the_largest_float32(op: str):
    result = interpreted.evaluate(call(op, symbol("a")), {"a": np.array([89.4, 89.5])}, "float32")
    assert np.isfinite(result[0])
    assert np.isinf(result[1])


def test_powers_are_accurate_and_have_the_special_cases_of_c():
    special = [0.0, 0.5, 1.0, 2.0, 3.0, -1.0, -2.0, -0.5, np.inf, -np.inf, np.nan, 30.0, -30.0, 2.5]
    a, b = (v.ravel() for v in np.meshgrid(special, special))
    power = call("pow", symbol("a"), symbol("b"))
    with np.errstate(all="ignore"):
        for dtype in ("float32", "float64"):
            result = interpreted.evaluate(power, {"a": a, "b": b}, dtype)
            tolerance = 3e-7 if dtype == "float32" else 1e-13
            np.testing.assert_allclose(result, np.power(a, b).astype(dtype), rtol=tolerance)


def test_log1p_on_the_cpu_is_accurate_where_one_plus_x_rounds_to_one():
    x = torch.tensor([[1e-8], [3e-8], [-2e-8], [6e-8]])
    result = transfer(Function("p*log1p(x)"), x, [torch.ones(1, 1)], "cpu")
    torch.testing.assert_close(result, torch.log1p(x))
