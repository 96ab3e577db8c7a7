"""What to change after a failed run: its settings, spelled for Python or for the command line."""

from __future__ import annotations

import re
from typing import Literal

from ftnn.training._searches import DEFAULT_STARTS
from ftnn.training._settings import SECOND_ORDER, Settings

_GROUNDED = ", or the function's grounded()"


def advice(settings: Settings, direction: Literal["smaller", "larger"], *, normalised: bool = False) -> str:
    """Suggest another gamma or learning rate, or more starts, whichever this run uses.

    `normalised`: whether sums were, which does what grounding does.
    """
    if settings.solver in SECOND_ORDER:
        return f"more starts: starts={4 * (settings.starts or DEFAULT_STARTS)}"
    grounded = _GROUNDED if direction == "larger" and not normalised else ""
    if settings.gamma is not None:
        return f"a {direction} gamma: {settings.gamma + (1 if direction == 'larger' else -1):g}{grounded}"
    rate = settings.rate * (3 if direction == "larger" else 1 / 3)
    return f"a {direction} learning_rate: {rate:.1g}{grounded}"


def as_options(text: str) -> str:
    """Advice with the options of `ftnn train` instead of Python's arguments."""
    text = text.replace(_GROUNDED, "")
    return re.sub(
        r"\b(?:(gamma|learning_rate): |(starts)=)",
        lambda found: f"--{(found[1] or found[2]).replace('_', '-')} ",
        text,
    )
