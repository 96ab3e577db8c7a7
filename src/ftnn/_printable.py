"""Escapes control characters in untrusted text, so that printing it cannot control the terminal."""

from __future__ import annotations

import unicodedata

# Joiners, which some scripts and many emoji need, and the soft hyphen.
_HARMLESS = frozenset("\u200c\u200d\u00ad")


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
