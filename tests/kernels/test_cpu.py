"""Generated kernels match the float64 reference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import cycle, product

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from torch import Tensor

import ftnn
from ftnn.formula import Function
from ftnn.formula._expr import INPUT, Expr
from ftnn.formula._ops import OPS
from ftnn.formula._text import to_text
from ftnn.kernels import transfer
from ftnn.kernels.cpu import backend
from ftnn.kernels.cpu.tiling import CHUNK, TILE
from ftnn.kernels.eager import reference
from ftnn.kernels.program import program_of
from tests.formula.strategies import smooth_formulas, survey
from tests.kernels._layers import tensors
from tests.kernels.yardstick import (
    ERROR,
    TOLERANCE,
    Case,
    case,
    conditioned,
    excess,
    expected,
    same_kind,
    yardsticks,
)

pytestmark = pytest.mark.usefixtures("kernels_for_layers_of_any_size")

FUNCTIONS = [name for name in ftnn.catalogue if name != "memory"]
DTYPES = [torch.float32, torch.float64]
DENSITIES = [0.0, 0.19, 0.5, 1.0]

# cosh(a) - 1 is inaccurate for small a in the reference too; this form of the same function is not.
EXACT = {"F15": Function("2*p*sinh((q*x + r)/2)**2", init=ftnn.catalogue["F15"].init)}


def computed(problem: Case, variables: tuple[str, ...]) -> list[Tensor]:
    """The result, then the gradients, by generated kernels."""
    forward = backend.transfer(problem.program, problem.x, problem.matrices)
    return [
        forward,
        *backend.transfer_backward(problem.program, problem.grad, problem.x, problem.matrices, variables),
    ]


def check(problem: Case, oracle: Case | None = None) -> None:
    """All results and gradients of a problem are within the tolerance."""
    variables = problem.program.differentiable
    result, true = computed(problem, variables), expected(oracle or problem, variables)
    for name, one, other, yard in zip(
        ("F", *variables), result, true, yardsticks(oracle or problem, variables), strict=True
    ):
        assert one.dtype == problem.x.dtype
        assert one.shape == other.shape
        assert excess(one, other, yard) <= 1, f"{name} of {problem.program.function}"


def catalogue_case(
    name: str, inputs: int, outputs: int, batch: int, density: float, dtype: torch.dtype
) -> tuple[Case, Case]:
    """A problem, and the one whose reference result is expected."""
    problem = case(
        ftnn.catalogue[name], inputs, outputs, batch, density, dtype, seed=inputs + outputs + batch
    )
    exact = program_of(EXACT[name].formula) if name in EXACT else problem.program
    return problem, Case(exact, problem.x, problem.matrices, problem.grad)


# ---- against the reference


@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_catalogue_matches_the_reference_over_densities_and_odd_sizes(name: str, density: float):
    for dtype in DTYPES:
        for inputs, outputs, batch in [
            (1, 129, 33),
            (3, 17, 65),
            (17, 3, 130),
            (129, 1, 33),
            (17, 17, 1),
            (1, 1, 1),
        ]:
            check(*catalogue_case(name, inputs, outputs, batch, density, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_catalogue_matches_the_reference_on_two_threads(name: str, dtype: torch.dtype):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        check(*catalogue_case(name, 129, 65, 33, 0.5, dtype))
    finally:
        torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_catalogue_matches_the_reference_over_combinations_of_odd_sizes(name: str):
    """Each function takes every fourth combination, another quarter than its neighbours; densities rotate."""
    sizes = list(product((1, 3, 17, 129), (1, 3, 17, 129), (1, 33)))
    for n, (inputs, outputs, batch) in enumerate(sizes[FUNCTIONS.index(name) % 4 :: 4]):
        density = DENSITIES[(n + FUNCTIONS.index(name) // 4) % len(DENSITIES)]
        for dtype in DTYPES:
            check(*catalogue_case(name, inputs, outputs, batch, density, dtype))


@pytest.mark.parametrize("batch", [TILE - 1, TILE, TILE + 1, CHUNK + TILE + 5])
def test_batches_that_end_within_a_tile_or_chunk_match_the_reference(batch: int):
    check(*catalogue_case("F16", 20, 5, batch, 0.5, torch.float32))


@pytest.mark.parametrize("dtype", DTYPES)
def test_strided_tensors_give_the_same_bits_as_contiguous_ones(dtype: torch.dtype):
    plain = case(ftnn.catalogue["F12"], 33, 21, 70, 0.5, dtype)

    def strided(t: Tensor) -> Tensor:
        """The same numbers, as every second column of a transposed array."""
        room = torch.full((t.shape[1] * 2, t.shape[0] * 3), math.nan, dtype=t.dtype).T[::3, ::2]
        room.copy_(t)
        assert not room.is_contiguous()
        return room

    apart = Case(plain.program, strided(plain.x), [strided(m) for m in plain.matrices], strided(plain.grad))
    variables = plain.program.differentiable
    for one, other in zip(computed(plain, variables), computed(apart, variables), strict=True):
        assert torch.equal(one, other)


def test_expanded_tensors_give_the_same_bits_as_contiguous_ones():
    plain = case(ftnn.catalogue["F16"], 20, 9, 40)
    row, error = plain.x[:1].expand(40, 20), torch.ones(1, 1).expand(40, 9)
    variables = plain.program.differentiable
    apart = computed(Case(plain.program, row, plain.matrices, error), variables)
    together = computed(Case(plain.program, row.clone(), plain.matrices, error.clone()), variables)
    for one, other in zip(apart, together, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("shape", [(0, 5, 3), (4, 0, 3), (4, 5, 0)])
def test_empty_tensors_give_zeros(shape: tuple[int, int, int]):
    batch, inputs, outputs = shape
    problem = case(ftnn.catalogue["F12"], inputs, outputs, batch)
    result = computed(problem, problem.program.differentiable)
    assert [t.shape for t in result] == [(batch, outputs), (batch, inputs), *[(inputs, outputs)] * 3]
    assert all(bool((t == 0).all()) for t in result)


@pytest.mark.parametrize("variables", [("x",), ("q",), ("x", "r"), ("p", "q", "r"), ("x", "p", "q", "r")])
def test_only_the_requested_gradients_are_returned(variables: tuple[str, ...]):
    problem = case(ftnn.catalogue["F12"], 17, 18, 33, 0.5)
    every = problem.program.differentiable
    everything = dict(zip(every, computed(problem, ("x", "p", "q", "r"))[1:], strict=True))
    result = backend.transfer_backward(problem.program, problem.grad, problem.x, problem.matrices, variables)
    assert len(result) == len(variables)
    for name, one in zip(variables, result, strict=True):
        torch.testing.assert_close(one, everything[name])


# ---- NaN and infinity


def assert_same_kind(problem: Case) -> None:
    """Not finite exactly where the reference is not."""
    variables = problem.program.differentiable
    for name, one, other in zip(
        ("F", *variables), computed(problem, variables), expected(problem, variables), strict=True
    ):
        assert same_kind(one, other), f"{name} of {problem.program.function}"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("density", [0.3, 1.0])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_nan_and_infinity_in_the_input_propagate_as_in_the_reference(
    name: str, density: float, dtype: torch.dtype
):
    problem = case(ftnn.catalogue[name], 19, 18, 37, density, dtype)
    for n, value in enumerate((math.nan, math.inf, -math.inf)):
        problem.x[3 + 7 * n, 2 + n] = value
    assert_same_kind(problem)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_nan_and_infinity_in_a_parameter_propagate_as_in_the_reference(name: str, value: float):
    for n in range(len(ftnn.catalogue[name].parameters)):
        problem = case(ftnn.catalogue[name], 19, 18, 37, 0.3)
        problem.matrices[n][4, 5] = value
        problem.x[:, 4] *= torch.arange(37) % 2  # at x = 0 the product of both is not zero
        assert_same_kind(problem)


POLES = [
    "p/x",
    "p*x*log(x)",
    "p*x/x",
    "p*log(x)",
    "p*x**(-2)",
    "p/tanh(q*x)",
    "p*sqrt(x) + q",
    "p*x**q",
    "p*exp(-1/x)",
    "p*csch(x)*q",
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("formula", POLES)
def test_functions_with_a_pole_at_zero_are_infinite_only_where_x_is_zero(formula: str, dtype: torch.dtype):
    problem = case(Function(formula), 19, 18, 70, 0.95, dtype)
    problem.x.abs_()
    assert not bool(problem.x.all(1).all())
    assert_same_kind(problem)
    # Samples without a zero are correct, next to those that have one.
    whole = problem.x.all(1).nonzero()[:, 0]
    result = backend.transfer(problem.program, problem.x, problem.matrices)[whole]
    alone = Case(problem.program, problem.x[whole], problem.matrices, problem.grad[whole])
    assert excess(result, expected(alone, ())[0], yardsticks(alone, ())[0]) <= 1


def test_a_pole_at_zero_reaches_every_sample_with_a_zero():
    problem = case(Function("p/x"), 40, 5, 3 * TILE, 0.1)
    assert not bool(backend.transfer(problem.program, problem.x, problem.matrices).isfinite().any())


def test_float32_overflows_where_the_reference_does():
    problem = case(Function("p*exp(q*x)", init={"q": (50, 100)}), 17, 9, 20, 0.5)
    result = backend.transfer(problem.program, problem.x, problem.matrices)
    expected = reference.transfer(problem.program, problem.x, problem.matrices)
    assert not bool(expected.isfinite().all())
    assert same_kind(result, expected)


# ---- zeros


@pytest.mark.slow
@pytest.mark.parametrize("density", [0.02, 0.5, 0.98])
def test_zeros_contribute_the_function_value_at_zero(density: float):
    """F(0) is large compared to F(x), and some slopes at zero differ from those elsewhere."""
    for formula in (
        "p + q*x",
        "p*gauss(x)",
        "where(x == 0, p, q*x)",
        "p*cos(x)",
        "logistic(p)*x + q",
        "p*exp(-abs(x))",
    ):
        check(case(Function(formula, init={"p": (0.5, 2)}), 40, 19, 66, density, torch.float64))


def test_negative_zero_acts_as_zero_in_functions_without_poles():
    problem = case(ftnn.catalogue["F12"], 20, 17, 40, 0.5)
    mirrored = Case(
        problem.program, torch.where(problem.x == 0, -0.0, problem.x), problem.matrices, problem.grad
    )
    variables = problem.program.differentiable
    for one, other in zip(computed(problem, variables), computed(mirrored, variables), strict=True):
        torch.testing.assert_close(one, other)


def test_values_far_below_the_value_at_zero_keep_their_digits():
    """exp(-4·5) is far below eps·F(0), which skipping zeros would add and subtract."""
    problem = case(Function("p*exp(-4*x*q)", init={"p": (1, 2), "q": (1, 2)}), 3, 17, 64)
    problem.x[:, :] = 5.0
    problem.x[1:, :] = 0.0
    check(problem)


# ---- random formulas


def check_drawn(expr: Expr, dtypes: Sequence[torch.dtype]) -> None:
    """Results are within the error that rounding each step may cause."""
    function = Function.composed(to_text(expr), {}, {})
    for dtype in dtypes:
        problem = case(function, 3, 5, 34, 0.7, dtype)
        problem = Case(problem.program, problem.x, [4 * m for m in problem.matrices], problem.grad)
        double = problem.double
        values = {INPUT: double.x[:, :, None], ERROR: double.grad[:, None, :]}
        values |= {n: m[None] for n, m in zip(problem.program.matrices, double.matrices, strict=True)}
        variables = problem.program.differentiable
        results = computed(problem, variables)
        for name, one, other in zip(("F", *variables), results, expected(problem, variables), strict=True):
            part = problem.program.expr if name == "F" else problem.program.slopes[name]
            size = conditioned(part, values)
            if name != "F":
                size = size * values[ERROR].abs()
            axis = {"F": 1, INPUT: 2}.get(name, 0)
            yard = size.expand(34, 3, 5).sum(axis)
            # A few ulp per step, of which there may be a hundred.
            assert excess(one, other, yard) <= 1, f"{name} of {function} in {dtype}"


@pytest.mark.slow
@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(smooth_formulas())
def test_random_formulas_match_the_reference(expr: Expr):
    check_drawn(expr, DTYPES)


@pytest.mark.slow
def test_200_random_formulas_with_every_operation_in_20_match_the_reference():
    """Dtypes alternate. Separable formulas also go through the operator, which uses matrix products."""
    dtypes = cycle(DTYPES)

    def check(expr: Expr) -> None:
        check_drawn(expr, [next(dtypes)])
        function = Function(to_text(expr))
        if function.plan.kind == "gemm":
            x, matrices = tensors(function, 1, 2, 1)
            results = [transfer(function, x, matrices, backend) for backend in ("auto", "reference")]
            slopes = [torch.autograd.grad(one, [x, *matrices], allow_unused=True) for one in results]
            torch.testing.assert_close(*results, rtol=1e-11, atol=1e-11)
            torch.testing.assert_close(*slopes, rtol=1e-9, atol=1e-9)

    formulas, counts = survey(check, least=20, total=200)
    assert len(formulas) >= 200
    assert {op: counts[op] for op in OPS if counts[op] < 20} == {}


def test_parameter_names_do_not_clash_with_names_in_kernels():
    for formula in (
        "g*x",
        "g*sin(u*x) + value*x",
        "kernel*x**2 + lost*cos(count*x)",
        "F*x + lanes",
        "a*x + b",
    ):
        check(case(Function(formula), 18, 17, 33, 0.5, torch.float64))


def test_the_tolerance_is_the_documented_one():
    assert {torch.float32: 1e-5, torch.float64: 1e-12} == TOLERANCE
