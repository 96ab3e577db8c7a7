"""Expressions as a graph in which equal parts are one object.

Every expression is interned, so `is` compares structure, a dictionary keyed by expressions shares work, and a
derivative that mentions `q*x + r` five times holds it once.

Two ways to build: `call` keeps exactly what was written; `folded` below also folds numbers, zeros and ones,
which is what differentiation and substitution want. Neither does algebra.
"""

from __future__ import annotations

import math
import operator
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from weakref import WeakValueDictionary

INPUT = "x"
"""The name of a connection's input."""
MEMORY = "C"
"""The name of a memory function's own previous value."""


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Number:
    """A number that a float64 holds. One with an integer value is held as that integer, up to 2**53."""

    value: int | float


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Symbol:
    """The input, the memory cell, a parameter or a constant."""

    name: str


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Call:
    """An operation of the table applied to expressions."""

    op: str
    args: tuple[Expr, ...]


Expr = Number | Symbol | Call

_interned: WeakValueDictionary[object, Expr] = WeakValueDictionary()
_lock = threading.Lock()


def _intern(key: object, make: Callable[[], Expr]) -> Expr:
    with _lock:
        found = _interned.get(key)
        if found is None:
            found = make()
            _interned[key] = found
        return found


def number(value: int | float) -> Expr:
    value = float(value)
    if value.is_integer() and abs(value) <= 2**53:
        value = int(value)
    return _intern(("number", type(value).__name__, value), lambda: Number(value))


def symbol(name: str) -> Expr:
    return _intern(("symbol", name), lambda: Symbol(name))


def call(op: str, *args: Expr) -> Expr:
    return _intern(("call", op, args), lambda: Call(op, args))


ZERO, ONE = number(0), number(1)


