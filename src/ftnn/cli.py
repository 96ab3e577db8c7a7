"""The command `ftnn`: thin, over what the package does."""

from __future__ import annotations

import io
import json
import math
import sys
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from ftnn import __version__
from ftnn.errors import FormulaError, FtnnError
from ftnn.formula import Function, as_function, catalogue
from ftnn.formula._explain import Explanation
from ftnn.formula._function import Range
from ftnn.formula._plan import Plan

if TYPE_CHECKING:
    from ftnn.training._command import Trained

_CAUTIONS = ("pole", "jump", "overflow", "sleep", "dead", "can die")
_WIDE = 10_000  # columns: where nobody looks at a screen, nothing is folded


class _Commands(TyperGroup):
    """Our own errors are for people: the message, and no traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except FtnnError as error:
            _fail(error)


_EXAMPLES = """\
[bold]Examples[/bold]

[cyan]ftnn functions[/cyan]   the catalogue

[cyan]ftnn functions F12[/cyan]   one function of it, explained

[cyan]ftnn functions "p*tan(q*x + r)"[/cyan]   a formula of your own

[cyan]ftnn train --function F12 --activation tanh --gamma -4[/cyan]   train on MNIST

[cyan]ftnn train --data iris.csv --target species --gamma -2 --out iris[/cyan]   on a table of yours

[cyan]ftnn inspect iris --data iris.csv --plot iris.png[/cyan]   look inside what was learned
"""
_MORE = """
[cyan]ftnn functions "p*exp(q*x)" --init q=-40,40 --x 0 10[/cyan]   other ranges

[cyan]ftnn functions "rect(p*x + q)*u" --constant u=-1,1[/cyan]   u is not trained

[cyan]ftnn functions -- "-p*x"[/cyan]   a formula that begins with a minus
"""

app = typer.Typer(
    name="ftnn",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"ftnn {__version__}")
        raise typer.Exit


@app.callback(epilog=_EXAMPLES)
def main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave."),
    ] = False,
) -> None:
    """Networks in which every connection is a trainable function instead of a weight."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that has no ∂ shows ?


# --- ftnn functions ---


@app.command(epilog=_EXAMPLES + _MORE)
def functions(
    function: Annotated[
        str | None,
        typer.Argument(
            metavar="FUNCTION", help="A name of the catalogue or a formula. Without it: the catalogue."
        ),
    ] = None,
    x: Annotated[
        tuple[float, float], typer.Option(metavar="LOW HIGH", help="The range of inputs to look at.")
    ] = (-1.0, 1.0),
    init: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=LOW,HIGH", help="Where a parameter starts, if not in ±0.1. May be repeated."
        ),
    ] = None,
    constant: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE,…", help="What a constant is drawn from. May be repeated."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document instead of text.")] = False,
) -> None:
    """Show the catalogue of functions, or explain one: derivatives, computation, and what to beware of."""
    if function is None:
        if init or constant:
            raise typer.BadParameter("--init and --constant belong to a formula, and none was given")
        _print_json({"functions": list(map(_entry, catalogue))}) if as_json else _print(_catalogue_table())
        return
    made = _function(function, _numbers("--init", init), _numbers("--constant", constant))
    explained = made.explain(x)
    _print_json(_explained(explained)) if as_json else _print(_explained_table(explained))


def _function(text: str, init: Mapping[str, list[float]], constants: Mapping[str, list[float]]) -> Function:
    """The function that the arguments describe; those of the catalogue may be given other ranges."""
    if not init and not constants:
        return as_function(text)
    if text not in catalogue:
        return Function(text, init=init, constants=constants)
    known = catalogue[text]
    ranges = {name: pair for name, pair in known.init.items() if name not in constants}
    return Function(known.formula, init={**ranges, **init}, constants={**known.choices, **constants})


def _numbers(option: str, given: list[str] | None) -> dict[str, list[float]]:
    """`["q=-10,10"]` as `{"q": [-10.0, 10.0]}`."""
    found: dict[str, list[float]] = {}
    for text in given or ():
        name, equals, numbers = text.partition("=")
        try:
            found[name.strip()] = [float(number) for number in numbers.split(",")]
        except ValueError:
            equals = ""
        if not equals:
            raise typer.BadParameter(f"{text!r} is not of the form NAME=NUMBER,NUMBER", param_hint=option)
    return found


def _catalogue_table() -> Table:
    table = Table("name", "F(x)", "start in", "constants", "computed", box=None, pad_edge=False)
    table.columns[0].style = "bold cyan"
    for name, function in catalogue.items():
        by_range: dict[str, list[str]] = defaultdict(list)
        for parameter, pair in function.init.items():
            by_range[_range(pair)].append(parameter)
        ranges = "; ".join(f"{', '.join(names)} {where}" for where, names in by_range.items())
        constants = "; ".join(f"{n} of {_values(v)}" for n, v in function.choices.items())
        cells = (name, function.formula, ranges, constants, _computed(function.plan))
        table.add_row(*map(Text, cells))  # as texts: brackets would be markup
    return table


