"""Makes `typeset.json`, the catalogue's formulas as MathML: `python -m tests.experiments.report.typesetting`.

Not part of the package, because the report reads the file: SymPy would take longer to load than all the rest.
"""

from __future__ import annotations

import json
import math
import operator
import re
from pathlib import Path
from typing import Any

import sympy
from sympy.printing.mathml import mathml

import ftnn
from ftnn.formula import Function, catalogue
from ftnn.formula._expr import Call, Expr, Number, Symbol, postorder
from ftnn.formula._ops import OPS

FILE = Path(ftnn.__file__).parent / "experiments" / "report" / "typeset.json"
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


def typeset(function: Function) -> tuple[tuple[str, str], ...]:
    """(label, MathML) of the function and its derivatives: by x, by C if it has memory, by its parameters."""
    by = ("x", *(("C",) if function.has_memory else ()), *function.parameters)
    lines = [(_math("<mi>F</mi><mo>(</mo><mi>x</mi><mo>)</mo>"), _mathml(function.expr))]
    lines += [(_partial(name), _mathml(function.slope(name))) for name in by]
    return tuple(lines)


def _partial(name: str) -> str:
    return _math(f"<mfrac><mrow><mo>∂</mo><mi>F</mi></mrow><mrow><mo>∂</mo><mi>{name}</mi></mrow></mfrac>")


def _mathml(expr: Expr) -> str:
    text = mathml(to_sympy(expr), printer="presentation")
    for old, new in _REPLACED.items():
        text = text.replace(old, new)
    return _math(_BEFORE_A_NAME.sub('<mspace width="0.17em"/>', text))


def _math(content: str) -> str:
    return f"<math><mrow>{content}</mrow></math>"


def to_sympy(expr: Expr) -> Any:
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
    if part.op != "where":
        return None
    condition, zero, value = part.args
    if not (isinstance(condition, Call) and condition.op == "lt"):
        return None
    if not all(isinstance(each, Number) and each.value == 0 for each in (condition.args[1], zero)):
        return None
    return done[value] * sympy.Function("rect_slope")(done[condition.args[0]])


def _applied(op: str, args: list[Any]) -> Any:
    if op in _NAMED:
        return sympy.Function(op)(*args)
    if op == "where":
        return sympy.Piecewise((args[1], args[0]), (args[2], True))
    native = OPS[op].sympy
    module, _, name = native.rpartition(".")
    return getattr(operator if module else sympy, name)(*args)


if __name__ == "__main__":
    formulas = {name: typeset(function) for name, function in catalogue.items()}
    FILE.write_text(json.dumps(formulas, ensure_ascii=False, indent=1) + "\n", "utf-8")
