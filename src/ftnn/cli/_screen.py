"""All output of the commands: the only module in `cli` that prints."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import math
import os
import sys
import time
from collections.abc import Callable, Generator
from typing import Any, NoReturn

import typer
from rich.console import Console, RenderableType
from rich.text import Text

from ftnn._printable import is_shown, printable
from ftnn._times import left, times
from ftnn.errors import FormulaError, FtnnError, InterruptedByUserError

NO_R2 = "there is no R²: it needs different targets to compare with"
_WIDE = 10_000  # columns: never wrap lines outside a terminal


def text(content: str, style: str = "") -> Text:
    """Text for a table cell: brackets are not markup, and control characters are escaped."""
    return Text(printable(content), style)


def say(line: str, *, to_stderr: bool = False) -> None:
    print(printable(line), file=sys.stderr if to_stderr else sys.stdout)


def show(content: RenderableType) -> None:
    """Print a table or a styled line, without wrapping outside a terminal."""
    console = Console(highlight=False)
    if console.is_terminal:
        console.print(content)
        return
    console.width = _WIDE
    with console.capture() as captured:
        console.print(content)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def amount(value: float) -> str:
    """A number for people, with about five digits."""
    if value and not 1e-3 <= abs(value) < 1e15:
        return f"{value:.4e}"
    return f"{value:,.{max(0, 4 - int(math.log10(abs(value) or 1)))}f}"


def r_squared(value: float) -> str:
    """R² for people; it has no lower limit."""
    return f"{value:.4f}" if value > -1e4 else amount(value)


def show_json(document: dict[str, Any] | list[Any]) -> None:
    content = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    if not content.replace("\n", "").isprintable():
        # Control characters occur only inside strings, where an escape means the same.
        content = "".join(c if c == "\n" or is_shown(c) else json.dumps(c)[1:-1] for c in content)
    print(content)


@contextlib.contextmanager
def showing(parts: int) -> Generator[Callable[[str], None]]:
    """Yields a function to call before each of so many parts of the work, with what it is.

    Shows it with elapsed and remaining time: under a bar on a terminal, otherwise as lines.
    """
    from ftnn._bars import Bar

    bar = Bar() if sys.stderr.isatty() else None
    begun, start = 0, time.monotonic()

    def show_next(line: str) -> None:
        nonlocal begun
        done = min(1.0, begun / max(parts, 1))
        begun += 1
        if bar is None:
            elapsed = time.monotonic() - start
            say(f"{line}, {times(elapsed, left(elapsed, done))}", to_stderr=True)
        else:
            bar.text = printable(line)
            bar.show(done, f"part {begun} of {parts}")

    with bar or contextlib.nullcontext():
        yield show_next
        if bar is not None:
            bar.text = ""
            bar.show(1.0)


def fail(error: FtnnError) -> NoReturn:
    """Print an error and exit. A quoted formula and the carets under it are cut, but never wrapped."""
    console = Console(stderr=True, highlight=False)
    message = error.message if isinstance(error, FormulaError) else str(error)
    message = printable(f"error: {message}", lines=True)
    console.print(Text(message, "red"), soft_wrap=not console.is_terminal)
    if isinstance(error, FormulaError):
        # Leave room for the indent and an ellipsis at each end.
        quoted = error.quoted(min(console.width - 4, 100)) if console.is_terminal else error.quoted()
        console.print(Text(quoted, "red"), soft_wrap=True)
        if error.allowed:
            console.print(Text(error.allowed), soft_wrap=not console.is_terminal)
    raise typer.Exit(130 if isinstance(error, InterruptedByUserError) else 2)


# --- closed or full output streams ---


class _LostOutputError(Exception):
    """Output could not be written."""

    def __init__(self, cause: OSError):
        super().__init__(cause.strerror or str(cause))
        self.is_closed_pipe = cause.errno == errno.EPIPE


class _Stream:
    """A standard stream. A failed write is an error only with `must_write`."""

    def __init__(self, stream: Any, *, must_write: bool):
        self._stream, self._must_write = stream, must_write

    def write(self, content: str) -> int:
        with self._errors():
            if self._stream is None:  # closed before the program started
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            return self._stream.write(content)
        return len(content)

    def flush(self) -> None:
        with self._errors():
            if self._stream is not None:
                self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextlib.contextmanager
    def _errors(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            if self._must_write:
                raise _LostOutputError(error) from error


@contextlib.contextmanager
def streams() -> Generator[None]:
    """Wrap standard output and error. Exits if standard output cannot be written."""
    out, err = sys.stdout, sys.stderr
    for stream in (out, err):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # show ? for characters the terminal lacks, such as ∂
    checked: Any = _Stream(out, must_write=True)
    tolerant: Any = _Stream(err, must_write=False)
    with contextlib.redirect_stderr(tolerant):
        try:
            with contextlib.redirect_stdout(checked):
                try:
                    yield
                finally:
                    checked.flush()  # now, while errors can still be explained
        except _LostOutputError as error:
            _discard(out)
            if not error.is_closed_pipe:  # `| head` is fine
                say(f"error: cannot write to standard output: {error}", to_stderr=True)
            raise SystemExit(1) from None
        finally:
            tolerant.flush()


def _discard(stream: Any) -> None:
    """Discard what is still buffered in a stream."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
