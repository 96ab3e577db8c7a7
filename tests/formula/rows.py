"""Checks of the rows of the table of operations, and ways to break a row.

A check returns a description of the fault, or an empty text. `test_ops.py` also tests that the checks detect
broken rows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import cache
from types import MappingProxyType
from typing import Any
from unittest import mock

import mpmath
import numpy as np
import sympy
import torch
from numpy.typing import NDArray

from ftnn.formula import _numpy, _ops
from ftnn.formula._derive import differentiate, lower
from ftnn.formula._expr import Call, Expr, call, number, postorder, substitute, symbol
from ftnn.formula._ops import OPS, Domain, Op
from ftnn.formula._sympy import to_sympy
from ftnn.kernels.codegen.emitting import Emitter
from ftnn.kernels.eager import evaluation, gemm
from tests.formula import oracle
from tests.formula.strategies import OTHER_SIDE
from tests.kernels import interpreted
from tests.kernels._harness import compile_map

DIGITS = 40
COUNT = 4
"""Points in each domain."""

Points = dict[str, NDArray[Any]]


# --- a row as an expression, and points to evaluate it at ---


def applied(op: str, names: tuple[str, ...] = ("a", "b", "c")) -> Expr:
    """An expression whose value shows the effect of `op`."""
    args = [symbol(name) for name in names]
    if op == "where":
        return call("where", call("lt", args[0], number(0)), args[1], args[2])
    if OPS[op].is_comparison:
        return call("where", call(op, args[0], args[1]), number(2), number(3))
    return call(op, *args[: OPS[op].arity])


def arguments(op: str, names: tuple[str, ...] = ("a", "b", "c")) -> tuple[str, ...]:
    return names[: OPS[op].arity]


@cache
def points(op: str) -> Points:
    """Points spread over the row's domain, and over the other side of its kink."""
    domains = [OPS[op].domain, *([OTHER_SIDE[op]] if op in OTHER_SIDE else [])]
    columns = [np.concatenate([_spread(d[n], n) for d in domains]) for n in range(OPS[op].arity)]
    return dict(zip(arguments(op), columns, strict=True))


def points_and_ties(op: str) -> Points:
    """`points`, and for a comparison also points where both sides are equal."""
    ties = [0.5, -1.5] if OPS[op].is_comparison else []
    return {name: np.append(values, ties) for name, values in points(op).items()}


def _spread(domain: Domain, shift: int) -> NDArray[Any]:
    low, high = domain
    return low + (high - low) * ((0.31 + 0.618034 * (1 + shift) * np.arange(1, COUNT + 1)) % 1)


# --- actual and expected values ---


@cache
def true_values(op: str) -> list[Any]:
    with mpmath.workdps(DIGITS):
        return [oracle.evaluate(applied(op), at) for at in _each(points_and_ties(op))]


@cache
def true_slopes(op: str, by: str) -> list[Any]:
    """The derivative of `op`, by mpmath's differences at many digits."""

    def slope(at: dict[str, float]) -> Any:
        def along(t: Any) -> Any:
            return oracle.evaluate(applied(op), {**at, by: t})

        return mpmath.diff(along, at[by])

    with mpmath.workdps(DIGITS):
        return [slope(at) for at in _each(points(op))]


def _each(at: Mapping[str, NDArray[Any]]) -> Iterator[dict[str, float]]:
    for values in zip(*at.values(), strict=True):
        yield dict(zip(at, map(float, values), strict=True))


def by_numpy(expr: Expr, at: Points) -> NDArray[Any]:
    return _numpy.evaluate(expr, at)


def by_torch(expr: Expr, at: Points) -> NDArray[Any]:
    tensors = {name: torch.from_numpy(values) for name, values in at.items()}
    return evaluation.evaluate((expr,), tensors)[0].numpy()


def by_sympy(expr: Expr, at: Points) -> list[Any]:
    exact = [{n: sympy.Rational(Fraction(v)) for n, v in one.items()} for one in _each(at)]
    with mpmath.workdps(DIGITS):
        return [mpmath.mpf(str(sympy.N(to_sympy(expr).subs(one), DIGITS))) for one in exact]


def by_llvm(expr: Expr, at: Points) -> NDArray[Any]:
    lowered = lower(expr, "llvm")

    def emit(v: Any, *inputs: Any) -> Any:
        values: dict[Expr, Any] = {symbol(n): value for n, value in zip(at, inputs, strict=True)}
        return Emitter(v, values).evaluate(lowered)

    return compile_map(emit, "float64", lanes=4, arity=len(at))(*at.values())


def by_triton(expr: Expr, at: Points) -> NDArray[Any]:
    return interpreted.evaluate(expr, at)


TARGETS: dict[str, Callable[[Expr, Points], Any]] = {
    "numpy": by_numpy,
    "torch": by_torch,
    "llvm": by_llvm,
    "triton": by_triton,
    "sympy": by_sympy,
}


# --- the checks ---


