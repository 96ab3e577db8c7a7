"""What `ftnn bench` does: measure, then show a table and bars, or one JSON document."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ftnn.bench._rows import Row, as_json
from ftnn.bench._show import by_workload, chart, machine, markdown, remarks, table
from ftnn.bench._workloads import WORKLOADS, choose, run

_WIDE = 10_000  # columns: where nobody looks at a screen, nothing is folded


def bench(
    workloads: Sequence[str] = (),
    functions: Sequence[str] = (),
    *,
    quick: bool = False,
    compile: bool = True,
    json: bool = False,
    markdown_file: Path | None = None,
) -> list[Row]:
    """Measure and show.

    **Arguments:**

    - `workloads`: of "A" to "E" and "growth"; all, unless named.
    - `functions`: of "F01" to "F20"; each workload's own, unless named.
    - `quick`: workload A with five functions, in under a minute.
    - `compile`: whether torch.compile takes part.
    - `json`: one JSON document on standard output, everything else on standard error.
    - `markdown_file`: where to write the tables as Markdown too.
    """
    choice, notes = choose(workloads, functions, quick=quick, compile=compile)
    beside = Console(stderr=True, highlight=False)
    beside.print(machine(), *(notes if json else ()), sep="\n", markup=False, soft_wrap=True)
    rows: list[Row] = []
    with beside.status("") as status:

        def say(text: str) -> None:
            # A terminal shows what is being done now; a file is told only when it begins.
            status.update(text) if beside.is_terminal else print(text, file=sys.stderr)

        rows.extend(run(choice, say))
    if markdown_file is not None:
        markdown_file.write_text(markdown(rows), "utf-8")
    if json:
        print(as_json(rows))
    else:
        show(rows, notes)
    return rows


def show(rows: Sequence[Row], notes: Sequence[str] = ()) -> None:
    """Tables and bars on standard output."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _WIDE
    for name, some in by_workload(rows).items():
        workload = WORKLOADS[name]
        console.print(f"{name}: {workload.title}", style="bold", markup=False)
        console.print(table(workload, some))
        for line in (*remarks(some), "", *chart(workload, some), ""):
            console.print(line, markup=False)
    for note in notes:
        console.print(note, markup=False)
