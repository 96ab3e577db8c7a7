import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftnn.formula._expr import Expr
from ftnn.formula._parse import parse
from ftnn.formula._text import to_text
from tests.formula.strategies import expressions


@given(expressions)
def test_the_text_of_any_expression_parses_back_to_it(expr: Expr):
    assert parse(to_text(expr), limited=False) is expr


@given(expressions, st.sampled_from([" ", "\t", "\n", "  "]))
def test_white_space_does_not_change_the_expression(expr: Expr, space: str):
    text = to_text(expr).replace(" ", space)
    assert parse(f"{space}({space}{text}{space}){space}", limited=False) is expr


@pytest.mark.parametrize(
    "text",
    [
        "p*sin(q*x + r)",
        "a - (b - c)",
        "a - b - c",
        "a/(b/c)",
        "a/b/c",
        "a/(b*c)",
        "(a**b)**c",
        "a**b**c",
        "-a**b",
        "(-a)**b",
        "a**(-b)",
        "-a*b",
        "-(a*b)",
        "--a",
        "a - -b",
        "(-2)**x",
        "2**(-x)",
        "-2.5*x",
        "x**(-2)",
        "1e-05*x + 1e+300",
        "pi*x",
        "(a + b)*(c - x)",
        "where(x < 0, a, b + c)",
        "where(a + b >= c*x, x, -x)",
        "min(a, max(b, c))",
    ],
)
def test_text_has_only_the_necessary_parentheses(text: str):
    assert to_text(parse(text)) == text


@pytest.mark.parametrize(
    ("written", "normalised"),
    [
        ("((p))*((x))", "p*x"),
        ("a - (b + c)", "a - (b + c)"),
        ("a + (b + c)", "a + (b + c)"),
        ("x*1.0", "x*1"),
        ("x*2.50", "x*2.5"),
        ("+x", "x"),
        ("max(a, b, c)", "max(max(a, b), c)"),
        ("where(0 < x < 1, a, b)", "where(0 < x, where(x < 1, a, b), b)"),
        ("x*3.141592653589793", "x*pi"),
        ("x*9007199254740993", "x*9007199254740992"),
    ],
)
def test_text_normalises_other_spellings(written: str, normalised: str):
    assert to_text(parse(written)) == normalised
