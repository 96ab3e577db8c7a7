"""The fuzzer's own formula trees, and their text for ftnn.

Nothing here, in `bounded.py` or in `oracle.py` imports ftnn, so a bug of the library cannot hide in both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Node:
    """A number ("number", value), a name ("name", "p") or an operation on nodes."""

    op: str
    args: tuple[Node, ...] = ()
    value: float = 0.0
    name: str = ""

    def __add__(self, other: Node | float) -> Node:
        return Node("add", (self, node(other)))

    def __radd__(self, other: float) -> Node:
        return Node("add", (node(other), self))

    def __sub__(self, other: Node | float) -> Node:
        return Node("sub", (self, node(other)))

    def __rsub__(self, other: float) -> Node:
        return Node("sub", (node(other), self))

    def __mul__(self, other: Node | float) -> Node:
        return Node("mul", (self, node(other)))

    def __rmul__(self, other: float) -> Node:
        return Node("mul", (node(other), self))

    def __truediv__(self, other: Node | float) -> Node:
        return Node("div", (self, node(other)))

    def __rtruediv__(self, other: float) -> Node:
        return Node("div", (node(other), self))

    def __pow__(self, other: Node | float) -> Node:
        return Node("pow", (self, node(other)))

    def __neg__(self) -> Node:
        return Node("neg", (self,))

    def __str__(self) -> str:
        return _text(self)[0]


def node(value: Node | float) -> Node:
    return value if isinstance(value, Node) else Node("number", value=float(value))


def name(text: str) -> Node:
    return Node("name", name=text)


def call(op: str, *args: Node | float) -> Node:
    return Node(op, tuple(node(arg) for arg in args))


X, C = name("x"), name("C")

UNARY = (
    *("exp", "log", "log1p", "sqrt", "abs", "sign", "sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh"),
    *("tanh", "coth", "sech", "csch", "logistic", "softplus", "gauss", "erf"),
    *("rect", "rect_ada", "relu", "step"),
)
COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_INFIX = {"add": ("+", 1), "sub": ("-", 1), "mul": ("*", 2), "div": ("/", 2), "pow": ("**", 4)}
_SIGN, _ATOM = 3, 5


def parts(tree: Node) -> Iterator[Node]:
    """Every node, the root first."""
    yield tree
    for arg in tree.args:
        yield from parts(arg)


def names(tree: Node) -> list[str]:
    """The names in order of appearance."""
    return list(dict.fromkeys(part.name for part in parts(tree) if part.op == "name"))


def size(tree: Node) -> int:
    return sum(1 for _ in parts(tree))


def _text(tree: Node) -> tuple[str, int]:
    """The text, and how tightly it binds."""
    if tree.op == "name":
        return tree.name, _ATOM
    if tree.op == "number":
        text = (
            repr(int(tree.value)) if tree.value.is_integer() and abs(tree.value) < 1e6 else repr(tree.value)
        )
        return text, _SIGN if text.startswith("-") else _ATOM
    if tree.op == "neg":
        return f"-{_within(tree.args[0], _SIGN)}", _SIGN
    if tree.op in COMPARISONS:
        left, right = (_within(arg, 1) for arg in tree.args)
        return f"{left} {COMPARISONS[tree.op]} {right}", 0
    if tree.op not in _INFIX:
        return f"{tree.op}({', '.join(_text(arg)[0] for arg in tree.args)})", _ATOM
    symbol, level = _INFIX[tree.op]
    left, right = tree.args
    if tree.op == "pow":
        return f"{_within(left, _ATOM)}**{_within(right, _ATOM)}", level
    spaced = f" {symbol} " if level == 1 else symbol
    # To the right of an operator of its own level, every operation keeps its parentheses.
    return f"{_within(left, level)}{spaced}{_within(right, level + 1)}", level


def _within(tree: Node, level: int) -> str:
    text, own = _text(tree)
    return text if own >= level else f"({text})"
