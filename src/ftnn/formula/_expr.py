"""Expressions: a graph in which equal parts are the same object.

Every expression is interned, so `is` compares structure, dictionaries keyed by expressions share work, and a
derivative that mentions `q*x + r` five times stores it once.

There are three ways to build one. `call` keeps exactly what was written. `folded` also computes numbers and
drops no-ops, but only those that are no-ops for every IEEE value: NaN, infinities and the sign of zero
survive. `plus` and `times` are for sums that ftnn builds itself, such as derivatives; there, `ZERO` means an
absent term.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar
from weakref import WeakValueDictionary

from ftnn.formula._numbers import compute

INPUT = "x"
"""The name of a connection's input."""
MEMORY = "C"
"""The name of a memory function's previous value."""


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Number:
    """A float64 number. Whole numbers up to 2**53 are stored as integers, except -0."""

    value: int | float

    @property
    def names(self) -> frozenset[str]:
        return frozenset()


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Symbol:
    """The input, the memory cell, a parameter or a constant."""

    name: str

    @property
    def names(self) -> frozenset[str]:
        return frozenset((self.name,))


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Call:
    """An operation of the table, applied to expressions."""

    op: str
    args: tuple[Expr, ...]
    names: frozenset[str] = field(repr=False)
    """All names in it."""


Expr = Number | Symbol | Call
T = TypeVar("T")

_interned: WeakValueDictionary[object, Expr] = WeakValueDictionary()
_lock = threading.Lock()


def _intern(key: object, make: Callable[[], Expr]) -> Expr:
    with _lock:
        expr = _interned.get(key)
        if expr is None:
            expr = _interned[key] = make()
        return expr


def number(value: int | float) -> Expr:
    value = float(value)
    is_negative_zero = value == 0 and math.copysign(1, value) < 0
    if value.is_integer() and abs(value) <= 2**53 and not is_negative_zero:
        value = int(value)
    return _intern(("number", type(value).__name__, value), lambda: Number(value))


def symbol(name: str) -> Expr:
    return _intern(("symbol", name), lambda: Symbol(name))


def call(op: str, *args: Expr) -> Expr:
    return _intern(("call", op, args), lambda: Call(op, args, _union(args)))


def _union(args: tuple[Expr, ...]) -> frozenset[str]:
    """All names in `args`. Usually one argument has them all; its set is then shared."""
    name_sets = [arg.names for arg in args]
    largest = max(name_sets, key=len, default=frozenset[str]())
    return largest if all(names <= largest for names in name_sets) else largest.union(*name_sets)


ZERO, ONE, NEGATIVE_ZERO = number(0), number(1), number(-0.0)


def postorder(*roots: Expr) -> Iterator[Expr]:
    """Every distinct part of `roots` in a fixed order, arguments before the calls that use them."""
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
    """The names in `roots`, in order of first appearance."""
    return tuple(part.name for part in postorder(*roots) if isinstance(part, Symbol))


def bottom_up(expr: Expr, result: Callable[[Expr, list[T]], T]) -> T:
    """`result(part, results of its arguments)` of the whole expression; visits each distinct part once."""
    results: dict[Expr, T] = {}
    for part in postorder(expr):
        args = part.args if isinstance(part, Call) else ()
        results[part] = result(part, [results[arg] for arg in args])
    return results[expr]


def tree_size(expr: Expr) -> int:
    """The number of nodes of `expr` as a tree, counting equal parts every time."""
    return bottom_up(expr, lambda _, sizes: 1 + sum(sizes))


def rebuild(expr: Expr, leaf: Callable[[Number | Symbol], Expr]) -> Expr:
    """`expr` with every leaf replaced, folded on the way up."""
    return bottom_up(
        expr, lambda part, args: folded(part.op, *args) if isinstance(part, Call) else leaf(part)
    )


