"""How large a network may be that is asked for by numbers: on the command line, or in a file."""

from __future__ import annotations

from ftnn.errors import FtnnError

MOST_LAYERS, MOST_UNITS = 10_000, 1_000_000


def check_sizes(layers: int, width: int) -> None:
    """Refuse numbers of hidden layers, and of units in each, that no machine could hold."""
    for what, value, most in (
        ("hidden layers", layers, MOST_LAYERS),
        ("units in a layer", width, MOST_UNITS),
    ):
        if not 1 <= value <= most:
            raise FtnnError(f"{value} {what}: expected 1 or more, and at most {most:,}")
