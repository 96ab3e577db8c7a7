"""Whether multiplying out keeps digits.

Rounding an argument a moves F by a share of |a·∂F/∂a|. While no term is much larger than |F| and these,
computing the terms one by one is as accurate as computing F. So (x - q)**2 is not multiplied out: at x = q, F
and its slopes are 0, but x**2, 2*q*x and q**2 are not, and their rounding errors remain.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from ftnn.formula._expr import Call, Expr, Symbol
from ftnn.formula._terms import Terms, rank


def keeps_digits(terms: Terms, waves: Mapping[Expr, Expr]) -> bool:
    """Whether every term is at most a few times |F| + Σ |a·∂F/∂a|, for all arguments.

    a·∂F/∂a is the sum of the terms, each times its power of a. Together with F, these sums are a linear
    system for the terms. If it determines the terms, its right-hand side bounds them. Arguments inside a
    factor, as in sin(a), are left out, and the two terms of a wave (`Splitter.waves`) count as one.
    """
    nested_names = {
        name
        for pair in terms
        for monomial in pair
        for factor, _ in monomial
        if isinstance(factor, Call)
        for name in factor.names
    }
    powers: dict[tuple[object, ...], dict[str, int]] = {}
    for pair in terms:
        factors = [power for monomial in pair for power in monomial]
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
