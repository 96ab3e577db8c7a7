from collections.abc import Mapping

import numpy as np
import pytest

import ftnn
from ftnn import Function, catalogue
from ftnn.errors import FormulaError
from ftnn.formula import as_function, name_of

FORMULAS = {
    "F01": "p**2*x",
    "F02": "p**3*x",
    "F03": "p*x**2 + q*x",
    "F04": "p*x**3 + q*x**2 + r*x",
    "F05": "p*exp(q*x)",
    "F06": "rect(p)*u*x",
    "F07": "rect_ada(p)*u*x",
    "F08": "rect(p*x + q)*u",
    "F09": "p*rect(q*x + r)",
    "F10": "logistic(p*x + q)*u",
    "F11": "p*logistic(q*x + r)",
    "F12": "p*sin(q*x + r)",
    "F13": "p*cos(q*x + r)",
    "F14": "p*sinh(q*x + r)",
    "F15": "p*(cosh(q*x + r) - 1)",
    "F16": "p*tanh(q*x + r)",
    "F17": "p**2*x**2",
    "F18": "p**2*x**2*u",
    "F19": "p**2*(x - q)**2",
    "F20": "p**2*(x - q)**2*u",
    "memory": "tanh(p*x + q*C + r)",
}
"""The paper's tables 1 and 2, in order, and its memory function."""
RANGES = {
    ("F05", "q"): (-4, -2),
    ("F06", "p"): (0, 0.2),
    ("F07", "p"): (0, 0.2),
    ("F12", "q"): (-10, 10),
    ("F12", "r"): (-10, 10),
    ("F13", "q"): (-10, 10),
    ("F13", "r"): (-10, 10),
}


def test_the_catalogue_is_a_mapping_of_the_papers_functions():
    assert isinstance(catalogue, Mapping)
    assert list(catalogue) == list(FORMULAS)
    assert len(catalogue) == 21
    assert ftnn.catalogue["F12"] is catalogue["F12"]
    assert {name: f.formula for name, f in catalogue.items()} == FORMULAS
    assert "F01" in repr(catalogue)


@pytest.mark.parametrize("name", FORMULAS)
def test_initial_ranges_are_those_of_the_paper(name: str):
    f = catalogue[name]
    assert f.init == {p: RANGES.get((name, p), (-0.1, 0.1)) for p in f.parameters}
    assert f.choices == ({"u": (-1, 1)} if "u" in FORMULAS[name] else {})
    assert set(f.parameters) <= {"p", "q", "r"}


@pytest.mark.parametrize("name", ["F06", "F07"])
def test_f06_and_f07_start_in_0_to_02_as_in_the_papers_code(name: str):
    assert catalogue[name].init == {"p": (0.0, 0.2)}


def test_only_the_memory_function_has_memory():
    assert [name for name, f in catalogue.items() if f.has_memory] == ["memory"]


@pytest.mark.parametrize("name", ["F21", "f12", "F1", "", "Memory", 12])
def test_the_error_for_an_unknown_name_lists_the_known_names(name: str):
    with pytest.raises(KeyError, match=r"it has F01, F02, .* F20, memory"):
        catalogue[name]
    assert catalogue.get(name) is None
    assert name not in catalogue


def test_as_function_takes_a_name_a_formula_or_a_function():
    assert as_function("F12") is catalogue["F12"]
    assert as_function("p*x") == Function("p*x")
    f = Function("p*x")
    assert as_function(f) is f
    with pytest.raises(TypeError, match="a catalogue name, a formula or a Function, got int"):
        as_function(3)  # pyright: ignore[reportArgumentType]


def test_the_error_for_a_misspelt_name_says_it_is_neither_name_nor_formula():
    with pytest.raises(
        FormulaError,
        match=r"'F21' is neither a catalogue name .F01 to F20, memory. nor a formula: .* not use x",
    ):
        as_function("F21")
    for name, meant in (("f12", "F12"), ("Memory", "memory")):
        with pytest.raises(FormulaError, match=f"nor a formula; did you mean {meant}\\?"):
            as_function(name)
    with pytest.raises(FormulaError, match=r"^foo is not a function"):
        as_function("p*foo(x)")


def test_name_of_recognises_equal_functions():
    assert name_of(catalogue["F12"]) == "F12"
    ranges = {"p": (-0.1, 0.1), "q": (-10, 10), "r": (-10, 10)}
    assert name_of(Function("sin(r + x*q)*p", init=ranges)) == "F12"
    assert name_of(Function("p*sin(q*x + r)")) is None  # the initial ranges differ
    assert [name_of(f) for f in catalogue.values()] == list(catalogue)


def test_f06_and_f07_have_equal_values_but_different_slopes():
    x, p, u = np.array([-2.0, 0.5, 3.0]), np.array([[-0.1], [0.0], [0.2]]), -1.0
    first, second = catalogue["F06"], catalogue["F07"]
    assert np.array_equal(first(x, p=p, u=u), second(x, p=p, u=u))
    assert first.derivative("p") != second.derivative("p")