def substitute(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """`expr` with names replaced by expressions."""
    return rebuild(expr, lambda part: values.get(part.name, part) if isinstance(part, Symbol) else part)


def canonical(expr: Expr) -> Expr:
    """`expr` with the operands of sums, products, min and max in a fixed order, for comparing functions.

    `x*p` equals `p*x`, but `p*(x + 1)` does not equal `p*x + p`. Operands are sorted by identity, since equal
    ones are the same object; so the order holds only within this process, and while the result exists.
    """

    def ordered(part: Expr, args: list[Expr]) -> Expr:
        if not isinstance(part, Call):
            return part
        if part.op in ("add", "mul", "min", "max"):
            nested = [arg.args if isinstance(arg, Call) and arg.op == part.op else (arg,) for arg in args]
            args = sorted((operand for operands in nested for operand in operands), key=id)
        return call(part.op, *args)

    return bottom_up(expr, ordered)


# --- folding ---


def folded(op: str, *args: Expr) -> Expr:
    """`call(op, *args)`, with numbers computed and no-ops dropped.

    Only identities that hold for every IEEE value are used: `a - 0`, `1*a` and `a**0` are folded, but not
    `0*a` and `a - a` (a may be NaN or infinite), nor `a + 0` (0 for a = -0) and `0 - a` (0 for a = 0).
    """
    if (simpler := _simpler(op, args)) is not None:
        return simpler
    if all(isinstance(a, Number) for a in args):
        value = compute(op, *(a.value for a in args if isinstance(a, Number)))
        if value is not None and math.isfinite(value):  # inf and NaN are left to run time
            return number(value)
    return call(op, *args)


def plus(a: Expr, b: Expr) -> Expr:
    """a + b, where `ZERO` means an absent term."""
    if a is ZERO:
        return b
    if b is ZERO:
        return a
    return _selected_together(plus, a, b) or folded("add", a, b)


def times(a: Expr, b: Expr) -> Expr:
    """a*b, where `ZERO` means an absent term: its product with anything, even NaN, is absent too."""
    if a is ZERO or b is ZERO:
        return ZERO
    # A mask selects instead of multiplying: that is cheaper, and an unselected NaN still gives 0.
    for mask, factor in ((a, b), (b, a)):
        if isinstance(mask, Call) and mask.op == "where" and {mask.args[1], mask.args[2]} <= {ZERO, ONE}:
            condition, first, second = mask.args
            return folded("where", condition, times(first, factor), times(second, factor))
    return _sign_in_front(times, a, b) or folded("mul", a, b)


def _unneg(expr: Expr) -> Expr | None:
    """-expr, if `expr` is a negation or a negative number; else None."""
    if isinstance(expr, Call) and expr.op == "neg":
        return expr.args[0]
    if isinstance(expr, Number) and expr.value < 0:
        return number(-expr.value)
    return None


def _selected_together(add: Callable[[Expr, Expr], Expr], a: Expr, b: Expr) -> Expr | None:
    """The sum of two selections by the same condition, as one selection."""
    if isinstance(a, Call) and isinstance(b, Call) and a.op == b.op == "where" and a.args[0] is b.args[0]:
        return folded("where", a.args[0], add(a.args[1], b.args[1]), add(a.args[2], b.args[2]))
    return None


def _sign_in_front(multiply: Callable[[Expr, Expr], Expr], a: Expr, b: Expr) -> Expr | None:
    """The product with its sign in front, so that `-(p*x)` and `(-p)*x` are the same."""
    if isinstance(a, Number) and isinstance(b, Number):
        return None
    if (positive := _unneg(a)) is not None:
        return folded("neg", multiply(positive, b))
    if (positive := _unneg(b)) is not None:
        return folded("neg", multiply(a, positive))
    return None


def _simpler(op: str, args: tuple[Expr, ...]) -> Expr | None:
    """A simpler expression that equals `op(*args)` for every IEEE value; None if no rule applies."""
    a, b = args[0], args[-1]
    are_numbers = isinstance(a, Number) and isinstance(b, Number)
    match op:
        case "add":
            if a is NEGATIVE_ZERO or b is NEGATIVE_ZERO:
                return b if a is NEGATIVE_ZERO else a
            if not are_numbers and (positive := _unneg(b)) is not None:
                return folded("sub", a, positive)
            return _selected_together(partial(folded, "add"), a, b)
        case "sub":
            if b is ZERO:
                return a
            if a is NEGATIVE_ZERO:
                return folded("neg", b)
            if not isinstance(a, Number) and (positive := _unneg(b)) is not None:
                return folded("add", a, positive)
        case "mul":
            if a is ONE or b is ONE:
                return b if a is ONE else a
            if (signed := _sign_in_front(partial(folded, "mul"), a, b)) is not None:
                return signed
            if isinstance(b, Number) and not isinstance(a, Number):  # numbers come first
                return folded("mul", b, a)
        case "div" if b is ONE:
            return a
        case "pow":
            if b is ZERO or b is NEGATIVE_ZERO:
                return ONE  # even for NaN, as in IEEE's pow and every backend
            is_even = isinstance(b, Number) and isinstance(b.value, int) and b.value % 2 == 0
            if is_even and (positive := _unneg(a)) is not None:
                return folded("pow", positive, b)
            return a if b is ONE else None
        case "neg" if not isinstance(a, Number):
            return _unneg(a)
        case "where":
            if args[1] is b:
                return b
            if isinstance(a, Number):
                return args[1] if a.value else b
        case _:
            pass
    return None
