"""Formulas as MathML, which browsers typeset without scripts or fonts.

The catalogue's formulas are stored in `typeset.json`, because SymPy takes longer to load than the rest of the
report. `write_catalogue` regenerates the file, and a test compares it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from ftnn.formula import Function, catalogue
from ftnn.formula._expr import Call, Expr, Number, Symbol, postorder
from ftnn.formula._ops import OPS

# Keep the paper's names: SymPy would write max(0, x) and 1/(1 + exp(-x)) instead.
_NAMED = ("rect", "rect_ada", "logistic", "softplus", "gauss", "relu", "step")
_REPLACED = {
    "<mi>logistic</mi>": "<mi>σ</mi>",  # or its derivatives would not fit on a phone
    "<mi>rect_ada</mi>": "<msub><mi>rect</mi><mi>ada</mi></msub>",
    "<mi>rect_slope</mi>": "<mi>rect′</mi>",
    "<mi>&ExponentialE;</mi>": "<mi>e</mi>",
    "<mo>(</mo>": '<mo stretchy="false">(</mo>',
    "<mo>)</mo>": '<mo stretchy="false">)</mo>',
    "<mo>-</mo>": "<mo>−</mo>",
}
_BEFORE_A_NAME = re.compile(r"<mo>&InvisibleTimes;</mo>(?=(<mrow>)?(<msup>|<msub>)*(<mrow>)?<mi>\w{3})")


Typeset = tuple[tuple[str, str], ...]
_FILE = "typeset.json"


@cache
def typeset_catalogue() -> dict[str, Typeset]:
    """The stored result of `typeset` for each function of the catalogue."""
    text = (files("ftnn.experiments.report") / _FILE).read_text("utf-8")
    return {name: tuple((label, math) for label, math in lines) for name, lines in json.loads(text).items()}


def typeset(function: Function) -> Typeset:
    """(label, MathML) of the function and its derivatives: by x, by C if it has memory, by its parameters."""
    by = ("x", *(("C",) if function.has_memory else ()), *function.parameters)
    lines = [(_math("<mi>F</mi><mo>(</mo><mi>x</mi><mo>)</mo>"), _mathml(function.expr))]
    lines += [(_partial(name), _mathml(function.slope(name))) for name in by]
    return tuple(lines)


def _partial(name: str) -> str:
    return _math(f"<mfrac><mrow><mo>∂</mo><mi>F</mi></mrow><mrow><mo>∂</mo><mi>{name}</mi></mrow></mfrac>")


def _mathml(expr: Expr) -> str:
    from sympy.printing.mathml import mathml

    text = mathml(_to_sympy(expr), printer="presentation")
    for old, new in _REPLACED.items():
        text = text.replace(old, new)
    return _math(_BEFORE_A_NAME.sub('<mspace width="0.17em"/>', text))


def _math(content: str) -> str:
    return f"<math><mrow>{content}</mrow></math>"


def _to_sympy(expr: Expr) -> Any:
    import sympy

    done: dict[Expr, Any] = {}
    for part in postorder(expr):
        match part:
            case Number(value):
                done[part] = sympy.pi if value == math.pi else sympy.nsimplify(value)
            case Symbol(name):
                done[part] = sympy.Symbol(name)
            case Call(op, args):
                values = [done[arg] for arg in args]
                done[part] = _slope_of_rect(part, done) or _applied(op, values)
    return done[expr]


def _slope_of_rect(part: Call, done: dict[Expr, Any]) -> Any:
    """`where(a < 0, 0, v)` as v times the derivative of rect at a; None for anything else."""
    import sympy

    if part.op != "where":
        return None
    condition, zero, value = part.args
    if not (isinstance(condition, Call) and condition.op == "lt"):
        return None
    if not all(isinstance(each, Number) and each.value == 0 for each in (condition.args[1], zero)):
        return None
    return done[value] * sympy.Function("rect_slope")(done[condition.args[0]])


def _applied(op: str, args: list[Any]) -> Any:
    import operator

    import sympy

    if op in _NAMED:
        return sympy.Function(op)(*args)
    if op == "where":
        return sympy.Piecewise((args[1], args[0]), (args[2], True))
    native = OPS[op].sympy
    module, _, name = native.rpartition(".")
    function: Callable[..., Any] = getattr(operator if module else sympy, name)
    return function(*args)


def write_catalogue() -> None:
    """Regenerate `typeset.json`."""
    formulas = {name: typeset(function) for name, function in catalogue.items()}
    text = json.dumps(formulas, ensure_ascii=False, indent=1) + "\n"
    Path(__file__).with_name(_FILE).write_text(text, "utf-8")
