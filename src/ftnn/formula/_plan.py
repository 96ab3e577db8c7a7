"""How a function is computed: as matrix products where it is a sum of g(p)·h(x), else fused.

F is multiplied out into terms `coefficient · (parameters only) · (input only)`. Written as a matrix, rows for
the parameter parts and columns for the input parts, its rank is the least number of matrix products.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial, reduce
from typing import ClassVar, Literal

from ftnn.formula._expr import INPUT, MEMORY, ONE, ZERO, Call, Expr, Number, folded, names, number, plus
from ftnn.formula._text import to_text

MAX_TERMS = 24
"""More terms than this, and multiplying out costs more than it saves."""
MAX_POWER = 4
"""(x - q)**n is multiplied out up to this n: beyond it the terms cancel each other's digits."""
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
    """Whether the products are those of the formula as written. If not, they may overflow where F does not:
    a result that is not finite is computed again, fused."""
    exponents: tuple[Expr, ...] = ()
    """Exponents of the factors in which an exponential was split, exp(x + q) = exp(x)·exp(q). Large ones
    would lose the product: then it is computed fused."""

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
    splitter = _Splitter()
    try:
        terms = splitter.split(expr)
        if not all(1 / MAX_COEFFICIENT <= abs(c) <= MAX_COEFFICIENT for c in terms.values()):
            raise _NotSeparableError(expr, "has a coefficient beyond float32 when multiplied out")
    except _NotSeparableError as mixed:
        why = mixed.why or "mixes x with parameters, and is no sum of products of the two"
        return Plan("fused", f"{to_text(mixed.part)} {why}")
    except RecursionError:
        return Plan("fused", "it is nested too deeply to be multiplied out")
    return _factored(terms, splitter)


def _factored(terms: _Terms, splitter: _Splitter) -> Plan:
    constant = _total((g, c) for (g, h), c in terms.items() if h == _UNIT)
    common = _total((h, c) for (g, h), c in terms.items() if g == _UNIT and h != _UNIT)
    rest = {key: c for key, c in terms.items() if _UNIT not in key}
    pairs = _rank_factors(rest)
    exact = splitter.exact and len(pairs) == len(rest) and all(map(_is_as_written, terms.items()))
    exponents = tuple(dict.fromkeys((*splitter.exponents, *_exponents(terms)))) if splitter.exponents else ()
    count = f"{len(pairs)} matrix product{'s'[: len(pairs) != 1]}"
    reason = f"it is a sum of g(p)·h(x): {count}" + (" and a constant" if constant is not None else "")
    return Plan("gemm", reason, pairs, constant, common, exact, exponents)


def _is_as_written(term: tuple[tuple[_Monomial, _Monomial], Fraction]) -> bool:
    """Whether a term is one parameter part times one input part, with no product or quotient put in order."""
    (g, h), coefficient = term
    return abs(coefficient) == 1 and all(len(m) <= 1 and all(n > 0 for _, n in m) for m in (g, h))


def _exponents(terms: _Terms) -> Iterator[Expr]:
    """What the exponentials in each factor raise e to, together: exp(q)**3 counts as 3*q."""
    for monomial in dict.fromkeys(m for key in terms for m in key):
        found = [
            folded("mul", number(n), part.args[0])
            for part, n in _ordered(monomial)
            if isinstance(part, Call) and part.op == "exp"
        ]
        yield from found
        if len(found) > 1:
            yield reduce(partial(folded, "add"), found)


def _rank_factors(terms: _Terms) -> tuple[tuple[Expr, Expr], ...]:
    """The fewest (g, h) with Σ g·h equal to the terms."""
    rows = list(dict.fromkeys(g for g, _ in terms))
    columns = list(dict.fromkeys(h for _, h in terms))
    matrix = [[terms.get((g, h), Fraction(0)) for h in columns] for g in rows]
    reduced, pivots = _reduced_rows(matrix)
    if len(pivots) == len(columns):  # one product for each distinct h: the plainest form
        return tuple(
            (_sum(zip(rows, column, strict=True)), _product(h))
            for h, column in zip(columns, zip(*matrix, strict=True), strict=True)
        )
    # The pivot columns of the matrix times its reduced rows are the matrix.
    return tuple(
        (
            _sum((g, matrix[i][pivot]) for i, g in enumerate(rows)),
            _sum(zip(columns, reduced[k], strict=True)),
        )
        for k, pivot in enumerate(pivots)
    )


