"""A function from the command line: text, and options for ranges and constants."""

from __future__ import annotations

from typing import Annotated

import typer

from ftnn.formula import Function, as_function
from ftnn.formula._catalogue import with_other
from ftnn.formula._where import split_ranges

Init = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=LOW,HIGH",
        help="Initial range of a parameter. Default: chosen from the formula. Can be repeated.",
    ),
]
Constant = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE,…",
        help="Declare a constant, drawn from these values and not trained. Can be repeated.",
    ),
]


def function_from(text: str, init: list[str] | None, constant: list[str] | None) -> Function:
    """The function, with other ranges or constants than the catalogue's if given."""
    ranges, constants = _numbers("--init", init), _numbers("--constant", constant)
    formula, written = split_ranges(text)
    for name in ranges:
        if name in written:
            raise typer.BadParameter(f"the range of {name!r} is also in {text!r}", param_hint="--init")
    if not ranges and not constants:
        return as_function(text)
    if formula.isidentifier():
        return with_other(as_function(text), ranges, constants)
    return Function(text, init=ranges, constants=constants)


def bounds_from(values: list[str] | None) -> dict[str, list[float | None]] | None:
    """`["q=0,1", "r=0,"]` as `{"q": [0, 1], "r": [0, None]}`; None if there are none."""
    parsed: dict[str, list[float | None]] = {}
    for value in values or ():
        name, _, numbers = (part.strip() for part in value.partition("="))
        ends = numbers.split(",")
        try:
            if not name or len(ends) != 2 or not any(ends):
                raise ValueError
            pair = [float(end) if end.strip() else None for end in ends]
        except ValueError:
            raise typer.BadParameter(
                f"{value!r} is not of the form NAME=LOW,HIGH, in which one of the two may be left out",
                param_hint="--bounds",
            ) from None
        if name in parsed:
            raise typer.BadParameter(f"{name!r} is given twice", param_hint="--bounds")
        parsed[name] = pair
    return parsed or None


def _numbers(option: str, values: list[str] | None) -> dict[str, list[float]]:
    """`["q=-10,10"]` as `{"q": [-10.0, 10.0]}`."""
    parsed: dict[str, list[float]] = {}
    for value in values or ():
        name, equals, numbers = value.partition("=")
        if name.strip() in parsed:
            raise typer.BadParameter(f"{name.strip()!r} is given twice", param_hint=option)
        try:
            parsed[name.strip()] = [float(number) for number in numbers.split(",")]
        except ValueError:
            equals = ""
        if not equals:
            raise typer.BadParameter(f"{value!r} is not of the form NAME=NUMBER,NUMBER", param_hint=option)
    return parsed
