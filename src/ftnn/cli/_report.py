"""`ftnn report`: one page of all that is in a store; and `ftnn reproduce conic`, which is done in seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ftnn.cli._app import app
from ftnn.cli._experiments import reproduce, tell_damaged
from ftnn.cli._screen import say, show, show_json, text

_Json = Annotated[bool, typer.Option("--json", help="One JSON document instead of text.")]


@app.command()
def report(
    store: Annotated[Path, typer.Option(metavar="FILE", help="Where results are kept.")] = Path(
        "ftnn.sqlite"
    ),
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="The page to write; a name in .md makes tables in Markdown.")
    ] = Path("report.html"),
    as_json: _Json = False,
) -> None:
    """Write one page of all that is in a store, beside the paper: HTML that needs no network, or Markdown."""
    from ftnn.experiments import Store
    from ftnn.experiments.report import write_report

    with Store(store, must_exist=True) as opened:
        made = write_report(opened, out)
    tell_damaged(made.damaged)
    if as_json:
        show_json({"out": str(out), **made.to_dict()})
        return
    summary = made.summary
    say(f"{out}: {summary.done} of the paper's {summary.cells} cells, {made.rows} stages")
    if summary.median is not None and summary.share_within is not None:
        say(
            f"median difference {summary.median:.2f}; {summary.share_within:.1f} % within 1.0 point of the "
            "paper or better"
        )


@reproduce.command("conic")
def reproduce_conic(
    problems: Annotated[str | None, typer.Option(metavar="NAME,…", help="Which, if not all.")] = None,
    seeds: Annotated[str, typer.Option(metavar="0,1,…", help="Seeds.")] = "0",
    store: Annotated[
        Path, typer.Option(metavar="FILE", help="Where results are kept; made if it is not there.")
    ] = Path("ftnn.sqlite"),
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the boundaries as SVG, and the numbers, here.")
    ] = None,
    as_json: _Json = False,
) -> None:
    """The three ellipses; ellipses and hyperbolas learned; closed and open regions in 3 and 5 dimensions."""
    from ftnn.experiments import Store
    from ftnn.experiments._conic_results import conic_cells, run_conic, write_conic

    cells = conic_cells(problems, seeds)
    with Store(store) as opened:
        results = run_conic(opened, cells)
        files = write_conic(opened, results, out) if out is not None else []
    if as_json:
        show_json({"conic": [result.to_dict() for result in results], "files": [str(file) for file in files]})
        return
    table = Table("problem", "function", "seed", "right", "seconds", "", box=None, pad_edge=False)
    for column in table.columns[2:5]:
        column.justify = "right"
    for result in results:
        place = (result.problem, result.function, str(result.seed), f"{result.accuracy:.2f} %")
        table.add_row(*map(text, (*place, f"{result.seconds:.1f}")), text(result.failed or "", "yellow"))
    show(table)
