import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ftnn
from ftnn.errors import DataError, DTypeError, FormulaError, FtnnError, ModelFileError, ShapeError


def test_every_error_is_an_ftnn_error_and_a_builtin_error():
    builtin = {
        FormulaError: ValueError,
        ShapeError: ValueError,
        DTypeError: TypeError,
        ModelFileError: ValueError,
        DataError: ValueError,
    }
    for kind, base in builtin.items():
        assert issubclass(kind, FtnnError)
        assert issubclass(kind, base)


def test_a_formula_error_marks_its_place():
    error = FormulaError("unknown name 'foo'", text="p*foo(x)", start=2, end=5)
    assert str(error) == "unknown name 'foo'\n  p*foo(x)\n    ^^^"
    assert (error.message, error.text, error.start, error.end) == ("unknown name 'foo'", "p*foo(x)", 2, 5)


def test_a_place_without_an_end_is_one_character():
    error = FormulaError("no", text="p*x", start=1)
    assert str(error).endswith("  p*x\n   ^")
    assert error.end is None


def test_an_error_without_a_place_marks_the_first_character():
    assert str(FormulaError("no", text="p*x")).endswith("  p*x\n  ^")


def test_a_place_after_the_text_is_marked():
    assert str(FormulaError("it ends here", text="p*(", start=3)).endswith("  p*(\n     ^")


def test_an_empty_text_gets_a_caret():
    assert str(FormulaError("empty", text="")) == "empty\n  \n  ^"


def test_tabs_and_newlines_become_spaces_without_moving_the_carets():
    error = FormulaError("no", text="p\t*\n\r\x1b[31mfoo", start=10, end=13)
    assert str(error).splitlines() == ["no", "  p *   [31mfoo", "            ^^^"]


def test_wide_characters_take_two_columns_and_combining_ones_none():
    assert str(FormulaError("no", text="力*y", start=2)).splitlines()[2] == "     ^"
    assert str(FormulaError("no", text="力*y", start=0)).splitlines()[2] == "  ^^"
    assert str(FormulaError("no", text="e\u0301*y", start=3)).splitlines()[2] == "    ^"


def test_greek_letters_take_one_column():
    assert str(FormulaError("no", text="α*β*foo", start=4, end=7)).splitlines()[2] == "      ^^^"


def test_a_long_text_is_cut_on_both_sides_of_the_place():
    text = "a" * 300 + "foo" + "b" * 300
    _, quote, marks = str(FormulaError("no", text=text, start=300, end=303)).splitlines()
    assert quote.startswith("  …a")
    assert quote.endswith("b…")
    assert len(quote) == 104  # 100 columns, the indent of two, and two ellipses
    assert quote[marks.index("^") : marks.rindex("^") + 1] == "foo"


def test_a_long_text_is_not_cut_at_its_ends():
    text = "a" * 300 + "foo"
    _, quote, marks = str(FormulaError("no", text=text, start=300, end=303)).splitlines()
    assert quote == "  …" + "a" * 97 + "foo"
    assert marks == " " * 100 + "^^^"

    text = "foo" + "b" * 300
    _, quote, marks = str(FormulaError("no", text=text, start=0, end=3)).splitlines()
    assert quote == "  foo" + "b" * 97 + "…"
    assert marks == "  ^^^"


def test_a_text_of_exactly_100_columns_is_not_cut():
    assert str(FormulaError("no", text="a" * 100)).splitlines()[1] == "  " + "a" * 100


def test_a_place_longer_than_the_window_is_marked_from_its_start():
    _, quote, marks = str(FormulaError("no", text="a" * 50 + "b" * 500, start=50, end=550)).splitlines()
    assert quote[marks.index("^")] == "b"
    assert quote[marks.index("^") - 1] == "a"
    assert len(marks) <= len(quote)


@pytest.mark.parametrize(("start", "end"), [(-5, None), (2, 1), (0, 99), (99, None), (99, 3)])
def test_a_place_outside_the_text_is_clipped(start: int, end: int | None):
    marks = str(FormulaError("no", text="p*x", start=start, end=end)).splitlines()[2]
    assert "^" in marks
    assert len(marks) <= len("  p*x^")


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=400), st.data())
def test_the_carets_are_under_the_place(text: str, data: st.DataObject):
    start = data.draw(st.integers(0, max(len(text) - 1, 0)))
    end = data.draw(st.integers(start + 1, max(start + 1, len(text))))
    _, quote, marks = str(FormulaError("no", text=text, start=start, end=end)).split("\n")
    marked = "".join(letter for letter, mark in zip(quote, marks, strict=False) if mark == "^")
    assert text[start:end].startswith(marked)
    assert marked or not text
    assert len(quote) <= 104


@given(st.text(max_size=300), st.integers(-3, 303), st.none() | st.integers(-3, 303))
def test_any_text_gives_two_printable_lines(text: str, start: int, end: int | None):
    lines = str(FormulaError("no", text=text, start=start, end=end)).split("\n")
    assert len(lines) == 3
    assert all(line.isprintable() for line in lines)


def test_a_formula_error_survives_pickling():
    error = FormulaError("no", text="p*foo(x)", start=2, end=5)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is FormulaError
    assert str(copy) == str(error)
    assert (copy.message, copy.text, copy.start, copy.end) == ("no", "p*foo(x)", 2, 5)


def test_what_is_allowed_follows_the_place():
    error = FormulaError("no", text="p*foo(x)", start=2, end=5, allowed="Write bar.")
    assert str(error) == "no\n  p*foo(x)\n    ^^^\nWrite bar."
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_the_errors_that_users_catch_are_exported():
    assert (ftnn.FtnnError, ftnn.FormulaError, ftnn.ShapeError) == (FtnnError, FormulaError, ShapeError)


def test_a_quote_fits_the_requested_columns():
    error = FormulaError("no", text="a" * 200 + "B" + "c" * 200, start=200)
    for columns in (20, 50, 100):
        text, carets = error.quoted(columns).splitlines()
        assert len(text) <= columns + 4  # two columns of indent, an ellipsis at either end
        assert text[carets.index("^")] == "B"
    assert error.quoted(1000).splitlines()[0] == "  " + error.text