def _range(pair: Range) -> str:
    low, high = pair
    return f"±{high:g}" if low == -high else f"[{low:g}, {high:g}]"


def _values(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _computed(plan: Plan) -> str:
    if plan.kind == "fused":
        return "fused"
    constant = "" if plan.constant is None else ", constant"
    return f"{plan.gemms} GEMM{'s'[: plan.gemms != 1]}{constant}"


def _explained_table(explained: Explanation) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    for label, text in explained.lines():
        caution = label in _CAUTIONS or (label == "zero" and not explained.reaches_zero)
        table.add_row(Text(label, "bold yellow" if caution else "bold cyan"), Text(text))
    return table


# --- ftnn bench ---


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
        str, typer.Option(metavar="F03,F12,…", help="What to measure, if not each workload's own choice.")
    ] = "",
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

    bench(
        [name for text in workload or () for name in text.split(",")],
        [name for name in functions.split(",") if name],
        quick=quick,
        compile=compile,
        json=as_json,
        markdown_file=markdown,
    )


# --- ftnn train, ftnn predict ---


@app.command()
def train(
    function: Annotated[str, typer.Option(help="A name of the catalogue or a formula.")] = "F07",
    activation: Annotated[str, typer.Option(help="logistic, relu or tanh.")] = "logistic",
    layers: Annotated[int, typer.Option(help="How many hidden layers.")] = 1,
    width: Annotated[int, typer.Option(help="Units in each.")] = 128,
    gamma: Annotated[
        float, typer.Option(help="The learning rate is 2^γ, and 2^(γ-4) for fine-tuning.")
    ] = 0.0,
    data: Annotated[
        str,
        typer.Option(
            metavar="mnist|DIR|FILE", help="MNIST, a folder of IDX files, or a CSV or Parquet file."
        ),
    ] = "mnist",
    target: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The column of a table to learn.")
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="classification or regression; found from the target if not given.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of all random streams.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep the model, its history and a checkpoint to go on from."),
    ] = None,
    epochs: Annotated[int, typer.Option(help="Of layer-wise training, for each layer.")] = 15,
    fine_tuning_epochs: Annotated[int, typer.Option(help="Of fine-tuning, at most.")] = 15,
    batch_size: Annotated[int, typer.Option(help="Of the mini-batches.")] = 16,
    solver: Annotated[str, typer.Option(help="layerwise or joint.")] = "layerwise",
    engine: Annotated[str, typer.Option(help="auto, compiled or torch.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document instead of text.")] = False,
) -> None:
    """Train a network layer by layer, then fine-tune it: the paper's method. MNIST is built in."""
    from ftnn.training import _command

    if task not in (None, "classification", "regression"):
        raise typer.BadParameter(f"{task!r}: allowed are classification, regression", param_hint="--task")
    done = _command.train(
        function=function,
        activation=activation,
        layers=layers,
        width=width,
        gamma=gamma,
        data=data,
        target=target,
        task=task,
        seed=seed,
        out=out,
        epochs=(epochs, fine_tuning_epochs),
        batch_size=batch_size,
        solver=solver,
        engine=engine,
        progress=True,
    )
    if as_json:
        _print_json(asdict(done.result))
        return
    _print(_trained_table(done))


def _trained_table(done: Trained) -> Table:
    table = Table("", "layer-wise", "fine-tuned", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    result = done.result
    if done.history.epochs and done.history.epochs[-1].train_accuracy is None:
        ends = [[e for e in done.history.epochs if e.stage != "ft"], done.history.epochs]
        losses = [f"{kept[-1].test_loss:.4g}" if kept else "" for kept in ends]
        table.add_row("test loss", *losses)
    else:
        table.add_row("test accuracy", *map(_percent, (result.lwt_accuracy, result.ft_accuracy)))
    if done.paper is not None:
        table.add_row("the paper's", *map(_percent, done.paper))
    table.add_row("seconds", "", f"{result.seconds:.1f}")
    if done.model is not None:
        table.add_row("kept in", Text(str(done.model.parent)))
    if result.failed:
        table.add_row(Text("failed", "bold yellow"), Text(result.failed))
        table.add_row(Text("try", "bold yellow"), Text(done.history.advice or ""))
    return table


def _percent(value: float | None) -> str:
    return "×" if value is None else f"{value:.2f} %"


@app.command()
def predict(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="What `ftnn train --out` kept: the folder or the file.")
    ],
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="A table, a folder of IDX files, or mnist: its test images.")
    ],
    proba: Annotated[bool, typer.Option(help="The probability of each class, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document instead of lines.")] = False,
) -> None:
    """Answer with a model that `ftnn train --out` kept: a line for each row of the data."""
    from ftnn.training import _command

    found = _command.predict(model, data)
    table = found.probabilities if proba else None
    if as_json:
        shares = None if table is None else [[float(share) for share in row] for row in table]
        document = {"predictions": found.answers, "classes": found.classes, "accuracy": found.accuracy}
        _print_json(document if shares is None else {**document, "probabilities": shares})
    else:
        for number, answer in enumerate(found.answers):
            shares = "" if table is None else "," + ",".join(f"{share:.6g}" for share in table[number])
            print(f"{answer}{shares}")
    if found.accuracy is not None:
        print(f"accuracy {found.accuracy:.2f} %", file=sys.stderr)


