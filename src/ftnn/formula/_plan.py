"""How a function is computed: as matrix products where it is a sum of g(p)·h(x), else fused.

F is multiplied out into terms `coefficient · (parameters only) · (input only)`. Terms with the same input
part, or the same parameter part, make one matrix product.

Multiplying out must not cost digits. Rounding an argument a moves F by a share of |a·∂F/∂a|. While no term is
much larger than |F| and these, computing terms one by one is as good as computing F. So (x - q)**2 is not
multiplied out: where x = q, F and its slopes are 0, but x**2, 2*q*x and q**2 are not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal

from ftnn.formula._expr import (
    INPUT,
    MEMORY,
    ONE,
    ZERO,
    Call,
    Expr,
    Number,
    Symbol,
    folded,
    names,
    number,
    plus,
    postorder,
    symbol,
)
from ftnn.formula._text import to_text

MAX_TERMS = 24
"""More terms than this, and multiplying out costs more than it saves."""
MAX_PRODUCT_POWER = 16
"""(p*x)**n is p**n * x**n up to this n."""
MAX_COEFFICIENT = 10**30
"""A coefficient that is larger, or smaller than its inverse, may leave float32 where F does not."""

MAX_BITS = 4096
"""Of a coefficient on the way there, exactly: ((2*x)**16)**16, and so on, would fill the memory."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a function is computed. Made once, when the function is; a layer only follows it."""

    kind: Literal["gemm", "fused"]
    """`gemm`: a sum of matrix products. `fused`: each connection's function is evaluated."""
    reason: str
    """Why, for people."""
    terms: tuple[tuple[Expr, Expr], ...] = ()
    """(g, h): each adds `h(x) @ g(p)`, one matrix product."""
    constant: Expr | None = None
    """g(p) that no input moves: adds its sum over the inputs."""
    common: Expr | None = None
    """h(x) without a parameter: adds its sum over the inputs to every output."""
    exact: bool = True
    """Whether the products are those of the formula as written. If not, factors were multiplied in another
    order, and may leave the range of floats where F does not: see `factors`."""
    factors: tuple[Expr, ...] = ()
    """If not exact, what is multiplied: while each is 0 or of moderate size, the order does not matter."""
    exponentials: tuple[Expr, ...] = ()
    """Factors into which an exponential was split, exp(x + q) = exp(x)·exp(q): 0 means underflow."""
    degree: int = 0
    """How many factors the largest product has."""

    @property
    def gemms(self) -> int:
        """How many matrix products it takes."""
        return len(self.terms)


class _NotSeparableError(Exception):
    """Carries the part that mixes the input with parameters."""

    def __init__(self, part: Expr, why: str = ""):
        super().__init__(part, why)
        self.part = part
        self.why = why


# A product of powers, as {factor: exponent}; a sum of terms, as {(parameter part, input part): coefficient}.
_Monomial = frozenset[tuple[Expr, int]]
_Terms = dict[tuple[_Monomial, _Monomial], Fraction]
_UNIT: _Monomial = frozenset()


def make_plan(expr: Expr) -> Plan:
    """The plan of a function's expression (numbers folded)."""
    if MEMORY in names(expr):
        return Plan("fused", "it uses C, its own previous value")
    splitter = _Splitter(expr)
    try:
        terms = splitter.split(expr)
        if not all(1 / MAX_COEFFICIENT <= abs(c) <= MAX_COEFFICIENT for c in terms.values()):
            raise _NotSeparableError(expr, "has a coefficient beyond float32 when multiplied out")
        if splitter.distributed and not _is_harmless(terms, splitter.waves):
            raise _NotSeparableError(expr, "would lose digits if it were multiplied out")
    except _NotSeparableError as mixed:
        why = mixed.why or "mixes x with parameters, and is not a sum of products of the two"
        return Plan("fused", f"{to_text(mixed.part)} {why}")
    except RecursionError:
        return Plan("fused", "it is nested too deeply to be multiplied out")
    return _factored(terms, splitter)


