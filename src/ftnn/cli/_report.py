"""`ftnn report`: one page of all that is in a store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ftnn.cli._app import Json, app
from ftnn.cli._screen import say, show_json
from ftnn.cli._store import tell_damaged


@app.command()
def report(
    store: Annotated[Path, typer.Option(metavar="FILE", help="Where results are kept.")] = Path(
        "ftnn.sqlite"
    ),
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="The page to write; a name in .md makes tables in Markdown.")
    ] = Path("report.html"),
    as_json: Json = False,
) -> None:
    """Write one page of all that is in a store, beside the paper: HTML that needs no network, or Markdown."""
    from ftnn.experiments import Store
    from ftnn.experiments.report import write_report

    with Store(store, must_exist=True) as opened:
        written = write_report(opened, out)
    tell_damaged(written.damaged)
    if as_json:
        show_json({"out": str(out), **written.to_dict()})
        return
    summary = written.summary
    say(f"{out}: {summary.done} of the paper's {summary.cells} cells, {written.rows} stages")
    if summary.median is not None and summary.share_within is not None:
        say(
            f"median difference {summary.median:.2f}; {summary.share_within:.1f} % within 1.0 point of the "
            "paper or better"
        )
