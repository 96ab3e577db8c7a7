"""Formatting for readers, and the templates."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Literal

import jinja2
from markupsafe import Markup

from ftnn._printable import plural, printable
from ftnn.experiments.report.svg import number

ACTIVATION_NAMES = {"logistic": "Logistic", "relu": "ReLU", "tanh": "Tanh"}


def percent(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def accuracy(value: float | None) -> str:
    """As in the paper: × if training failed."""
    return "×" if value is None else percent(value)


def signed(value: float | None) -> str:
    """With its sign, so that better and worse differ without colour."""
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


# --- untrusted text from a store ---

_ACTIVE = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;", **{mark: f"\\{mark}" for mark in "\\`*_[]"}}
)


def _as_html(value: Any) -> Any:
    """A value in an HTML template, before it is escaped."""
    return value if hasattr(value, "__html__") else printable(str(value), lines=True)


def _as_markdown(value: Any) -> Any:
    """A value in a Markdown template, made plain text: no HTML, no links, no end of a table cell."""
    return value if hasattr(value, "__html__") else Markup(printable(str(value)).translate(_ACTIVE))


def code(value: str) -> Markup:
    """A Markdown code span. Only backticks have a meaning inside, so the fence is longer than any of them."""
    content = printable(value).replace("|", "\\|")
    fence = "`" * (1 + max(map(len, re.findall("`+", content)), default=0))
    space = " " if "`" in content else ""
    return Markup(f"{fence}{space}{content}{space}{fence}")


@cache
def templates(kind: Literal["html", "markdown"]) -> jinja2.Environment:
    """The templates of one kind. Undefined names are errors, and all values are escaped."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("ftnn.experiments.report"),
        autoescape=True,
        finalize=_as_html if kind == "html" else _as_markdown,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    filters: dict[str, Any] = {"percent": percent, "signed": signed, "seconds": seconds}
    filters |= {"g": number, "plural": plural, "code": code}
    environment.filters.update(filters)
    return environment