def _factored(terms: _Terms, splitter: _Splitter) -> Plan:
    constant = _total((g, c) for (g, h), c in terms.items() if h == _UNIT)
    common = _total((h, c) for (g, h), c in terms.items() if g == _UNIT and h != _UNIT)
    rest = {key: c for key, c in terms.items() if _UNIT not in key}
    pairs = _products(rest)
    exact = splitter.exact and len(pairs) == len(rest) and all(map(_is_as_written, terms.items()))
    count = f"{len(pairs)} matrix product{'s'[: len(pairs) != 1]}"
    reason = f"it is a sum of g(p)·h(x): {count}" + (" and a constant" if constant is not None else "")
    if exact:
        return Plan("gemm", reason, pairs, constant, common)
    factors = dict.fromkeys(factor for key in terms for monomial in key for factor, _ in _ordered(monomial))
    split = tuple(factor for factor in factors if factor in splitter.exponentials)
    degree = max(sum(abs(n) for monomial in key for _, n in monomial) for key in terms)
    rest_of_them = tuple(factor for factor in factors if factor not in splitter.exponentials)
    return Plan("gemm", reason, pairs, constant, common, False, rest_of_them, split, degree)


def _is_harmless(terms: _Terms, waves: Mapping[Expr, Expr]) -> bool:
    """Whether every term is at most a few times |F| + Σ |a·∂F/∂a|, whatever the arguments are.

    a·∂F/∂a is the sum of the terms, each times its power of a. Together with F, these sums are a linear
    system for the terms. If it determines them, they are bounded by its right-hand side. Arguments that occur
    inside a factor, as in sin(a), are left out, and the two terms of a wave (`_Splitter._wave`) count as one.
    """
    inside = {
        name
        for key in terms
        for m in key
        for factor, _ in m
        if isinstance(factor, Call)
        for name in factor.names
    }
    powers: dict[tuple[object, ...], dict[str, int]] = {}
    for key in terms:
        factors = [part for monomial in key for part in monomial]
        power = {f.name: n for f, n in factors if isinstance(f, Symbol) and f.name not in inside}
        wave = tuple(dict.fromkeys(waves[f] for f, _ in factors if f in waves))
        powers[(wave, frozenset(power.items())) if wave else (key,)] = power
    arguments = sorted({name for power in powers.values() for name in power})
    rows = [[Fraction(1)] * len(powers)]
    rows += [[Fraction(power.get(name, 0)) for power in powers.values()] for name in arguments]
    return _rank(rows) == len(powers)


def _is_as_written(term: tuple[tuple[_Monomial, _Monomial], Fraction]) -> bool:
    """Whether a term is one parameter part times one input part, with no product or quotient put in order."""
    (g, h), coefficient = term
    if g == h == _UNIT:
        return True
    return abs(coefficient) == 1 and all(len(m) <= 1 and all(n > 0 for _, n in m) for m in (g, h))


def _products(terms: _Terms) -> tuple[tuple[Expr, Expr], ...]:
    """(g, h) with Σ g·h equal to the terms: one for each distinct h or g, whichever are fewer.

    One is enough if the coefficients have rank 1. For other ranks, fewer products would do, but they would
    add and subtract what is not in the terms.
    """
    rows = list(dict.fromkeys(g for g, _ in terms))
    columns = list(dict.fromkeys(h for _, h in terms))
    matrix = [[terms.get((g, h), Fraction(0)) for h in columns] for g in rows]
    if len(rows) > 1 < len(columns) and _rank(matrix) == 1:
        lead = matrix[0][0]
        g = _sum((g, row[0]) for g, row in zip(rows, matrix, strict=True))
        return ((g, _sum((h, c / lead) for h, c in zip(columns, matrix[0], strict=True))),)
    if len(rows) < len(columns):
        sums = (_sum(zip(columns, row, strict=True)) for row in matrix)
        return tuple((_product(g), h) for g, h in zip(rows, sums, strict=True))
    sums = (_sum(zip(rows, column, strict=True)) for column in zip(*matrix, strict=True))
    return tuple((g, _product(h)) for g, h in zip(sums, columns, strict=True))


