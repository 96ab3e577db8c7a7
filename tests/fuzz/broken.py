"""Layers in plain NumPy, one correct and some broken, to test the fuzzer itself."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special

from tests.fuzz.bounded import Array
from tests.fuzz.cases import Case, Run
from tests.fuzz.expected import NAN, NOT_FINITE, Truth
from tests.fuzz.expression import Node


def _rect(a: Array) -> Array:
    return np.where(a < 0, 0, a)


def _step(a: Array) -> Array:
    return np.where(a < 0, 0, np.where(a >= 0, 1, a))


def _softplus(a: Array) -> Array:
    return np.logaddexp(a * 0, a)


def _gauss(a: Array) -> Array:
    return np.exp(-a * a)


def _one_over(f: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda a: 1 / f(a)


def _least(*args: Array) -> Array:
    least = args[0]
    for other in args[1:]:
        least = np.minimum(least, other)
    return least


def _most(*args: Array) -> Array:
    return -_least(*(-arg for arg in args))


MEANING: dict[str, Any] = {
    **{name: getattr(np, name) for name in ("exp", "log", "log1p", "sqrt", "abs", "sign", "where")},
    **{name: getattr(np, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "cot": _one_over(np.tan),
    "sec": _one_over(np.cos),
    "csc": _one_over(np.sin),
    "coth": _one_over(np.tanh),
    "sech": _one_over(np.cosh),
    "csch": _one_over(np.sinh),
    "logistic": scipy.special.expit,
    "softplus": _softplus,
    "gauss": _gauss,
    "erf": scipy.special.erf,
    "rect": _rect,
    "rect_ada": _rect,
    "relu": _rect,
    "step": _step,
    "min": _least,
    "max": _most,
}
"""NumPy's functions by the names of a formula's text."""


class _Numbers(ast.NodeTransformer):
    """Replaces numbers in a text by variables, so that they get the tested precision."""

    def __init__(self, kind: Any):
        self.kind = kind
        self.numbers: dict[str, Any] = {"pi": kind(np.pi)}

    def visit_Constant(self, node: ast.Constant) -> ast.Name:
        name = f"number_{len(self.numbers)}"
        self.numbers[name] = self.kind(node.value)
        return ast.copy_location(ast.Name(name, ast.Load()), node)


def read_by_python(tree: Node, values: dict[str, Array]) -> Array:
    """The formula's text evaluated by Python itself, in the precision of `values`."""
    numbers = _Numbers(values["x"].dtype.type)
    code = compile(numbers.visit(ast.parse(str(tree), mode="eval")), "formula", "eval")
    with np.errstate(all="ignore"):
        return eval(code, {"__builtins__": {}}, {**MEANING, **numbers.numbers, **values})


def exact(case: Case, run: Run) -> dict[str, Array]:
    """The oracle's results, rounded once; NaN where they must not be finite."""
    with np.errstate(all="ignore"):
        return {
            e.name: np.where(np.isin(e.rule, (NAN, NOT_FINITE)), np.nan, e.value).astype(case.form.narrow)
            for e in Truth(case)(run)
        }


def _terms(case: Case, x: Array) -> Array:
    """F of every connection, (batch, in, out), in the tested precision."""
    values = {"x": x[:, :, None], **{name: m[None] for name, m in case.matrices.items()}}
    shape = (*x.shape, case.outputs)
    return np.broadcast_to(read_by_python(case.formula.tree, values), shape).astype(case.form.narrow)


def as_written(case: Case, run: Run) -> dict[str, Array]:
    """Correct: each connection evaluated as written, then summed."""
    with np.errstate(all="ignore"):
        return exact(case, run) | {"value": _terms(case, case.x[run.rows]).sum(1)}


def skipping_zeros(case: Case, run: Run) -> dict[str, Array]:
    """ΣF(0) + Σ(F(x) - F(0)): cancels where F(0) is large."""
    x = case.x[run.rows]
    with np.errstate(all="ignore"):
        silent = _terms(case, np.zeros_like(x))
        more = np.where(x[:, :, None] == 0, 0, _terms(case, x) - silent)
        return exact(case, run) | {"value": (silent.sum(1) + more.sum(1)).astype(case.form.narrow)}


def without_nan(case: Case, run: Run) -> dict[str, Array]:
    results = as_written(case, run)
    return results | {"value": np.nan_to_num(results["value"], nan=0.0, posinf=np.inf, neginf=-np.inf)}


def without_signs_of_zero(case: Case, run: Run) -> dict[str, Array]:
    with np.errstate(all="ignore"):
        return exact(case, run) | {"value": _terms(case, case.x[run.rows] + 0.0).sum(1)}


def with_a_small_error(case: Case, run: Run) -> dict[str, Array]:
    """Gradients that are off by a thousandth."""
    results = as_written(case, run)
    return {name: g if name == "value" else g * case.form.narrow(1.001) for name, g in results.items()}


def one_batch_for_all(case: Case, run: Run) -> dict[str, Array]:
    """Each row leaks a little into the next."""
    results = as_written(case, run)
    value = results["value"]
    return results | {"value": value + value.dtype.type(1e-3) * np.roll(value, 1, axis=0)}


def multiplied_out(case: Case, run: Run) -> dict[str, Array]:
    """p*(x - q)**4, expanded."""
    x, p, q = case.x[run.rows][:, :, None], case.matrices["p"][None], case.matrices["q"][None]
    terms = p * (x**4 - 4 * x**3 * q + 6 * x**2 * q**2 - 4 * x * q**3 + q**4)
    return exact(case, run) | {"value": terms.sum(1)}
