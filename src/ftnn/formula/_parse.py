"""Text → expression, through Python's `ast` and a whitelist.

Formulas are parsed, never evaluated, so untrusted formulas are safe. SymPy's parser would call `eval`, and
would read `beta`, `E`, `I`, `S` or `N` as its own functions and constants; here they are parameters.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Collection, Mapping
from contextlib import suppress
from difflib import get_close_matches
from functools import reduce

from ftnn.errors import FormulaError
from ftnn.formula._elsewhere import elsewhere, has_no_formula, renamed
from ftnn.formula._expr import Call, Expr, Number, Symbol, bottom_up, call, number, symbol, tree_size
from ftnn.formula._numbers import compute
from ftnn.formula._ops import ARGUMENTS, FUNCTIONS, OPS
from ftnn.formula._text import to_text

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
    "A formula may contain numbers, pi, x, C, parameter names, + - * / **, parentheses, "
    "where(condition, a, b) with a comparison as its condition, and the functions "
    + ", ".join(name for name in FUNCTIONS if name != "where")
    + "."
)
_FUNCTIONS = f"The functions are {', '.join(FUNCTIONS)}."
_FORBIDDEN: dict[type[ast.AST], str] = {
    ast.Attribute: "attribute access",
    ast.Subscript: "a subscript",
    ast.Lambda: "a lambda",
    ast.Tuple: "a tuple",
    ast.List: "a list",
    ast.Dict: "a dictionary",
    ast.Set: "a set",
    ast.ListComp: "a comprehension",
    ast.SetComp: "a comprehension",
    ast.DictComp: "a comprehension",
    ast.GeneratorExp: "a comprehension",
    ast.NamedExpr: "an assignment",
    ast.JoinedStr: "a string",
    ast.Starred: "a starred argument",
    ast.Await: "await",
    ast.Yield: "yield",
    ast.YieldFrom: "yield",
    ast.FloorDiv: "the operator //",
    ast.Mod: "the operator %",
    ast.MatMult: "the operator @",
    ast.BitAnd: "the operator &",
    ast.BitOr: "the operator |",
    ast.LShift: "the operator <<",
    ast.RShift: "the operator >>",
    ast.Not: "the operator not",
    ast.Invert: "the operator ~",
}
_INSTEAD: dict[type[ast.AST], str] = {
    ast.BitXor: "write ** for powers; ^ is not supported",
    ast.IfExp: "write where(condition, a, b); if/else is not supported",
    ast.BoolOp: "nest where(condition, a, b); and/or is not supported",
}
_TOO_DEEP = "the formula is nested too deeply or contains a number that is too long"
_ARITHMETIC = frozenset(("add", "sub", "mul", "div", "pow", "neg"))


def error_in(text: str, message: str, name: str = "") -> FormulaError:
    """An error that marks the first `name` in a formula, or the whole formula if it is not there."""
    match = re.search(rf"\b{re.escape(name)}\b", text) if name else None
    start, end = match.span() if match else (0, len(text))
    return FormulaError(message, text=text, start=start, end=end)


def parse(text: str, *, limited: bool = True, rule: bool = False, symbols: Collection[str] = ()) -> Expr:
    """`text` as an expression, exactly as written.

    **Arguments:**

    - `text`: the formula.
    - `limited`: whether to refuse very long formulas. False only for text that ftnn composed.
    - `rule`: whether it is a rule from the table of operations, where the condition of `where` may be a name.
    - `symbols`: names that shadow the function of the same name, unless they are called.

    Raises [`ftnn.errors.FormulaError`][], which quotes the text and marks the place.
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise FormulaError(f"a formula must be a string, not {type(text).__name__}", text=repr(text))
    if limited and len(text) > MAX_CHARACTERS:
        message = f"the formula has {len(text)} characters; the limit is {MAX_CHARACTERS}"
        raise FormulaError(message, text=text, start=MAX_CHARACTERS)
    # One space for each line break or tab, so that positions match the user's text.
    flat = "".join(" " if c in "\n\r\t" else c for c in text)
    for place, character in enumerate(flat):
        if character in "#\\" or not (character.isascii() and character.isprintable()):
            hint = " (it may look like ASCII, but is not)" if not character.isascii() else ""
            message = f"the character {character!r} is not allowed{hint}"
            raise FormulaError(message, text=text, start=place, allowed=_ALLOWED)
    if not flat.strip():
        raise FormulaError("the formula is empty", text=text, allowed=_ALLOWED)
    indent = len(flat) - len(flat.lstrip())  # Python would read leading spaces as an indented block
    tree = _syntax_tree(flat.strip(), text, indent)
    count = sum(1 for node in ast.walk(tree) if isinstance(node, ast.expr))
    if limited and count > MAX_NODES:
        raise error_in(text, f"the formula has {count} nodes; the limit is {MAX_NODES}")
    try:
        expr = _Reader(text, indent, rule, symbols).read(tree)
    except RecursionError:
        raise error_in(text, _TOO_DEEP) from None
    # A chained comparison repeats its else branch for each comparison; nested, it would grow exponentially.
    if (size := tree_size(expr)) > max(MAX_NODES, count):
        message = f"the formula has {size} nodes once its chained comparisons are expanded"
        raise error_in(text, f"{message}; the limit is {MAX_NODES}")
    return expr


