"""The paper's 20 functions and its memory function, as data (its tables 1 and 2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache

from ftnn.errors import FormulaError
from ftnn.formula._function import Function
from ftnn.formula._ranges import PAPER_RANGE, Range
from ftnn.formula._where import split_ranges

_SIGN = {"u": (-1.0, 1.0)}
_WIDE: dict[str, Range] = {"q": (-10.0, 10.0), "r": (-10.0, 10.0)}
# The paper prints 0 ≤ p ≤ 2.0 for F06 and F07; its published code draws from [0, 0.2], and only that range
# reproduces its accuracy.
_POSITIVE: dict[str, Range] = {"p": (0.0, 0.2)}

_ROWS: dict[str, tuple[str, dict[str, Range], dict[str, tuple[float, ...]]]] = {
    "F01": ("p**2*x", {}, {}),
    "F02": ("p**3*x", {}, {}),
    "F03": ("p*x**2 + q*x", {}, {}),
    "F04": ("p*x**3 + q*x**2 + r*x", {}, {}),
    "F05": ("p*exp(q*x)", {"q": (-4.0, -2.0)}, {}),
    "F06": ("rect(p)*u*x", _POSITIVE, _SIGN),
    "F07": ("rect_ada(p)*u*x", _POSITIVE, _SIGN),
    "F08": ("rect(p*x + q)*u", {}, _SIGN),
    "F09": ("p*rect(q*x + r)", {}, {}),
    "F10": ("logistic(p*x + q)*u", {}, _SIGN),
    "F11": ("p*logistic(q*x + r)", {}, {}),
    "F12": ("p*sin(q*x + r)", _WIDE, {}),
    "F13": ("p*cos(q*x + r)", _WIDE, {}),
    "F14": ("p*sinh(q*x + r)", {}, {}),
    "F15": ("p*(cosh(q*x + r) - 1)", {}, {}),
    "F16": ("p*tanh(q*x + r)", {}, {}),
    "F17": ("p**2*x**2", {}, {}),
    "F18": ("p**2*x**2*u", {}, _SIGN),
    "F19": ("p**2*(x - q)**2", {}, {}),
    "F20": ("p**2*(x - q)**2*u", {}, _SIGN),
    "memory": ("tanh(p*x + q*C + r)", {}, {}),
}


@cache
def _function(name: str) -> Function:
    formula, init, constants = _ROWS[name]
    return with_paper_ranges(Function(formula, init=init, constants=constants))


def with_paper_ranges(function: Function) -> Function:
    """The function with the paper's ±0.1 for every parameter without a range."""
    init = {**dict.fromkeys(function.parameters, PAPER_RANGE), **function.init}
    return Function.composed(function.formula, init, function.choices)


def with_other(
    function: Function,
    ranges: Mapping[str, Sequence[float]],
    constants: Mapping[str, Iterable[float]] | None = None,
) -> Function:
    """The function with other ranges and constants where they are given."""
    init = {name: bounds for name, bounds in function.init.items() if name not in (constants or {})}
    choices = {**function.choices, **(constants or {})}
    return Function(function.formula, init={**init, **ranges}, constants=choices)


class Catalogue(Mapping[str, Function]):
    """The paper's functions by name: `catalogue["F12"]`."""

    def __getitem__(self, name: str) -> Function:
        if name not in _ROWS:
            raise KeyError(f"{name!r} is not in the catalogue; it has {', '.join(_ROWS)}")
        return _function(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_ROWS)

    def __len__(self) -> int:
        return len(_ROWS)

    def __repr__(self) -> str:
        return f"<catalogue: {', '.join(_ROWS)}>"


catalogue = Catalogue()
_read = lru_cache(maxsize=512)(Function)


def as_function(source: str | Function) -> Function:
    """A function from a catalogue name or a formula, either with ranges if wanted, or from a `Function`."""
    if isinstance(source, Function):
        return source
    if not isinstance(source, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"expected a catalogue name, a formula or a Function, got {type(source).__name__}")
    name, ranges = split_ranges(source)
    if name in _ROWS:
        return _function(name) if name == source else with_other(_function(name), ranges)
    try:
        return _read(source)
    except FormulaError as error:
        if source.isidentifier():
            message = f"{source!r} is neither a catalogue name (F01 to F20, memory) nor a formula"
            meant = next((name for name in _ROWS if name.casefold() == source.casefold()), None)
            if meant is not None:
                raise FormulaError(f"{message}; did you mean {meant}?", text=source) from None
            raise FormulaError(f"{message}: {error.message}", text=source, allowed=error.allowed) from None
        raise


def name_of(function: Function) -> str | None:
    """The catalogue name of a function; None if it has none."""
    return next((name for name in _ROWS if _function(name) == function), None)
