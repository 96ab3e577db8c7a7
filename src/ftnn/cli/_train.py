"""`ftnn train` and `ftnn predict`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from ftnn.cli._app import app
from ftnn.cli._screen import say, show, show_json, text

if TYPE_CHECKING:
    from ftnn.training._command import Trained


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
    samples: Annotated[
        int | None, typer.Option(metavar="N", help="Learn from the first N training samples only.")
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
        samples=samples,
        seed=seed,
        out=out,
        epochs=(epochs, fine_tuning_epochs),
        batch_size=batch_size,
        solver=solver,
        engine=engine,
        progress=True,
    )
    if as_json:
        show_json(asdict(done.result))
        return
    show(_trained_table(done))


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
        table.add_row("kept in", text(str(done.model.parent)))
    if result.failed:
        table.add_row(text("failed", "bold yellow"), text(result.failed))
        table.add_row(text("try", "bold yellow"), text(done.history.advice or ""))
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
    """Answer with a model that `ftnn train --out` kept: a line for each row of the data.

    An error says so if the model's outputs are not finite for some rows: then there is no answer.
    """
    from ftnn.training import _command

    found = _command.predict(model, data)
    table = found.probabilities if proba else None
    if as_json:
        shares = None if table is None else [[float(share) for share in row] for row in table]
        document = {"predictions": found.answers, "classes": found.classes, "accuracy": found.accuracy}
        show_json(document if shares is None else {**document, "probabilities": shares})
    else:
        for number, answer in enumerate(found.answers):
            shares = "" if table is None else "," + ",".join(f"{share:.6g}" for share in table[number])
            say(f"{answer}{shares}")
    if found.note is not None:
        say(found.note, beside=True)
    if found.accuracy is not None:
        say(f"accuracy {found.accuracy:.2f} %", beside=True)
