"""`ftnn report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ftnn.cli._app import Json, app
from ftnn.cli._reproduce import DEFAULT
from ftnn.cli._screen import say, show_json
from ftnn.cli._store import ExistingStore, open_store, print_damaged


@app.command()
def report(
    store: ExistingStore = DEFAULT,
    out: Annotated[
        Path,
        typer.Option(metavar="FILE", help="The file to write: an HTML page, or Markdown if it ends in .md."),
    ] = Path("report.html"),
    as_json: Json = False,
) -> None:
    """Write a page with all results of a store, next to the paper's: self-contained HTML, or Markdown."""
    from ftnn.experiments.report import write_report

    with open_store(store) as opened:
        report = write_report(opened, out)
    print_damaged(report.damaged)
    if as_json:
        show_json({"out": str(out), **report.to_dict()})
        return
    summary = report.summary
    say(f"{out}: {summary.done} of the paper's {summary.cells} cells, {report.rows} stages")
    if summary.median is not None and summary.share_within is not None:
        say(
            f"median difference {summary.median:.2f}; {summary.share_within:.1f} % within 1.0 point of the "
            "paper or better"
        )