def _reduced_rows(matrix: list[list[Fraction]]) -> tuple[list[list[Fraction]], list[int]]:
    """Reduced row echelon form and its pivot columns, exactly."""
    work = [row[:] for row in matrix]
    pivots: list[int] = []
    for column in range(len(work[0]) if work else 0):
        top = len(pivots)
        found = next((i for i in range(top, len(work)) if work[i][column]), None)
        if found is None:
            continue
        work[top], work[found] = work[found], work[top]
        lead = work[top][column]
        work[top] = [value / lead for value in work[top]]
        for i, row in enumerate(work):
            if i != top and row[column]:
                factor = row[column]
                work[i] = [a - factor * b for a, b in zip(row, work[top], strict=True)]
        pivots.append(column)
    return work, pivots


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

    def __init__(self) -> None:
        self.exact = True
        self.exponents: list[Expr] = []

    def split(self, expr: Expr) -> _Terms:
        """The terms of `expr`. Raises where a part mixes input and parameters inseparably."""
        terms = self._split(expr)
        if len(terms) > MAX_TERMS:
            raise _NotSeparableError(expr, f"has {len(terms)} terms when multiplied out")
        return terms

    def _split(self, expr: Expr) -> _Terms:
        if isinstance(expr, Number):
            return {(_UNIT, _UNIT): Fraction(expr.value)} if expr.value else {}
        if not isinstance(expr, Call):
            return _atom(expr)
        rule = self._rules.get(expr.op)
        if rule is not None:
            return rule(self, expr)
        if _side(expr) is None:
            raise _NotSeparableError(expr)
        return _atom(expr)

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
        return _times(expr, first, second)

    def _div(self, expr: Call) -> _Terms:
        top, bottom = (self.split(arg) for arg in expr.args)
        if not bottom:
            raise _NotSeparableError(expr, "divides by zero")
        if _side(expr) is None:
            self.exact = False
        if len(bottom) == 1:
            (((g, h), coefficient),) = bottom.items()
            return _times(expr, top, {(_inverse(g), _inverse(h)): 1 / coefficient})
        if _side(expr.args[1]) is None:
            raise _NotSeparableError(expr)
        return _times(expr, top, {_inverse_key(key): c for key, c in _atom(expr.args[1]).items()})

    def _pow(self, expr: Call) -> _Terms:
        base, exponent = expr.args
        power = exponent.value if isinstance(exponent, Number) else None
        side = _side(expr)
        if isinstance(power, int):
            terms = self.split(base)
            if side is None:
                self.exact = False
            if len(terms) == 1 and abs(power) <= MAX_PRODUCT_POWER:
                (((g, h), coefficient),) = terms.items()
                if _bits(coefficient) * abs(power) > MAX_BITS:
                    raise _NotSeparableError(expr, "has a coefficient beyond float32 when multiplied out")
                return {(_raise(g, power), _raise(h, power)): coefficient**power}
            if side is None and 2 <= power <= MAX_POWER:
                result = terms
                for _ in range(power - 1):
                    result = _times(expr, result, terms)
                return result
        if side is None:
            raise _NotSeparableError(expr)
        return _atom(expr)

    def _abs(self, expr: Call) -> _Terms:
        """|g·h| = |g|·|h|, and the sign likewise."""
        if _side(expr) is not None:
            return _atom(expr)
        terms = self.split(expr.args[0])
        if len(terms) != 1:
            raise _NotSeparableError(expr)
        (((g, h), coefficient),) = terms.items()
        parts = _times(expr, _atom(folded(expr.op, _product(g))), _atom(folded(expr.op, _product(h))))
        scale = abs(coefficient) if expr.op == "abs" else Fraction((coefficient > 0) - (coefficient < 0))
        return {key: scale * c for key, c in parts.items()}

    def _exp(self, expr: Call) -> _Terms:
        """exp(g + h) = exp(g)·exp(h)."""
        if _side(expr) is not None:
            return _atom(expr)
        g, h = self._parted(expr)
        self.exact = False
        self.exponents += [g, h]
        return _times(expr, _atom(folded("exp", g)), _atom(folded("exp", h)))

    def _wave(self, expr: Call) -> _Terms:
        """sin(g + h) and cos(g + h) by the addition theorems; their factors are never larger than 1."""
        if _side(expr) is not None:
            return _atom(expr)
        g, h = self._parted(expr)
        sin_g, cos_g, sin_h, cos_h = (folded(f, part) for part in (g, h) for f in ("sin", "cos"))
        first, second = (
            ((sin_g, cos_h), (cos_g, sin_h)) if expr.op == "sin" else ((cos_g, cos_h), (sin_g, sin_h))
        )
        op = "add" if expr.op == "sin" else "sub"
        return self.split(folded(op, folded("mul", *first), folded("mul", *second)))

    def _parted(self, expr: Call) -> tuple[Expr, Expr]:
        """The argument as (parameters only) + (input only)."""
        terms = self.split(expr.args[0])
        if any(g != _UNIT and h != _UNIT for g, h in terms):
            raise _NotSeparableError(expr)
        left = _sum((g, c) for (g, h), c in terms.items() if h == _UNIT)
        return left, _sum((h, c) for (_, h), c in terms.items() if h != _UNIT)

    def _where(self, expr: Call) -> _Terms:
        """Selected by parameters and constants alone: each branch's parameter part is masked."""
        if _side(expr) is not None:
            return _atom(expr)
        condition, a, b = expr.args
        if _side(condition) != "parameters":
            raise _NotSeparableError(expr)
        self.exact = False  # a masked g times an infinite h is NaN
        total: _Terms = defaultdict(Fraction)
        for branch, is_first in ((a, True), (b, False)):
            for (g, h), coefficient in self.split(branch).items():
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


def _inverse(monomial: _Monomial) -> _Monomial:
    return _raise(monomial, -1)


def _inverse_key(key: tuple[_Monomial, _Monomial]) -> tuple[_Monomial, _Monomial]:
    return _inverse(key[0]), _inverse(key[1])