# --- ftnn inspect ---


@app.command()
def inspect(
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help="What `ftnn train --out` or ftnn.save kept: folder or file."),
    ],
    data: Annotated[
        str | None,
        typer.Option(
            metavar="mnist|DIR|FILE", help="Count who sleeps on these: test images, or a table's rows."
        ),
    ] = None,
    sympy: Annotated[bool, typer.Option("--sympy", help="Write a small network out as formulas.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="The same in LaTeX.")] = False,
    digits: Annotated[int, typer.Option(help="Significant digits of parameters in formulas.")] = 3,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the most influential connections: .png, .svg or .pdf."),
    ] = None,
    prune: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Save the model without its dead connections.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document instead of text.")] = False,
) -> None:
    """Look into a model: dead, sleeping and awake connections, plots, formulas, pruning."""
    from ftnn.inspect import _command

    if sympy and latex:
        raise typer.BadParameter("--sympy and --latex exclude each other: one way to write it out")
    form = "sympy" if sympy else "latex" if latex else None
    found = _command.inspect(model, data, form=form, digits=digits, plot_file=plot, prune_file=prune)
    if as_json:
        _print_json(found.document())
        return
    samples = "" if found.samples is None else f", on {found.samples:,} samples"
    print(f"{found.kind}, {found.parameters:,} parameters{samples}")
    _print(_census_table(*found.census.table()))
    if found.outputs is not None:
        for n, text in enumerate(found.inputs or ()):
            print(f"x{n} = {text}")
        for n, text in enumerate(found.outputs):
            print(f"y{n} = {text}")
    for path in found.written:
        print(f"written: {path}", file=sys.stderr)


def _census_table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> Table:
    """A row for each layer; on a narrow screen a line for each of its numbers."""
    widths = [max(map(len, column)) + 2 for column in zip(heads, *rows, strict=True)]
    console = Console()
    if console.is_terminal and sum(widths) - widths[1] + 20 > console.width:  # the function may be folded
        table = Table(box=None, pad_edge=False, show_header=False)
        for row in rows:
            for head, cell in zip(heads, row, strict=True):
                table.add_row(Text(head, "bold cyan"), Text(cell, "bold" if head == "layer" else ""))
        return table
    table = Table(*heads, box=None, pad_edge=False)
    table.columns[0].style = "bold cyan"
    for number, column in enumerate(table.columns):
        column.no_wrap = number != 1
        column.justify = "right" if number > 2 else "left"
    for row in rows:
        table.add_row(*map(Text, row))  # as texts: brackets would be markup
    return table


# --- as JSON ---


def _entry(name: str) -> dict[str, Any]:
    return {"name": name, **_described(catalogue[name])}


def _described(function: Function) -> dict[str, Any]:
    plan = function.plan
    return {
        "formula": function.formula,
        "parameters": function.init,
        "constants": function.choices,
        "computed": {"kind": plan.kind, "gemms": plan.gemms, "reason": plan.reason},
    }


def _explained(explained: Explanation) -> dict[str, Any]:
    return {
        **_described(explained.function),
        "x": explained.x,
        "derivatives": {name: str(expr) for name, expr in explained.derivatives.items()},
        "reaches_zero": explained.reaches_zero,
        "poles": [{"where": where, "draws": draws} for where, draws in explained.poles],
        "jumps": [{"where": where, "draws": draws} for where, draws in explained.jumps],
        "overflow": explained.overflows
        and {
            "example": explained.overflows[0],
            # JSON has no infinity: null is what float64 cannot hold either.
            "largest": explained.overflows[1] if math.isfinite(explained.overflows[1]) else None,
        },
        "sleeps": explained.sleeps,
        "dead": explained.dead,
        "can_die": explained.can_die or None,
        "can_revive": explained.can_revive if explained.can_die else None,
    }


# --- out ---


def _print(shown: Table) -> None:
    console = Console(highlight=False)
    if console.is_terminal:
        console.print(shown)
        return
    console.width = _WIDE
    with console.capture() as captured:
        console.print(shown)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def _print_json(document: dict[str, Any]) -> None:
    print(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))


def _fail(error: FtnnError) -> NoReturn:
    """Say what is wrong, in red; a quoted formula and the carets under it are cut, and never folded."""
    console = Console(stderr=True, highlight=False)
    message = error.message if isinstance(error, FormulaError) else str(error)
    console.print(Text(f"error: {message}", "red"), soft_wrap=not console.is_terminal)
    if isinstance(error, FormulaError):
        # Two columns before it, and an ellipsis at either end.
        quoted = error.quoted(min(console.width - 4, 100)) if console.is_terminal else error.quoted()
        console.print(Text(quoted, "red"), soft_wrap=True)
    raise typer.Exit(2)