def _rank(matrix: list[list[Fraction]]) -> int:
    work = [row[:] for row in matrix]
    rank = 0
    for column in range(len(work[0]) if work else 0):
        pivot = next((i for i in range(rank, len(work)) if work[i][column]), None)
        if pivot is None:
            continue
        work[rank], work[pivot] = work[pivot], work[rank]
        for i in range(rank + 1, len(work)):
            share = work[i][column] / work[rank][column]
            work[i] = [a - share * b for a, b in zip(work[i], work[rank], strict=True)]
        rank += 1
    return rank


# --- from terms back to expressions ---


def _ordered(monomial: _Monomial) -> list[tuple[Expr, int]]:
    """A fixed order: what is computed must not depend on the process's hash seed."""
    return sorted(monomial, key=lambda part: to_text(part[0]))


def _product(monomial: _Monomial) -> Expr:
    result = ONE
    for factor, exponent in _ordered(monomial):
        power = folded("pow", factor, number(abs(exponent)))
        result = folded("mul", result, power) if exponent > 0 else folded("div", result, power)
    return result


def _sum(parts: Iterable[tuple[_Monomial, Fraction]]) -> Expr:
    result = ZERO
    for monomial, coefficient in parts:
        if coefficient:
            value = coefficient.numerator if coefficient.denominator == 1 else float(coefficient)
            result = plus(result, folded("mul", number(value), _product(monomial)))
    return result


def _total(parts: Iterable[tuple[_Monomial, Fraction]]) -> Expr | None:
    result = _sum(parts)
    return None if result is ZERO else result


# --- from an expression to terms ---


