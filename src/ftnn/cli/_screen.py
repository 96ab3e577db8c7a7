"""How everything that the command says is printed: the only place in `cli` that writes to a terminal."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import sys
from collections.abc import Callable, Generator
from typing import Any, NoReturn

import typer
from rich.console import Console, RenderableType
from rich.text import Text

from ftnn._printable import is_shown, printable
from ftnn.errors import FormulaError, FtnnError, InterruptedByUserError

_WIDE = 10_000  # columns: where nobody looks at a screen, nothing is folded


def text(shown: str, style: str = "") -> Text:
    """A cell of a table: brackets are no markup, and nothing in it acts on the terminal."""
    return Text(printable(shown), style)


def say(line: str, *, beside: bool = False) -> None:
    """Print a line on standard output or, beside the result, on standard error."""
    print(printable(line), file=sys.stderr if beside else sys.stdout)


def show(shown: RenderableType) -> None:
    """Print a table or a styled line; where nobody looks at a screen, nothing is folded."""
    console = Console(highlight=False)
    if console.is_terminal:
        console.print(shown)
        return
    console.width = _WIDE
    with console.capture() as captured:
        console.print(shown)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def show_json(document: dict[str, Any] | list[Any]) -> None:
    written = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    if not written.replace("\n", "").isprintable():
        # Outside of texts, JSON has no such characters; inside, an escape means the same.
        written = "".join(c if c == "\n" or is_shown(c) else json.dumps(c)[1:-1] for c in written)
    print(written)


@contextlib.contextmanager
def showing() -> Generator[Callable[[str], None]]:
    """Yields a function that says what is being done now: in one place on a terminal, else line by line."""
    console = Console(stderr=True, highlight=False)
    with console.status("") as status:
        yield status.update if console.is_terminal else lambda line: say(line, beside=True)


def fail(error: FtnnError) -> NoReturn:
    """Say what is wrong, in red; a quoted formula and the carets under it are cut, and never folded."""
    console = Console(stderr=True, highlight=False)
    message = error.message if isinstance(error, FormulaError) else str(error)
    message = printable(f"error: {message}", lines=True)
    console.print(Text(message, "red"), soft_wrap=not console.is_terminal)
    if isinstance(error, FormulaError):
        # Two columns before it, and an ellipsis at either end.
        quoted = error.quoted(min(console.width - 4, 100)) if console.is_terminal else error.quoted()
        console.print(Text(quoted, "red"), soft_wrap=True)
    raise typer.Exit(130 if isinstance(error, InterruptedByUserError) else 2)


# --- streams that cannot be written ---


class _LostOutputError(Exception):
    """What was to be printed could not be written."""

    def __init__(self, cause: OSError):
        super().__init__(cause.strerror or str(cause))
        self.is_closed_pipe = cause.errno == errno.EPIPE


class _Stream:
    """A standard stream. Where it cannot be written, that is an error for output only (`must_write`)."""

    def __init__(self, stream: Any, *, must_write: bool):
        self._stream, self._must_write = stream, must_write

    def write(self, written: str) -> int:
        with self._failing():
            if self._stream is None:  # it was closed when the program started
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            return self._stream.write(written)
        return len(written)

    def flush(self) -> None:
        with self._failing():
            if self._stream is not None:
                self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextlib.contextmanager
    def _failing(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            if self._must_write:
                raise _LostOutputError(error) from error


@contextlib.contextmanager
def streams() -> Generator[None]:
    """Standard output and error as commands use them. Ends the program where output cannot be written."""
    out, err = sys.stdout, sys.stderr
    for stream in (out, err):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that has no ∂ shows ?
    checked: Any = _Stream(out, must_write=True)
    beside: Any = _Stream(err, must_write=False)
    with contextlib.redirect_stderr(beside):
        try:
            with contextlib.redirect_stdout(checked):
                try:
                    yield
                finally:
                    checked.flush()  # here, where it can be explained, and not when the interpreter ends
        except _LostOutputError as error:
            _drop(out)
            if not error.is_closed_pipe:  # `| head` is no mistake
                say(f"error: cannot write to standard output: {error}", beside=True)
            raise SystemExit(1) from None
        finally:
            beside.flush()


def _drop(stream: Any) -> None:
    """Let what is still to be written to this stream go nowhere."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
