"""Work on any formula within the length limits is bounded, or refused with a reason.

These tests count work, not seconds. Without budgets, most of them would take minutes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch

import ftnn
from ftnn.errors import FormulaError, FtnnError
from ftnn.formula import Function, Mixed, _function, _measure, _split
from ftnn.formula._derive import MAX_DERIVED, gradient
from ftnn.formula._expr import postorder, tree_size
from ftnn.formula._numpy import steps
from ftnn.formula._sympy import MAX_WRITTEN, to_sympy
from ftnn.kernels.codegen.target import Target
from ftnn.kernels.cpu import compiler
from ftnn.kernels.loops.skipping_backward import backward
from ftnn.kernels.program import program_of
from ftnn.nn import Transfer


def nested(before: str, after: str, times: int, core: str = "x") -> str:
    return before * times + core + after * times


def by_level(write: Callable[[int, str], str], times: int) -> str:
    """A formula with another parameter at each level."""
    text = "x"
    for n in range(times):
        text = write(n, text)
    return text


POWERS = "p*x + " + nested("(", ")**16", 9, "2*x")
QUOTIENTS = nested("p/(q + ", ")", 75)
TANGENTS = nested("tan(p*", ")", 40)
DEEP = nested("tan(p*", ")", 90)
LARGEST = f"p*x + max({', '.join(f'a{n}*x' for n in range(90))})"
SELECTIONS = nested("where(", " > 0, p*x, x)", 12)
LONG = {
    "powers": POWERS,
    "quotients": QUOTIENTS,
    "tangents": TANGENTS,
    "deep": DEEP,
    "selections": SELECTIONS,
    "branches": nested("where(x > 0, p*", ", x)", 20),
    "smaller": nested("min(p*x, ", ")", 60, "q"),
    "bells": nested("gauss(p + ", ")", 70),
    "exponentials": nested("exp(", ")", 30, "p*x"),
    "squares": nested("(", " + p)**2", 60),
    "factors": "*".join(f"(p + {n}*x)" for n in range(1, 66)),
    "terms": "sin(" + " + ".join(f"a{n}*x" for n in range(99)) + ")",
    "imaginary": "max(sqrt(-1), p*x)",
    "no logarithm": "min(log(-1), p*x)",
    "infinite": "max(1/0, p*x)",
    "at infinity": "where(x == 1/0, p, x)",
    "nothing": "p*x + 0/0",
    "billion": "p*(3*x)**1000000000",
    "turns": "p*x + rect(x)**sec(exp(1e39))",
    "pole": "p*x + min(csc(0) + max(-1, 3), 0*erf(sqrt(-1)))",
    "assumptions": "p*x + 1e39/(min(0.5, p) + tanh(-0.0) - min(1e308, 1/0)/min(-1, 0/0))",
}


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of values that NumPy computes for each evaluated expression."""
    counts: list[int] = []
    evaluate = _measure.evaluate

    def counted(expr: Any, values: Any) -> Any:
        result = evaluate(expr, values)
        counts.append(len(steps(expr)) * result.size)
        return result

    monkeypatch.setattr(_measure, "evaluate", counted)
    return counts


@pytest.mark.parametrize("name", LONG)
def test_explaining_a_long_formula_takes_bounded_work(name: str, work: list[int]):
    text = str(Function(LONG[name]).explain())
    assert text.startswith("F(x) ")
    assert sum(work) < 1.5e9
    assert len(work) < 20_000


@pytest.mark.parametrize("name", LONG)
def test_printing_a_formula_works_or_raises_ftnn_error(name: str):
    function = Function(LONG[name])
    for print_it in (function.latex, lambda: str(function.derivative("x"))):
        with suppress(FtnnError):
            assert print_it()
    assert function.plan.kind in ("gemm", "fused")
    assert function == Function(LONG[name])


@pytest.mark.slow
@pytest.mark.parametrize("text", [QUOTIENTS, DEEP])
def test_an_expression_too_large_for_sympy_is_reported(text: str):
    function = Function(text)
    with pytest.raises(FtnnError, match=r"too large to print: [0-9,]+ operations.*nested [0-9]+ deep"):
        function.derivative("x")
    explanation = function.explain()
    assert "too large to print" in explanation.derivatives["x"]
    assert "too large to print" in str(explanation)


@pytest.mark.parametrize("text", ["max(sqrt(-1), p*x)", "min(log(-1), p*x)", SELECTIONS])
def test_an_expression_that_sympy_cannot_simplify_is_printed_unsimplified(text: str):
    function = Function(text)
    assert to_sympy(function.expr)
    assert function.latex()
    assert str(function.derivative("x"))


def test_a_power_of_a_selection_has_latex():
    deep = nested("tanh(", ")", 4, "where(x > p, x, q)**2")
    assert r"\right)^{2}" in Function(f"p*{deep}").latex()


def test_a_number_beyond_float64_is_printed_as_infinity_or_nan():
    assert str(Function("p*x*exp(1e39)").sympy) == "p*x*oo"
    assert str(Function("p*x + sqrt(-1)").sympy) == "p*x + nan"


def test_a_long_sum_does_not_count_as_deep():
    text = " + ".join(f"a{n}*x" for n in range(99))
    assert len(Function(text).sympy.args) == 99
    assert Function(text).latex().count("+") == 98


@pytest.mark.slow
def test_the_explanation_counts_unchecked_places():
    explanation = Function(DEEP).explain()
    assert explanation.unseen > 0
    assert f"{explanation.unseen} more places" in str(explanation)
    assert Function("p/(x - q)").explain().unseen == 0


