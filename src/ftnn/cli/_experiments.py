"""`ftnn reproduce` and `ftnn store`: the paper's experiments, and what they found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from ftnn.cli._app import Commands, app
from ftnn.cli._screen import say, show, show_json, text

if TYPE_CHECKING:
    from ftnn.experiments._command import Line
    from ftnn.experiments._rows import Damaged

_StorePath = Annotated[
    Path, typer.Option("--store", metavar="FILE", help="Where results are kept; made if it is not there.")
]
_Jobs = Annotated[
    int | None, typer.Option(metavar="N", help="Worker processes, of one thread each. Default: one a core.")
]
_Ray = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="Run on a Ray cluster: its HOST:PORT, or auto. Needs the extra ftnn[ray]."
    ),
]
_Json = Annotated[bool, typer.Option("--json", help="One JSON document instead of text.")]
_DEFAULT = Path("ftnn.sqlite")
_MANY = 100  # rows
_LEFT = ("function", "activation", "")  # columns

_EXAMPLES = """\
[bold]Examples[/bold]

[cyan]ftnn reproduce mnist --layers 1[/cyan]   a table of the paper

[cyan]ftnn reproduce mnist --functions F03 --activations logistic --gammas -2[/cyan]   one chain

[cyan]ftnn reproduce mnist --functions "p*tan(q*x + r) where q in [-10, 10]" --layers 1 --gammas all[/cyan]

[cyan]ftnn reproduce pi --pairs 200[/cyan]   four curves

What is done is kept in the store, and never done again: after Ctrl-C, the same command goes on.
"""

reproduce = typer.Typer(
    name="reproduce",
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Run the paper's experiments.",
)
store = typer.Typer(
    name="store",
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="See, export and import results.",
)
app.add_typer(reproduce)
app.add_typer(store)


@reproduce.command("mnist", epilog=_EXAMPLES)
def reproduce_mnist(
    layers: Annotated[str, typer.Option(metavar="1,5,10", help="Numbers of hidden layers.")] = "1,5,10",
    functions: Annotated[
        list[str] | None,
        typer.Option(metavar="F01,F12,…", help="Names or formulas. May be repeated. Default: all 20."),
    ] = None,
    activations: Annotated[str, typer.Option(metavar="NAME,…", help="Of logistic, relu and tanh.")] = (
        "logistic,relu,tanh"
    ),
    gammas: Annotated[
        str,
        typer.Option(
            metavar="best|all|0,-1,…", help="The paper's best γ of each cell, all from 0 to -5, or these."
        ),
    ] = "best",
    seeds: Annotated[str, typer.Option(metavar="0,1,…", help="Seeds.")] = "0",
    jobs: _Jobs = None,
    ray: _Ray = None,
    store: _StorePath = _DEFAULT,
    data: Annotated[
        str, typer.Option(metavar="mnist[:N]", help="All images, or the first N: for a quick look.")
    ] = "mnist",
    width: Annotated[int, typer.Option(help="Units in each hidden layer.")] = 128,
    epochs: Annotated[int, typer.Option(help="Of layer-wise training, for each layer.")] = 15,
    fine_tuning_epochs: Annotated[int, typer.Option(help="Of fine-tuning, at most.")] = 15,
    as_json: _Json = False,
) -> None:
    """Train cells of the paper's tables on MNIST. Cells that differ in depth only share what they can."""
    from ftnn.experiments import _command

    lines = _command.run_mnist(
        layers,
        functions or [],
        activations,
        gammas,
        seeds,
        jobs=jobs,
        ray=ray,
        store=store,
        data=data,
        width=width,
        epochs=(epochs, fine_tuning_epochs),
    )
    _show_lines(lines, as_json)


