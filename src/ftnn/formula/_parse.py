"""Text → expression, through Python's `ast` and a whitelist.

Formulas are parsed, never evaluated, so untrusted formulas are safe. SymPy's parser would call `eval`, and
would read `beta`, `E`, `I`, `S` or `N` as its own functions and constants; here they are parameters.
"""

from __future__ import annotations

import ast
import math
import warnings
from collections.abc import Collection
from difflib import get_close_matches
from functools import reduce

from ftnn.errors import FormulaError
from ftnn.formula._expr import Call, Expr, Number, call, number, symbol, written_out
from ftnn.formula._numbers import compute
from ftnn.formula._ops import FUNCTIONS, OPS

MAX_CHARACTERS = 4_000
MAX_NODES = 400

_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.Pow: "pow",
}
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Eq: "eq",
    ast.NotEq: "ne",
}
_ALLOWED = (
    "allowed are numbers, pi, x, C, parameter names, + - * / **, parentheses, "
    "where(condition, a, b) with a comparison as its condition, and calls of " + ", ".join(FUNCTIONS)
)
_FORBIDDEN: dict[type[ast.AST], str] = {
    ast.Attribute: "attribute access",
    ast.Subscript: "a subscript",
    ast.Lambda: "a lambda",
    ast.IfExp: "if/else; write where(condition, a, b)",
    ast.BoolOp: "and/or; nest where(condition, a, b) instead",
    ast.Tuple: "a tuple",
    ast.List: "a list",
    ast.Dict: "a dictionary",
    ast.Set: "a set",
    ast.ListComp: "a comprehension",
    ast.GeneratorExp: "a comprehension",
    ast.NamedExpr: "an assignment",
    ast.JoinedStr: "a string",
    ast.Starred: "a starred argument",
    ast.Await: "await",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.MatMult: "@",
    ast.BitXor: "^; write ** for a power",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.Not: "not",
    ast.Invert: "~",
}
_ARITHMETIC = frozenset(("add", "sub", "mul", "div", "pow", "neg"))


