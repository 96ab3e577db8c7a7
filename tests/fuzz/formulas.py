"""Formulas at random: those that tempt a compiler into algebra, and any others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.fuzz.expression import COMPARISONS, UNARY, C, Node, X, call, name, names, node

Random = np.random.Generator

P, Q, R, U = name("p"), name("q"), name("r"), name("u")
PI = name("pi")
_SMOOTH = ["exp", "sin", "cos", "sinh", "cosh", "tanh", "logistic", "softplus", "gauss", "erf", "sech"]
_POLES = ["log", "tan", "cot", "sec", "csc", "coth", "csch", "sqrt", "log1p"]
_KINKS = ["abs", "sign", "rect", "rect_ada", "relu", "step"]
assert {*_SMOOTH, *_POLES, *_KINKS} == {*UNARY}


@dataclass(frozen=True)
class Formula:
    """The function of every connection: one tree, or several kinds selected by a constant."""

    family: str
    """Its origin, for the report."""
    kinds: tuple[Node, ...]

    @property
    def tree(self) -> Node:
        """One tree: a mixed matrix selects by the constant `kind`."""
        *rest, tree = self.kinds
        for number in reversed(range(len(rest))):
            tree = call("where", call("eq", name("kind"), number), rest[number], tree)
        return tree

    @property
    def parameters(self) -> list[str]:
        return [n for n in names(self.tree) if n not in ("x", "C", "pi", *self.constants)]

    @property
    def constants(self) -> tuple[str, ...]:
        return tuple(n for n in ("u", "kind") if n in names(self.tree))


def _pick(random: Random, choices: list[Node]) -> Node:
    return choices[int(random.integers(len(choices)))]


def _word(random: Random, choices: list[str]) -> str:
    return choices[int(random.integers(len(choices)))]


def _number(random: Random) -> float:
    if random.random() < 0.1:
        return float(10.0 ** random.integers(-8, 9))
    return float(random.choice([1, 2, 3, 4, 0.5, 0.1, 0.25, 10, 100, -1, -2, -0.5, 0.7]))


# --- formulas that invite a rewriting that is not exact ---


def _powers(random: Random) -> Node:
    n = int(random.choice([2, 3, 4, 5, 6]))
    whole = [
        P * (X - Q) ** n,
        P**2 * (X - Q) ** 2,
        (P * X + Q) ** n,
        P * (Q - X) ** n + R,
        (X + P) ** n * Q,
        P * (X - Q) ** -n,
        (X * X - P * P) ** n,
        P * X**n + Q * X ** (n - 1),
        (X - P) ** n * (X + Q) ** 2,
        X**n / P,
    ]
    return _pick(random, whole)


def _sums(random: Random) -> Node:
    return _pick(
        random,
        [
            (P + X) * (Q - X),
            (P + X) * (P - X),
            (P + X) * (P - X) * (Q + X),
            P * (X - Q) * (X - R),
            (P * X + Q) * (R * X - Q),
            P * (X + Q) - P * X,
            (P + Q * X) * (P + Q * X) - P * P,
            (X - P) * (X - P) / Q,
            (P + X + Q) * R,
        ],
    )


def _exponentials(random: Random) -> Node:
    return _pick(
        random,
        [
            P * call("exp", X + Q),
            call("exp", X - P),
            P * call("exp", Q * X),
            call("exp", P + X) * Q,
            call("exp", X * 2 + P),
            P * call("exp", Q - X),
            P * (call("exp", Q * X) - 1),
            call("exp", P - X * X),
            call("exp", X + P) - call("exp", X - P),
            P * call("exp", -((X - Q) ** 2)),
            call("exp", X + P + Q) / R,
        ],
    )


def _waves(random: Random) -> Node:
    f = _word(random, ["sin", "cos", "sinh", "cosh"])
    return _pick(
        random,
        [
            call(f, X + P),
            P * call(f, X - Q),
            P * call(f, X + Q) + R * X,
            call(f, P - X) * Q,
            P * call(f, X * 2 + Q),
            call(f, X + P) * call("cos", X - Q),
            P * call(f, Q * X + R),
            call(f, X) * P + Q,
        ],
    )


def _products(random: Random) -> Node:
    return _pick(
        random,
        [
            P * X * Q,
            P / Q * X,
            X / (P * Q),
            P * (X * Q) * R,
            P * X / Q,
            (P * X) ** 2 * Q,
            X * P**3,
            P * Q * X * X,
        ],
    )


def _cancelling(random: Random) -> Node:
    f = _word(random, _SMOOTH)
    return _pick(
        random,
        [
            P * X / X,
            P + 0 * X,
            P + (X - X),
            (P + X) - X,
            P * X - P * X + Q,
            X * P / X,
            (X + P) - (X - P),
            P * (X / X) ** 2,
            P + 0 * call(f, X),
            P * (X - X) + Q,
            P + 0 / X,
            P * (X - X) / X,
            (P * X) * 0 + Q,
            P * X**0 + Q,
            P * call("where", call("gt", X, X), 1.0, 2.0),
            -(-P * X) + 0,
            P + X * 0 * Q,
            P - -X,
            P * (1 / X) * X,
            call("min", X, X) * P,
            P + call("sqrt", X * X) - call("abs", X),
            call("where", call("eq", X, X), P * X, Q),
            P / X * call("erf", X),
            Q * call("tanh", P / X),
            P * (0 - X),
        ],
    )


def _large_at_zero(random: Random) -> Node:
    return _pick(
        random,
        [
            P / (X**2 + Q**2),
            1 / (X * X + P * P),
            P / (Q + X),
            P / (call("abs", X) + Q * Q),
            call("exp", -X * X / (P * P)),
            call("log", X * X + P * P),
            P * call("exp", Q * X),
            P * call("gauss", Q * X + R),
            P * call("exp", -Q * Q * call("abs", X)),
            P * call("cosh", Q * X + R),
            P * call("sech", Q * X),
            1e4 * call("sech", P * X),
            (X * X + P * P) ** -0.5,
            call("cosh", P * X) ** -2,
            P - call("log1p", X * X * Q * Q),
        ],
    )


def _kinked(random: Random) -> Node:
    f = _word(random, ["rect", "rect_ada", "relu", "abs", "sign", "step"])
    comparison = _word(random, list(COMPARISONS))
    return _pick(
        random,
        [
            call(f, P * X + Q),
            call(f, P * X) * U,
            call("rect_ada", P) * X * U + Q,
            call(f, X - P) * Q,
            call("max", P * X, Q),
            call("min", X, P, Q * X),
            call("max", P, X) - call("min", Q, X),
            call("where", call(comparison, X, P), Q * X, R),
            call("where", call(comparison, X, 0), P, Q * X),
            call("where", call("ne", X, 0), call("sin", P * X) / X, P),
            call("where", call(comparison, P * X, Q), P / X, X * X),
            call("where", call(comparison, X, 0), P * call("log", X), Q * call("sqrt", -X)),
            call(f, call("sin", P * X)) * Q,
            P * call(f, X) * call("rect_ada", Q * X),
            call("max", call("exp", P * X), Q),
        ],
    )


def _shapes(random: Random) -> Node:
    """Formulas that people write."""
    f, g = _word(random, _SMOOTH), _word(random, _POLES)
    return _pick(
        random,
        [
            P * call(f, Q * X + R),
            P * call(g, Q * X + R),
            call(f, P * X) * call(g, Q * X),
            P * call("log1p", Q * Q * X * X),
            call("log1p", call("exp", P * X)) * Q,
            P * call("softplus", Q * X) - X,
            call("abs", X) ** P * Q,
            P * (X * X + 1) ** Q,
            call("sqrt", call("abs", P * X) + 0.1) * Q,
            call(f, P * X + Q) * U + R,
            P * X / (1 + call("abs", Q * X)),
            P * call(f, PI * X) / Q,
            call("logistic", P * X) * X * Q,
            P * call("tan", X / 2) + call("cot", X) * Q,
            call(f, call(f, P * X)) + Q,
            call("exp", P * call(f, X)),
            call(f, P * call(g, X)) * Q,
        ],
    )


_FAMILIES: dict[str, tuple[Callable[[Random], Node], float]] = {
    "powers": (_powers, 3),
    "sums": (_sums, 2),
    "exponentials": (_exponentials, 2),
    "waves": (_waves, 2),
    "products": (_products, 1),
    "cancelling": (_cancelling, 3),
    "large at zero": (_large_at_zero, 3),
    "kinked": (_kinked, 3),
    "shapes": (_shapes, 3),
}

# --- any formula ---


def _leaf(random: Random, memory: bool) -> Node:
    drawn = random.random()
    if drawn < 0.42:
        return C if memory and random.random() < 0.4 else X
    if drawn < 0.85:
        return _pick(random, [P, P, Q, R])
    return PI if drawn > 0.98 else node(_number(random))


def _tree(random: Random, depth: int, memory: bool) -> Node:
    if depth == 0 or random.random() < 0.1:
        return _leaf(random, memory)

    def part() -> Node:
        return _tree(random, depth - 1, memory)

    drawn = random.random()
    if drawn < 0.5:
        op = _word(random, ["add", "sub", "mul", "mul", "div"])
        return call(op, part(), part())
    if drawn < 0.58:
        exponent = random.choice([2, 3, 4, -1, -2, 0.5, 1.5, 1, 0, 8])
        return part() ** float(exponent) if random.random() < 0.85 else part() ** P
    if drawn < 0.62:
        return -part()
    if drawn < 0.68:
        return call(_word(random, ["min", "max"]), part(), part())
    if drawn < 0.74:
        comparison = call(_word(random, list(COMPARISONS)), part(), part())
        return call("where", comparison, part(), part())
    return call(_word(random, [*_SMOOTH, *_SMOOTH, *_POLES, *_KINKS]), part())


def _whole(tree: Node, memory: bool) -> Node:
    """The tree with everything a layer requires: an input, a parameter and, for Memory, a cell."""
    used = names(tree)
    if "x" not in used:
        tree = tree + X
    if not {"p", "q", "r"} & {*used}:
        tree = P * tree
    if memory and "C" not in used:
        tree = call("tanh", tree + Q * C)
    return tree


def formula(random: Random, *, memory: bool = False, mixed: bool = False) -> Formula:
    if mixed:
        formulas = [formula(random) for _ in range(int(random.integers(2, 4)))]
        return Formula("mixed", tuple(each.kinds[0] for each in formulas))
    if random.random() < 0.35:
        return Formula("any", (_whole(_tree(random, int(random.integers(1, 5)), memory), memory),))
    weights = np.array([weight for _, weight in _FAMILIES.values()])
    family = list(_FAMILIES)[int(random.choice(len(weights), p=weights / weights.sum()))]
    tree = _FAMILIES[family][0](random)
    drawn = random.random()
    if drawn < 0.1:
        tree = tree + _FAMILIES["shapes"][0](random)
    elif drawn < 0.15:
        tree = call(_word(random, ["tanh", "sin", "logistic"]), tree)
    elif drawn < 0.2:
        tree = tree * _tree(random, 1, False)
    return Formula(family, (_whole(tree, memory),))