def value_fault(op: str, target: str) -> str:
    """The fault in a row's spelling for a target; empty if there is none."""
    try:
        values = TARGETS[target](applied(op), points_and_ties(op))
    except Exception as error:  # a wrong spelling may raise anything
        return f"{target} of {op}: {error!r}"
    tolerance = 1e-30 if target == "sympy" else 1e-13
    return _difference(f"{target} of {op}", values, true_values(op), tolerance)


def slope_fault(op: str) -> str:
    """The fault in a row's derivatives; empty if there is none."""
    row = _ops.OPS[op]
    if row.is_comparison or op == "where":
        # Their effect cannot be observed, since nothing multiplies them: a condition has no slope.
        conditional = row.derivative if row.is_comparison else row.derivative[:1]
        if any(text != "0" for text in conditional):
            return f"a condition has no slope, but {op} has {row.derivative}"
    for n, by in enumerate(arguments(op)):
        if by == "a" and op == "where":
            continue
        # `x` stands for the argument, because a parameter may have a surrogate gradient.
        names = tuple("x" if name == by else name for name in ("a", "b", "c"))
        slope = differentiate(applied(op, names), "x")
        at = {names[k]: values for k, values in enumerate(points(op).values())}
        values = [oracle.evaluate(slope, point) for point in _each(at)]
        if fault := _difference(f"derivative {n} of {op}", values, true_slopes(op, by), 1e-12):
            return fault
        if fault := _surrogate_fault(op, by):
            return fault
    return ""


SURROGATES = {"rect_ada": 1}
"""Derivatives by parameters that differ from the true ones."""


def _surrogate_fault(op: str, by: str) -> str:
    slope = differentiate(applied(op), by)
    if op in SURROGATES:
        return "" if slope is number(SURROGATES[op]) else f"{op} lacks its surrogate gradient"
    names = tuple("x" if name == by else name for name in ("a", "b", "c"))
    true = _renamed(differentiate(applied(op, names), "x"), {"x": by})
    return "" if slope is true else f"the slope of {op} by a parameter differs from that by x"


def _renamed(expr: Expr, names: dict[str, str]) -> Expr:
    return substitute(expr, {old: symbol(new) for old, new in names.items()})


def _difference(what: str, actual: Any, expected: list[Any], tolerance: float) -> str:
    values = np.broadcast_to(np.asarray(actual, object), len(expected))
    with mpmath.workdps(DIGITS):
        for value, true in zip(values, expected, strict=True):
            if not abs(mpmath.mpf(value) - true) <= tolerance * (1 + abs(true)):
                return f"{what}: {mpmath.nstr(mpmath.mpf(value), 20)} instead of {mpmath.nstr(true, 20)}"
    return ""


def uses(op: str, other: str, target: str) -> bool:
    """Whether the spelling of `op` for `target` uses `other`."""
    parts = {part.op for part in postorder(lower(applied(op), target)) if isinstance(part, Call)}
    return other in parts or op == other


# --- breaking ---


@contextmanager
def table_with(row: Op) -> Generator[None]:
    """The table of operations with one row replaced, everywhere."""
    table = MappingProxyType({**OPS, row.name: row})
    users = [
        m for name, m in sys.modules.items() if name.startswith("ftnn") and getattr(m, "OPS", None) is OPS
    ]
    assert len(users) > 5
    _clear_caches()
    with mock.patch.multiple(_ops, OPS=table):
        patches = [mock.patch.object(module, "OPS", table) for module in users if module is not _ops]
        for patch in patches:
            patch.start()
        try:
            yield
        finally:
            for patch in patches:
                patch.stop()
            _clear_caches()


def _clear_caches() -> None:
    """Drop everything derived from another table."""
    _numpy.steps.cache_clear()
    evaluation.schedule.cache_clear()
    gemm._slope.cache_clear()


_OTHER = {"lt": "gt", "le": "lt", "gt": "ge", "ge": "gt", "eq": "ne", "ne": "eq"}
_OTHER_FORMULA = {
    "add": "a - b",
    "sub": "a + b",
    "mul": "a + b",
    "div": "a*b",
    "pow": "a*b",
    "neg": "a + 1",
    "min": "max(a, b)",
    "max": "min(a, b)",
    "cos": "sin(a)",
}


def broken(op: str, target: str) -> Op:
    """The row with another operation's spelling for one target."""
    row = OPS[op]
    if row.is_comparison:
        spelling = OPS[_OTHER[op]].spelling(target)
    elif op == "where":
        spelling = OPS["max"].spelling(target)
    else:
        spelling = _OTHER_FORMULA.get(op, "cos(a)")
    return replace(row, **{target: spelling})


def with_broken_slope(op: str, argument: int) -> Op:
    """The row with one derivative that is a little off."""
    row = OPS[op]
    rules = [f"({text}) + 0.001" if n == argument else text for n, text in enumerate(row.derivative)]
    return replace(row, derivative=tuple(rules))