def parse(text: str, *, limited: bool = True, rule: bool = False, symbols: Collection[str] = ()) -> Expr:
    """`text` as an expression, exactly as written.

    **Arguments:**

    - `text`: the formula.
    - `limited`: refuse very long formulas. False only for texts that ftnn composed.
    - `rule`: whether it is a rule of the table of operations, where `where(a, …)` takes its condition as `a`.
    - `symbols`: names that mean something else than the function of the same name, unless they are called.

    Raises [`ftnn.errors.FormulaError`][], which quotes the text and marks the place.
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise FormulaError(f"a formula is a string, not {type(text).__name__}", text=repr(text))
    if limited and len(text) > MAX_CHARACTERS:
        raise FormulaError(
            f"the formula has {len(text)} characters; at most {MAX_CHARACTERS} are allowed",
            text=text,
            start=MAX_CHARACTERS,
        )
    # One space for each line break or tab, so that positions are those of the user's text.
    flat = "".join(" " if c in "\n\r\t" else c for c in text)
    for place, character in enumerate(flat):
        if character in "#\\" or not (character.isascii() and character.isprintable()):
            hint = " (it may look like ASCII, but is not)" if not character.isascii() else ""
            raise FormulaError(
                f"the character {character!r} is not allowed{hint}; {_ALLOWED}", text=text, start=place
            )
    if not flat.strip():
        raise FormulaError(f"the formula is empty; {_ALLOWED}", text=text)
    indent = len(flat) - len(flat.lstrip())  # Python would read leading spaces as an indented block
    tree = _python(flat.strip(), text, indent)
    count = sum(1 for node in ast.walk(tree) if isinstance(node, ast.expr))
    if limited and count > MAX_NODES:
        raise FormulaError(
            f"the formula has {count} nodes; at most {MAX_NODES} are allowed", text=text, end=len(text)
        )
    try:
        expr = _Reader(text, indent, rule, symbols).read(tree)
    except RecursionError:
        raise FormulaError(_TOO_DEEP, text=text, end=len(text)) from None
    # A chained comparison repeats its else branch for each comparison: nested, it would grow exponentially.
    if (size := written_out(expr)) > max(MAX_NODES, count):
        raise FormulaError(
            f"the formula has {size} nodes when its chained comparisons are written out; "
            f"at most {MAX_NODES} are allowed",
            text=text,
            end=len(text),
        )
    return expr


_TOO_DEEP = "the formula is nested too deeply, or has a number that is too long"


def _python(source: str, text: str, indent: int) -> ast.expr:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns about `1if` and the like, which are refused anyway
            return ast.parse(source, mode="eval").body
    except SyntaxError as error:
        first = error.offset or len(source) + 1  # no offset: the text ends too soon
        start, end = indent + first - 1, indent + max(first + 1, error.end_offset or 0) - 1
        raise FormulaError(
            f"this is not a formula: {error.msg}; {_ALLOWED}", text=text, start=start, end=end
        ) from None
    except (MemoryError, RecursionError, ValueError):
        raise FormulaError(_TOO_DEEP, text=text, end=len(text)) from None


class _Reader:
    """Walks Python's syntax tree; keeps the text for error messages."""

    def __init__(self, text: str, indent: int, rule: bool, symbols: Collection[str]):
        self.text = text
        self.indent = indent
        self.rule = rule
        self.symbols = symbols

    def error(self, node: ast.expr, message: str) -> FormulaError:
        start = self.indent + node.col_offset
        end = self.indent + (node.end_col_offset or node.col_offset + 1)
        return FormulaError(message, text=self.text, start=start, end=end)

    def read(self, node: ast.expr) -> Expr:
        match node:
            case ast.Constant(value=value):
                return self.number(node, value)
            case ast.Name(id="pi"):
                return number(math.pi)
            case ast.Name(id=name):
                if name in FUNCTIONS and name not in self.symbols:
                    raise self.error(
                        node, f"{name} is a function: write {name}(…); a parameter cannot have this name"
                    )
                return symbol(name)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self.read(operand)
                return number(-float(inner.value)) if isinstance(inner, Number) else call("neg", inner)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.read(operand)
            case ast.BinOp(op=op, left=left, right=right) if type(op) in _BINARY:
                return self.finite(node, call(_BINARY[type(op)], self.read(left), self.read(right)))
            case ast.Call():
                return self.finite(node, self.call(node))
            case ast.Compare():
                raise self.error(node, "a comparison can only be the condition of where(condition, a, b)")
            case _:
                kind = type(node.op) if isinstance(node, ast.UnaryOp | ast.BinOp) else type(node)
                what = _FORBIDDEN.get(kind, kind.__name__)
                raise self.error(node, f"not allowed in a formula: {what}; {_ALLOWED}")

    def number(self, node: ast.expr, value: object) -> Expr:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(node, f"{value!r} is not a number; {_ALLOWED}")
        return self.finite(node, Number(value)) if math.isinf(_as_float(value)) else number(value)

    def finite(self, node: ast.expr, expr: Expr) -> Expr:
        """`expr`, unless it is a number beyond float64. Towers such as 9**9**9 are never computed."""
        value = _constant(expr)
        if value is not None and math.isinf(value):
            raise self.error(node, "this number is too large: at most 1.8e308 is allowed")
        return expr

    def call(self, node: ast.Call) -> Expr:
        if not isinstance(node.func, ast.Name):
            raise self.error(node.func, f"only a named function can be called; {_ALLOWED}")
        name = node.func.id
        if name not in FUNCTIONS:
            close = get_close_matches(name, FUNCTIONS, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise self.error(node.func, f"{name} is not a function and cannot be called{hint} ({_ALLOWED})")
        if node.keywords:
            raise self.error(
                node, f"keyword arguments are not allowed: {name}(…) takes its arguments by position"
            )
        for arg in node.args:
            if isinstance(arg, ast.Starred):
                raise self.error(arg, "not allowed in a formula: a starred argument")
        arity = OPS[name].arity
        if name in ("min", "max"):
            if len(node.args) < 2:
                raise self.error(node, f"{name}(…) takes at least 2 arguments, not {len(node.args)}")
            return reduce(lambda a, b: call(name, a, b), map(self.read, node.args))
        if len(node.args) != arity:
            raise self.error(
                node, f"{name}(…) takes {arity} argument{'s'[: arity != 1]}, not {len(node.args)}"
            )
        if name == "where":
            condition, a, b = node.args
            return self.where(condition, self.read(a), self.read(b))
        return call(name, *(self.read(arg) for arg in node.args))

    def where(self, condition: ast.expr, a: Expr, b: Expr) -> Expr:
        if self.rule and isinstance(condition, ast.Name):
            return call("where", symbol(condition.id), a, b)
        if not isinstance(condition, ast.Compare):
            raise self.error(
                condition, "the condition of where(condition, a, b) must be a comparison, such as x > 0"
            )
        terms = [condition.left, *condition.comparators]
        result = a
        # 0 < x < 1 holds where each of its comparisons holds.
        for op, left, right in reversed(list(zip(condition.ops, terms, terms[1:], strict=False))):
            if type(op) not in _COMPARE:
                raise self.error(condition, "allowed comparisons are < <= > >= == !=")
            result = call("where", call(_COMPARE[type(op)], self.read(left), self.read(right)), result, b)
        return result


def _constant(expr: Expr) -> float | None:
    """The value of a number written with + - * / **, infinite beyond float64; None if it is not a number."""
    match expr:
        case Number(value):
            return _as_float(value)
        case Call(op, args) if op in _ARITHMETIC:
            values = [_constant(arg) for arg in args]
            numbers = [value for value in values if value is not None]
            return compute(op, *numbers) if len(numbers) == len(values) else None
        case _:
            return None


def _as_float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf
