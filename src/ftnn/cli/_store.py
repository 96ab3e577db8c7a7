"""`ftnn store` and `ftnn report`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ftnn._printable import plural
from ftnn.cli._app import Commands, Json, app
from ftnn.cli._reproduce import DEFAULT, StorePath
from ftnn.cli._screen import say, show_json
from ftnn.errors import FtnnError

if TYPE_CHECKING:
    from ftnn.experiments import Store
    from ftnn.experiments.grid.rows import Damaged

ExistingStore = Annotated[Path, typer.Option("--store", metavar="FILE", help="The store of results.")]

store = typer.Typer(
    name="store",
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="List, export and import results.",
)
app.add_typer(store)


@store.command("list")
def store_list(store: ExistingStore = DEFAULT, as_json: Json = False) -> None:
    """List the trained networks (cells) in a store, next to the paper's results."""
    from ftnn.cli._cells import DirectLine, Line, show_direct, show_lines
    from ftnn.experiments.grid.rows import rows_of
    from ftnn.experiments.paper.mnist.cells import FineTuning
    from ftnn.experiments.paper.mnist.direct import Direct

    with open_store(store) as opened:
        rows, damaged = opened.survey()
        hidden = opened.count() - len(rows) - len(damaged)
    outdated = sum(row.task.older is not None for row in rows)
    lines = [Line(cell, row) for cell, row in rows_of(FineTuning, rows)]
    lines.sort(key=lambda line: line.place)
    direct = [DirectLine(cell, row) for cell, row in rows_of(Direct, rows)]
    direct.sort(key=lambda line: line.place)
    stages = Counter(row.task.kind for row in rows)
    seconds = sum(row.seconds for row in rows)
    print_damaged(damaged)
    if as_json:
        document = {
            "cells": [line.as_json() for line in lines],
            "direct": [line.as_json() for line in direct],
            "stages": dict(stages),
            "curves": stages["pi"],
            "seconds": seconds,
            "outdated": outdated + hidden,
            "damaged": [asdict(row) for row in damaged],
        }
        show_json(document)
        return
    if lines or not direct:
        show_lines(lines)
    if direct:
        show_direct(direct)
    say(f"{plural(len(lines), 'cell')}, {len(direct)} trained directly, {plural(stages['pi'], 'curve')} of π")
    say(
        f"{plural(stages['lwt'], 'stage')} of layer-wise training, {stages['ft']} of fine-tuning: "
        f"{seconds:.0f} s"
    )
    if outdated:
        are = "is" if outdated == 1 else "are"
        say(f"{outdated} of these stages {are} from an older version of ftnn; will be rerun")
    if hidden:
        say(f"{hidden} more: replaced by newer results, or written by a newer ftnn")


@store.command("export")
def store_export(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A .csv file with results only, or a .parquet file with everything."
        ),
    ],
    what: Annotated[
        str,
        typer.Option(
            metavar="mnist|custom|other|direct|pi|conic",
            help="Contents of a CSV file. mnist: catalogue functions; custom: your own functions; other: "
            "settings that differ from the paper's; direct: trained directly; pi: digits of π; "
            "conic: conic boundaries.",
        ),
    ] = "mnist",
    parameters: Annotated[bool, typer.Option(help="Include trained parameters in a Parquet file.")] = True,
    store: ExistingStore = DEFAULT,
) -> None:
    """Write results to a file that `ftnn store import` can read."""
    from ftnn.experiments.grid.exchange import export

    damaged: list[Damaged] = []
    with open_store(store) as opened:
        rows, left_out = export(opened, file, what, parameters=parameters, on_damage=damaged.append)
    say(f"{plural(rows, 'row')} in {file}")
    if left_out:
        were = "stage was" if left_out == 1 else "stages were"
        say(
            f"{left_out} {were} left out because of settings that differ from the paper's: --what other "
            "writes those of MNIST, and a .parquet file has all",
            to_stderr=True,
        )
    print_damaged(damaged)


@store.command("import")
def store_import(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Files from `ftnn store export`.")],
    store: StorePath = DEFAULT,
) -> None:
    """Add exported results to a store. Stages with current results are not run again."""
    from ftnn.experiments import Store
    from ftnn.experiments.grid.exchange import import_files

    with Store(store) as opened:
        counts = import_files(opened, files)
    for file, (rows, new) in counts.items():
        say(f"{file}: {plural(rows, 'row')}, {new} of them new")


@app.command()
def report(
    store: ExistingStore = DEFAULT,
    out: Annotated[
        Path,
        typer.Option(metavar="FILE", help="The file to write: an HTML page, or Markdown if it ends in .md."),
    ] = Path("report.html"),
    data: Annotated[
        str,
        typer.Option(
            metavar="mnist[:N]",
            help="The data of the paper's tables. If changed, the page has only networks trained on it.",
        ),
    ] = "mnist:50000",
    as_json: Json = False,
) -> None:
    """Write a page with all results of a store, next to the paper's: self-contained HTML, or Markdown."""
    from ftnn.experiments.report import write_report

    with open_store(store) as opened:
        report = write_report(opened, out, data)
    print_damaged(report.damaged)
    if as_json:
        show_json({"out": str(out), **report.to_dict()})
        return
    summary = report.summary
    stages = plural(report.rows, "stage")
    say(f"{out}: {summary.done} of the paper's {summary.cells} cells, {stages}")
    if summary.median is not None and summary.share_inside is not None:
        say(
            f"median difference {summary.median:.2f}; {summary.share_inside:.1f} % within 1.0 point of the "
            f"paper, {summary.share_within:.1f} % within 1.0 point or better"
        )


def open_store(path: Path) -> Store:
    """Open a store that must exist."""
    from ftnn.experiments import Store

    if not path.exists():
        raise FtnnError(f"there is no store {path}; choose one with --store, or run `ftnn reproduce` first")
    return Store(path)


def print_damaged(damaged: Sequence[Damaged]) -> None:
    for row in damaged:
        say(f"left out damaged row {row}", to_stderr=True)