@reproduce.command("pi", epilog=_EXAMPLES)
def reproduce_pi(
    hidden: Annotated[
        str, typer.Option(metavar="128,256,…", help="Numbers of hidden units.")
    ] = "128,256,512,1024",
    pairs: Annotated[
        str, typer.Option(metavar="200,400,…", help="Numbers of digits to learn.")
    ] = "200,400,800",
    seeds: Annotated[str, typer.Option(metavar="0,1,…", help="Seeds.")] = "0",
    epochs: Annotated[int, typer.Option(help="Passes over the digits.")] = 5000,
    jobs: _Jobs = None,
    ray: _Ray = None,
    store: _StorePath = _DEFAULT,
    as_json: _Json = False,
) -> None:
    """Let memory layers learn digits of π by heart: the 12 curves of the paper's figure."""
    from ftnn.experiments import _command

    found = _command.run_pi(hidden, pairs, seeds, epochs, jobs=jobs, ray=ray, store=store)
    if as_json:
        show_json({"curves": found})
        return
    table = _table("hidden", "pairs", "seed", "last", "best of the last tenth", "seconds")
    for curve in found:
        numbers = (_percent(curve["accuracy"]), _percent(curve["best"]), _seconds(curve["seconds"]))
        table.add_row(*map(str, (curve["hidden"], curve["pairs"], curve["seed"])), *numbers)
    show(table)


@store.command("list")
def store_list(store: _StorePath = _DEFAULT, as_json: _Json = False) -> None:
    """Show the cells that are in a store, beside the paper's."""
    from ftnn.experiments import _command

    found = _command.contents(store)
    tell_damaged(found.damaged)
    if as_json:
        show_json(found.as_json())
        return
    _show_lines(found.lines, False)
    for line in found.summary():
        say(line)


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
    store: _StorePath = _DEFAULT,
) -> None:
    """Write results into a file that can be committed, and imported again."""
    from ftnn.experiments import _command

    rows, left_out, damaged = _command.export_store(store, file, what, parameters)
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
    store: _StorePath = _DEFAULT,
) -> None:
    """Add exported results to a store: what is in it is never done again."""
    from ftnn.experiments import _command

    for file, (rows, new) in _command.import_into(store, files).items():
        say(f"{file}: {rows} rows, {new} of them new")


def tell_damaged(damaged: Sequence[Damaged]) -> None:
    """Say which rows of a store make no sense."""
    for each in damaged:
        say(f"damaged, and left out: {each}", beside=True)


def _show_lines(lines: list[Line], as_json: bool) -> None:
    if as_json:
        show_json({"cells": [line.as_json() for line in lines]})
        return
    names = (
        "function",
        "activation",
        "layers",
        "γ",
        "seed",
        "LWT",
        "FT",
        "paper's LWT",
        "paper's FT",
        "seconds",
    )
    rows = [_cells(line) for line in lines]
    if len(rows) > _MANY:
        _print_aligned((*names, ""), rows)
        return
    table = _table(*names, "")
    for *cells, failed in rows:
        table.add_row(*map(text, cells), text(failed, "yellow"))
    show(table)


def _cells(line: Line) -> tuple[str, ...]:
    cell = line.cell
    place = (cell.function, cell.activation, str(cell.hidden_layers), f"{cell.gamma:g}", str(cell.seed))
    papers = ("", "") if line.paper is None else tuple(map(_percent, line.paper))
    found = (_percent(line.lwt_accuracy), _percent(line.ft_accuracy))
    return (*place, *found, *papers, _seconds(line.seconds), line.failed or "")


def _print_aligned(names: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """A long table at once: Rich takes a second for a thousand rows."""
    whole = [names, *rows]
    widths = [max(map(len, column)) for column in zip(*whole, strict=True)]
    for row in whole:
        parts = [
            cell.ljust(width) if name in _LEFT else cell.rjust(width)
            for name, cell, width in zip(names, row, widths, strict=True)
        ]
        say("  ".join(parts).rstrip())


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(name, justify="left" if name in _LEFT else "right", no_wrap=bool(name))
    return table


def _percent(value: Any) -> str:
    return "×" if value is None else f"{value:.2f}"


def _seconds(value: Any) -> str:
    return "" if value is None else f"{value:.1f}"
