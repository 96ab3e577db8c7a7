"""`ftnn inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ftnn.cli._app import app
from ftnn.cli._screen import say, show, show_json, text


@app.command()
def inspect(
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help="What `ftnn train --out` or ftnn.save kept: folder or file."),
    ],
    data: Annotated[
        str | None,
        typer.Option(
            metavar="mnist|DIR|FILE", help="Count who sleeps on these: test images, or a table's rows."
        ),
    ] = None,
    sympy: Annotated[bool, typer.Option("--sympy", help="Write a small network out as formulas.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="The same in LaTeX.")] = False,
    digits: Annotated[int, typer.Option(help="Significant digits of parameters in formulas.")] = 3,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the most influential connections: .png, .svg or .pdf."),
    ] = None,
    prune: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Save the model without its dead connections.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document instead of text.")] = False,
) -> None:
    """Look into a model: dead, sleeping and awake connections, plots, formulas, pruning."""
    from ftnn.inspect import _command

    if sympy and latex:
        raise typer.BadParameter("--sympy and --latex exclude each other: one way to write it out")
    form = "sympy" if sympy else "latex" if latex else None
    found = _command.inspect(model, data, form=form, digits=digits, plot_file=plot, prune_file=prune)
    if as_json:
        show_json(found.document())
        return
    samples = "" if found.samples is None else f", on {found.samples:,} samples"
    say(f"{found.kind}, {found.parameters:,} parameters{samples}")
    show(_census_table(*found.census.table()))
    if found.outputs is not None:
        for n, written in enumerate(found.inputs or ()):
            say(f"x{n} = {written}")
        for n, written in enumerate(found.outputs):
            say(f"y{n} = {written}")
    for path in found.written:
        say(f"written: {path}", beside=True)


def _census_table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> Table:
    """A row for each layer; on a narrow screen a line for each of its numbers."""
    widths = [max(map(len, column)) + 2 for column in zip(heads, *rows, strict=True)]
    console = Console()
    if console.is_terminal and sum(widths) - widths[1] + 20 > console.width:  # the function may be folded
        table = Table(box=None, pad_edge=False, show_header=False)
        for row in rows:
            for head, cell in zip(heads, row, strict=True):
                table.add_row(text(head, "bold cyan"), text(cell, "bold" if head == "layer" else ""))
        return table
    table = Table(*heads, box=None, pad_edge=False)
    table.columns[0].style = "bold cyan"
    for number, column in enumerate(table.columns):
        column.no_wrap = number != 1
        column.justify = "right" if number > 2 else "left"
    for row in rows:
        table.add_row(*map(text, row))
    return table
