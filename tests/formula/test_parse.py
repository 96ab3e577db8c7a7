import time
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from ftnn import Function
from ftnn.errors import FormulaError
from ftnn.formula._elsewhere import ELSEWHERE
from ftnn.formula._expr import Call, Number, Symbol, call, number, symbol
from ftnn.formula._numpy import evaluate
from ftnn.formula._ops import FUNCTIONS, OPS
from ftnn.formula._parse import MAX_CHARACTERS, MAX_NODES, parse

SECONDS = 5  # one on an idle machine


def refused(text: str, make: Callable[[str], object] = parse) -> FormulaError:
    """The error that `text` raises, quickly."""
    start = time.process_time()
    with pytest.raises(FormulaError) as caught:
        make(text)
    assert time.process_time() - start < SECONDS
    error = caught.value
    assert error.text == text
    assert str(error).startswith(error.message)
    return error


def marked(error: FormulaError) -> str:
    """The text above the carets."""
    _, quoted, carets, *_ = str(error).split("\n")
    return "".join(c for c, mark in zip(quoted.ljust(len(carets)), carets, strict=False) if mark == "^")


# ---- what is allowed

x, p, q = symbol("x"), symbol("p"), symbol("q")


@pytest.mark.parametrize(
    ("text", "expr"),
    [
        ("x", x),
        ("p*x", call("mul", p, x)),
        ("p + x", call("add", p, x)),
        ("p - x", call("sub", p, x)),
        ("p/x", call("div", p, x)),
        ("p**x", call("pow", p, x)),
        ("-x", call("neg", x)),
        ("+x", x),
        ("-3", number(-3)),
        ("- 3.5", number(-3.5)),
        ("-3**2", call("neg", call("pow", number(3), number(2)))),
        ("p*x**2", call("mul", p, call("pow", x, number(2)))),
        ("p*(x + q)", call("mul", p, call("add", x, q))),
        ("p*x*q", call("mul", call("mul", p, x), q)),
        ("1_000*x", call("mul", number(1000), x)),
        ("1e3*x", call("mul", number(1000), x)),
        (".5", number(0.5)),
        ("0x10", number(16)),
        ("pi", number(3.141592653589793)),
        ("sin(x)", call("sin", x)),
        ("min(p, q, x)", call("min", call("min", p, q), x)),
        ("where(x <= p, q, 1)", call("where", call("le", x, p), q, number(1))),
        ("\n p * \t x \r\n", call("mul", p, x)),
    ],
)
def test_formulas_parse_like_python_expressions(text: str, expr: object):
    assert parse(text) is expr


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if OPS[n].arity == 1])
def test_every_function_of_one_argument_can_be_called(name: str):
    assert parse(f"p*{name}(x)") is call("mul", p, call(name, x))


@pytest.mark.parametrize("sign", ["<", "<=", ">", ">=", "==", "!="])
def test_every_comparison_can_be_a_condition(sign: str):
    expr = parse(f"where(x {sign} p, p, q)")
    assert isinstance(expr, Call)
    condition = expr.args[0]
    assert isinstance(condition, Call)
    assert OPS[condition.op].symbol == sign


def test_a_chained_comparison_holds_where_every_comparison_holds():
    assert parse("where(0 < x <= p, p, q)") is parse("where(0 < x, where(x <= p, p, q), q)")


ORDINARY = """beta gamma factor E I S N bias training lambda_ zeta Q O diff test type half T a b c kind self
_ __class__ theta constants x1 X"""


@pytest.mark.parametrize("name", ORDINARY.split())
def test_names_with_a_meaning_elsewhere_are_ordinary_parameters(name: str):
    function = Function(f"{name}*x")
    assert function.parameters == (name,)
    assert function(3.0, **{name: 2.0}) == 6.0
    assert str(function.derivative(name)) == "x"
    assert str(function.derivative("x")) == name


def test_numbers_keep_their_value():
    for text, value in (("0.1", 0.1), ("1e-320", 1e-320), ("1.7976931348623157e308", 1.7976931348623157e308)):
        assert parse(text) is number(value)
    assert parse("9007199254740993") is number(9007199254740992.0)  # as a float64 holds it
    assert isinstance(parse("7.0"), Number)
    assert parse("7.0") is parse("7")


