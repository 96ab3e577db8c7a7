"""Expression → SymPy, for printing, LaTeX, and algebra."""

from __future__ import annotations

import math
import operator
from typing import Any

import sympy
from sympy.functions.elementary.piecewise import ExprCondPair
from sympy.printing.latex import LatexPrinter

from ftnn.errors import FtnnError
from ftnn.formula._derive import lower
from ftnn.formula._expr import Call, Expr, Number, Symbol, bottom_up, postorder, tree_size
from ftnn.formula._numpy import evaluate
from ftnn.formula._ops import OPS

MAX_WRITTEN, MAX_DEPTH = 5_000, 100
"""The limits on operations, numbers and names, and on nesting: more than anyone reads, and about what SymPy
prints within a second and within Python's stack."""
MAX_NESTED, MAX_CHOICES, MAX_SIMPLIFIED = 3, 3, 200
"""Nested functions, selections, and nodes up to which SymPy simplifies. Beyond, its assumption queries (is
tanh(tanh(tanh(x))) real? which of these is larger?) take exponential or quadratic time."""
MAX_POWER = 64
"""The power up to which SymPy simplifies: it would compute all digits of (2*x)**1000000."""
_CHOICES = ("where", "min", "max", "abs", "sign")


def to_sympy(expr: Expr) -> Any:
    """`expr` as a SymPy expression, in which all names are plain symbols.

    Raises `FtnnError` if it is too large to print, or SymPy cannot express it.
    """
    lowered = lower(expr, "sympy")
    size, depth = tree_size(lowered), _depth(lowered)
    if size > MAX_WRITTEN or depth > MAX_DEPTH:
        raise FtnnError(
            f"too large to print: {size:,} operations, numbers and names, nested {depth} deep; "
            f"the limits are {MAX_WRITTEN:,} and {MAX_DEPTH}"
        )
    reasons: list[Exception] = []
    for simplify in (True, False) if _is_simple(lowered, size) else (False,):
        try:
            with sympy.evaluate(simplify):
                converted = _convert(lowered)
            str(converted)  # some expressions fail only when printed
            return converted
        except Exception as error:  # SymPy raises many types if a number is not real or not finite
            reasons.append(error)
    raise FtnnError(f"SymPy cannot express this: {reasons[-1]!r}") from reasons[-1]


def to_latex(expr: Any) -> str:
    """A SymPy expression in LaTeX."""
    try:
        return _Printer().doprint(expr)
    except Exception as error:  # as above
        raise FtnnError(f"SymPy cannot write this in LaTeX: {error!r}") from error


class _Printer(LatexPrinter):
    """Like SymPy's printer, which fails at powers of selections."""

    def _print_Piecewise(self, expr: Any, exp: str | None = None) -> str:
        text: str = super()._print_Piecewise(expr)
        return text if exp is None else rf"\left({text}\right)^{{{exp}}}"


def _is_simple(lowered: Expr, size: int) -> bool:
    """Whether SymPy simplifies it quickly."""
    calls = [part for part in postorder(lowered) if isinstance(part, Call)]
    return (
        size <= MAX_SIMPLIFIED
        and sum(part.op in _CHOICES for part in calls) <= MAX_CHOICES
        and _depth(lowered, functions=True) <= MAX_NESTED
        and _power(lowered) <= MAX_POWER
        and all(part.names for part in calls)
    )


def _convert(lowered: Expr) -> Any:
    def converted(part: Expr, args: list[Any]) -> Any:
        match part:
            case Number(value):
                return sympy.pi if value == math.pi else sympy.sympify(value)
            case Symbol(name):
                return sympy.Symbol(name)
            case Call(op) if not part.names and not OPS[op].is_comparison:
                # Such as exp(1e39) or sqrt(-1): the inf or NaN that ftnn computes, not SymPy's answer.
                return sympy.sympify(float(evaluate(part, {})))
            case _:
                return _apply(OPS[part.op].sympy, args)

    return bottom_up(lowered, converted)


def _power(expr: Expr) -> float:
    """The highest power in `expr`; nested powers count as their product."""

    def power(part: Expr, args: list[float]) -> float:
        match part:
            case Call("pow", (_, Number(exponent))):
                return max(args) * max(1.0, abs(exponent))
            case _:
                return max(args, default=1.0)

    return bottom_up(expr, power)


_FLAT = {"add": "sum", "sub": "sum", "mul": "product"}


def _depth(expr: Expr, *, functions: bool = False) -> int:
    """How deeply operations (or only functions) are nested; a sum within a sum counts once."""
    depth: dict[Expr, int] = {}
    for part in postorder(expr):
        depth[part] = 0
        if isinstance(part, Call):
            for arg in part.args:
                is_flat = isinstance(arg, Call) and part.op in _FLAT and _FLAT.get(arg.op) == _FLAT[part.op]
                is_level = OPS[part.op].is_callable if functions else not is_flat
                depth[part] = max(depth[part], depth[arg] + is_level)
    return depth[expr]


_RELATIONS = tuple(op.sympy for op in OPS.values() if op.is_comparison)


def _apply(native: str, args: list[Any]) -> Any:
    if native == "where":
        condition, a, b = args
        if condition in (sympy.true, sympy.false):
            return a if condition else b
        if sympy.core.parameters.global_parameters.evaluate:
            return sympy.Piecewise((a, condition), (b, True))
        # The constructors simplify conditions even without `evaluate`, and fail at some.
        pairs = (sympy.Tuple.__new__(ExprCondPair, *pair) for pair in ((a, condition), (b, sympy.true)))
        return sympy.Basic.__new__(sympy.Piecewise, *pairs)
    if native in ("Add", "operator.sub"):  # flat, even when SymPy does not evaluate
        first, second = args
        second = second if native == "Add" else -second
        return sympy.Add(*(first.args if isinstance(first, sympy.Add) else (first,)), second)
    if native == "Mul":
        first, second = args
        return sympy.Mul(*(first.args if isinstance(first, sympy.Mul) else (first,)), second)
    module, _, name = native.rpartition(".")
    if name in _RELATIONS and sympy.nan in args:
        return sympy.true if name == "Ne" else sympy.false  # IEEE comparison with NaN
    return getattr(operator if module else sympy, name)(*args)
