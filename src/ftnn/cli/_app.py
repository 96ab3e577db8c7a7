"""The command itself, and how everything that it says is printed."""

from __future__ import annotations

import io
import json
import sys
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from ftnn import __version__
from ftnn.errors import FormulaError, FtnnError, InterruptedByUserError

_WIDE = 10_000  # columns: where nobody looks at a screen, nothing is folded


class Commands(TyperGroup):
    """Our own errors are for people: the message, and no traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except FtnnError as error:
            fail(error)


EXAMPLES = """\
[bold]Examples[/bold]

[cyan]ftnn functions[/cyan]   the catalogue

[cyan]ftnn functions F12[/cyan]   one function of it, explained

[cyan]ftnn functions "p*tan(q*x + r)"[/cyan]   a formula of your own

[cyan]ftnn train --function F12 --activation tanh --gamma -4[/cyan]   train on MNIST

[cyan]ftnn train --data iris.csv --target species --gamma -2 --out iris[/cyan]   on a table of yours

[cyan]ftnn inspect iris --data iris.csv --plot iris.png[/cyan]   look inside what was learned
"""

app = typer.Typer(
    name="ftnn",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"ftnn {__version__}")
        raise typer.Exit


@app.callback(epilog=EXAMPLES)
def main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave."),
    ] = False,
) -> None:
    """Networks in which every connection is a trainable function instead of a weight."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that has no ∂ shows ?


# --- out ---


def show(shown: Table) -> None:
    console = Console(highlight=False)
    if console.is_terminal:
        console.print(shown)
        return
    console.width = _WIDE
    with console.capture() as captured:
        console.print(shown)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def show_json(document: dict[str, Any]) -> None:
    print(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))


def fail(error: FtnnError) -> NoReturn:
    """Say what is wrong, in red; a quoted formula and the carets under it are cut, and never folded."""
    console = Console(stderr=True, highlight=False)
    message = error.message if isinstance(error, FormulaError) else str(error)
    console.print(Text(f"error: {message}", "red"), soft_wrap=not console.is_terminal)
    if isinstance(error, FormulaError):
        # Two columns before it, and an ellipsis at either end.
        quoted = error.quoted(min(console.width - 4, 100)) if console.is_terminal else error.quoted()
        console.print(Text(quoted, "red"), soft_wrap=True)
    raise typer.Exit(130 if isinstance(error, InterruptedByUserError) else 2)
