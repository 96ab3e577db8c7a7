"""`ftnn store`: what the experiments found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ftnn.cli._app import Commands, Json, app
from ftnn.cli._reproduce import DEFAULT, StorePath
from ftnn.cli._screen import say, show_json

if TYPE_CHECKING:
    from ftnn.experiments.grid.rows import Damaged

store = typer.Typer(
    name="store",
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="See, export and import results.",
)
app.add_typer(store)


@store.command("list")
def store_list(store: StorePath = DEFAULT, as_json: Json = False) -> None:
    """Show the cells that are in a store, beside the paper's."""
    from ftnn.cli._cells import Line, show_lines
    from ftnn.experiments import Store
    from ftnn.experiments.grid.rows import rows_of
    from ftnn.experiments.paper.mnist.cells import FineTuning

    with Store(store, must_exist=True) as opened:
        rows, damaged = opened.survey()
        outdated = opened.count() - len(rows) - len(damaged)
    lines = [Line(cell, row) for cell, row in rows_of(FineTuning, rows)]
    lines.sort(key=lambda line: line.place)
    stages = Counter(row.task.kind for row in rows)
    seconds = sum(row.seconds for row in rows)
    tell_damaged(damaged)
    if as_json:
        document = {
            "cells": [line.as_json() for line in lines],
            "stages": dict(stages),
            "curves": stages["pi"],
            "seconds": seconds,
            "outdated": outdated,
            "damaged": [asdict(row) for row in damaged],
        }
        show_json(document)
        return
    show_lines(lines)
    say(f"{len(lines)} cells, {stages['pi']} curves of π")
    say(
        f"{stages['lwt']} stages of layer-wise training and {stages['ft']} of fine-tuning, each once: "
        f"{seconds:.0f} s"
    )
    if outdated:
        say(f"{outdated} more of an ftnn that trained otherwise: they are not shown, and run again")


@store.command("export")
def store_export(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A .csv with cells, or a .parquet with everything.")
    ],
    what: Annotated[
        str,
        typer.Option(
            metavar="mnist|custom|other|pi",
            help="What a CSV has: the catalogue's cells, other functions', those with other settings than "
            "the paper's, or π.",
        ),
    ] = "mnist",
    parameters: Annotated[
        bool, typer.Option(help="Whether a Parquet file has the trained parameters too.")
    ] = True,
    store: StorePath = DEFAULT,
) -> None:
    """Write results into a file that can be committed, and imported again."""
    from ftnn.experiments import Store
    from ftnn.experiments.grid.exchange import export

    damaged: list[Damaged] = []
    with Store(store, must_exist=True) as opened:
        rows, left_out = export(opened, file, what, parameters=parameters, on_damage=damaged.append)
    say(f"{rows} rows in {file}")
    if left_out:
        say(
            f"{left_out} stages with other settings than the paper's are not in it: --what other writes "
            "the cells of MNIST among them, and a .parquet has all",
            beside=True,
        )
    tell_damaged(damaged)


@store.command("import")
def store_import(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="What `ftnn store export` wrote.")],
    store: StorePath = DEFAULT,
) -> None:
    """Add exported results to a store: what is in it is never done again."""
    from ftnn.experiments import Store
    from ftnn.experiments.grid.exchange import import_files

    with Store(store) as opened:
        counts = import_files(opened, files)
    for file, (rows, new) in counts.items():
        say(f"{file}: {rows} rows, {new} of them new")


def tell_damaged(damaged: Sequence[Damaged]) -> None:
    """Say which rows of a store make no sense."""
    for row in damaged:
        say(f"damaged, and left out: {row}", beside=True)
