"""ftnn's errors: all are `FtnnError`, and each is also the built-in error it resembles."""

import functools
import re
import unicodedata
from collections.abc import Callable

__all__ = [
    "DTypeError",
    "DataError",
    "FormulaError",
    "FtnnError",
    "InterruptedByUserError",
    "ModelFileError",
    "ShapeError",
]

_COLUMNS = 100  # of a quoted text; a longer one is cut to a window around the place
_BEFORE = 40  # columns before the place, at most, if the text is cut at its left
_INDENT = "  "


class FtnnError(Exception):
    """Any error that ftnn raises on purpose."""


class FormulaError(FtnnError, ValueError):
    """An invalid formula, with the place of the error in its text.

    `message` says what is wrong. `text` is the whole formula as the user wrote it. `text[start:end]` is the
    place; without `end` it is the character at `start`, and a place at the end of the text is shown just
    after it. `str(error)` is the message, the text, and carets under the place.
    """

    def __init__(self, message: str, *, text: str, start: int = 0, end: int | None = None) -> None:
        self.message = message
        self.text = text
        self.start = start
        self.end = end
        super().__init__(f"{message}\n{self.quoted()}")

    @classmethod
    def at_name(cls, message: str, text: str, name: str) -> "FormulaError":
        """An error at the first place where `text` has a name."""
        place = re.search(rf"\b{re.escape(name)}\b", text)
        start, end = place.span() if place else (0, len(text))
        return cls(message, text=text, start=start, end=end)

    def quoted(self, columns: int = _COLUMNS) -> str:
        """Two lines: the text, cut to about `columns` around the place, and carets under the place."""
        return _quote(self.text, self.start, self.start + 1 if self.end is None else self.end, columns)

    def __reduce__(self) -> tuple[Callable[[], "FormulaError"], tuple[()]]:
        # Pickle rebuilds exceptions as type(*args), without keywords; worker processes must return this one.
        make = functools.partial(type(self), self.message, text=self.text, start=self.start, end=self.end)
        return make, ()


class ShapeError(FtnnError, ValueError):
    """An array or tensor of the wrong shape."""


class DTypeError(FtnnError, TypeError):
    """An array or tensor of the wrong dtype."""


class ModelFileError(FtnnError, ValueError):
    """A model file that cannot be read or written."""


class DataError(FtnnError, ValueError):
    """Data that is missing, damaged, or unsuitable."""


class InterruptedByUserError(FtnnError):
    """Ctrl-C, after part of the work was saved."""


def _quote(text: str, start: int, end: int, columns: int) -> str:
    """Two lines: `text`, cut to about `columns` columns around `[start, end)`, and carets under that."""
    # Unprintable characters could break the line or the terminal. One for one, so that places stay right.
    shown = "".join(character if character.isprintable() else " " for character in text)
    start = min(max(start, 0), len(shown))
    end = min(max(end, start + 1), len(shown) + 1)  # at least one caret, possibly after the text

    left, right = 0, len(shown)
    if _columns(shown) > columns:
        left = right = start
        used = 0
        while left > 0 and used + _width(shown[left - 1]) <= min(_BEFORE, columns // 2):
            left -= 1
            used += _width(shown[left])
        while right < len(shown) and used + _width(shown[right]) <= columns:
            used += _width(shown[right])
            right += 1
        while left > 0 and used + _width(shown[left - 1]) <= columns:  # the place is near the end: fill up
            left -= 1
            used += _width(shown[left])
    head, tail = "…" if left > 0 else "", "…" if right < len(shown) else ""
    before = len(head) + _columns(shown[left:start])
    carets = max(_columns(shown[start : min(end, right)]), 1)
    return f"{_INDENT}{head}{shown[left:right]}{tail}\n{_INDENT}{' ' * before}{'^' * carets}"


def _columns(text: str) -> int:
    """How many columns a terminal needs for `text`."""
    return sum(map(_width, text))


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