def test_equal_parts_are_the_same_object():
    expr = parse("sin(q*x)*cos(q*x)")
    assert isinstance(expr, Call)
    first, second = expr.args
    assert isinstance(first, Call)
    assert isinstance(second, Call)
    assert first.args[0] is second.args[0]
    assert isinstance(first.args[0], Call)
    assert first.args[0].args[0] is Symbol("q") or first.args[0].args[0] is q


# ---- what is not allowed

ALLOWED = "A formula may contain numbers, pi, x, C, parameter names, + - * / **, parentheses, where("


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("p*foo(x)", "foo", "foo is not a function"),
        ("p*sinn(x)", "sinn", "did you mean sin?"),
        ("p(x)", "p", "p is not a function"),
        ("p*x(2)", "x", "x is not a function"),
        ("p*pi(x)", "pi", "pi is not a function"),
        ("p*x.real", "x.real", "attribute access is not allowed in a formula"),
        ("().__class__*p*x", "().__class__", "attribute access"),
        ("p*x[0]", "x[0]", "a subscript is not allowed in a formula"),
        ("p*(lambda: x)", "lambda: x", "a lambda is not allowed in a formula"),
        ("p*x if x else 1", "p*x if x else 1", "write where(condition, a, b); if/else is not supported"),
        ("p*x and 1", "p*x and 1", "nest where(condition, a, b); and/or is not supported"),
        ("p*x or q", "p*x or q", "and/or"),
        ("p*(not x)", "not x", "the operator not is not allowed in a formula"),
        ("p*x in q", "p*x in q", "comparison"),
        ("where(x in p, 1, 2)", "x in p", "expected one of the comparisons < <= > >= == !="),
        ("where(x is p, 1, 2)", "x is p", "expected one of the comparisons"),
        ("p*sin(x=1)", "sin(x=1)", "keyword arguments are not allowed in a formula"),
        ("p*sin(x, y=1)", "sin(x, y=1)", "keyword arguments are not allowed"),
        ("p*min(*x)", "*x", "a starred argument is not allowed in a formula"),
        ("p*'x'", "'x'", "'x' is not a number"),
        ("p*b'x'", "b'x'", "is not a number"),
        ("p*f'{x}'", "f'{x}'", "a string is not allowed in a formula"),
        ("p*x + None", "None", "None is not a number"),
        ("p*x + True", "True", "True is not a number"),
        ("p*x + ...", "...", "is not a number"),
        ("p*x + 1j", "1j", "1j is not a number"),
        ("(p, x)", "(p, x)", "a tuple is not allowed in a formula"),
        ("[p, x]", "[p, x]", "a list"),
        ("{p: x}", "{p: x}", "a dictionary"),
        ("{p, x}", "{p, x}", "a set"),
        ("[x for p in q]", "[x for p in q]", "a comprehension is not allowed in a formula"),
        ("{x for p in q}", "{x for p in q}", "a comprehension is not allowed in a formula"),
        ("{x: p for p in q}", "{x: p for p in q}", "a comprehension is not allowed in a formula"),
        ("sin(x for p in q)", "(x for p in q)", "a comprehension"),
        ("(x := p)", "x := p", "an assignment is not allowed in a formula"),
        ("p*(yield x)", "yield x", "yield is not allowed in a formula"),
        ("p*x^2", "p*x^2", "write ** for powers; ^ is not supported"),
        ("p*x % 2", "p*x % 2", "the operator % is not allowed in a formula"),
        ("p//x", "p//x", "the operator // is not allowed in a formula"),
        ("p@x", "p@x", "the operator @ is not allowed in a formula"),
        ("p*~x", "~x", "the operator ~ is not allowed in a formula"),
        ("p*sin", "sin", "sin is a function; write sin(…), or choose another name for the parameter"),
        ("where*x", "where", "where is a function"),
        ("x < p", "x < p", "a comparison can only be the condition of where"),
        ("p*where(x, 1, 2)", "x", "must be a comparison"),
        ("where(a, p*x, 1)", "a", "must be a comparison"),
        ("where(x > 0, p)", "where(x > 0, p)", "where(…) takes 3 arguments, not 2"),
        ("p*sin(x, p)", "sin(x, p)", "sin(…) takes 1 argument, not 2"),
        ("p*sin()", "sin()", "sin(…) takes 1 argument, not 0"),
        ("p*max(x)", "max(x)", "max(…) takes at least 2 arguments, not 1"),
        ("p*x + sin(2)(3)", "sin(2)", "only a function can be called, by its name"),
    ],
)
def test_forbidden_constructs_are_named_and_marked(text: str, place: str, message: str):
    error = refused(text)
    assert message in str(error)
    assert text[error.start : error.end] == place
    assert marked(error) == place


