"""Amplitudes: the parameters that scale a whole function, found by degrees of homogeneity.

Let every parameter k have an unknown degree e_k: it is multiplied by s**e_k for some s > 0. The degree of a
product is then the sum of the degrees of its factors, both terms of a sum must have the same degree, and so
on up the expression. The function is multiplied by s if its own degree is 1. These are linear equations in e,
which are solved in exact fractions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from ftnn.formula._expr import Call, Expr, Number, Symbol, bottom_up, postorder
from ftnn.formula._function import Function
from ftnn.formula._ops import OPS

Form = dict[str, Fraction]
"""A degree as a linear form in the degrees of parameters, without zeros."""
Degree = Form | None
"""None for the number 0, which has every degree."""
_KEEP = ("neg", "rect", "rect_ada", "relu", "abs")


def amplitudes(function: Function) -> dict[str, float]:
    """Exponents e: multiplying each named parameter k by s**e[k], for any s > 0, multiplies F by s for all x.

    For `p*sin(q*x + r)` this is {p: 1}, for `p**2*x` {p: 0.5}. If there are several ways, as for `p*q*x`, the
    outermost and first parameters are preferred. Empty if there is no way, and for functions with memory,
    whose previous value scales too.
    """
    equations: list[Form] = []
    degree = bottom_up(function.expr, lambda part, args: _degree(part, args, function.parameters, equations))
    if degree is None or function.has_memory:
        return {}
    levels = _levels(function.expr)
    order = sorted(function.parameters, key=lambda name: levels.get(name, 0))
    solution = _solve([*((form, 0) for form in equations), (degree, 1)], order)
    return {name: float(solution[name]) for name in function.parameters if solution.get(name)}


def takes_negative(function: Function, exponents: Mapping[str, float]) -> bool:
    """Whether F changes only its sign if all parameters in `exponents` do.

    A negative scale s then works too: multiply each parameter by -(-s)**e.
    """
    problems: list[Expr] = []
    is_odd = bottom_up(function.expr, lambda part, args: _is_odd(part, args, exponents, problems))
    return bool(is_odd) and not problems


# --- degrees ---


def _degree(part: Expr, args: Sequence[Degree], parameters: Sequence[str], equations: list[Form]) -> Degree:
    """The degree of a part from those of its arguments. Adds the forms that must be 0 to `equations`."""
    match part:
        case Number(value):
            return {} if value else None
        case Symbol(name):
            return {name: Fraction(1)} if name in parameters else {}
        case Call("mul"):
            return None if None in args else _combined(args[0], args[1], 1)
        case Call("div"):
            return None if args[0] is None else _combined(args[0], args[1], -1)
        case Call("pow", (_, Number(value))) if args[0] is not None or value > 0:
            return None if args[0] is None else _combined({}, args[0], Fraction(value))
        case Call("sqrt"):
            return None if args[0] is None else _combined({}, args[0], Fraction(1, 2))
        case Call("sign" | "step"):
            return {}
        case Call(op) if op in _KEEP:
            return args[0]
        case Call(op) if op in ("add", "sub", "min", "max", "where") or OPS[op].is_comparison:
            first, second = args[-2:]  # of a selection, the two values
            if first is not None and second is not None:
                equations.append(_combined(first, second, -1))
            return {} if OPS[op].is_comparison else second if first is None else first
        case Call():
            equations.extend(arg for arg in args if arg)
            return {}


def _combined(a: Degree, b: Degree, factor: Fraction | int) -> Form:
    """a + factor*b."""
    total = dict(a or {})
    for name, value in (b or {}).items():
        total[name] = total.get(name, Fraction(0)) + factor * value
    return {name: value for name, value in total.items() if value}


def _levels(expr: Expr) -> dict[str, int]:
    """How deep each name is inside the function: 0 in a term of a sum, 1 as a factor of a term, and so on."""
    levels: dict[Expr, int] = {expr: 0}
    for part in reversed(list(postorder(expr))):  # a part before its arguments
        if isinstance(part, Call):
            level = levels[part]
            if part.op in ("mul", "div"):
                level = max(level, 1)
            elif part.op != "neg" and (level or part.op not in ("add", "sub", "where")):
                level = max(level, 1) + 1
            for arg in part.args:
                levels[arg] = max(levels.get(arg, 0), level)
    return {part.name: level for part, level in levels.items() if isinstance(part, Symbol)}


def _solve(equations: Sequence[tuple[Form, int]], order: Sequence[str]) -> dict[str, Fraction]:
    """The solution of all equations `form = value` in which names late in `order` are 0 where possible.

    By Gauss-Jordan elimination. Empty if there is no solution.
    """
    rows: dict[str, tuple[Form, Fraction]] = {}  # by pivot, the first name in it, which no other row has
    for equation, right_side in equations:
        form, value = equation, Fraction(right_side)
        for pivot in [name for name in form if name in rows]:
            form, value = _without(pivot, form, value, rows[pivot])
        if not form:
            if value:
                return {}
            continue
        pivot = min(form, key=order.index)
        row = {name: entry / form[pivot] for name, entry in form.items()}, value / form[pivot]
        for other, (other_form, other_value) in rows.items():
            if pivot in other_form:
                rows[other] = _without(pivot, other_form, other_value, row)
        rows[pivot] = row
    return {pivot: value for pivot, (_, value) in rows.items()}


def _without(name: str, form: Form, value: Fraction, row: tuple[Form, Fraction]) -> tuple[Form, Fraction]:
    """The equation `form = value` less a multiple of `row`, so that `name` drops out."""
    factor = -form[name]
    return _combined(form, row[0], factor), value + factor * row[1]


# --- signs ---


def _is_odd(
    part: Expr, args: Sequence[bool | None], odd_names: Mapping[str, float], problems: list[Expr]
) -> bool | None:
    """Whether a part changes its sign with the names in `odd_names`; None for 0, which does both.

    Adds parts that neither change their sign nor stay the same to `problems`.
    """
    match part:
        case Number(value):
            return False if value else None
        case Symbol(name):
            return name in odd_names
        case Call("mul" | "div"):
            return None if None in args else args[0] != args[1]
        case Call("neg" | "sign"):
            return args[0]
        case Call("abs"):
            return False
        case Call("pow", (_, Number(int() as value))):
            return args[0] and value % 2 == 1
        case Call("add" | "sub" | "where" | "eq" | "ne" as op):
            first, second = args[-2:]
            if first is not None and second is not None and first != second:
                problems.append(part)
            return False if op in ("eq", "ne") else second if first is None else first
        case Call():
            if any(args):
                problems.append(part)
            return False
