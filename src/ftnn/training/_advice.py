"""What to change after a failed run: its settings, spelled for Python or for the command line."""

from __future__ import annotations

import re
from typing import Literal

from ftnn.training._history import History
from ftnn.training._searches import DEFAULT_STARTS
from ftnn.training._settings import SECOND_ORDER, Settings

_GROUNDED = ", or the function's grounded()"
CLEARLY = 0.99
"""A loss that falls below this share of itself in the second half of a run is still falling."""


def needs_epochs(settings: Settings, history: History) -> bool:
    """Whether a run of a single stage has had all its epochs, and the loss was probably still falling."""
    losses = [epoch.loss for epoch in history.epochs if not epoch.undone]
    if settings.epochs is None or len(losses) < settings.epochs[0]:
        return False
    if settings.solver in SECOND_ORDER:
        return not history.converged
    # A single epoch is too early to tell.
    return len(losses) == 1 or losses[-1] < CLEARLY * losses[(len(losses) - 1) // 2]


def advice(
    settings: Settings,
    direction: Literal["smaller", "larger"],
    default_rate: float | None = None,
    *,
    normalised: bool = False,
    unfinished: bool = False,
) -> str:
    """Suggest another gamma or learning rate, more epochs, or more starts, whichever this run needs.

    **Arguments:**

    - `default_rate`: the learning rate that direct training chooses for this network; None for others.
    - `normalised`: whether sums were, which does what grounding does.
    - `unfinished`: whether the loss was still falling after all epochs.
    """
    more_epochs = f"more epochs: epochs={4 * (settings.epochs or (0,))[0]}"
    if settings.solver in SECOND_ORDER:
        more_starts = f"more starts: starts={4 * (settings.starts or DEFAULT_STARTS)}"
        return more_epochs if unfinished else more_starts
    grounded = _GROUNDED if direction == "larger" and not normalised else ""
    if settings.gamma is not None:
        return f"a {direction} gamma: {settings.gamma + (1 if direction == 'larger' else -1):g}{grounded}"
    rate = settings.rate * (3 if direction == "larger" else 1 / 3)
    if default_rate is not None:
        if direction == "larger" and unfinished and rate > default_rate:
            return more_epochs
        rate = max(rate, default_rate) if direction == "larger" else min(rate, default_rate)
    return f"a {direction} learning_rate: {rate:.1g}{grounded}"


def as_options(text: str) -> str:
    """Advice with the options of `ftnn train` instead of Python's arguments."""
    text = text.replace(_GROUNDED, "")
    return re.sub(
        r"\b(?:(gamma|learning_rate): |(starts|epochs)=)",
        lambda found: f"--{(found[1] or found[2]).replace('_', '-')} ",
        text,
    )