@pytest.mark.parametrize(
    "text", ["x.real*p", "p[x]", "lambda: p", "p*x % q", "'p'", "p*", "p*х", "(p, x)", ""]
)
def test_errors_list_what_a_formula_may_contain_after_the_point(text: str):
    error = refused(text)
    message, _, carets, allowed = str(error).split("\n")
    assert len(message) < 80
    assert carets.strip(" ^") == ""
    assert allowed.startswith(ALLOWED)
    assert all(name in allowed for name in FUNCTIONS)


def test_the_error_for_an_unknown_function_lists_all_functions_unless_one_is_close():
    message, *_, allowed = str(refused("p*foo(x)")).split("\n")
    assert message == "foo is not a function"
    assert allowed == f"The functions are {', '.join(FUNCTIONS)}."
    assert "sinn is not a function; did you mean sin?\n" in str(refused("p*sinn(x)"))


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("p*sigmoid(q*x)", "did you mean logistic?"),
        ("p*ln(q*x)", "did you mean log?"),
        ("p*swish(q*x + r)", "write (q*x + r)*logistic(q*x + r)"),
        ("gelu(p*x)", "write p*x*(1 + erf(p*x/sqrt(2)))/2"),
        ("p*relu6(x)", "write min(relu(x), 6)"),
        ("p*leaky_relu(x)", "write max(x, 0.01*x)"),
        ("LeakyReLU(p*x)", "write max(p*x, 0.01*(p*x))"),
        ("pow(x, p)", "write x**p"),
        ("p*clip(x, -1, 1)", "write max(low, min(high, x))"),
        ("swish(foo(p*x))", "write a*logistic(a)"),
        ("p*arcsinh(q*x)", "write sign(q*x)*log(abs(q*x) + sqrt((q*x)**2 + 1))"),
    ],
)
def test_functions_known_elsewhere_are_recognised(text: str, suggestion: str):
    assert str(refused(text)).split("\n")[0].endswith(f" is not a function; {suggestion}")


@pytest.mark.parametrize("name", ["arctan", "atan", "asin", "arccos", "atan2"])
def test_no_inverse_is_taken_for_the_function_itself(name: str):
    assert str(refused(f"p*{name}(x)")).split("\n")[0] == f"{name} is not a function"


def test_every_suggestion_is_a_formula_of_the_function_that_torch_or_numpy_has():
    for name, formula in ELSEWHERE.items():
        assert name not in FUNCTIONS
        assert name == name.lower().replace("_", "")
        parse(formula)
    x = torch.linspace(-4, 4, 101, dtype=torch.float64)
    for name, known in {
        **{name: getattr(torch.nn.functional, name) for name in ("celu", "elu", "gelu", "hardsigmoid")},
        **{name: getattr(torch.nn.functional, name) for name in ("hardswish", "hardtanh", "mish", "relu6")},
        **{name: getattr(torch.nn.functional, name) for name in ("silu", "softsign", "tanhshrink")},
        "logsigmoid": torch.nn.functional.logsigmoid,
        "leakyrelu": torch.nn.functional.leaky_relu,
        "selu": torch.nn.functional.selu,
        **{name: getattr(torch, name) for name in ("arccosh", "arcsinh", "arctanh")},
        **{name: getattr(torch, name) for name in ("erfc", "exp2", "expm1", "sigmoid", "square", "sgn")},
    }.items():
        expected = known(x).numpy()
        np.testing.assert_allclose(evaluate(parse(ELSEWHERE[name]), {"a": x.numpy()}), expected, atol=1e-12)


