"""What users gave, as text that is safe and short enough to print, and numbers of things."""

from __future__ import annotations

import reprlib
import unicodedata
from typing import Any

# Joiners, which some scripts and many emoji need, and the soft hyphen.
_HARMLESS = frozenset("\u200c\u200d\u00ad")


class _Short(reprlib.Repr):
    """Python refuses to write integers of more than 4,300 digits."""

    def repr_int(self, x: int, level: int) -> str:
        try:
            return super().repr_int(x, level)
        except ValueError:
            return "a number of thousands of digits"


_short = _Short()
_short.maxother = _short.maxstring = 80


def plural(count: int, name: str) -> str:
    """A number of things: "1 row", "2 rows"."""
    return f"{count} {name}{'s'[: count != 1]}"


def quoted(value: Any) -> str:
    """A value as quoted in an error message: short, and on one line."""
    return " ".join(_short.repr(value).split())


def printable(text: str, *, lines: bool = False) -> str:
    """`text` with control and direction characters escaped, as in `\\x1b[2J`; `lines` keeps \\n and \\t."""
    if text.isprintable():
        return text
    return "".join(
        character
        if is_shown(character) or (lines and character in "\n\t")
        else character.encode("unicode_escape").decode()
        for character in text
    )


def is_shown(character: str) -> bool:
    """Whether a terminal displays this character instead of interpreting it."""
    if character.isprintable() or character in _HARMLESS:
        return True
    return unicodedata.category(character) in ("Zs", "Co", "Cn")  # spaces, private use, and unassigned
