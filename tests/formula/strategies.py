"""Hypothesis strategies for formulas."""

from __future__ import annotations

import keyword
from collections import Counter
from collections.abc import Callable

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ftnn.formula._expr import Call, Expr, Number, call, number, postorder, symbol
from ftnn.formula._ops import FUNCTIONS, OPS, Domain
from ftnn.formula._parse import constant

# --- arbitrary expressions, for tests of text ---

COMPARISONS = tuple(name for name, op in OPS.items() if op.is_comparison)
_PLAIN = tuple(name for name, op in OPS.items() if not op.is_comparison and name != "where")

names = st.one_of(
    st.sampled_from(["x", "C", "p", "q", "beta", "gamma", "E", "I", "S", "N", "lambda_", "a", "b", "c"]),
    st.from_regex(r"[A-Za-z_][A-Za-z_0-9]{0,8}", fullmatch=True).filter(
        lambda name: not keyword.iskeyword(name) and name not in FUNCTIONS and name != "pi"
    ),
)
numbers = st.one_of(
    st.integers(-20, 20),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-10, 10),
    st.just(3.141592653589793),
)


def _compound(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    def apply(op: str) -> st.SearchStrategy[Expr]:
        return st.tuples(*[inner] * OPS[op].arity).map(lambda args: _written(op, *args))

    condition = st.builds(call, st.sampled_from(COMPARISONS), inner, inner)
    where = st.builds(call, st.just("where"), condition, inner, inner)
    return st.one_of(st.sampled_from(_PLAIN).flatmap(apply), where)


def _written(op: str, *args: Expr) -> Expr:
    """Like the parser, which makes a minus in front of a number part of the number."""
    if op == "neg" and isinstance(args[0], Number):
        return number(-float(args[0].value))
    return call(op, *args)


def _is_finite(expr: Expr) -> bool:
    """Whether the parser accepts it: it refuses numbers beyond float64, such as 9**9**9."""
    values = (constant(part) for part in postorder(expr))
    return all(value is None or abs(value) < float("inf") for value in values)


expressions: st.SearchStrategy[Expr] = st.recursive(
    st.one_of(names.map(symbol), numbers.map(number)), _compound, max_leaves=25
).filter(_is_finite)

# --- smooth formulas, for tests of derivatives ---

OTHER_SIDE: dict[str, tuple[Domain, ...]] = {
    "abs": ((-2.0, -0.2),),
    "sign": ((-2.0, -0.2),),
    "rect": ((-2.0, -0.2),),
    "relu": ((-2.0, -0.2),),
    "step": ((-2.0, -0.2),),
    "min": ((0.1, 2.0), (-2.0, -0.1)),
    "max": ((-2.0, -0.1), (0.1, 2.0)),
}
"""Domains on the other side of an operation's kink, where it is smooth too. (`rect_ada` is left out, because
its surrogate gradient differs from the true one there.)"""

_BELOW, _ABOVE = (-2.0, -0.1), (0.1, 2.0)


@st.composite
def within(draw: st.DrawFn, inner: Expr, domain: Domain) -> Expr:
    """`inner` squashed into `domain`, by one of three functions."""
    low, high = domain
    middle, half = (low + high) / 2, (high - low) / 2
    squash = draw(st.sampled_from(["logistic", "sin", "tanh"]))
    if squash == "logistic":
        return call("add", number(low), call("mul", number(high - low), call("logistic", inner)))
    return call("add", number(middle), call("mul", number(half), call(squash, inner)))


leaves = st.sampled_from([symbol(name) for name in ("x", "p", "q", "r")])


@st.composite
def smooth(draw: st.DrawFn, depth: int, outermost: str | None = None) -> Expr:
    """An expression at least `depth` operations deep that uses every operation within its domain."""
    if depth == 0:
        return draw(leaves)
    op = outermost or draw(st.sampled_from(tuple(OPS)))
    if op == "where" or OPS[op].is_comparison:
        return draw(_selection(depth, draw(st.sampled_from(COMPARISONS)) if op == "where" else op))
    if op == "pow" and draw(st.booleans()):
        return call("pow", draw(smooth(depth - 1)), number(draw(st.sampled_from([2, 3]))))
    domains = draw(st.sampled_from([OPS[op].domain, OTHER_SIDE.get(op, OPS[op].domain)]))
    deep = draw(st.integers(0, len(domains) - 1))
    args = [draw(smooth(depth - 1 if n == deep else draw(st.integers(0, 1)))) for n in range(len(domains))]
    if op in ("add", "sub", "mul", "neg"):
        return call(op, *args)
    return call(op, *(draw(within(arg, domain)) for arg, domain in zip(args, domains, strict=True)))


@st.composite
def _selection(draw: st.DrawFn, depth: int, op: str) -> Expr:
    """A `where` whose condition compares separated values, or the same value."""
    left = draw(within(draw(smooth(0)), _BELOW))
    right = left if draw(st.booleans()) else draw(within(draw(smooth(0)), _ABOVE))
    if draw(st.booleans()):
        left, right = right, left
    branches = draw(st.permutations([draw(smooth(depth - 1)), draw(smooth(draw(st.integers(0, 1))))]))
    return call("where", call(op, left, right), *branches)


@st.composite
def smooth_formulas(draw: st.DrawFn, op: str | None = None) -> Expr:
    """An expression with x, a parameter and `op`, at least four operations deep."""
    first, second = draw(smooth(draw(st.integers(3, 5)), op)), draw(smooth(3))
    return call("add", call("mul", symbol("p"), first), call("mul", symbol("x"), second))


def survey(
    check: Callable[[Expr], None], least: int = 20, total: int = 200
) -> tuple[set[Expr], Counter[str]]:
    """Check at least `total` formulas, until every operation has occurred in `least` of them.

    Returns the formulas, and for each operation the number of formulas in which it occurred.
    """
    seen: set[Expr] = set()
    counts: Counter[str] = Counter()

    def check_formulas(op: str, most: int) -> None:
        @settings(max_examples=most, suppress_health_check=[HealthCheck.too_slow])
        @given(smooth_formulas(op))
        def one(expr: Expr) -> None:
            if expr not in seen:
                check(expr)
                seen.add(expr)
                counts.update(operations(expr))

        one()

    most = 0
    while len(seen) < total or any(counts[op] < least for op in OPS):
        most += 4  # Hypothesis starts with the same formulas, which are skipped
        for op in sorted(OPS, key=lambda op: counts[op]):
            if most == 4 or counts[op] < least or len(seen) < total:
                check_formulas(op, most)
    return seen, counts


def operations(expr: Expr) -> set[str]:
    """The operations that occur in an expression."""
    return {part.op for part in postorder(expr) if isinstance(part, Call)}


def depth_of(expr: Expr) -> int:
    """The number of nested operations."""
    depth: dict[Expr, int] = {}
    for part in postorder(expr):
        depth[part] = 1 + max(depth[arg] for arg in part.args) if isinstance(part, Call) else 0
    return depth[expr]
