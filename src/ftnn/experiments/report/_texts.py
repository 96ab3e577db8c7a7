"""Numbers as a reader sees them, and the templates that they go into."""

from __future__ import annotations

from functools import cache
from typing import Any

import jinja2

from ftnn.experiments._svg import number

ACTIVATION_NAMES = {"logistic": "Logistic", "relu": "ReLU", "tanh": "Tanh"}


def percent(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def accuracy(value: float | None) -> str:
    """As the paper prints it: × where there is none because training failed."""
    return "×" if value is None else percent(value)


def signed(value: float | None) -> str:
    """With its sign, so that better and worse are told apart without colour."""
    if value is None:
        return ""
    return f"{value:+.2f}".replace("-", "−") if round(value, 2) else "0.00"


def seconds(value: float | None) -> str:
    if value is None:
        return ""
    if value < 120:
        return f"{value:.1f} s"
    return f"{value / 60:.1f} min" if value < 7200 else f"{value / 3600:.1f} h"


def layers_of(count: int) -> str:
    return plural(count, "hidden layer")


def plural(count: int, name: str) -> str:
    return f"{count} {name}{'s'[: count != 1]}"


@cache
def templates() -> jinja2.Environment:
    """All of them, HTML and Markdown; a name that is not given to one is an error."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("ftnn.experiments.report"),
        autoescape=jinja2.select_autoescape(["html"]),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    filters: dict[str, Any] = {
        "percent": percent,
        "signed": signed,
        "seconds": seconds,
        "g": number,
        "plural": plural,
    }
    made.filters.update(filters)
    return made
