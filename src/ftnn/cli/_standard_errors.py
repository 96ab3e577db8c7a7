"""The standard errors that a model was saved with, for `ftnn inspect`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from ftnn.cli._screen import say, show, text

if TYPE_CHECKING:
    from torch import nn

MOST_SHOWN = 40
"""Further parameters are only counted; `--json` has all."""


def standard_errors(net: nn.Module, notes: dict[str, Any]) -> dict[str, Any] | None:
    """Every parameter's value and standard error, and what to know about them; None if there are none."""
    saved = notes.get("standard_errors")
    errors = saved.get("errors") if isinstance(saved, dict) else None
    if not isinstance(saved, dict) or not isinstance(errors, dict):
        return None
    from ftnn.nn._feed_forward import used_entries

    used = used_entries(net)
    values: dict[str, float] = {}
    for name, tensor in net.named_parameters():
        array = tensor.detach().cpu().double().numpy()
        is_used = used[id(tensor)].numpy() if id(tensor) in used else np.ones(array.shape, bool)
        for index in np.ndindex(*array.shape):
            if is_used[index]:
                values[f"{name}[{', '.join(map(str, index))}]"] = float(array[index])
    parameters = [
        {"name": name, "value": values[name], "error": error}
        for name, error in errors.items()
        if name in values and (error is None or error == "infinite" or isinstance(error, int | float))
    ]
    listed = saved.get("notes")
    return {
        "parameters": parameters,
        "deviation": saved.get("deviation"),
        "notes": [str(note) for note in listed] if isinstance(listed, list) else [],
    }


def show_standard_errors(found: dict[str, Any]) -> None:
    table = Table("parameter", "value", "standard error", box=None, pad_edge=False)
    table.columns[0].style = "bold cyan"
    for column in table.columns[1:]:
        column.justify = "right"
    for entry in found["parameters"][:MOST_SHOWN]:
        error = entry["error"]
        shown = "none" if error is None else error if isinstance(error, str) else f"{error:.2g}"
        table.add_row(text(entry["name"]), text(_value(entry["value"], error)), text(shown))
    show(table)
    more = len(found["parameters"]) - MOST_SHOWN
    if more > 0:
        say(f"and {more:,} more parameters: see --json")
    for note in found["notes"]:
        say(f"note: {note}")


def _value(value: float, error: Any) -> str:
    """Rounded to the digits that the error leaves; six if there is none."""
    if (
        not isinstance(error, int | float)
        or not 0 < error < math.inf
        or not math.isfinite(value)
        or value == 0
    ):
        return f"{value:.6g}"
    digits = math.floor(math.log10(abs(value))) - math.floor(math.log10(error)) + 2
    return f"{value:.{min(max(digits, 1), 15)}g}"
