"""`ftnn reproduce`: the paper's experiments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from ftnn.cli._app import Commands, Json, app
from ftnn.cli._lists import names, numbers, seed_numbers
from ftnn.cli._screen import show, show_json, text
from ftnn.errors import FtnnError, InterruptedByUserError

if TYPE_CHECKING:
    from ftnn.experiments import Store
    from ftnn.experiments.grid.rows import Row
    from ftnn.experiments.grid.scheduler import Executor
    from ftnn.experiments.grid.task import AnyTask

StorePath = Annotated[
    Path, typer.Option("--store", metavar="FILE", help="The store of results; created if missing.")
]
DEFAULT = Path("ftnn.sqlite")
_Jobs = Annotated[
    int | None,
    typer.Option(metavar="N", help="Worker processes with one thread each. Default: one per core."),
]
_Ray = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Run on a Ray cluster: HOST:PORT, or auto. Needs ftnn\\[ray]."),
]
_EXAMPLES = """\
[bold]Examples[/bold]

[cyan]ftnn reproduce mnist --layers 1[/cyan]   one of the paper's tables

[cyan]ftnn reproduce mnist --functions F03,F12 --seeds 0,1[/cyan]   two functions

[cyan]ftnn reproduce mnist --functions "p*tan(q*x + r) where q in [-10, 10]" --layers 1 --gammas all[/cyan]

[cyan]ftnn reproduce direct --layers 10[/cyan]   the paper's deepest networks, all layers trained at once

[cyan]ftnn reproduce pi --pairs 200[/cyan]   four of the curves

Finished work is kept in the store: after Ctrl-C, the same command continues.
"""

reproduce = typer.Typer(
    name="reproduce",
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Run the paper's experiments.",
)
app.add_typer(reproduce)

_Layers = Annotated[str, typer.Option(metavar="1,5,10", help="Numbers of hidden layers.")]
_Functions = Annotated[
    list[str] | None,
    typer.Option(
        metavar="F01,F12,…", help="Catalogue names or formulas. Can be repeated. Default: F01 to F20."
    ),
]
_Activations = Annotated[
    str,
    typer.Option(
        metavar="NAME,…",
        help="Any of logistic, relu, tanh and relu20 (a ReLU that ends at 20), or formulas in x.",
    ),
]
_Seeds = Annotated[str, typer.Option(metavar="0,1,…", help="Seeds.")]
_Data = Annotated[
    str,
    typer.Option(
        metavar="mnist[:N]",
        help="mnist:N: the first N training images; mnist: all 60,000. Up to 50,000, the last 10,000 are for "
        "validation.",
    ),
]
_Width = Annotated[int, typer.Option(help="Units in each hidden layer.")]


@reproduce.command("mnist", epilog=_EXAMPLES)
def reproduce_mnist(
    layers: _Layers = "1,5,10",
    functions: _Functions = None,
    activations: _Activations = "logistic,relu,tanh",
    gammas: Annotated[
        str,
        typer.Option(
            metavar="best|all|0,-1,…",
            help="The learning rate is 2^γ. best: the paper's best γ for each cell; all: 0 to -5; or "
            "numbers.",
        ),
    ] = "best",
    seeds: _Seeds = "0",
    jobs: _Jobs = None,
    ray: _Ray = None,
    store: StorePath = DEFAULT,
    data: _Data = "mnist:50000",
    width: _Width = 128,
    epochs: Annotated[int, typer.Option(help="Epochs of layer-wise training, per layer.")] = 15,
    fine_tuning_epochs: Annotated[int, typer.Option(help="Maximum epochs of fine-tuning.")] = 15,
    as_json: Json = False,
) -> None:
    """Rerun the paper's MNIST tables, or a part of them.

    A cell is one network: a function, an activation, a depth, a γ and a seed.
    """
    from ftnn.cli._cells import Line, show_lines
    from ftnn.experiments import mnist_cells

    chosen: Any = names("--activations", activations)
    cells = mnist_cells(
        numbers("--layers", layers, int, low=1),
        _function_names(functions),
        chosen,
        gammas if gammas in ("best", "all") else numbers("--gammas", gammas, float, also="best, all, or "),
        seed_numbers(seeds),
        data=data,
        epochs=(epochs, fine_tuning_epochs),
        width=width,
    )
    rows = _run([cell.task() for cell in cells], jobs, ray, store)
    lines = sorted((Line(cell, rows[cell.task().key]) for cell in cells), key=lambda line: line.place)
    if as_json:
        show_json({"cells": [line.as_json() for line in lines]})
    else:
        show_lines(lines)


@reproduce.command("direct", epilog=_EXAMPLES)
def reproduce_direct(
    layers: _Layers = "1,5,10",
    functions: _Functions = None,
    activations: _Activations = "logistic,relu,tanh",
    seeds: _Seeds = "0",
    jobs: _Jobs = None,
    ray: _Ray = None,
    store: StorePath = DEFAULT,
    data: _Data = "mnist:50000",
    width: _Width = 128,
    epochs: Annotated[int, typer.Option(help="Epochs.")] = 10,
    as_json: Json = False,
) -> None:
    """Train the paper's MNIST networks directly, all layers at once, next to its best results."""
    from ftnn.cli._cells import DirectLine, show_direct
    from ftnn.experiments import direct_cells

    chosen: Any = names("--activations", activations)
    cells = direct_cells(
        numbers("--layers", layers, int, low=1),
        _function_names(functions),
        chosen,
        seed_numbers(seeds),
        epochs=epochs,
        data=data,
        width=width,
    )
    rows = _run([cell.task() for cell in cells], jobs, ray, store)
    lines = [DirectLine(cell, rows[cell.task().key]) for cell in cells]
    if as_json:
        show_json({"cells": [line.as_json() for line in lines]})
    else:
        show_direct(lines)