def with_arguments(formula: str, values: Mapping[str, Expr]) -> str:
    """`formula` with names replaced by expressions, and numbers as they are written."""

    def replaced(part: Expr, args: list[Expr]) -> Expr:
        match part:
            case Symbol(name):
                return values.get(name, part)
            case Call(op):
                return call(op, *args)
            case _:
                return part

    return to_text(bottom_up(parse(formula), replaced))


def _syntax_tree(source: str, text: str, indent: int) -> ast.expr:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns about `1if` and the like, which are refused anyway
            return ast.parse(source, mode="eval").body
    except SyntaxError as error:
        first = error.offset or len(source) + 1  # no offset: the text ends too soon
        start, end = indent + first - 1, indent + max(first + 1, error.end_offset or 0) - 1
        # Python's other messages say enough, such as "'(' was never closed".
        allowed = _ALLOWED if error.msg == "invalid syntax" else ""
        message = f"this is not a formula: {error.msg}"
        raise FormulaError(message, text=text, start=start, end=end, allowed=allowed) from None
    except (MemoryError, RecursionError, ValueError):
        raise error_in(text, _TOO_DEEP) from None


class _Reader:
    """Converts Python's syntax tree to an expression; keeps the text for error messages."""

    def __init__(self, text: str, indent: int, rule: bool, symbols: Collection[str]):
        self.text = text
        self.indent = indent
        self.rule = rule
        self.symbols = symbols

    def error(self, node: ast.expr, message: str, allowed: str = "") -> FormulaError:
        start = self.indent + node.col_offset
        end = self.indent + (node.end_col_offset or node.col_offset + 1)
        return FormulaError(message, text=self.text, start=start, end=end, allowed=allowed)

    def read(self, node: ast.expr) -> Expr:
        match node:
            case ast.Constant(value=value):
                return self.number(node, value)
            case ast.Name(id="pi"):
                return number(math.pi)
            case ast.Name(id=name):
                if name in FUNCTIONS and name not in self.symbols:
                    hint = f"write {name}(…), or choose another name for the parameter"
                    raise self.error(node, f"{name} is a function; {hint}")
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
                raise self.forbidden(node)

    def forbidden(self, node: ast.expr) -> FormulaError:
        """The error for a construct that a formula must not contain."""
        kind = type(node.op) if isinstance(node, ast.UnaryOp | ast.BinOp) else type(node)
        if kind in _INSTEAD:
            return self.error(node, _INSTEAD[kind])
        construct = _FORBIDDEN.get(kind, kind.__name__)
        return self.error(node, f"{construct} is not allowed in a formula", _ALLOWED)

    def number(self, node: ast.expr, value: object) -> Expr:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(node, f"{value!r} is not a number", _ALLOWED)
        return self.finite(node, Number(value)) if math.isinf(_as_float(value)) else number(value)

    def finite(self, node: ast.expr, expr: Expr) -> Expr:
        """`expr`, unless it is a number beyond float64. Towers such as 9**9**9 are refused, not computed."""
        value = constant(expr)
        if value is not None and math.isinf(value):
            raise self.error(node, "this number is too large; the largest is 1.8e308")
        return expr

    def call(self, node: ast.Call) -> Expr:
        if not isinstance(node.func, ast.Name):
            raise self.error(node.func, "only a function can be called, by its name", _ALLOWED)
        name = node.func.id
        if name not in FUNCTIONS:
            raise self.unknown(node.func, node.args)
        if node.keywords:
            raise self.error(node, f"keyword arguments are not allowed in a formula: {name}(…) takes none")
        for arg in node.args:
            if isinstance(arg, ast.Starred):
                raise self.forbidden(arg)
        arity = OPS[name].arity
        if name in ("min", "max"):
            if len(node.args) < 2:
                raise self.error(node, f"{name}(…) takes at least 2 arguments, not {len(node.args)}")
            return reduce(lambda a, b: call(name, a, b), map(self.read, node.args))
        if len(node.args) != arity:
            count = f"{arity} argument{'s'[: arity != 1]}"
            raise self.error(node, f"{name}(…) takes {count}, not {len(node.args)}")
        if name == "where":
            condition, a, b = node.args
            return self.where(condition, self.read(a), self.read(b))
        return call(name, *(self.read(arg) for arg in node.args))

    def unknown(self, node: ast.Name, args: list[ast.expr]) -> FormulaError:
        """The error for a call of an unknown function, with what to write instead if that can be guessed."""
        message = f"{node.id} is not a function"
        formula = elsewhere(node.id)
        close = [] if has_no_formula(node.id) else get_close_matches(node.id, FUNCTIONS, n=1)
        if known := (renamed(formula) if formula is not None else next(iter(close), None)):
            return self.error(node, f"{message}; did you mean {known}?")
        if formula is not None:
            given: dict[str, Expr] = {}
            with suppress(FormulaError):
                given = {name: self.read(arg) for name, arg in zip(ARGUMENTS, args, strict=False)}
            return self.error(node, f"{message}; write {with_arguments(formula, given)}")
        return self.error(node, message, _FUNCTIONS)

    def where(self, condition: ast.expr, a: Expr, b: Expr) -> Expr:
        if self.rule and isinstance(condition, ast.Name):
            return call("where", symbol(condition.id), a, b)
        if not isinstance(condition, ast.Compare):
            message = "the condition of where(condition, a, b) must be a comparison, such as x > 0"
            raise self.error(condition, message)
        terms = [condition.left, *condition.comparators]
        result = a
        # 0 < x < 1 holds where each of its comparisons holds.
        for op, left, right in reversed(list(zip(condition.ops, terms, terms[1:], strict=False))):
            if type(op) not in _COMPARE:
                raise self.error(condition, "expected one of the comparisons < <= > >= == !=")
            result = call("where", call(_COMPARE[type(op)], self.read(left), self.read(right)), result, b)
        return result


def constant(expr: Expr) -> float | None:
    """The value of an arithmetic expression of numbers, infinite beyond float64; None if it has names."""
    match expr:
        case Number(value):
            return _as_float(value)
        case Call(op, args) if op in _ARITHMETIC:
            values = [constant(arg) for arg in args]
            numbers = [value for value in values if value is not None]
            return compute(op, *numbers) if len(numbers) == len(values) else None
        case _:
            return None


def _as_float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf
