"""Text from files, as it may be shown: nothing in it acts on a terminal."""

from __future__ import annotations

import unicodedata

# Letters of some scripts and many emoji need the joiners.
_HARMLESS = frozenset("\u200c\u200d\u00ad")


def printable(text: str, *, lines: bool = False) -> str:
    """`text`, with control and direction characters written out, as in `\\x1b[2J`.

    With `lines`, line breaks and tabs stay.
    """
    if text.isprintable():
        return text
    return "".join(
        character if is_shown(character) or (lines and character in "\n\t") else _written_out(character)
        for character in text
    )


def is_shown(character: str) -> bool:
    """Whether a terminal shows this character, rather than obeying it."""
    if character.isprintable() or character in _HARMLESS:
        return True
    return unicodedata.category(character) in ("Zs", "Co", "Cn")  # spaces, and what only some fonts have


def _written_out(character: str) -> str:
    return character.encode("unicode_escape").decode()