def postorder(*roots: Expr) -> Iterator[Expr]:
    """Every distinct part of `roots`, arguments before what uses them, in a fixed order."""
    seen: set[Expr] = set()
    stack: list[tuple[Expr, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        expr, expanded = stack.pop()
        if expr in seen:
            continue
        if expanded or not isinstance(expr, Call):
            seen.add(expr)
            yield expr
        else:
            stack.append((expr, True))
            stack.extend((arg, False) for arg in reversed(expr.args))


def names(*roots: Expr) -> tuple[str, ...]:
    """The names that occur, in order of first appearance."""
    return tuple(part.name for part in postorder(*roots) if isinstance(part, Symbol))


def rebuild(expr: Expr, leaf: Callable[[Number | Symbol], Expr]) -> Expr:
    """`expr` with every leaf replaced, folding numbers, zeros and ones on the way up."""
    done: dict[Expr, Expr] = {}
    for part in postorder(expr):
        done[part] = folded(part.op, *(done[a] for a in part.args)) if isinstance(part, Call) else leaf(part)
    return done[expr]


def substitute(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """`expr` with names replaced by expressions."""
    return rebuild(expr, lambda part: values.get(part.name, part) if isinstance(part, Symbol) else part)


def canonical(expr: Expr) -> Expr:
    """`expr` with the operands of sums, products, min and max in a fixed order, and nothing else changed.

    Equality of functions is equality of this: `x*p` is `p*x`, but `p*(x + 1)` is not `p*x + p`.
    """
    done: dict[Expr, Expr] = {}
    order: dict[Expr, str] = {}
    for part in postorder(expr):
        new = part
        if isinstance(part, Call):
            args = tuple(done[a] for a in part.args)
            if part.op in ("add", "mul", "min", "max"):
                flat = [leaf for a in args for leaf in _operands(a, part.op)]
                flat.sort(key=lambda a: order[a])
                new = call(part.op, *flat)
            else:
                new = call(part.op, *args)
        done[part] = new
        order[new] = _key(new, order)
    return done[expr]


def _operands(expr: Expr, op: str) -> tuple[Expr, ...]:
    return expr.args if isinstance(expr, Call) and expr.op == op else (expr,)


def _key(expr: Expr, order: Mapping[Expr, str]) -> str:
    match expr:
        case Number(value):
            return f"0 {value!r}"
        case Symbol(name):
            return f"1 {name}"
        case Call(op, args):
            return f"2 {op}({','.join(order[a] for a in args)})"


# --- building with numbers, zeros and ones folded ---


def folded(op: str, *args: Expr) -> Expr:
    """`call(op, *args)`, except that numbers are computed and zeros and ones drop out."""
    rule = _FOLD.get(op)
    if rule is not None and (found := rule(*args)) is not None:
        return found
    if all(isinstance(a, Number) for a in args) and (op in _UNARY or op in _BINARY):
        value = _compute(op, [a.value for a in args if isinstance(a, Number)])
        if value is not None:
            return number(value)
    return call(op, *args)


def _positive(a: float) -> float:
    return max(a, 0)


_UNARY: dict[str, Callable[[float], float]] = {
    "neg": lambda a: -a,
    "abs": abs,
    "exp": math.exp,
    "sqrt": math.sqrt,
    "log": math.log,
    "log1p": math.log1p,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "sec": lambda a: 1 / math.cos(a),
    "sinh": math.sinh,
    "cosh": math.cosh,
    "tanh": math.tanh,
    "sech": lambda a: 1 / math.cosh(a),
    "logistic": lambda a: 1 / (1 + math.exp(-a)),
    "softplus": lambda a: max(a, 0) + math.log1p(math.exp(-abs(a))),
    "gauss": lambda a: math.exp(-a * a),
    "erf": math.erf,
    "rect": _positive,
    "rect_ada": _positive,
    "relu": _positive,
    "sign": lambda a: (a > 0) - (a < 0),
    "step": lambda a: int(a >= 0),
}
_BINARY: dict[str, Callable[[float, float], float]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "pow": math.pow,
    "min": min,
    "max": max,
}


def _compute(op: str, values: list[int | float]) -> int | float | None:
    """The number, or None where it is not a finite one: then the call stays, and says so when it runs."""
    try:
        value = _UNARY[op](values[0]) if op in _UNARY else _BINARY[op](values[0], values[1])
        return value if math.isfinite(value) else None
    except (ArithmeticError, ValueError):
        return None


def _number(expr: Expr) -> int | float | None:
    return expr.value if isinstance(expr, Number) else None


def _unneg(expr: Expr) -> Expr | None:
    """What `expr` is the negative of, or None."""
    if isinstance(expr, Call) and expr.op == "neg":
        return expr.args[0]
    if isinstance(expr, Number) and expr.value < 0:
        return number(-expr.value)
    return None


def _fold_add(a: Expr, b: Expr) -> Expr | None:
    if a is ZERO:
        return b
    if b is ZERO:
        return a
    if isinstance(a, Number) and isinstance(b, Number):
        return None
    if (positive := _unneg(b)) is not None:
        return folded("sub", a, positive)
    # Two selections by one condition are one selection.
    if isinstance(a, Call) and isinstance(b, Call) and a.op == b.op == "where" and a.args[0] is b.args[0]:
        return folded(
            "where", a.args[0], folded("add", a.args[1], b.args[1]), folded("add", a.args[2], b.args[2])
        )
    return None


def _fold_sub(a: Expr, b: Expr) -> Expr | None:
    if b is ZERO:
        return a
    if a is ZERO:
        return folded("neg", b)
    if a is b:
        return ZERO
    if not isinstance(a, Number) and (positive := _unneg(b)) is not None:
        return folded("add", a, positive)
    return None


def _fold_mul(a: Expr, b: Expr) -> Expr | None:
    if a is ZERO or b is ZERO:
        return ZERO
    if a is ONE:
        return b
    if b is ONE:
        return a
    if isinstance(a, Number) and isinstance(b, Number):
        return None
    # A mask selects instead of multiplying: cheaper, and 0 times a NaN that was not chosen stays 0.
    for mask, other in ((a, b), (b, a)):
        if isinstance(mask, Call) and mask.op == "where" and {mask.args[1], mask.args[2]} <= {ZERO, ONE}:
            condition, first, second = mask.args
            return folded("where", condition, folded("mul", first, other), folded("mul", second, other))
    # A sign stands in front of a product, so that `-(p*x)` and `(-p)*x` are one.
    for one, other, left in ((a, b, True), (b, a, False)):
        if (positive := _unneg(one)) is not None:
            return folded("neg", folded("mul", positive, other) if left else folded("mul", other, positive))
    if isinstance(b, Number):  # numbers come first
        return folded("mul", b, a)
    return None


def _fold_div(a: Expr, b: Expr) -> Expr | None:
    if a is ZERO and not isinstance(b, Number):
        return ZERO
    return a if b is ONE else None


def _fold_pow(a: Expr, b: Expr) -> Expr | None:
    if b is ZERO:
        return ONE
    if (
        isinstance(b, Number)
        and isinstance(b.value, int)
        and b.value % 2 == 0
        and (positive := _unneg(a)) is not None
    ):
        return folded("pow", positive, b)
    return a if b is ONE else None


def _fold_neg(a: Expr) -> Expr | None:
    return _unneg(a) if not isinstance(a, Number) else None


def _fold_where(condition: Expr, a: Expr, b: Expr) -> Expr | None:
    if a is b:
        return a
    if isinstance(condition, Number):
        return a if condition.value else b
    return None


def _fold_compare(op: str) -> Callable[[Expr, Expr], Expr | None]:
    tests: dict[str, Callable[[float, float], bool]] = {
        "lt": lambda a, b: a < b,
        "le": lambda a, b: a <= b,
        "gt": lambda a, b: a > b,
        "ge": lambda a, b: a >= b,
        "eq": lambda a, b: a == b,
        "ne": lambda a, b: a != b,
    }
    test = tests[op]

    def fold(a: Expr, b: Expr) -> Expr | None:
        x, y = _number(a), _number(b)
        return None if x is None or y is None else number(int(test(x, y)))

    return fold


_FOLD: dict[str, Callable[..., Expr | None]] = {
    "add": _fold_add,
    "sub": _fold_sub,
    "mul": _fold_mul,
    "div": _fold_div,
    "pow": _fold_pow,
    "neg": _fold_neg,
    "where": _fold_where,
    **{op: _fold_compare(op) for op in ("lt", "le", "gt", "ge", "eq", "ne")},
}
