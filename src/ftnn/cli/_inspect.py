"""`ftnn inspect`."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ftnn import _atomic
from ftnn.cli._app import Json, app
from ftnn.cli._model_files import csv_format, model_file
from ftnn.cli._screen import say, show, show_json, text
from ftnn.cli._standard_errors import show_standard_errors, standard_errors
from ftnn.cli._table_options import Decimal, Separator
from ftnn.errors import FtnnError, ModelFileError

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from ftnn.data import Preparation

_PLOT_FORMATS = ("pdf", "png", "svg")


@app.command()
def inspect(
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help="A folder from `ftnn train --out`, or a model file."),
    ],
    data: Annotated[
        str | None,
        typer.Option(
            metavar="mnist|DIR|FILE",
            help="Data on which to find sleeping connections: the test images or table rows.",
        ),
    ] = None,
    separator: Separator = None,
    decimal: Decimal = None,
    sympy: Annotated[
        bool, typer.Option("--sympy", help="Print the outputs as formulas of the inputs (small networks).")
    ] = False,
    latex: Annotated[bool, typer.Option("--latex", help="The same in LaTeX.")] = False,
    digits: Annotated[int, typer.Option(help="Significant digits of numbers in formulas.")] = 3,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Plot the most influential connections: .png, .svg or .pdf."),
    ] = None,
    prune: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Save the model without its dead connections.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Examine a model: count its connections by state, plot them, print formulas, prune.

    Dead: neither inputs nor training change its output. Sleeping: constant on all of --data. Awake: the rest.
    """
    from ftnn import inspect
    from ftnn.data import Preparation
    from ftnn.data._by_name import model_data
    from ftnn.inspect._layers import layers_of
    from ftnn.nn import load, notes_of, save

    if sympy and latex:
        raise typer.BadParameter("--sympy and --latex cannot be combined")
    path = model_file(model)
    net, notes = load(path), notes_of(path)
    layers_of(net)  # refuses networks with memory before reading or writing anything
    if plot is not None and plot.suffix.lower().lstrip(".") not in _PLOT_FORMATS:
        raise FtnnError(f"--plot {plot}: expected a name ending in .{', .'.join(_PLOT_FORMATS)}")
    # A model saved from Python has no preparation: its inputs are used unchanged.
    preparation = Preparation.of(notes, path) if "preparation" in notes else None
    x = None
    if data is not None:
        how = csv_format(notes, separator, decimal)
        x = model_data(data, preparation, getattr(net, "in_features", None), how=how).x
    census = inspect.connections(net, x)
    outputs = None
    if sympy or latex:
        outputs = inspect.latex(net, digits) if latex else list(map(str, inspect.sympy(net, digits)))
    if plot is not None:
        _plot(net, plot, x, None if preparation is None else preparation.input_names)
    if prune is not None:
        save(inspect.prune(net), prune, notes={n: v for n, v in notes.items() if n != "standard_errors"})
    document = {
        "model": str(path),
        "type": type(net).__name__,
        "parameters": sum(p.numel() for p in net.parameters()),
        "samples": None if x is None else len(x),
        "layers": [asdict(counts) for counts in census],
        "standard_errors": standard_errors(net, notes),
        "inputs": None if preparation is None else _inputs(preparation),
        "outputs": outputs,
        "predictions": None if preparation is None else _targets(preparation),
        "written": [str(file) for file in (plot, prune) if file is not None],
    }
    if as_json:
        show_json(document)
    else:
        _show(document, *census.table())


def _show(document: dict[str, Any], heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    samples = "" if document["samples"] is None else f", on {document['samples']:,} samples"
    say(f"{document['type']}, {document['parameters']:,} parameters{samples}")
    show(_census_table(heads, rows))
    if document["standard_errors"] is not None:
        show_standard_errors(document["standard_errors"])
    if document["outputs"] is not None:
        for n, formula in enumerate(document["inputs"] or ()):
            say(f"x{n} = {formula}")
        for n, formula in enumerate(document["outputs"]):
            say(f"y{n} = {formula}")
        for formula in document["predictions"] or ():
            say(f"prediction = {formula}")
    for file in document["written"]:
        say(f"wrote {file}", to_stderr=True)


def _inputs(preparation: Preparation) -> list[str] | None:
    """How x0, x1, … are computed from the columns of a table."""
    names, scaling = preparation.input_names, preparation.inputs
    if names is None:
        return None
    if scaling is None:
        return list(names)
    limited = "" if scaling.limit is None else f", limited to ±{scaling.limit:g}"
    return [
        f"({name} {'-' if mean >= 0 else '+'} {_offset(abs(mean), scale)})/{scale:.6g}{limited}"
        for name, mean, scale in zip(names, scaling.mean, scaling.scale, strict=True)
    ]


def _targets(preparation: Preparation) -> list[str] | None:
    """How predictions are computed from y0, y1, …."""
    scaling = preparation.targets
    if scaling is None:
        return None
    return [
        f"{_offset(mean, scale)} + {scale:.6g}*y{n}"
        for n, (mean, scale) in enumerate(zip(scaling.mean, scaling.scale, strict=True))
    ]


def _offset(mean: float, scale: float) -> str:
    """A mean with six digits, or more if the numbers differ only in later ones."""
    size = abs(mean) / scale
    return f"{mean:.{6 + max(0, math.ceil(math.log10(size)) if size else 0)}g}"


def _plot(net: nn.Module, file: Path, x: np.ndarray[Any, Any] | None, features: Sequence[str] | None) -> None:
    """Plot a row per layer; the first one over the range of the data, with the names of its inputs."""
    from matplotlib.figure import Figure

    from ftnn.inspect import plot
    from ftnn.inspect._layers import layers_of

    layers = layers_of(net)
    figure = Figure(figsize=(9.5, 3.8 * len(layers)), layout="constrained")
    for n, (name, layer) in enumerate(layers):
        ax = figure.add_subplot(len(layers), 1, n + 1)
        low, high = (-1.0, 1.0) if x is None or n else (float(x.min()), float(x.max()))
        names = features if features is not None and n == 0 and len(features) == layer.in_features else None
        plot(layer, x=(low, high) if low < high else (-1.0, 1.0), ax=ax, features=names)
        ax.set_title(f"{name or 'layer'}   {ax.get_title()}", fontsize=11)
    content = io.BytesIO()
    figure.savefig(content, format=file.suffix.lower().lstrip("."), dpi=120)
    _atomic.write_or_explain(file, content.getvalue(), ModelFileError)


def _census_table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> Table:
    """A row per layer; on a narrow terminal, a line per number."""
    widths = [max(map(len, column)) + 2 for column in zip(heads, *rows, strict=True)]
    console = Console()
    if console.is_terminal and sum(widths) - widths[1] + 20 > console.width:  # the function may wrap
        table = Table(box=None, pad_edge=False, show_header=False)
        for row in rows:
            for head, cell in zip(heads, row, strict=True):
                table.add_row(text(head, "bold cyan"), text(cell, "bold" if head == "layer" else ""))
        return table
    table = Table(*heads, box=None, pad_edge=False)
    table.columns[0].style = "bold cyan"
    for number, column in enumerate(table.columns):
        column.no_wrap = number != 1
        column.justify = "right" if number > 2 else "left"
    for row in rows:
        table.add_row(*map(text, row))
    return table