class _Splitter:
    """Multiplies an expression out, and remembers what that may cost."""

    def __init__(self, whole: Expr) -> None:
        self.exact = True
        self.distributed = False
        """Whether a sum was multiplied out."""
        self.exponentials: set[Expr] = set()
        self.waves: dict[Expr, Expr] = {}
        """The sin and cos of parameters that come from splitting a wave, and which one."""
        self._occurrences = _occurrences(whole)

    def split(self, expr: Expr) -> _Terms:
        """The terms of `expr`. Raises where a part mixes input and parameters inseparably."""
        terms = self._split(expr)
        if len(terms) > MAX_TERMS:
            raise _NotSeparableError(expr, f"has {len(terms)} terms when multiplied out")
        return terms

    def _split(self, expr: Expr) -> _Terms:
        if isinstance(expr, Number):
            return {(_UNIT, _UNIT): Fraction(expr.value)} if expr.value else {}
        if not isinstance(expr, Call) or _side(expr) is not None:
            return _atom(expr)  # as it is written
        rule = self._rules.get(expr.op)
        if rule is None:
            raise _NotSeparableError(expr)
        return rule(self, expr)

    def _add(self, expr: Call) -> _Terms:
        first, second = (self.split(arg) for arg in expr.args)
        sign = -1 if expr.op == "sub" else 1
        total = defaultdict(Fraction, first)
        for key, coefficient in second.items():
            total[key] += sign * coefficient
        return _without_cancelling(expr, total)

    def _neg(self, expr: Call) -> _Terms:
        return {key: -coefficient for key, coefficient in self.split(expr.args[0]).items()}

    def _mul(self, expr: Call) -> _Terms:
        first, second = (self.split(arg) for arg in expr.args)
        if any(_side(arg) is None for arg in expr.args):  # (p*x)*q becomes (p*q)*x
            self.exact = False
        return self._times(expr, first, second)

    def _div(self, expr: Call) -> _Terms:
        top, bottom = (self.split(arg) for arg in expr.args)
        if not bottom:
            raise _NotSeparableError(expr, "divides by zero")
        if len(bottom) > 1:
            raise _NotSeparableError(expr)
        self.exact = False
        (((g, h), coefficient),) = bottom.items()
        return self._times(expr, top, {(_raise(g, -1), _raise(h, -1)): 1 / coefficient})

    def _pow(self, expr: Call) -> _Terms:
        base, exponent = expr.args
        power = exponent.value if isinstance(exponent, Number) else None
        if not isinstance(power, int):
            raise _NotSeparableError(expr)
        terms = self.split(base)
        if len(terms) > 1 and power > 1:
            raise _NotSeparableError(expr, "would lose digits if it were multiplied out")
        if len(terms) != 1 or abs(power) > MAX_PRODUCT_POWER:
            raise _NotSeparableError(expr)
        self.exact = False
        (((g, h), coefficient),) = terms.items()
        if _bits(coefficient) * abs(power) > MAX_BITS:
            raise _NotSeparableError(expr, "has a coefficient beyond float32 when multiplied out")
        return {(_raise(g, power), _raise(h, power)): coefficient**power}

    def _abs(self, expr: Call) -> _Terms:
        """|g·h| = |g|·|h|, and the sign likewise."""
        terms = self.split(expr.args[0])
        if len(terms) != 1 or self._has_split(terms):
            raise _NotSeparableError(expr)
        self.exact = False
        (((g, h), coefficient),) = terms.items()
        parts = self._times(expr, _atom(folded(expr.op, _product(g))), _atom(folded(expr.op, _product(h))))
        scale = abs(coefficient) if expr.op == "abs" else Fraction((coefficient > 0) - (coefficient < 0))
        return {key: scale * c for key, c in parts.items()}

    def _exp(self, expr: Call) -> _Terms:
        """exp(g + h) = exp(g)·exp(h)."""
        g, h = (folded("exp", part) for part in self._parted(expr))
        self.exact = False
        self.exponentials |= {g, h}
        return self._times(expr, _atom(g), _atom(h))

    def _wave(self, expr: Call) -> _Terms:
        """sin(r + h) and cos(r + h) by the addition theorems, for a parameter r that occurs nowhere else.

        Where the two terms cancel each other, they are at most about |r|·|slope|, which is r·∂F/∂r.
        """
        g, h = self._parted(expr)
        if not (_is_linear(g) and all(self._occurrences[symbol(name)] == 1 for name in g.names)):
            raise _NotSeparableError(expr)
        sin_g, cos_g, sin_h, cos_h = (_atom(folded(f, part)) for part in (g, h) for f in ("sin", "cos"))
        self.waves |= {folded(f, g): expr for f in ("sin", "cos")}
        pairs = ((sin_g, cos_h), (cos_g, sin_h)) if expr.op == "sin" else ((cos_g, cos_h), (sin_g, sin_h))
        first, second = (self._times(expr, *pair) for pair in pairs)
        return first | (second if expr.op == "sin" else {key: -c for key, c in second.items()})

    def _has_split(self, terms: _Terms) -> bool:
        """Whether a factor is part of an exponential: inside another one, nobody would see it underflow."""
        return any(factor in self.exponentials for key in terms for m in key for factor, _ in m)

    def _times(self, expr: Expr, first: _Terms, second: _Terms) -> _Terms:
        if len(first) > 1 < len(second):
            raise _NotSeparableError(expr, "would lose digits if it were multiplied out")
        self.distributed |= len(first) > 1 or len(second) > 1
        return _times(expr, first, second)

    def _parted(self, expr: Call) -> tuple[Expr, Expr]:
        """The argument as (parameters only) + (input only)."""
        terms = self.split(expr.args[0])
        if any(g != _UNIT and h != _UNIT for g, h in terms):
            raise _NotSeparableError(expr)
        left = _sum((g, c) for (g, h), c in terms.items() if h == _UNIT)
        return left, _sum((h, c) for (_, h), c in terms.items() if h != _UNIT)

    def _where(self, expr: Call) -> _Terms:
        """Selected by parameters and constants alone: each branch's parameter part is masked."""
        condition, a, b = expr.args
        if _side(condition) != "parameters":
            raise _NotSeparableError(expr)
        self.exact = False  # a masked g times an infinite h is NaN
        total: _Terms = defaultdict(Fraction)
        for branch, is_first in ((a, True), (b, False)):
            terms = self.split(branch)
            if self._has_split(terms):
                raise _NotSeparableError(expr)
            for (g, h), coefficient in terms.items():
                picked = (_product(g), ZERO) if is_first else (ZERO, _product(g))
                for key, c in _atom(folded("where", condition, *picked)).items():
                    total[key[0], h] += coefficient * c
        return {key: c for key, c in total.items() if c}

    _rules: ClassVar[dict[str, Callable[[_Splitter, Call], _Terms]]] = {
        "add": _add,
        "sub": _add,
        "neg": _neg,
        "mul": _mul,
        "div": _div,
        "pow": _pow,
        "abs": _abs,
        "sign": _abs,
        "exp": _exp,
        "sin": _wave,
        "cos": _wave,
        "where": _where,
    }