def test_a_formula_of_several_inputs_is_told_that_a_connection_sees_one():
    for text, inputs in (
        ("p*x0*x1", "x0 and x1 would be trainable parameters"),
        ("p*x_1", "x_1 would be a trainable parameter"),
        ("x1*p + x2*q + x3", "x1, x2 and x3 would be trainable parameters"),
    ):
        with pytest.raises(FormulaError, match="a connection sees one input, x") as caught:
            Function(text)
        assert f"; {inputs}. Write" in caught.value.message
        assert 'or multiplies them with reduce="product" (ftnn.nn.Transfer)' in caught.value.message
    with pytest.raises(FormulaError, match="does not use x, the connection's input"):
        Function("p*q")


@pytest.mark.parametrize("text", ["F12", " F12 where q in [-3, 3]", "memory"])
def test_a_name_of_the_catalogue_is_no_formula_and_the_error_says_where_it_is(text: str):
    name = text.split()[0]
    with pytest.raises(FormulaError, match=rf'does not use x.*: ftnn\.catalogue\["{name}"\]'):
        Function(text)


def test_an_unclosed_parenthesis_is_reported_without_the_list():
    assert "this is not a formula: '(' was never closed\n" in str(refused("p*sin(x"))


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("p*sin(x", 5),
        ("p*x)", 3),
        ("p x", 2),
        ("p*", 2),
        ("p**", 3),
        ("p*x = 2", 4),
        ("  p*", 4),
        ("import os", 0),
        ("x; p", 1),
        ("  p*(x", 4),
        ("p*x**", 5),
    ],
)
def test_syntax_errors_are_marked_near_their_place(text: str, start: int):
    error = refused(text)
    assert "this is not a formula" in str(error)
    assert error.start == start


@pytest.mark.parametrize(
    ("text", "character", "start"),
    [
        ("p*х", "х", 2),  # Cyrillic
        ("p*ｘ", "ｘ", 2),  # full width
        ("p*x²", "²", 3),
        ("p − x", "−", 2),
        ("p·x", "·", 1),
        ("π*x", "π", 0),
        ("p*x\N{NO-BREAK SPACE}", "\N{NO-BREAK SPACE}", 3),
        ("p*x\N{ZERO WIDTH SPACE}", "\N{ZERO WIDTH SPACE}", 3),
        ("p*x\0", "\0", 3),
        ("p*x\x1b[2J", "\x1b", 3),
        ("p*x # comment", "#", 4),
        ("p*\\\nx", "\\", 2),
        ("p*x\f", "\f", 3),
    ],
)
def test_lookalike_and_control_characters_are_refused(text: str, character: str, start: int):
    error = refused(text)
    assert f"the character {character!r} is not allowed" in str(error)
    assert error.start == start
    assert "\0" not in str(error)
    assert "\x1b" not in str(error)


def test_carets_match_the_width_of_wide_letters():
    _, quoted, carets, _ = str(refused("p*ｘ + q")).split("\n")
    assert quoted == "  p*ｘ + q"
    assert carets == "    ^^"  # a full-width letter takes two columns


def test_leading_spaces_do_not_shift_the_caret():
    error = refused("  \n  p*foo(x)")
    assert error.start == 7
    assert marked(error) == "foo"


def test_line_breaks_do_not_shift_the_caret():
    error = refused("p*x\n\t+ foo(x)")
    assert error.start == 7
    assert marked(error) == "foo"


# ---- limits


@pytest.mark.parametrize(
    "text",
    [
        "9**9**9**9",
        "p*x + 9**9**9**9",
        "p*x**9**9**9",
        "(9**9**9)*x*p",
        "p*x*(9.0**9.0**9.0)",
        "p*x*10**(10**10)",
        "p*x*2**1024",
        "p*x*1e400",
        "p*x + 1e308*10",
        "p*x - 1e308*10",
        "p*x + -1e308*10",
        "p*x*" + "9" * 400,
        "p*x*0x" + "f" * 400,
        "p*x*" + "9" * 3900,
    ],
)
def test_numbers_beyond_float64_are_refused_without_computing_them(text: str):
    error = refused(text)
    assert "too large" in str(error) or "too long" in str(error)


def test_the_limit_on_characters_is_exact():
    text = "p*x" + " " * (MAX_CHARACTERS - 3)
    assert parse(text) is call("mul", p, x)
    error = refused(text + " ")
    assert "has 4001 characters; the limit is 4000" in str(error)
    assert error.start == MAX_CHARACTERS


