"""From expressions to instructions: fused products, hoisted parts, and the spelling of every operation."""

from __future__ import annotations

import re
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from llvmlite import ir

from ftnn.formula import Function, _derive
from ftnn.formula._derive import differentiate, simplify
from ftnn.formula._expr import INPUT, ZERO, Call, Expr, call, folded, names, number, postorder, symbol
from ftnn.formula._numpy import evaluate
from ftnn.formula._ops import OPS
from ftnn.formula._parse import parse
from ftnn.formula._text import to_text
from ftnn.kernels.codegen import emitting, rewriting
from ftnn.kernels.codegen.control import I64, loop, when
from ftnn.kernels.codegen.emitting import Emitter, check_spellings
from ftnn.kernels.codegen.placeholders import SILENT
from ftnn.kernels.codegen.rewriting import (
    at_zero,
    factors,
    frontier,
    kernel_form,
    regrouped,
    side,
    split_product,
    without_cancellation,
)
from ftnn.kernels.codegen.target import Target
from ftnn.kernels.codegen.vectors import Vectors
from ftnn.kernels.cpu import backend
from ftnn.kernels.cpu.compiler import compiled
from ftnn.kernels.loops.kernel import Kernel
from ftnn.kernels.loops.skipping_backward import backward
from ftnn.kernels.loops.skipping_forward import forward
from ftnn.kernels.program import Program
from tests.formula.strategies import smooth_formulas
from tests.kernels.elementwise import MapArgs
from tests.kernels.yardstick import Case, case, excess, expected, yardsticks


def read(text: str) -> Expr:
    return simplify(parse(text))


def emitted(text: str, *variables: str) -> str:
    """The instructions for a formula of these variables."""
    module = ir.Module("test")
    vector = ir.VectorType(ir.FloatType(), 8)
    function = ir.Function(module, ir.FunctionType(vector, [vector] * len(variables)), "f")
    b = ir.IRBuilder(function.append_basic_block())
    values: dict[Expr, ir.Value] = {symbol(n): a for n, a in zip(variables, function.args, strict=True)}
    b.ret(Emitter(Vectors(b, Target("float32", 8)), values).evaluate(regrouped(read(text)))[0])
    return str(function)


def count(text: str, what: str) -> int:
    return len(re.findall(rf"\b{re.escape(what)}\b", text))


# ---- every operation of the table


def function_with(op: str) -> Function:
    """A function of x and parameters that uses `op`, with arguments within its domain."""
    x, p, q = symbol(INPUT), symbol("p"), symbol("q")
    if OPS[op].is_comparison:
        return Function(to_text(call("where", call(op, x, q), p, call("mul", q, x))))
    args: list[Expr] = []
    for n, (low, high) in enumerate(OPS[op].domain):
        inner = call("add", call("mul", call("mul", number(20), q), x), number(n))
        squashed = call("mul", number(high - low), call("logistic", inner))
        args.append(call("add", number(low), squashed))
    if op == "where":
        args[0] = call("lt", args[0], number(0))
    return Function(to_text(call("mul", p, call(op, *args))))


def excess_of(op: str, dtype: torch.dtype = torch.float64) -> float:
    """The error of the kernels of `function_with(op)`, as a multiple of the allowed one."""
    problem = case(function_with(op), 5, 9, 12, 1.0, dtype)
    problem = Case(
        Program(problem.program.function), problem.x, problem.matrices, problem.grad
    )  # new, so that nothing is cached
    variables = problem.program.differentiable
    result = [
        backend.transfer(problem.program, problem.x, problem.matrices),
        *backend.transfer_backward(problem.program, problem.grad, problem.x, problem.matrices, variables),
    ]
    shares = map(excess, result, expected(problem, variables), yardsticks(problem, variables))
    # Ten times the catalogue's tolerance: these formulas lose digits while mapping x into the domain.
    return max(0.1 * share if share == share else np.inf for share in shares)


OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}
WRONG = {
    "add": "sub",
    "sub": "add",
    "mul": "div",
    "div": "mul",
    "neg": "abs",
    "pow": "mul",
    "min": "maximum",
    "max": "minimum",
    "where": "minimum",
    "cos": "sin",
    "abs": "neg",
    "rect": "neg",
    "rect_ada": "neg",
    "relu": "neg",
    "step": "neg",
}
"""Another spelling with as many arguments; "cos" for operations not listed."""


@pytest.mark.parametrize("op", OPS)
def test_kernels_compute_every_operation_as_the_reference_does(op: str):
    for dtype in (torch.float32, torch.float64):
        assert excess_of(op, dtype) <= 1


@pytest.mark.parametrize("op", OPS)
def test_a_wrong_spelling_of_an_operation_is_detected(op: str, monkeypatch: pytest.MonkeyPatch):
    wrong = replace(OPS[op], llvm=OPPOSITE.get(op) or WRONG.get(op, "cos"))
    table = MappingProxyType({**OPS, op: wrong})
    monkeypatch.setattr(_derive, "OPS", table)
    monkeypatch.setattr(emitting, "OPS", table)
    monkeypatch.setattr(rewriting, "OPS", table)
    if op == "where":  # the only operation that takes a condition
        with pytest.raises(TypeError):
            excess_of(op)
    else:
        assert excess_of(op) > 1


def test_an_unknown_spelling_of_an_operation_raises(monkeypatch: pytest.MonkeyPatch):
    row = replace(OPS["sin"], llvm="sine")
    monkeypatch.setattr(emitting, "OPS", MappingProxyType({**OPS, "sin": row}))
    with pytest.raises(ValueError, match="'sin' names the vector function 'sine'"):
        check_spellings()


# ---- fused multiply-adds


@pytest.mark.parametrize(
    ("formula", "fused", "products"),
    [
        ("p*x + q", 1, 0),
        ("q + p*x", 1, 0),
        ("p*x - q", 1, 0),
        ("q - p*x", 1, 0),
        ("p*x + q*r", 1, 1),
        ("p*x", 0, 1),
        ("p + x", 0, 0),
        ("(p*x + q)*x + r", 2, 0),
    ],
)
def test_a_product_in_a_sum_becomes_a_fused_multiply_add(formula: str, fused: int, products: int):
    text = emitted(formula, "x", "p", "q", "r")
    assert count(text, "llvm.fma.v8f32") == fused
    assert count(text, "fmul") == products


def test_a_product_used_elsewhere_is_not_computed_twice():
    text = emitted("sin(p*x) + p*x", "x", "p")
    assert count(text, "fmul") - count(emitted("sin(x)", "x"), "fmul") == 1


def test_kernels_round_a_fused_multiply_add_once():
    function = Function("p*x + q")
    x, p = torch.tensor([[1 + 2.0**-12]]), torch.tensor([[1 - 2.0**-12]])
    q = torch.tensor([[-1.0]])
    assert backend.transfer(Program(function), x, [p, q]).item() == -(
        2.0**-24
    )  # 0 if the product were rounded


# ---- hoisting


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("2", "number"),
        ("p*q", "matrices"),
        ("x**2", "input"),
        ("p*x", "both"),
        ("q + C", "both"),
        ("C*x", "both"),
    ],
)
def test_side_says_what_an_expression_depends_on(text: str, kind: str):
    assert side(read(text)) == kind


@pytest.mark.parametrize(
    ("formula", "matrices", "input"),
    [
        ("p*sin(q)*x + r*exp(x)", ["p*sin(q)"], ["exp(x)"]),
        ("x*p*(x*q)", ["p*q"], ["x*x"]),
        ("p*sin(q*x + r)", [], []),
        ("exp(p)*sin(exp(q)*x + r*r)", ["exp(p)", "exp(q)", "r*r"], []),
        ("2*p*3*x*q", ["6*p*q"], []),
        ("where(q > 0, p, x)", ["q > 0"], []),
        ("p/q*x/2", ["p/q"], []),
    ],
)
def test_frontier_finds_the_parts_to_compute_outside_the_innermost_loop(
    formula: str, matrices: list[str], input: list[str]
):
    roots = [regrouped(read(formula))]
    groups = [[text.replace("q > 0", "where(q > 0, 1, 0)") for text in texts] for texts in (matrices, input)]
    parts = [
        [part.args[0] if isinstance(part, Call) and part.op == "where" else part for part in map(read, texts)]
        for texts in groups
    ]
    assert {*frontier(roots, "matrices")} == {*parts[0]}
    assert {*frontier(roots, "input")} == {*parts[1]}


def test_no_part_that_depends_on_parameters_alone_stays_in_the_innermost_loop():
    function = Function("exp(p)*sin(exp(q)*x + sqrt(r)) + exp(p)*x")
    for root in (function.expr, *(differentiate(function.expr, name) for name in ("x", "p", "q", "r"))):
        root = regrouped(root)
        outside = {*frontier([root], "matrices")}
        inside = emitting._needed([root], dict.fromkeys(outside))  # pyright: ignore[reportArgumentType]
        assert all(side(part) == "both" or not isinstance(part, Call) for part in inside)


def test_comparisons_of_the_input_are_not_tabulated():
    root = regrouped(read("where(sin(x) > 0.5, p, q)"))
    assert frontier([root], "input") == [read("sin(x)")]


def test_split_product_separates_the_factors_of_parameters():
    fixed, rest = split_product(regrouped(read("p*q*cos(q*x)*x*2")))
    assert {*names(fixed)} == {"p", "q"}
    assert rest is read("x*cos(q*x)")


@pytest.mark.slow
@settings(max_examples=60)
@given(smooth_formulas())
def test_rewriting_does_not_change_values(expr: Expr):
    at = {"x": np.linspace(-1, 1, 7)[:, None], "p": 0.3, "q": np.linspace(-2, 2, 5), "r": 0.7}
    values = evaluate(simplify(expr), at)
    for form in (regrouped(expr), *without_cancellation(simplify(expr))):
        np.testing.assert_allclose(evaluate(form, at), values, rtol=1e-9, atol=1e-9)
    fixed, rest = split_product(regrouped(expr))
    np.testing.assert_allclose(evaluate(folded("mul", fixed, rest), at), values, rtol=1e-9, atol=1e-9)


def test_factors_splits_products_and_signs():
    assert factors(read("p*(-q)*x")) == [number(-1), symbol("p"), symbol("q"), symbol("x")]


def test_kernels_evaluate_the_plan_if_it_is_exact():
    assert kernel_form(Program(Function("x*(p*x + q)"))) is read("x*(p*x + q)")  # the sum would not be exact
    form = kernel_form(Program(Function("p*x**2 + q*x")))
    assert evaluate(form, {"x": 3.0, "p": 2.0, "q": 5.0}) == 33


# ---- cancellation


def test_cosh_minus_one_is_accurate_for_small_arguments():
    problem = case(Function("p*(cosh(q*x) - 1)", init={"q": (1e-4, 1e-3)}), 3, 5, 8)
    x, p, q = problem.x.double()[:, :, None], *(m.double()[None] for m in problem.matrices)
    exact = (2 * p * torch.sinh(q * x / 2) ** 2).sum(1)
    result = backend.transfer(problem.program, problem.x, problem.matrices)
    torch.testing.assert_close(result.double(), exact, rtol=1e-5, atol=0)


def test_cosh_minus_one_and_sinh_of_one_argument_share_their_work():
    roots = without_cancellation(read("cosh(x) - 1"), read("p*sinh(x)"), read("q*sinh(p)"))
    calls = {
        to_text(part) for part in postorder(*roots) if isinstance(part, Call) and part.op in ("sinh", "cosh")
    }
    assert calls == {"sinh(0.5*x)", "cosh(0.5*x)", "sinh(p)"}


@pytest.mark.parametrize(
    "beside",
    [
        "x - 1",
        "x - q",
        "sinh(x) - 1",
        "exp(x) - 1",
        "q*x - 1",
        "q - 1",
        "cosh(q) - 2",
        "1 - cosh(x)",
        "tanh(x) - q",
    ],
)
def test_only_cosh_minus_one_is_rewritten(beside: str):
    text = f"p*(cosh(x) - 1) + ({beside})"
    (result,) = without_cancellation(read(text))
    at = {"x": 0.7, "p": 1.3, "q": -0.4}
    assert evaluate(result, at) == pytest.approx(float(evaluate(read(text), at)), rel=1e-14)
    assert without_cancellation(read(beside)) == [read(beside)]


# ---- at x = 0


@pytest.mark.parametrize(
    ("formula", "simplified"),
    [("p*sin(q*x + r)", "p*sin(r)"), ("p*x**2 + q*x", "0"), ("p*(cosh(x) - 1)", "0"), ("p*x/2 + q", "q")],
)
def test_functions_without_poles_are_simplified_at_zero(formula: str, simplified: str):
    assert at_zero(read(formula)) is read(simplified)


@pytest.mark.parametrize(
    "formula", ["p*x*log(x)", "p*x/q", "p*x**q", "p*x**(-1)", "p*sqrt(x)", "p*tan(q*x)", "x/(x*p)"]
)
def test_functions_that_may_have_poles_are_evaluated_at_zero(formula: str):
    result = at_zero(read(formula))
    assert SILENT in postorder(result)
    assert result is not ZERO


# ---- loops


def test_a_loop_runs_from_start_to_stop_and_carries_values():
    k, A = Kernel("loop", Target("float64", 4), MapArgs), MapArgs.places()
    v, b = k.v, k.builder
    stop, target = k.number(A.vectors), k.pointer(A.target)
    start = k.number(A.source)

    def body(i: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
        once: Any = when(
            v, b.icmp_signed(">", i, ir.Constant(I64, 4)), lambda: [k.v.const(1.0)], [k.v.const(0.0)]
        )
        return [b.add(carried[0], i), v.add(carried[1], once[0])]

    total, large = loop(v, stop, body, [ir.Constant(I64, 0), v.const(0.0)], start=start, step=2)
    b.store(total, target)
    k.store(large, target, ir.Constant(I64, 1))
    code = compiled(k.finish())
    for first, last in ((0, 10), (3, 8), (0, 0), (5, 2), (9, 10)):
        out = np.zeros(5)
        code([last, first, out.ctypes.data])
        indices = range(first, last, 2)
        assert out[:1].view(np.int64)[0] == sum(indices)
        assert (out[1:] == sum(i > 4 for i in indices)).all()


def test_generating_a_kernel_twice_gives_the_same_text():
    def texts() -> list[str]:
        program = Program(Function("p*sin(q*x + r) + q*cos(x) + where(x > r, p, q)"))
        options: dict[str, Any] = {"by_x": True, "by_parameters": True}
        target = Target("float32", 8)
        return [forward(program, target), backward(program, target, **options)]

    assert texts() == texts()
