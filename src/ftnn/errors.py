"""ftnn's errors: all are `FtnnError`, and most are also the corresponding built-in error."""

import functools
import unicodedata
from collections.abc import Callable

_COLUMNS = 100  # of a quoted text; longer ones are cut to a window around the place
_BEFORE = 40  # columns before the place, at most, if the text is cut on the left
_INDENT = "  "


class FtnnError(Exception):
    """Any error that ftnn raises on purpose."""


class FormulaError(FtnnError, ValueError):
    """An invalid formula, with the place of the error in its text.

    `message` says what is wrong. `text` is the whole formula as the user wrote it. `text[start:end]` is the
    place; without `end`, it is the character at `start`, which may be just after the text. `str(error)` is
    the message, the text, carets under the place, and `allowed`: what a formula may contain, if that helps.
    """

    def __init__(
        self, message: str, *, text: str, start: int = 0, end: int | None = None, allowed: str = ""
    ) -> None:
        self.message = message
        self.text = text
        self.start = start
        self.end = end
        self.allowed = allowed
        super().__init__("\n".join(filter(None, (message, self.quoted(), allowed))))

    def quoted(self, columns: int = _COLUMNS) -> str:
        """Two lines: the text, cut to about `columns` around the place, and carets under the place."""
        return _quote(self.text, self.start, self.start + 1 if self.end is None else self.end, columns)

    def __reduce__(self) -> tuple[Callable[[], "FormulaError"], tuple[()]]:
        # Pickle rebuilds exceptions as type(*args), without keywords; worker processes need to return this.
        place = {"text": self.text, "start": self.start, "end": self.end}
        return functools.partial(type(self), self.message, **place, allowed=self.allowed), ()


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
    # Unprintable characters could break the line or the terminal. Replaced one by one, to keep positions.
    line = "".join(character if character.isprintable() else " " for character in text)
    start = min(max(start, 0), len(line))
    end = min(max(end, start + 1), len(line) + 1)  # at least one caret, possibly after the text

    left, right = 0, len(line)
    if _columns(line) > columns:
        left = right = start
        used = 0
        while left > 0 and used + _width(line[left - 1]) <= min(_BEFORE, columns // 2):
            left -= 1
            used += _width(line[left])
        while right < len(line) and used + _width(line[right]) <= columns:
            used += _width(line[right])
            right += 1
        while left > 0 and used + _width(line[left - 1]) <= columns:  # the place is near the end
            left -= 1
            used += _width(line[left])
    head, tail = "…" if left > 0 else "", "…" if right < len(line) else ""
    before = len(head) + _columns(line[left:start])
    carets = max(_columns(line[start : min(end, right)]), 1)
    return f"{_INDENT}{head}{line[left:right]}{tail}\n{_INDENT}{' ' * before}{'^' * carets}"


def _columns(text: str) -> int:
    """The number of terminal columns of `text`."""
    return sum(map(_width, text))


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
