"""Sums of products with exact coefficients: expressions multiplied out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from fractions import Fraction
from typing import Literal

from ftnn.formula._expr import INPUT, ONE, ZERO, Expr, Number, folded, number, plus
from ftnn.formula._text import to_text

Monomial = frozenset[tuple[Expr, int]]
"""A product of powers: (factor, exponent) pairs."""
Terms = dict[tuple[Monomial, Monomial], Fraction]
"""A sum of products: (parameters only, input only) → coefficient."""
UNIT: Monomial = frozenset()


def side(expr: Expr) -> Literal["input", "parameters"] | None:
    """Whether `expr` has only the input or only parameters; None if both. Numbers count as parameters."""
    if INPUT not in expr.names:
        return "parameters"
    return "input" if len(expr.names) == 1 else None


def single_factor(expr: Expr) -> Terms:
    """`expr`, which has only the input or only parameters, as one factor."""
    if isinstance(expr, Number):
        return {(UNIT, UNIT): Fraction(expr.value)} if expr.value else {}
    factor = frozenset({(expr, 1)})
    return {(UNIT, factor) if side(expr) == "input" else (factor, UNIT): Fraction(1)}


def cancels(first: Monomial, second: Monomial) -> bool:
    """Whether the product of the two divides a factor by itself."""
    powers = dict(first)
    return any(powers.get(factor, 0) * exponent < 0 for factor, exponent in second)


def product(first: Monomial, second: Monomial) -> Monomial:
    powers = defaultdict(int, dict(first))
    for factor, exponent in second:
        powers[factor] += exponent
    return frozenset((factor, exponent) for factor, exponent in powers.items() if exponent)


def power(monomial: Monomial, exponent: int) -> Monomial:
    return frozenset((factor, own * exponent) for factor, own in monomial if exponent)


def rank(matrix: list[list[Fraction]]) -> int:
    """The exact rank of a matrix, a list of rows."""
    rows = [row[:] for row in matrix]
    rank = 0
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((i for i in range(rank, len(rows)) if rows[i][column]), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        for i in range(rank + 1, len(rows)):
            ratio = rows[i][column] / rows[rank][column]
            rows[i] = [a - ratio * b for a, b in zip(rows[i], rows[rank], strict=True)]
        rank += 1
    return rank


# --- back to expressions ---


def in_order(monomial: Monomial) -> list[tuple[Expr, int]]:
    """The factors in a fixed order, so that results do not depend on the hash seed."""
    return sorted(monomial, key=lambda pair: to_text(pair[0]))


def product_expr(monomial: Monomial) -> Expr:
    result = ONE
    for factor, exponent in in_order(monomial):
        powered = folded("pow", factor, number(abs(exponent)))
        result = folded("mul" if exponent > 0 else "div", result, powered)
    return result


def sum_expr(terms: Iterable[tuple[Monomial, Fraction]]) -> Expr:
    result = ZERO
    for monomial, coefficient in terms:
        if coefficient:
            value = coefficient.numerator if coefficient.denominator == 1 else float(coefficient)
            result = plus(result, folded("mul", number(value), product_expr(monomial)))
    return result
