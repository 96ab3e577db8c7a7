"""The application that all commands belong to."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ftnn import __version__
from ftnn.cli._screen import fail, say, streams
from ftnn.errors import FtnnError, InterruptedByUserError

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
"""The option of every command that prints a result."""


class Commands(TyperGroup):
    """Prints ftnn's own errors without a traceback."""

    def main(self, *args: Any, **options: Any) -> Any:
        try:
            with streams():
                return super().main(*args, **options)
        except KeyboardInterrupt:  # outside of `invoke`
            raise SystemExit(130) from None

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command whose help is wrapped where the terminal ends, not where lines of the source do."""
        command = super().get_command(ctx, cmd_name)
        if command is not None and command.help:
            command.help = re.sub(r"(?<=\S)\n(?=\S)", " ", command.help)
        return command

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse empty values: they are mistakes, such as `--out "$DIR"` with an unset variable."""
        before = args[: args.index("--")] if "--" in args else args
        empty = [option for option, value in pairwise(before) if option.startswith("--") and value == ""]
        for option in (*empty, *(arg[:-1] for arg in before if arg.startswith("--") and arg.endswith("="))):
            raise typer.BadParameter("the value is empty", ctx, param_hint=option)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except FtnnError as error:
            fail(error)
        except KeyboardInterrupt:
            fail(InterruptedByUserError("interrupted"))


FUNCTION_EXAMPLES = """\
[bold]Examples[/bold]

[cyan]ftnn functions[/cyan]   list the catalogue

[cyan]ftnn functions F12[/cyan]   explain one function

[cyan]ftnn functions "p*tan(q*x + r)"[/cyan]   explain your own formula
"""
_EXAMPLES = f"""\
{FUNCTION_EXAMPLES}
[cyan]ftnn train --function F12 --activation tanh[/cyan]   train on MNIST

[cyan]ftnn train --data iris.csv --target species --out iris[/cyan]   train on a table, save to iris/

[cyan]ftnn predict iris more.csv[/cyan]   predict with the saved model

[cyan]ftnn inspect iris --data iris.csv --plot iris.png[/cyan]   inspect the model
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


def _show_version(requested: bool) -> None:
    if requested:
        say(f"ftnn {__version__}")
        raise typer.Exit


@app.callback(epilog=_EXAMPLES)
def main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Networks in which every connection is a trainable function instead of a weight."""
