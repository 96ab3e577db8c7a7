"""The command `ftnn`: thin, over what the package does."""

from __future__ import annotations

import io
import json
import math
import sys
from collections import defaultdict
from collections.abc import Mapping
from typing import Annotated, Any, NoReturn

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
