"""`ftnn functions`."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.table import Table

from ftnn.cli._app import FUNCTION_EXAMPLES, Json, app
from ftnn.cli._function_options import Constant, Init, function_from
from ftnn.cli._screen import show, show_json, text
from ftnn.formula import Function, catalogue
from ftnn.formula._explain import Explanation
from ftnn.formula._function import Range
from ftnn.formula._plan import Plan

_CAUTIONS = ("at x = 0", "domain", "pole", "jump", "overflow", "sleep", "dead", "can die")
_MORE = """
[cyan]ftnn functions "p*exp(q*x)" --init q=-40,40 --x 0 10[/cyan]   with other ranges

[cyan]ftnn functions "rect(p*x + q)*u" --constant u=-1,1[/cyan]   with a constant u

[cyan]ftnn functions -- "-p*x"[/cyan]   a formula that starts with a minus
"""


@app.command(epilog=FUNCTION_EXAMPLES + _MORE)
def functions(
    function: Annotated[
        str | None,
        typer.Argument(
            metavar="FUNCTION",
            help="A catalogue name or a formula, with ranges if wanted: FORMULA where q in [-3, 3]. "
            "If omitted: list the catalogue.",
        ),
    ] = None,
    x: Annotated[
        tuple[float, float] | None,
        typer.Option(
            metavar="LOW HIGH",
            help="The range of inputs x to examine, and to choose ranges for. If omitted: -1 to 1, with the "
            "ranges that a layer draws from for standardised inputs.",
        ),
    ] = None,
    init: Init = None,
    constant: Constant = None,
    as_json: Json = False,
) -> None:
    """List the catalogue, or explain a function: its derivatives, how it is computed, and its pitfalls."""
    if function is None:
        if init or constant:
            raise typer.BadParameter("--init and --constant need a function")
        show_json({"functions": list(map(_entry, catalogue))}) if as_json else show(_catalogue_table())
        return
    explained = function_from(function, init, constant).explain(x)
    show_json(_explained(explained)) if as_json else show(_explained_table(explained))


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
        table.add_row(*map(text, cells))
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
    for label, line in explained.lines():
        caution = label in _CAUTIONS or (label == "zero" and not explained.reaches_zero)
        table.add_row(text(label, "bold yellow" if caution else "bold cyan"), text(line))
    return table


# --- as JSON ---


def _entry(name: str) -> dict[str, Any]:
    return {"name": name, **_described(catalogue[name], catalogue[name].init)}


def _described(function: Function, ranges: Mapping[str, Range]) -> dict[str, Any]:
    plan = function.plan
    return {
        "formula": function.formula,
        "parameters": dict(ranges),
        "constants": function.choices,
        "computed": {"kind": plan.kind, "gemms": plan.gemms, "reason": plan.reason},
    }


def _explained(explained: Explanation) -> dict[str, Any]:
    return {
        **_described(explained.function, explained.ranges),
        "gain": explained.gain,
        "holds": explained.holds,
        "x": explained.x,
        "derivatives": {name: str(expr) for name, expr in explained.derivatives.items()},
        "reaches_zero": explained.reaches_zero,
        "silent": explained.silent and {"sends": explained.silent[0], "size": explained.silent[1]},
        "outside_domain": explained.outside
        and dict(zip(("share", "draws", "example"), explained.outside, strict=True)),
        "poles": [{"where": where, "draws": draws} for where, draws in explained.poles],
        "jumps": [{"where": where, "draws": draws} for where, draws in explained.jumps],
        "overflow": explained.overflows
        and {
            "example": explained.overflows[0],
            # JSON has no infinity: null means that it overflows even float64.
            "largest": explained.overflows[1] if math.isfinite(explained.overflows[1]) else None,
        },
        "sleeps": explained.sleeps,
        "dead": explained.dead,
        "can_die": explained.can_die or None,
        "can_revive": explained.can_revive if explained.can_die else None,
    }
