"""Multiplies an expression out into terms `coefficient · (parameters only) · (input only)`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from typing import ClassVar

from ftnn.formula._expr import ZERO, Call, Expr, Number, Symbol, folded, postorder, symbol
from ftnn.formula._terms import (
    UNIT,
    Terms,
    cancels,
    power,
    product,
    product_expr,
    side,
    single_factor,
    sum_expr,
)

MAX_TERMS = 24
"""With more terms than this, multiplying out costs more than it saves."""
MAX_PRODUCT_POWER = 16
"""(p*x)**n is split into p**n * x**n up to this n."""
MAX_BITS = 4096
"""The limit on the bits of a coefficient, which is exact: ((2*x)**16)**16 and so on would fill the memory."""

MIXED = "mixes x with parameters, and is not a sum of products of the two"
LOSES_DIGITS = "would lose digits if it were multiplied out"
BEYOND_FLOAT32 = "has a coefficient beyond float32 when multiplied out"


class NotSeparableError(Exception):
    """`part` cannot be separated into input and parameters; `why` says why."""

    def __init__(self, part: Expr, why: str = MIXED):
        super().__init__(part, why)
        self.part = part
        self.why = why


class Splitter:
    """Multiplies an expression out, and records the effects on rounding."""

    def __init__(self, whole: Expr) -> None:
        self.exact = True
        """Whether all products are those of the formula as written."""
        self.distributed = False
        """Whether a sum was multiplied out."""
        self.exponentials: set[Expr] = set()
        """The factors into which exponentials were split."""
        self.waves: dict[Expr, Expr] = {}
        """The sin and cos of parameters from splitting a wave → the wave."""
        self._occurrences = _occurrences(whole)

    def split(self, expr: Expr) -> Terms:
        """The terms of `expr`. Raises `NotSeparableError` if a part cannot be separated."""
        terms = self._split(expr)
        if len(terms) > MAX_TERMS:
            raise NotSeparableError(expr, f"has {len(terms)} terms when multiplied out")
        return terms

    def _split(self, expr: Expr) -> Terms:
        if not isinstance(expr, Call) or side(expr) is not None:
            return single_factor(expr)  # as written
        rule = self._rules.get(expr.op)
        if rule is None:
            raise NotSeparableError(expr)
        return rule(self, expr)

    def _add(self, expr: Call) -> Terms:
        first, second = (self.split(arg) for arg in expr.args)
        sign = -1 if expr.op == "sub" else 1
        total = defaultdict(Fraction, first)
        for pair, coefficient in second.items():
            total[pair] += sign * coefficient
        return _without_cancelling(expr, total)

    def _neg(self, expr: Call) -> Terms:
        return {pair: -coefficient for pair, coefficient in self.split(expr.args[0]).items()}

    def _mul(self, expr: Call) -> Terms:
        first, second = (self.split(arg) for arg in expr.args)
        if any(side(arg) is None for arg in expr.args):  # (p*x)*q becomes (p*q)*x
            self.exact = False
        return self._multiply(expr, first, second)

    def _div(self, expr: Call) -> Terms:
        top, bottom = (self.split(arg) for arg in expr.args)
        if not bottom:
            raise NotSeparableError(expr, "divides by zero")
        if len(bottom) > 1:
            raise NotSeparableError(expr)
        self.exact = False
        (((g, h), coefficient),) = bottom.items()
        return self._multiply(expr, top, {(power(g, -1), power(h, -1)): 1 / coefficient})

    def _pow(self, expr: Call) -> Terms:
        base, exponent = expr.args
        n = exponent.value if isinstance(exponent, Number) else None
        if not isinstance(n, int):
            raise NotSeparableError(expr)
        terms = self.split(base)
        if len(terms) > 1 and n > 1:
            raise NotSeparableError(expr, LOSES_DIGITS)
        if len(terms) != 1 or abs(n) > MAX_PRODUCT_POWER:
            raise NotSeparableError(expr)
        self.exact = False
        (((g, h), coefficient),) = terms.items()
        if _bits(coefficient) * abs(n) > MAX_BITS:
            raise NotSeparableError(expr, BEYOND_FLOAT32)
        return {(power(g, n), power(h, n)): coefficient**n}

    def _abs(self, expr: Call) -> Terms:
        """|g·h| = |g|·|h|. The sign cannot be split this way: it is NaN for 0·∞."""
        terms = self.split(expr.args[0])
        if len(terms) != 1 or self._has_exponential(terms):
            raise NotSeparableError(expr)
        self.exact = False
        (((g, h), coefficient),) = terms.items()
        factors = (single_factor(folded("abs", product_expr(monomial))) for monomial in (g, h))
        return {pair: abs(coefficient) * c for pair, c in self._multiply(expr, *factors).items()}

    def _exp(self, expr: Call) -> Terms:
        """exp(g + h) = exp(g)·exp(h)."""
        g, h = (folded("exp", part) for part in self._argument_sides(expr))
        self.exact = False
        self.exponentials |= {g, h}
        return self._multiply(expr, single_factor(g), single_factor(h))

    def _wave(self, expr: Call) -> Terms:
        """sin(r + h) and cos(r + h) by the addition theorems, for a parameter r that occurs nowhere else.

        Where the two terms cancel each other, they are at most about |r|·|slope|, which is r·∂F/∂r.
        """
        g, h = self._argument_sides(expr)
        if not (_is_scaled_name(g) and all(self._occurrences[symbol(name)] == 1 for name in g.names)):
            raise NotSeparableError(expr)
        sin_g, cos_g, sin_h, cos_h = (
            single_factor(folded(op, part)) for part in (g, h) for op in ("sin", "cos")
        )
        self.waves |= {folded(op, g): expr for op in ("sin", "cos")}
        pairs = ((sin_g, cos_h), (cos_g, sin_h)) if expr.op == "sin" else ((cos_g, cos_h), (sin_g, sin_h))
        first, second = (self._multiply(expr, *pair) for pair in pairs)
        return first | (second if expr.op == "sin" else {pair: -c for pair, c in second.items()})

    def _where(self, expr: Call) -> Terms:
        """A selection by parameters and constants alone; masks the parameter part of each branch."""
        condition, a, b = expr.args
        if side(condition) != "parameters":
            raise NotSeparableError(expr)
        self.exact = False  # a masked g times an infinite h is NaN
        total: Terms = defaultdict(Fraction)
        for branch, is_first in ((a, True), (b, False)):
            terms = self.split(branch)
            if self._has_exponential(terms):
                raise NotSeparableError(expr)
            for (g, h), coefficient in terms.items():
                masked = (product_expr(g), ZERO) if is_first else (ZERO, product_expr(g))
                for (masked_g, _), c in single_factor(folded("where", condition, *masked)).items():
                    total[masked_g, h] += coefficient * c
        return {pair: c for pair, c in total.items() if c}

    _rules: ClassVar[dict[str, Callable[[Splitter, Call], Terms]]] = {
        "add": _add,
        "sub": _add,
        "neg": _neg,
        "mul": _mul,
        "div": _div,
        "pow": _pow,
        "abs": _abs,
        "exp": _exp,
        "sin": _wave,
        "cos": _wave,
        "where": _where,
    }

    def _multiply(self, expr: Expr, first: Terms, second: Terms) -> Terms:
        if len(first) > 1 < len(second):
            raise NotSeparableError(expr, LOSES_DIGITS)
        if not (first and second):
            raise NotSeparableError(
                expr, "has a factor 0 and is NaN where the other factor is NaN or infinite"
            )
        self.distributed |= len(first) > 1 or len(second) > 1
        total: Terms = defaultdict(Fraction)
        for (g1, h1), c1 in first.items():
            for (g2, h2), c2 in second.items():
                if cancels(g1, g2) or cancels(h1, h2):  # x/x is 1 only where x is not 0
                    raise NotSeparableError(expr, "divides a factor by itself")
                total[product(g1, g2), product(h1, h2)] += c1 * c2
        return _without_cancelling(expr, total)

    def _argument_sides(self, expr: Call) -> tuple[Expr, Expr]:
        """The argument of `expr` as (parameters only) + (input only)."""
        terms = self.split(expr.args[0])
        if any(g != UNIT and h != UNIT for g, h in terms):
            raise NotSeparableError(expr)
        parameters = sum_expr((g, c) for (g, h), c in terms.items() if h == UNIT)
        return parameters, sum_expr((h, c) for (_, h), c in terms.items() if h != UNIT)

    def _has_exponential(self, terms: Terms) -> bool:
        """Whether a factor comes from an exponential, whose underflow would go unnoticed inside a call."""
        return any(
            factor in self.exponentials for pair in terms for monomial in pair for factor, _ in monomial
        )


def _is_scaled_name(expr: Expr) -> bool:
    """Whether `expr` is a name, possibly times a number."""
    match expr:
        case Call("neg", (a,)) | Call("mul", (Number(), a)):
            return _is_scaled_name(a)
        case _:
            return isinstance(expr, Symbol)


def _occurrences(whole: Expr) -> dict[Expr, int]:
    """The number of times each part occurs in `whole` as a tree."""
    parts = list(postorder(whole))
    counts = dict.fromkeys(parts, 0)
    counts[whole] = 1
    for part in reversed(parts):
        for arg in part.args if isinstance(part, Call) else ():
            counts[arg] += counts[part]
    return counts


def _bits(coefficient: Fraction) -> int:
    return max(coefficient.numerator.bit_length(), coefficient.denominator.bit_length())


def _without_cancelling(expr: Expr, terms: Terms) -> Terms:
    """`terms`, unless some cancelled: x - x is NaN where x is NaN or infinite."""
    if not all(terms.values()):
        raise NotSeparableError(expr, "has terms that cancel, but not where they are NaN or infinite")
    return terms
