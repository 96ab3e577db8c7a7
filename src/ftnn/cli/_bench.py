"""`ftnn bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ftnn.cli._app import Json, app
from ftnn.cli._lists import names
from ftnn.cli._screen import say, show, show_json, showing, text


@app.command()
def bench(
    workload: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME,…",
            help="A: training step. B: dense layer. C: memory function. D: peak memory. E: PyTorch loop. "
            "F: Adam. G: large model. bases: fixed functions, as in KANs. small: small layers. float64: B in "
            "double precision. time: memory over time. start: first run. growth: effect of batch size, "
            "width and density. Can be repeated. Default: all.",
        ),
    ] = None,
    functions: Annotated[
        str | None,
        typer.Option(metavar="F03,F12,…", help="Functions to measure. Default: depends on the workload."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only workload A with five functions, in under a minute.")
    ] = False,
    compile: Annotated[bool, typer.Option("--compile/--no-compile", help="Include torch.compile.")] = True,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the tables to this file, as Markdown.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare the speed of ftnn with a torch MLP, and with the same formulas in plain torch."""
    from ftnn import bench  # here because it loads compilers and data

    choice, notes = bench.choose(
        [name for value in workload or () for name in names("--workload", value)],
        [] if functions is None else names("--functions", functions),
        quick=quick,
        compile=compile,
    )
    for line in (bench.machine(), *(notes if as_json else ())):
        say(line, to_stderr=True)
    with showing(choice.parts) as show_current:
        rows = list(bench.run(choice, show_current))
    if markdown is not None:
        markdown.write_text(bench.markdown(rows), "utf-8")
    if as_json:
        show_json([row.to_dict() for row in rows])
        return
    for name, measured in bench.by_workload(rows).items():
        kind = bench.WORKLOADS[name]
        show(text(f"{name}: {kind.title}", "bold"))
        show(bench.table(kind, measured))
        for line in (*bench.remarks(measured), "", *bench.chart(kind, measured), ""):
            say(line)
    for note in notes:
        say(note)