def _is_linear(expr: Expr) -> bool:
    """Whether `expr` is a name, perhaps times a number."""
    match expr:
        case Call("neg", (a,)) | Call("mul", (Number(), a)):
            return _is_linear(a)
        case _:
            return isinstance(expr, Symbol)


def _occurrences(whole: Expr) -> dict[Expr, int]:
    """How often each part occurs when all is written out."""
    parts = list(postorder(whole))
    found = dict.fromkeys(parts, 0)
    found[whole] = 1
    for part in reversed(parts):
        for arg in part.args if isinstance(part, Call) else ():
            found[arg] += found[part]
    return found


def _side(expr: Expr) -> Literal["input", "parameters"] | None:
    """Which of the two `expr` is made of alone; None if of both. A number counts as parameters."""
    if INPUT not in expr.names:
        return "parameters"
    return "input" if len(expr.names) == 1 else None


def _atom(expr: Expr) -> _Terms:
    if isinstance(expr, Number):
        return {(_UNIT, _UNIT): Fraction(expr.value)} if expr.value else {}
    one = frozenset({(expr, 1)})
    return {(_UNIT, one) if _side(expr) == "input" else (one, _UNIT): Fraction(1)}


def _times(expr: Expr, first: _Terms, second: _Terms) -> _Terms:
    if not (first and second):
        raise _NotSeparableError(expr, "has a factor 0, and is NaN where the other factor is NaN or infinite")
    if len(first) * len(second) > 4 * MAX_TERMS:
        raise _NotSeparableError(expr, f"has over {4 * MAX_TERMS} terms when multiplied out")
    total: _Terms = defaultdict(Fraction)
    for (g1, h1), c1 in first.items():
        for (g2, h2), c2 in second.items():
            if _cancels(g1, g2) or _cancels(h1, h2):  # x/x is 1 only where x is not 0
                raise _NotSeparableError(expr, "divides a factor by itself")
            total[_join(g1, g2), _join(h1, h2)] += c1 * c2
    return _without_cancelling(expr, total)


def _bits(coefficient: Fraction) -> int:
    return max(coefficient.numerator.bit_length(), coefficient.denominator.bit_length())


def _without_cancelling(expr: Expr, terms: _Terms) -> _Terms:
    """`terms`, unless some cancelled: x - x is NaN where x is NaN or infinite."""
    if not all(terms.values()):
        raise _NotSeparableError(expr, "has terms that cancel, but not where they are NaN or infinite")
    return terms


def _cancels(first: _Monomial, second: _Monomial) -> bool:
    powers = dict(first)
    return any(powers.get(factor, 0) * exponent < 0 for factor, exponent in second)


def _join(first: _Monomial, second: _Monomial) -> _Monomial:
    powers = defaultdict(int, dict(first))
    for factor, exponent in second:
        powers[factor] += exponent
    return frozenset((factor, exponent) for factor, exponent in powers.items() if exponent)


def _raise(monomial: _Monomial, power: int) -> _Monomial:
    return frozenset((factor, exponent * power) for factor, exponent in monomial if power)
