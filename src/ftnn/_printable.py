"""Making text from files safe to print: nothing in it controls the terminal."""

from __future__ import annotations

import unicodedata

# The joiners are needed for some scripts and many emoji.
_HARMLESS = frozenset("\u200c\u200d\u00ad")


def printable(text: str, *, lines: bool = False) -> str:
    """`text` with control and direction characters escaped, as in `\\x1b[2J`.

    With `lines`, line breaks and tabs stay.
    """
    if text.isprintable():
        return text
    return "".join(
        character
        if is_shown(character) or (lines and character in "\n\t")
        else character.encode("unicode_escape").decode()
        for character in text
    )


def is_shown(character: str) -> bool:
    """Whether a terminal displays this character, rather than acting on it."""
    if character.isprintable() or character in _HARMLESS:
        return True
    return unicodedata.category(character) in ("Zs", "Co", "Cn")  # spaces, and what only some fonts have
