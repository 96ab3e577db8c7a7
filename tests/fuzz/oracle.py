"""The value of a formula and its slopes: forward-mode derivatives by the rules of docs/formulas.md.

A slope is kept by name, and only where the formula depends on that name, so that 0·∞ is computed only where
somebody wrote it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import scipy.special

from tests.fuzz.bounded import (
    ROUNDINGS,
    SAFETY,
    UNKNOWN,
    Array,
    Bounded,
    Elementary,
    Format,
    bounded_result,
    choose,
    leaf,
    number,
    underflow,
)
from tests.fuzz.expression import COMPARISONS, Node

TRUE_SLOPES = ("x", "C")
"""By these, `rect_ada` has its true slope; by every other name, the surrogate slope 1."""


@dataclass(frozen=True)
class Dual:
    """A value, and its slope by every name it depends on."""

    value: Bounded
    slopes: Mapping[str, Bounded]


# --- elementary functions, wide ---


def _erf(a: Array) -> Array:
    if a.dtype == np.float64:
        return scipy.special.erf(a)
    near = np.clip(np.where(np.isnan(a), 0, a), -7, 7)
    term = total = near
    for n in range(1, 220):  # all terms have the same sign, so nothing cancels
        term = term * near * near * 2 / (2 * n + 1)
        total = total + term
    series = (
        total
        * np.exp(-near * near)
        * 2
        / np.sqrt(np.longdouble(np.pi) + np.longdouble("1.2246467991473532e-16"))
    )
    return np.where(np.isnan(a), a, np.where(abs(a) >= 7, np.sign(a), np.where(a == 0, a, series)))


def _logistic(a: Array) -> Array:
    return 1 / (1 + np.exp(-a))


def _softplus(a: Array) -> Array:
    return np.maximum(a, 0) + np.log1p(np.exp(-abs(a)))


def _gauss(a: Array) -> Array:
    return np.exp(-a * a)


def _one(a: Array) -> Array:
    return np.ones_like(a)


def _to_pole(f: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """The approximate distance to the nearest pole: 1/|f|."""
    return lambda a: 1 / (1 + abs(f(a)))


def _cot(a: Array) -> Array:
    return 1 / np.tan(a)


def _within_one(a: Array) -> Array:
    return np.minimum(abs(a), 1)


ELEMENTARY: dict[str, Elementary] = {
    "exp": Elementary(np.exp, np.exp, _one),
    "log": Elementary(np.log, lambda a: 1 / a, abs),
    "log1p": Elementary(np.log1p, lambda a: 1 / (1 + a), lambda a: abs(1 + a)),
    "sqrt": Elementary(np.sqrt, lambda a: 0.5 / np.sqrt(a), abs),
    "sin": Elementary(np.sin, np.cos),
    "cos": Elementary(np.cos, np.sin),
    "tan": Elementary(np.tan, lambda a: 1 + np.tan(a) ** 2, _to_pole(np.tan)),
    "cot": Elementary(_cot, lambda a: 1 + _cot(a) ** 2, _to_pole(_cot)),
    "sec": Elementary(lambda a: 1 / np.cos(a), lambda a: np.tan(a) / np.cos(a), _to_pole(np.tan)),
    "csc": Elementary(lambda a: 1 / np.sin(a), lambda a: _cot(a) / np.sin(a), _to_pole(_cot)),
    "sinh": Elementary(np.sinh, np.cosh, _one),
    "cosh": Elementary(np.cosh, np.sinh, _one),
    "tanh": Elementary(np.tanh, lambda a: 1 / np.cosh(a) ** 2),
    "coth": Elementary(lambda a: 1 / np.tanh(a), lambda a: 1 / np.sinh(a) ** 2, _within_one),
    "sech": Elementary(lambda a: 1 / np.cosh(a), lambda a: np.tanh(a) / np.cosh(a)),
    "csch": Elementary(lambda a: 1 / np.sinh(a), lambda a: 1 / np.tanh(a) / np.sinh(a), _within_one),
    "logistic": Elementary(_logistic, lambda a: _logistic(a) * _logistic(-a)),
    "softplus": Elementary(_softplus, _logistic),
    "gauss": Elementary(_gauss, lambda a: 2 * a * _gauss(a)),
    "erf": Elementary(_erf, lambda a: 2 / math.sqrt(math.pi) * _gauss(a), steepest=1.13),
}
"""Smooth functions. These slopes only propagate errors; derivatives are below."""


def power(a: Bounded, b: Bounded, *, constant: bool) -> Bounded:
    """a**b. A constant integer exponent takes any base; for other integer exponents this is unspecified."""
    form, x, y = a.form, a.value, b.value
    value = np.power(x, y)
    log = np.log(abs(x))
    slope_a, slope_b = abs(y * np.power(x, y - 1)), abs(value * log)
    error = _weighted(slope_a, a.error) + _weighted(slope_b, b.error)
    error = error + (ROUNDINGS + abs(y)) * form.unit * abs(value) + underflow(form, value)
    exact = (a.exactly_zero & (value == 0)) | ((x == 1) & (a.error == 0))
    error = np.where(exact, 0, error)
    leaves = _weighted(slope_a, a.leaves) + _weighted(slope_b, b.leaves)
    whole = (np.round(y) == y) & (b.error == 0)
    near = (SAFETY * a.error > 0.5 * abs(x)) & (a.error > 0) & ~(whole & (y > 0))
    far = (SAFETY * b.error * abs(log) > 0.5) & (b.error > 0)
    far = far | ((SAFETY * a.error * abs(y) > 0.5 * abs(x)) & (a.error > 0) & (x != 0))
    # NaN**0 and 1**NaN are 1 in IEEE 754, but NaN if "NaN stays NaN" is taken literally.
    odd = (np.isnan(x) | np.isnan(y)) & ~np.isnan(value)
    # (-∞)**0.5 is ∞ there, and (-0)**0.5 is 0. NumPy and torch may take square roots instead: NaN
    # and -0.
    odd = odd | (((x == -np.inf) | ((x == 0) & np.signbit(x))) & (abs(y) == 0.5))
    if not constant:
        odd = odd | ((x < 0) & (abs(y - np.round(y)) <= SAFETY * b.error))
    flags = a.flags | b.flags | (near | far | odd) * UNKNOWN
    return bounded_result(form, value, error, leaves, flags, a, b)


def _weighted(slope: Array, error: Array) -> Array:
    return np.where(error == 0, 0, slope * error)


# --- slopes, as documented ---


def _slope(op: str, a: Bounded, f: Bounded) -> Bounded:
    """The slope of a smooth function at `a`, where its value is `f`."""
    one = number(a.form, 1)

    def of(name: str) -> Bounded:
        return ELEMENTARY[name](a)

    match op:
        case "exp":
            return f
        case "log":
            return one / a
        case "log1p":
            return one / (one + a)
        case "sqrt":
            return one / f.times(2)
        case "sin":
            return of("cos")
        case "cos":
            return -of("sin")
        case "tan":
            return one + f * f
        case "cot":
            return -(one + f * f)
        case "sec":
            return f * of("tan")
        case "csc":
            return -(f * of("cot"))
        case "sinh":
            return of("cosh")
        case "cosh":
            return of("sinh")
        case "tanh" | "coth":
            return one - f * f
        case "sech":
            return -(f * of("tanh"))
        case "csch":
            return -(f * of("coth"))
        case "logistic":
            return f * (one - f)
        case "softplus":
            return of("logistic")
        case "gauss":
            return a.times(-2) * f
        case _:
            assert op == "erf"
            return of("gauss").times(2 / math.sqrt(math.pi))


def chained(slope: Bounded, inner: Bounded) -> Bounded:
    """slope · inner slope. Zeros from selections and slopes of 0 may stay zeros whatever multiplies them."""
    lost = (inner.exactly_zero & ~np.isfinite(slope.value)) | (slope.exactly_zero & ~np.isfinite(inner.value))
    return (slope.met_by_an_error() * inner).met_by_an_error().unknown_where(lost)


def _chain(*pairs: tuple[Bounded | None, Dual]) -> dict[str, Bounded]:
    """Σ slope · inner slope, by name; None is a slope of one."""
    total: dict[str, Bounded] = {}
    for slope, dual in pairs:
        for name, inner in dual.slopes.items():
            term = inner if slope is None else chained(slope, inner)
            total[name] = total[name] + term if name in total else term
    return total


def _picked(first: Array, unsure: Array, a: Dual, b: Dual) -> dict[str, Bounded]:
    """Slopes of a where `first` holds, else of b: selected, not multiplied."""
    none = number(a.value.form, 0)
    result: dict[str, Bounded] = {}
    for name in (*a.slopes, *(n for n in b.slopes if n not in a.slopes)):
        picked = choose(first, a.slopes.get(name, none), b.slopes.get(name, none))
        result[name] = picked.unknown_where(unsure)
    return result


# --- evaluation ---


def evaluate(form: Format, tree: Node, values: Mapping[str, Array], constants: tuple[str, ...] = ()) -> Dual:
    """The formula at `values`: arrays of the tested precision by name, which broadcast against each other."""
    with np.errstate(all="ignore"):
        return _evaluate(form, tree, {n: leaf(form, v) for n, v in values.items()}, constants)


def evaluate_bounded(
    form: Format, tree: Node, values: Mapping[str, Bounded], constants: tuple[str, ...] = ()
) -> Dual:
    """The same for values that already have errors."""
    with np.errstate(all="ignore"):
        return _evaluate(form, tree, values, constants)


def _evaluate(form: Format, tree: Node, values: Mapping[str, Bounded], constants: tuple[str, ...]) -> Dual:
    one = number(form, 1)
    known: dict[Node, Dual] = {}

    def at(part: Node) -> Dual:
        if part not in known:
            known[part] = compute(part)
        return known[part]

    def compute(part: Node) -> Dual:
        if part.op == "number":
            return Dual(number(form, part.value), {})
        if part.op == "name":
            if part.name == "pi":
                return Dual(number(form, math.pi), {})
            return Dual(values[part.name], {} if part.name in constants else {part.name: one})
        if part.op == "where":
            return _where(part, at)
        return _operation(part, [at(arg) for arg in part.args])

    return at(tree)


def _operation(part: Node, args: list[Dual]) -> Dual:
    a, b = args[0], args[-1]
    u, v = a.value, b.value
    match part.op:
        case "add":
            return Dual(u + v, _chain((None, a), (None, b)))
        case "sub":
            return Dual(u - v, _chain((None, a), (-number(u.form, 1), b)))
        case "mul":
            return Dual(u * v, _chain((v, a), (u, b)))
        case "div":
            one = number(u.form, 1)
            by_a = () if not a.slopes else ((one / v, a),)
            slope = -(u / (v * v))
            if _is_zero(part.args[0]):  # whether 0/x has a slope at its pole is unspecified
                slope = slope.unknown_where(~np.isfinite(slope.value))
            by_b = () if not b.slopes else ((slope, b),)
            return Dual(u / v, _chain(*by_a, *by_b))
        case "neg":
            return Dual(-u, _chain((-number(u.form, 1), a)))
        case "pow":
            return _power(a, b)
        case "min" | "max":
            return _extreme(part.op, args)
        case "abs":
            return Dual(abs(u), _chain((_signed(u), a)))
        case "sign":
            return Dual(_signed(u), {})
        case "step":
            none, one = number(u.form, 0), number(u.form, 1)
            result = choose(np.isnan(u.value), u, choose(u.value >= 0, one, none))
            return Dual(_with_flags(u, result).unknown_where(u.sign_unknown), {})
        case "rect" | "rect_ada" | "relu":
            return _rectified(part.op, a)
        case op:
            value = ELEMENTARY[op](u)
            return Dual(value, _chain((_slope(op, u, value), a)) if a.slopes else {})


def _is_zero(part: Node) -> bool:
    return part.op == "number" and part.value == 0


def _with_flags(origin: Bounded, result: Bounded) -> Bounded:
    """`result`, with the flags of the value that decided it."""
    return Bounded(result.form, result.value, result.error, result.leaves, result.flags | origin.flags)


def _signed(a: Bounded) -> Bounded:
    value = np.where(a.value == 0, 0, np.sign(a.value))
    error = np.where(a.value == 0, a.form.least, a.form.wide(0))  # sign(0) may be 0 or -0
    result = Bounded(a.form, value, error, np.zeros_like(value), a.flags)
    return result.unknown_where(a.sign_unknown)


def _power(a: Dual, b: Dual) -> Dual:
    u, v = a.value, b.value
    one, none = number(u.form, 1), number(u.form, 0)
    constant = not b.slopes
    value = power(u, v, constant=constant)
    terms: list[tuple[Bounded | None, Dual]] = []
    if a.slopes and not (constant and np.all(v.value == 0)):  # a**0 is the number 1
        lower = one if constant and np.all(v.value == 1) else power(u, v - one, constant=constant)
        terms.append((v * lower, a))
    if b.slopes:
        slope = choose(u.value == 0, none, value * ELEMENTARY["log"](u))
        terms.append((slope.unknown_where(u.sign_unknown & (u.error > 0)), b))
    return Dual(value, _chain(*terms))


def _extreme(op: str, args: list[Dual]) -> Dual:
    result = args[0]
    for other in args[1:]:
        a, b = result.value, other.value
        unsure = _unsure(a, b)
        first = a.value <= b.value if op == "min" else a.value >= b.value
        picked = choose(first | np.isnan(a.value), a, b)
        # Near a tie either may be chosen, and so may either zero.
        error = np.where(unsure, np.maximum(a.error, b.error), picked.error)
        zeros = (a.value == 0) & (b.value == 0) & (np.signbit(a.value) != np.signbit(b.value))
        error = np.maximum(error, np.where(zeros, a.form.least, a.form.wide(0)))
        leaves = np.where(unsure, np.maximum(a.leaves, b.leaves), picked.leaves)
        value = Bounded(a.form, picked.value, error, leaves, a.flags | b.flags)
        result = Dual(value, _picked(first, unsure | (value.flags > 0), result, other))
    return result


def _rectified(op: str, a: Dual) -> Dual:
    u = a.value
    value = choose(u.value < 0, number(u.form, 0), u)
    error = np.where(u.sign_unknown, u.error, value.error)
    error = np.maximum(error, np.where(u.value == 0, u.form.least, u.form.wide(0)))  # of either sign
    value = Bounded(u.form, value.value, error, value.leaves, u.flags)
    off = u.value <= 0 if op == "relu" else u.value < 0
    nothing = Dual(number(u.form, 0), {})
    slopes = _picked(off, u.sign_unknown | (u.flags > 0), nothing, a)
    if op == "rect_ada":
        slopes |= {name: slope for name, slope in a.slopes.items() if name not in TRUE_SLOPES}
    return Dual(value, slopes)


def _unsure(a: Bounded, b: Bounded) -> Array:
    """Whether rounding decides which is larger."""
    error = a.error + b.error
    return (abs(a.value - b.value) <= SAFETY * error) & (error > 0)


_HOLDS: dict[str, Callable[[Array, Array], Array]] = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
assert _HOLDS.keys() == COMPARISONS.keys()


def _where(part: Node, at: Callable[[Node], Dual]) -> Dual:
    condition, yes, no = part.args
    left, right = (at(arg).value for arg in condition.args)
    a, b = at(yes), at(no)
    holds = _HOLDS[condition.op](left.value, right.value)
    flags = left.flags | right.flags
    unsure = _unsure(left, right) | (flags > 0)
    value = choose(holds, a.value, b.value).unknown_where(unsure)
    return Dual(value, _picked(holds, unsure, a, b))
