"""`ftnn bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ftnn.cli._app import app


@app.command()
def bench(
    workload: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME,…",
            help="A: a training step. B: a dense layer. C: the memory function. D: memory. "
            "E: a PyTorch loop. growth: over batch, width and density. May be repeated. Default: all.",
        ),
    ] = None,
    functions: Annotated[
        str | None,
        typer.Option(metavar="F03,F12,…", help="What to measure, if not each workload's own choice."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A with five functions, in under a minute.")] = False,
    compile: Annotated[
        bool, typer.Option("--compile/--no-compile", help="Whether torch.compile takes part.")
    ] = True,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the tables here as Markdown too.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document instead of text.")] = False,
) -> None:
    """Measure functions beside weights: ratios to a torch MLP, and to the same formulas in plain torch."""
    from ftnn.bench import bench  # only now: it loads compilers and data
    from ftnn.experiments._grids import names

    bench(
        [name for text in workload or () for name in names("--workload", text)],
        [] if functions is None else names("--functions", functions),
        quick=quick,
        compile=compile,
        json=as_json,
        markdown_file=markdown,
    )