def _function_names(options: list[str] | None) -> Sequence[str]:
    from ftnn.experiments.paper.mnist.functions import FUNCTIONS

    return [name for option in options or () for name in names("--functions", option)] or FUNCTIONS


@reproduce.command("pi", epilog=_EXAMPLES)
def reproduce_pi(
    hidden: Annotated[
        str, typer.Option(metavar="128,256,…", help="Numbers of hidden units.")
    ] = "128,256,512,1024",
    pairs: Annotated[
        str,
        typer.Option(metavar="200,400,…", help="Numbers of digits to learn: pairs of a digit and the next."),
    ] = "200,400,800",
    seeds: _Seeds = "0",
    epochs: Annotated[int, typer.Option(help="Number of passes over the digits.")] = 5000,
    states: Annotated[
        str,
        typer.Option(
            metavar="reset|carried|reset,carried",
            help="What happens to the memory between epochs. The paper does not say; its code carries it.",
        ),
    ] = "carried",
    jobs: _Jobs = None,
    ray: _Ray = None,
    store: StorePath = DEFAULT,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Draw all curves in one plot (SVG), for each state, in this folder."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Train memory networks to memorise digits of π: by default, the 12 curves in the paper's figure."""
    from ftnn.cli._cells import percent, seconds, table_of
    from ftnn.experiments import Store, pi_cells

    cells = pi_cells(
        numbers("--hidden", hidden, int, low=1),
        numbers("--pairs", pairs, int, low=1),
        seed_numbers(seeds),
        epochs,
        names("--states", states),
    )
    rows = _run([cell.task() for cell in cells], jobs, ray, store)
    with Store(store) as opened:
        curves = [_curve(opened, rows[cell.task().key]) for cell in cells]
        files: list[Path] = []
        if out is not None:
            from ftnn.experiments.report.pi import curves as drawn
            from ftnn.experiments.report.pi import write_pi

            files = write_pi(drawn(rows.values(), opened.all_epochs()[0]), out)
    if as_json:
        show_json({"curves": curves, "files": [str(file) for file in files]})
        return
    table = table_of("hidden", "pairs", "state", "seed", "last", "best of the last tenth", "seconds")
    for curve in curves:
        results = (percent(curve["accuracy"]), percent(curve["best"]), seconds(curve["seconds"]))
        table.add_row(*map(str, (curve["hidden"], curve["pairs"], curve["state"], curve["seed"])), *results)
    show(table)


def _curve(store: Store, row: Row) -> dict[str, Any]:
    passes: Any = store.epochs(row.key)
    last = [each.accuracy for each in passes[-max(1, len(passes) // 10) :] if each.accuracy is not None]
    cell = row.task.cell
    return {
        "hidden": cell.hidden,
        "pairs": cell.pairs,
        "state": cell.state,
        "seed": cell.seed,
        "epochs": len(passes),
        "accuracy": row.ft_accuracy,
        "best": max(last, default=None),
        "seconds": row.cell_seconds,
        "failed": row.failed,
        "digest": row.digest,
    }


@reproduce.command("conic")
def reproduce_conic(
    problems: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,…",
            help="Any of three-ellipses, learn-three-ellipses, learn-ellipse, learn-hyperbola, "
            "hyperbola-without-signs, closed-3, closed-5, open-3 and open-5. Default: all.",
        ),
    ] = None,
    seeds: _Seeds = "0",
    store: StorePath = DEFAULT,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write boundaries (SVG) and results (JSON) to this folder."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Build and learn ellipses and hyperbolas, and check closed and open regions in 3 and 5 dimensions."""
    from ftnn.experiments import Store, conic_cells, watcher
    from ftnn.experiments.paper.conic.cells import run_conic
    from ftnn.experiments.paper.conic.problems import PROBLEMS
    from ftnn.experiments.report.conic import conic_results, write_conic

    chosen = list(PROBLEMS) if problems is None else names("--problems", problems)
    cells = conic_cells(chosen, seed_numbers(seeds))
    with Store(store) as opened:
        with watcher() as watching:
            rows = run_conic(opened, cells, watching)
        results = conic_results(opened.parameters, rows)
        files = write_conic(opened.parameters, results, out) if out is not None else []
    if as_json:
        show_json({"conic": [result.to_dict() for result in results], "files": [str(file) for file in files]})
        return
    table = Table("problem", "function", "seed", "correct", "seconds", "", box=None, pad_edge=False)
    for column in table.columns[2:5]:
        column.justify = "right"
    for result in results:
        place = (result.problem, result.function, str(result.seed), f"{result.accuracy:.2f} %")
        table.add_row(*map(text, (*place, f"{result.seconds:.1f}")), text(result.failed or "", "yellow"))
    show(table)


def _run(tasks: Sequence[AnyTask], jobs: int | None, ray: str | None, path: Path) -> dict[str, Row]:
    """Run the tasks that the store lacks. Returns the rows of all these tasks by key."""
    from ftnn.experiments import Store, run, watcher

    if ray is not None and jobs is not None:
        raise FtnnError("--jobs is for this machine, --ray for a cluster: use only one")
    try:
        with Store(path) as store:
            if len(store.done(task.key for task in tasks)) < len({task.key for task in tasks}):
                with watcher() as watching:
                    run(tasks, store, _executor(jobs, ray), watching)
            return {row.key: row for row in store.rows(task.key for task in tasks)}
    except KeyboardInterrupt:
        raise InterruptedByUserError(
            f"interrupted; finished work is in {path}, and the same command continues from there"
        ) from None


def _executor(jobs: int | None, ray: str | None) -> Executor:
    if ray is None:
        from ftnn.experiments import LocalExecutor

        return LocalExecutor(jobs)
    from ftnn.experiments.grid.ray import RayExecutor  # optional dependency

    return RayExecutor(ray)
