"""Generated kernels give what the float64 reference gives."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from torch import Tensor

import ftnn
from ftnn.formula import Function
from ftnn.formula._expr import INPUT, Expr, names
from ftnn.formula._text import to_text
from ftnn.kernels.cpu import backend
from ftnn.kernels.cpu.tiling import CHUNK, TILE
from ftnn.kernels.eager import reference
from ftnn.kernels.program import program_of
from tests.formula.strategies import smooth_formulas
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

FUNCTIONS = [name for name in ftnn.catalogue if name != "memory"]
DTYPES = [torch.float32, torch.float64]
DENSITIES = [0.0, 0.19, 0.5, 1.0]

# cosh(a) - 1 loses digits in the reference too, where a is small; this is the same function and loses none.
EXACT = {"F15": Function("2*p*sinh((q*x + r)/2)**2", init=ftnn.catalogue["F15"].init)}


def computed(given: Case, wanted: tuple[str, ...]) -> list[Tensor]:
    """The result, then the gradients, by generated kernels."""
    forward = backend.transfer(given.program, given.x, given.matrices)
    return [forward, *backend.transfer_backward(given.program, given.grad, given.x, given.matrices, wanted)]


def check(given: Case, oracle: Case | None = None) -> None:
    """All that kernels compute of a case is within the yardstick."""
    wanted = given.program.differentiable
    found, true = computed(given, wanted), expected(oracle or given, wanted)
    for name, one, other, yard in zip(
        ("F", *wanted), found, true, yardsticks(oracle or given, wanted), strict=True
    ):
        assert one.dtype == given.x.dtype
        assert one.shape == other.shape
        assert excess(one, other, yard) <= 1, f"{name} of {given.program.function}"


def catalogue_case(
    name: str, inputs: int, outputs: int, batch: int, density: float, dtype: torch.dtype
) -> tuple[Case, Case]:
    """A case, and the one to compare it with."""
    given = case(ftnn.catalogue[name], inputs, outputs, batch, density, dtype, seed=inputs + outputs + batch)
    exact = program_of(EXACT[name].formula) if name in EXACT else given.program
    return given, Case(exact, given.x, given.matrices, given.grad)


# ---- against the reference


@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_and_gradients_are_the_references_over_densities_and_odd_sizes(name: str, density: float):
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
def test_two_threads_give_what_the_reference_gives_too(name: str, dtype: torch.dtype):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        check(*catalogue_case(name, 129, 65, 33, 0.5, dtype))
    finally:
        torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_combination_of_odd_sizes(name: str):
    """Densities take turns, beginning with another one for each function."""
    sizes = product((1, 3, 17, 129), (1, 3, 17, 129), (1, 33))
    for n, (inputs, outputs, batch) in enumerate(sizes, FUNCTIONS.index(name)):
        density = DENSITIES[(n + n // len(DENSITIES)) % len(DENSITIES)]
        for dtype in DTYPES:
            check(*catalogue_case(name, inputs, outputs, batch, density, dtype))


@pytest.mark.parametrize("batch", [TILE - 1, TILE, TILE + 1, CHUNK + TILE + 5])
def test_a_batch_may_end_anywhere_in_a_tile_and_in_a_chunk(batch: int):
    check(*catalogue_case("F16", 20, 5, batch, 0.5, torch.float32))


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_not_contiguous_is_computed_alike(dtype: torch.dtype):
    plain = case(ftnn.catalogue["F12"], 33, 21, 70, 0.5, dtype)

    def strided(t: Tensor) -> Tensor:
        """The same numbers, as every second column of a transposed array."""
        room = torch.full((t.shape[1] * 2, t.shape[0] * 3), math.nan, dtype=t.dtype).T[::3, ::2]
        room.copy_(t)
        assert not room.is_contiguous()
        return room

    apart = Case(plain.program, strided(plain.x), [strided(m) for m in plain.matrices], strided(plain.grad))
    wanted = plain.program.differentiable
    for one, other in zip(computed(plain, wanted), computed(apart, wanted), strict=True):
        assert torch.equal(one, other)


def test_expanded_errors_and_inputs_are_computed_alike():
    plain = case(ftnn.catalogue["F16"], 20, 9, 40)
    row, error = plain.x[:1].expand(40, 20), torch.ones(1, 1).expand(40, 9)
    wanted = plain.program.differentiable
    apart = computed(Case(plain.program, row, plain.matrices, error), wanted)
    together = computed(Case(plain.program, row.clone(), plain.matrices, error.clone()), wanted)
    for one, other in zip(apart, together, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("shape", [(0, 5, 3), (4, 0, 3), (4, 5, 0)])
def test_nothing_in_nothing_out(shape: tuple[int, int, int]):
    batch, inputs, outputs = shape
    given = case(ftnn.catalogue["F12"], inputs, outputs, batch)
    found = computed(given, given.program.differentiable)
    assert [t.shape for t in found] == [(batch, outputs), (batch, inputs), *[(inputs, outputs)] * 3]
    assert all(bool((t == 0).all()) for t in found)


@pytest.mark.parametrize("wanted", [("x",), ("q",), ("x", "r"), ("p", "q", "r"), ("x", "p", "q", "r")])
def test_only_the_gradients_that_are_wanted_are_given_back(wanted: tuple[str, ...]):
    given = case(ftnn.catalogue["F12"], 17, 18, 33, 0.5)
    every = given.program.differentiable
    everything = dict(zip(every, computed(given, ("x", "p", "q", "r"))[1:], strict=True))
    found = backend.transfer_backward(given.program, given.grad, given.x, given.matrices, wanted)
    assert len(found) == len(wanted)
    for name, one in zip(wanted, found, strict=True):
        torch.testing.assert_close(one, everything[name])


# ---- what is not finite


def assert_same_kind(given: Case) -> None:
    """Not finite exactly where the reference is not."""
    wanted = given.program.differentiable
    for name, one, other in zip(
        ("F", *wanted), computed(given, wanted), expected(given, wanted), strict=True
    ):
        assert same_kind(one, other), f"{name} of {given.program.function}"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("density", [0.3, 1.0])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_nan_and_infinity_in_the_input_arrive_where_the_reference_has_them(
    name: str, density: float, dtype: torch.dtype
):
    given = case(ftnn.catalogue[name], 19, 18, 37, density, dtype)
    for n, value in enumerate((math.nan, math.inf, -math.inf)):
        given.x[3 + 7 * n, 2 + n] = value
    assert_same_kind(given)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_nan_and_infinity_in_a_parameter_arrive_where_the_reference_has_them(name: str, value: float):
    for n in range(len(ftnn.catalogue[name].parameters)):
        given = case(ftnn.catalogue[name], 19, 18, 37, 0.3)
        given.matrices[n][4, 5] = value
        given.x[:, 4] *= torch.arange(37) % 2  # where x is zero, the product of both is not
        assert_same_kind(given)


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
def test_functions_that_are_not_finite_at_zero_are_so_only_where_x_is_zero(formula: str, dtype: torch.dtype):
    given = case(Function(formula), 19, 18, 70, 0.95, dtype)
    given.x.abs_()
    assert not bool(given.x.all(1).all())
    assert_same_kind(given)
    # Samples without a zero are right, beside those that have one.
    whole = given.x.all(1).nonzero()[:, 0]
    found = backend.transfer(given.program, given.x, given.matrices)[whole]
    alone = Case(given.program, given.x[whole], given.matrices, given.grad[whole])
    assert excess(found, expected(alone, ())[0], yardsticks(alone, ())[0]) <= 1


def test_every_sample_is_zero_at_some_input_and_the_function_is_not_finite_there():
    given = case(Function("p/x"), 40, 5, 3 * TILE, 0.1)
    assert not bool(backend.transfer(given.program, given.x, given.matrices).isfinite().any())


def test_large_numbers_overflow_as_the_reference_does_in_float32():
    given = case(Function("p*exp(q*x)", init={"q": (50, 100)}), 17, 9, 20, 0.5)
    found = backend.transfer(given.program, given.x, given.matrices)
    expected = reference.transfer(given.program, given.x, given.matrices)
    assert not bool(expected.isfinite().all())
    assert same_kind(found, expected)


# ---- zeros


@pytest.mark.slow
@pytest.mark.parametrize("density", [0.02, 0.5, 0.98])
def test_zeros_are_worth_what_the_function_is_there(density: float):
    """With F(0) large beside F(x), and functions whose slopes at zero differ from those elsewhere."""
    for formula in (
        "p + q*x",
        "p*gauss(x)",
        "where(x == 0, p, q*x)",
        "p*cos(x)",
        "logistic(p)*x + q",
        "p*exp(-abs(x))",
    ):
        check(case(Function(formula, init={"p": (0.5, 2)}), 40, 19, 66, density, torch.float64))


def test_negative_zero_gives_what_zero_gives_where_its_sign_does_not_matter():
    given = case(ftnn.catalogue["F12"], 20, 17, 40, 0.5)
    mirrored = Case(given.program, torch.where(given.x == 0, -0.0, given.x), given.matrices, given.grad)
    wanted = given.program.differentiable
    for one, other in zip(computed(given, wanted), computed(mirrored, wanted), strict=True):
        torch.testing.assert_close(one, other)


def test_a_few_inputs_lose_no_digits_to_zeros_of_other_samples():
    """exp(-4·5) is far below eps·F(0), which skipping zeros would add and take away."""
    given = case(Function("p*exp(-4*x*q)", init={"p": (1, 2), "q": (1, 2)}), 3, 17, 64)
    given.x[:, :] = 5.0
    given.x[1:, :] = 0.0
    check(given)


# ---- formulas that nobody wrote


def check_drawn(expr: Expr) -> None:
    """Within what rounding every step may do, in float32 and float64."""
    function = Function.composed(to_text(expr), {}, {})
    found_names = {*names(function.expr)}
    for dtype in DTYPES:
        given = case(function, 3, 5, 34, 0.7, dtype)
        given = Case(given.program, given.x, [4 * m for m in given.matrices], given.grad)
        double = given.double
        values = {INPUT: double.x[:, :, None], ERROR: double.grad[:, None, :]}
        values |= {n: m[None] for n, m in zip(given.program.matrices, double.matrices, strict=True)}
        wanted = given.program.differentiable
        results = computed(given, wanted)
        for name, one, other in zip(("F", *wanted), results, expected(given, wanted), strict=True):
            part = given.program.expr if name == "F" else given.program.slopes[name]
            size = conditioned(part, values)
            if name != "F":
                size = size * values[ERROR].abs()
            axis = {"F": 1, INPUT: 2}.get(name, 0)
            yard = size.expand(34, 3, 5).sum(axis)
            # A few ulp a step, of which there may be a hundred.
            assert excess(one, other, yard) <= 1, f"{name} of {function} in {dtype} ({found_names})"


@pytest.mark.slow
@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(smooth_formulas())
def test_formulas_that_nobody_wrote(expr: Expr):
    check_drawn(expr)


@pytest.mark.slow
@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(smooth_formulas())
def test_many_formulas_that_nobody_wrote(expr: Expr):
    check_drawn(expr)


def test_parameters_may_be_called_anything():
    for formula in (
        "g*x",
        "g*sin(u*x) + value*x",
        "kernel*x**2 + lost*cos(count*x)",
        "F*x + lanes",
        "a*x + b",
    ):
        check(case(Function(formula), 18, 17, 33, 0.5, torch.float64))


def test_the_tolerance_is_no_larger_than_promised():
    assert {torch.float32: 1e-5, torch.float64: 1e-12} == TOLERANCE
