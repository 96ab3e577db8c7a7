"""How a function is computed: as matrix products if it is a sum of g(p)·h(x), else fused.

F is multiplied out into terms `coefficient · (parameters only) · (input only)`, unless that loses digits.
Terms with the same input part, or the same parameter part, form one matrix product.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from ftnn.formula._expr import MEMORY, ZERO, Call, Expr, Symbol, names
from ftnn.formula._split import BEYOND_FLOAT32, LOSES_DIGITS, NotSeparableError, Splitter
from ftnn.formula._terms import UNIT, Monomial, Terms, in_order, product_expr, rank, sum_expr
from ftnn.formula._text import to_text

MAX_COEFFICIENT = 10**30
"""A coefficient above this, or below its inverse, may leave the range of float32 where F does not."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a function is computed; determined once per function."""

    kind: Literal["gemm", "fused"]
    """`gemm`: a sum of matrix products. `fused`: each connection's function is evaluated."""
    reason: str
    """Why, in words."""
    terms: tuple[tuple[Expr, Expr], ...] = ()
    """(g, h): each adds `h(x) @ g(p)`, one matrix product."""
    constant: Expr | None = None
    """The g(p) without an input: adds its sum over the inputs."""
    common: Expr | None = None
    """The h(x) without a parameter: adds its sum over the inputs to every output."""
    exact: bool = True
    """Whether the products are those of the formula as written. If not, factors are multiplied in another
    order and may leave the range of floats where F does not; see `products`."""
    products: tuple[tuple[tuple[Expr, int], ...], ...] = ()
    """If not exact, the factors of each product and how often each occurs. As long as each is 0, or all are
    of moderate size together, their order does not matter."""
    exponentials: tuple[Expr, ...] = ()
    """The factors of exponentials that were split, exp(x + q) = exp(x)·exp(q): 0 means underflow."""

    @property
    def gemms(self) -> int:
        """The number of matrix products."""
        return len(self.terms)


def make_plan(expr: Expr) -> Plan:
    """The plan for a function's folded expression."""
    if MEMORY in names(expr):
        return Plan("fused", "it uses C, its own previous value")
    splitter = Splitter(expr)
    try:
        terms = splitter.split(expr)
        if not all(1 / MAX_COEFFICIENT <= abs(c) <= MAX_COEFFICIENT for c in terms.values()):
            raise NotSeparableError(expr, BEYOND_FLOAT32)
        if splitter.distributed and not keeps_digits(terms, splitter.waves):
            raise NotSeparableError(expr, LOSES_DIGITS)
    except NotSeparableError as error:
        return Plan("fused", f"{to_text(error.part)} {error.why}")
    except RecursionError:
        return Plan("fused", "it is nested too deeply to be multiplied out")
    return _gemm_plan(terms, splitter)


def keeps_digits(terms: Terms, waves: Mapping[Expr, Expr]) -> bool:
    """Whether every term is at most a few times |F| + Σ |a·∂F/∂a|, for all arguments a.

    Rounding an argument a changes F by a share of |a·∂F/∂a|. If no term is much larger than |F| and these,
    computing the terms one by one is as accurate as computing F. So (x - q)**2 is not multiplied out: at
    x = q, F and its slopes are 0, but x**2, 2*q*x and q**2 are not, and their rounding errors remain.

    a·∂F/∂a is the sum of the terms, each times its power of a. Together with F, these sums are a linear
    system for the terms. If it determines the terms, its right-hand side bounds them. Arguments inside a
    factor, as in sin(a), are left out, and the two terms of a wave (`Splitter.waves`) count as one.
    """
    factors_of = {pair: [power for monomial in pair for power in monomial] for pair in terms}
    nested_names = {
        name
        for factors in factors_of.values()
        for factor, _ in factors
        if isinstance(factor, Call)
        for name in factor.names
    }
    powers: dict[tuple[object, ...], dict[str, int]] = {}
    for pair, factors in factors_of.items():
        by_name = {
            factor.name: exponent
            for factor, exponent in factors
            if isinstance(factor, Symbol) and factor.name not in nested_names
        }
        wave = tuple(dict.fromkeys(waves[factor] for factor, _ in factors if factor in waves))
        powers[(wave, frozenset(by_name.items())) if wave else (pair,)] = by_name
    arguments = sorted({name for by_name in powers.values() for name in by_name})
    rows = [[Fraction(1)] * len(powers)]
    rows += [[Fraction(by_name.get(name, 0)) for by_name in powers.values()] for name in arguments]
    return rank(rows) == len(powers)


def _gemm_plan(terms: Terms, splitter: Splitter) -> Plan:
    constant = _sum_or_none((g, c) for (g, h), c in terms.items() if h == UNIT)
    common = _sum_or_none((h, c) for (g, h), c in terms.items() if g == UNIT and h != UNIT)
    mixed = {pair: c for pair, c in terms.items() if UNIT not in pair}
    products = _matrix_products(mixed)
    exact = splitter.exact and len(products) == len(mixed) and all(map(_is_as_written, terms.items()))
    count = f"{len(products)} matrix product{'s'[: len(products) != 1]}"
    reason = f"it is a sum of g(p)·h(x): {count}" + (" and a constant" if constant is not None else "")
    if exact:
        return Plan("gemm", reason, products, constant, common)
    powers = tuple(
        tuple((factor, abs(n)) for monomial in pair for factor, n in in_order(monomial)) for pair in terms
    )
    factors = dict.fromkeys(factor for product in powers for factor, _ in product)
    return Plan(
        "gemm",
        reason,
        products,
        constant,
        common,
        exact=False,
        products=powers,
        exponentials=tuple(factor for factor in factors if factor in splitter.exponentials),
    )


def _is_as_written(term: tuple[tuple[Monomial, Monomial], Fraction]) -> bool:
    """Whether a term is one parameter part times one input part, with no product or quotient reordered."""
    (g, h), coefficient = term
    if g == h == UNIT:
        return True
    return abs(coefficient) == 1 and all(len(m) <= 1 and all(n > 0 for _, n in m) for m in (g, h))


def _matrix_products(terms: Terms) -> tuple[tuple[Expr, Expr], ...]:
    """Pairs (g, h) with Σ g·h equal to the terms: one for each distinct h or g, whichever are fewer.

    If the coefficients have rank 1, one pair is enough. For other ranks, fewer pairs would do, but they would
    add and subtract numbers that are not in the terms.
    """
    rows = list(dict.fromkeys(g for g, _ in terms))
    columns = list(dict.fromkeys(h for _, h in terms))
    matrix = [[terms.get((g, h), Fraction(0)) for h in columns] for g in rows]
    if len(rows) > 1 < len(columns) and rank(matrix) == 1:
        lead = matrix[0][0]
        g = sum_expr((g, row[0]) for g, row in zip(rows, matrix, strict=True))
        return ((g, sum_expr((h, c / lead) for h, c in zip(columns, matrix[0], strict=True))),)
    if len(rows) < len(columns):
        sums = (sum_expr(zip(columns, row, strict=True)) for row in matrix)
        return tuple((product_expr(g), h) for g, h in zip(rows, sums, strict=True))
    sums = (sum_expr(zip(rows, column, strict=True)) for column in zip(*matrix, strict=True))
    return tuple((g, product_expr(h)) for g, h in zip(sums, columns, strict=True))


def _sum_or_none(terms: Iterable[tuple[Monomial, Fraction]]) -> Expr | None:
    result = sum_expr(terms)
    return None if result is ZERO else result