# ---- plans


def test_coefficients_of_nested_powers_stay_bounded(monkeypatch: pytest.MonkeyPatch):
    most = 0
    bits = _split._bits

    def watched(coefficient: Any) -> int:
        nonlocal most
        most = max(most, bits(coefficient))
        return bits(coefficient)

    monkeypatch.setattr(_split, "_bits", watched)
    plan = Function("p*x + " + nested("(", ")**16", 9, "p*x*2")).plan
    assert plan.kind == "fused"
    assert "coefficient beyond float32" in plan.reason
    assert most <= _split.MAX_BITS


# ---- derivatives


@pytest.mark.parametrize(
    "text",
    [
        LARGEST,
        by_level(lambda n, inner: f"a{n}*(x + {inner})", 90),
        by_level(lambda n, inner: f"sech(a{n}*{inner})", 75),
        "*".join(f"(a{n} + x)" for n in range(95)),
    ],
)
def test_derivatives_with_too_many_operations_are_refused(text: str):
    function = Function(text)
    reason = f"the formula and its derivatives have more than {_function.MAX_OPERATIONS:,} operations"
    for differentiate in (lambda: function.slopes, lambda: function.derivative("x"), function.explain):
        with pytest.raises(FormulaError, match=reason):
            differentiate()
    with pytest.raises(FormulaError, match=reason):
        Transfer(4, 3, function)(torch.zeros(2, 4))


def test_many_parameters_without_nesting_are_accepted():
    function = Function(" + ".join(f"a{n}*sin({n + 1}*x)" for n in range(50)))
    assert len(list(postorder(function.expr, *function.slopes.values()))) < 1000
    layer = Transfer(4, 3, function)
    layer(torch.ones(2, 4)).sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in layer.parameters() if p.grad is not None)


def test_second_derivatives_have_a_budget():
    text = by_level(lambda n, inner: f"tanh(a{n}*x + {inner})", 60)
    layer = Transfer(2, 2, text, dtype=torch.float64, backend="reference")
    x = torch.ones(1, 2, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(layer(x).sum(), x, create_graph=True)
    with pytest.raises(FtnnError, match=f"more than {MAX_DERIVED:,} operations"):
        slope.sum().backward()


def test_derivatives_stop_at_the_budget():
    expr = Function(by_level(lambda n, inner: f"a{n}*(x + {inner})", 60)).expr
    requested: list[str] = []

    def names() -> Any:
        for n in range(60):
            requested.append(f"a{n}")
            yield requested[-1]

    with pytest.raises(FtnnError, match="more than 300 operations"):
        gradient(expr, names(), most=300)
    assert len(requested) < 20


# ---- matrices of several kinds


def test_too_many_kinds_are_refused():
    with pytest.raises(FtnnError, match="Mixed has 250 functions; the limit is 100"):
        Mixed([f"p*sin({n}*x)" for n in range(250)])


@pytest.mark.slow
def test_the_largest_number_of_kinds_can_be_trained():
    mixed = Mixed([f"p*sin({n + 1}*x)" for n in range(100)])
    assert str(mixed.function.explain()).startswith("F(x) ")
    layer = Transfer(3, 2, mixed)
    layer(torch.ones(2, 3)).sum().backward()
    assert layer.matrix("p").shape == (2, 3)


def test_kinds_that_together_are_too_long_are_refused():
    deep = nested("tanh(", ")", 150, "p*x")
    with pytest.raises(FtnnError, match="these 60 functions together are too long to mix"):
        Mixed([deep] * 60)


# ---- kernels


@pytest.mark.parametrize(("count", "simplified"), [(5, True), (50, False)])
def test_llvm_optimises_only_small_kernels(count: int, simplified: bool, monkeypatch: pytest.MonkeyPatch):
    text = backward(
        program_of(f"p*x + max({', '.join(f'a{n}*x' for n in range(count))})"),
        Target("float32", 8),
        by_x=True,
        by_parameters=True,
    )
    calls: list[object] = []
    build = compiler.llvm.create_pass_builder

    def counted(*args: Any) -> Any:
        calls.append(args)
        return build(*args)

    monkeypatch.setattr(compiler.llvm, "create_pass_builder", counted)
    assert compiler._build(text)
    assert bool(calls) == simplified


def test_an_unoptimised_kernel_matches_the_reference(monkeypatch: pytest.MonkeyPatch):
    text = f"p*x + max({', '.join(f'a{n}*x' for n in range(50))})"
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(0)).requires_grad_()
    cpu, reference = (Transfer(6, 4, text, backend=backend) for backend in ("cpu", "reference"))
    reference.load_state_dict(cpu.state_dict())
    results: list[list[torch.Tensor]] = []
    for layer in (cpu, reference):
        layer(x).square().sum().backward()
        results.append([layer(x).detach(), *(p.grad for p in layer.parameters() if p.grad is not None)])
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5)


# ---- values


def test_evaluation_frees_arrays_after_their_last_use():
    live = most = 0
    for _, unused in steps(Function(DEEP).expr):
        live += 1 - len(unused)
        most = max(most, live + len(unused))
    assert most < 6
    assert np.isfinite(Function("p*tanh(x*x)")(2.0, p=1.0))


def test_the_limit_for_networks_is_within_the_limit_for_sympy():
    from ftnn.inspect import _expressions

    assert _expressions.MAX_WRITTEN <= MAX_WRITTEN
    assert tree_size(ftnn.catalogue["F12"].expr) == 8
