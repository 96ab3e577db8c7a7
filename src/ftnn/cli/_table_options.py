"""Options of commands that read tables."""

from __future__ import annotations

from typing import Annotated

import typer

Separator = Annotated[
    str | None,
    typer.Option(
        metavar="CHAR",
        help="What separates the columns of a CSV file, or tab. Default: as in training, or detected.",
    ),
]
Decimal = Annotated[
    str | None,
    typer.Option(
        metavar=".|,", help="The decimal sign of numbers in a CSV file. Default: as in training, or detected."
    ),
]


def character(separator: str | None) -> str | None:
    """A separator as typed, where `tab` and `\\t` mean the character."""
    return "\t" if separator in ("tab", "\\t") else separator