def test_the_limit_on_nodes_is_exact():
    text = "x" + "+x" * 199  # 399 nodes: 200 leaves, 199 sums
    assert isinstance(parse(text), Call)
    assert isinstance(parse("-" + text), Call)  # 400
    assert "has 401 nodes; the limit is 400" in str(refused(text + "+x"))
    assert MAX_NODES == 400


@pytest.mark.parametrize(
    "text",
    [
        "(" * 150 + "p*x" + ")" * 150,
        "-" * 300 + "x*p",
        "p*" + "sin(" * 150 + "x" + ")" * 150,
        "p*x" + "+x" * 198,
        "p*x" + "**x" * 198,
    ],
)
def test_deep_formulas_within_the_limits_parse(text: str):
    function = Function(text)
    assert function.plan.reason
    assert hash(function) == hash(Function(text))


@pytest.mark.parametrize(
    "text",
    [
        "(" * 1900 + "p*x" + ")" * 1900,
        "-" * 3990 + "x*p",
        "+" * 3990 + "x*p",
        "p*" + "sin(" * 790 + "x" + ")" * 790,
        "p*x" + "+x" * 1990,
        "p*x" + "**x" * 1300,
        "~" * 3990 + "x",
        "not " * 990 + "x",
        "lambda:" * 570 + "x",
        "p*x" + "[x" * 1900 + "]" * 90,
        "[" * 3999,
        "{" * 3999,
        "p*x if " * 570,
        "x" * 4001,
        "p*x*" + "'" * 3990,
        "𝐱" * 3000,
        "x" + "\u0301" * 3998,
        "x" * 100_000,
        "x" * 200 + "\u0301" * 100_000,
    ],
)
def test_too_deep_or_too_long_formulas_are_refused_quickly(text: str):
    refused(text)


def test_nested_chained_comparisons_cannot_grow_exponentially():
    text = "x"
    for _ in range(40):  # each level would double the nodes below it
        text = f"where(0<x<1,p,{text})"
    error = refused(text)
    assert "once its chained comparisons are expanded; the limit is 400" in str(error)
    assert isinstance(parse("where(0<x<1, p, where(1<x<2, q, 0))"), Call)


@pytest.mark.parametrize("wrong", [None, 3, 2.5, b"p*x", ["p*x"], object()])
def test_a_formula_must_be_a_string(wrong: object):
    with pytest.raises(FormulaError, match="a formula must be a string, not"):
        parse(wrong)  # pyright: ignore[reportArgumentType]


# ---- arbitrary text

_CHARACTERS = "xpqC0123456789+-*/().,<>=\n'\"[]{}:;@~_ "
_WORDS = """** == != <= >= pi where( sin( exp( min( 1e 0x if else lambda and not in is for"""
_TOKENS = [*_CHARACTERS, *_WORDS.split()]


def _parses_or_is_refused(text: str) -> None:
    try:
        parse(text)
    except FormulaError as error:
        assert error.text == text  # noqa: PT017
        assert error.message  # noqa: PT017


@given(st.text())
@example("1if x else p")
@example("0_")
@example("p*x\ufeff")
@example("\ud800")
def test_any_text_parses_or_raises_formula_error(text: str):
    _parses_or_is_refused(text)


@given(st.text(st.characters(codec="ascii")))
def test_any_ascii_text_parses_or_raises_formula_error(text: str):
    _parses_or_is_refused(text)


@given(st.lists(st.sampled_from(_TOKENS), max_size=30).map("".join))
@example("1or x")
@example("0x1for x in p")
@example("1e5if p else x")
@example("sin(x)(p)")
@example("((x))[p]")
def test_any_sequence_of_tokens_parses_or_raises_formula_error(text: str):
    _parses_or_is_refused(text)


@given(
    st.lists(st.sampled_from(["9", "**", "*", "-", "(", ")", "1e300", "/", "0"]), max_size=40).map("".join)
)
def test_any_arithmetic_parses_or_is_refused_quickly(text: str):
    start = time.process_time()
    _parses_or_is_refused(text)
    assert time.process_time() - start < SECONDS
