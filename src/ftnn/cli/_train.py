"""`ftnn train`."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from ftnn import _atomic
from ftnn.cli._app import Json, app
from ftnn.cli._screen import show, show_json, text
from ftnn.errors import FtnnError
from ftnn.training._settings import DESCRIPTIONS, Settings

if TYPE_CHECKING:
    from ftnn.training import History


@app.command()
def train(
    function: Annotated[
        str, typer.Option(help="A catalogue name (see `ftnn functions`) or a formula.")
    ] = "F07",
    activation: Annotated[str, typer.Option(help="logistic, relu, tanh, or a formula in x.")] = "logistic",
    layers: Annotated[int, typer.Option(help="Number of hidden layers.")] = 1,
    width: Annotated[int, typer.Option(help="Units in each hidden layer.")] = 128,
    gamma: Annotated[float | None, typer.Option(help=DESCRIPTIONS["gamma"])] = None,
    data: Annotated[
        str,
        typer.Option(
            metavar="mnist|DIR|FILE", help="MNIST, a folder of IDX files, or a CSV or Parquet file."
        ),
    ] = "mnist",
    target: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="The column to predict; required for a CSV or Parquet file."),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            help="classification or regression. Default: regression if the target has decimal numbers, "
            "otherwise classification."
        ),
    ] = None,
    samples: Annotated[
        int | None, typer.Option(metavar="N", help="Use only the first N training samples.")
    ] = None,
    seed: Annotated[int, typer.Option(help=DESCRIPTIONS["seed"])] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Save the model, its history and a checkpoint in this folder. Repeat the command to resume.",
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            help="Epochs; with layerwise, per hidden layer; with lm and lbfgs, iterations. "
            "Default: 10; layerwise and joint: 15; lm and lbfgs: 200."
        ),
    ] = None,
    fine_tuning_epochs: Annotated[
        int | None, typer.Option(help="Maximum epochs of fine-tuning, for layerwise. Default: 15.")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help=DESCRIPTIONS["batch_size"] + " Default: 32; layerwise and joint: 16.")
    ] = None,
    solver: Annotated[
        str | None, typer.Option(help=DESCRIPTIONS["solver"] + " Default: direct; with --gamma: layerwise.")
    ] = None,
    optimizer: Annotated[
        str | None, typer.Option(help=DESCRIPTIONS["optimizer"] + " Default: adamw, or sgd if not direct.")
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help=DESCRIPTIONS["learning_rate"] + " Default: 0.003 to 0.02 for direct.")
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            help=DESCRIPTIONS["schedule"]
            + " Default: one-cycle; joint and layerwise: constant, but halving for fine-tuning."
        ),
    ] = None,
    normalise: Annotated[
        bool | None, typer.Option(help=DESCRIPTIONS["normalise"] + " Default: yes for direct.")
    ] = None,
    calibrate: Annotated[
        bool | None, typer.Option(help=DESCRIPTIONS["calibrate"] + " Default: yes for the others.")
    ] = None,
    starts: Annotated[int | None, typer.Option(help=DESCRIPTIONS["starts"] + " Default: 4.")] = None,
    engine: Annotated[
        str, typer.Option(help="compiled (CPU only), torch, or auto: compiled where possible.")
    ] = "auto",
    as_json: Json = False,
) -> None:
    """Train a network, on MNIST (included) or your own data.

    By default, all layers train at once, with AdamW; --gamma selects the paper's layer-wise method.
    """
    from ftnn.data._by_name import training_data
    from ftnn.data._paper import paper_accuracies
    from ftnn.nn import Network, save
    from ftnn.training import digest, fit, initialise
    from ftnn.training._checks import check_sizes

    start = time.perf_counter()
    if task not in (None, "classification", "regression"):
        raise typer.BadParameter(
            f"unknown task {task!r}; expected classification or regression", param_hint="--task"
        )
    # Check the settings before reading any data.
    options: dict[str, Any] = {
        "gamma": gamma,
        "epochs": epochs,
        "batch_size": batch_size,
        "seed": seed,
        "solver": solver,
        "optimizer": optimizer,
        "learning_rate": learning_rate,
        "schedule": schedule,
        "normalise": normalise,
        "calibrate": calibrate,
        "starts": starts,
    }
    settings = Settings(**options)
    if fine_tuning_epochs is not None:
        options["epochs"] = (settings.epochs or (0, 0))[0], fine_tuning_epochs
    settings = Settings(**options)
    check_sizes(layers, width)
    if out is not None:
        _make_folder(out)

    prepared = training_data(data, target, task, seed, samples)
    classes = prepared.preparation.classes
    net = Network(
        prepared.x.shape[1],
        [width] * layers,
        1 if classes is None else len(classes),
        function=function,
        activation=activation,
    )
    initialise(net, seed)
    history = fit(
        net,
        prepared.x,
        prepared.y,
        test=(prepared.test_x, prepared.test_y),
        loss="squared" if classes is None else "softmax",
        engine=engine,  # pyright: ignore[reportArgumentType]  # checked there
        checkpoint=None if out is None else out / "checkpoint.safetensors",
        progress=True,
        **options,
    )
    seconds = time.perf_counter() - start
    result = {
        "function": function,
        "activation": activation,
        "hidden_layers": layers,
        "solver": settings.solver,
        "gamma": settings.gamma,
        "seed": seed,
        "accuracy": history.accuracy,
        "lwt_accuracy": history.lwt_accuracy,
        "ft_accuracy": history.ft_accuracy,
        "seconds": seconds,
        "failed": history.failed,
        "digest": digest(net),
    }
    if out is not None:
        notes = {"preparation": asdict(prepared.preparation), "result": result}
        save(net, out / "model.safetensors", notes=notes)
        _atomic.write_or_explain(out / "history.json", history.to_json().encode(), FtnnError)
    if as_json:
        show_json(result)
        return
    same_settings = width == 128 and settings == Settings(gamma=gamma, seed=seed)
    matches_paper = data == "mnist" and samples is None and same_settings
    paper = None
    if matches_paper and settings.gamma is not None:
        paper = paper_accuracies(function, activation, layers, settings.gamma)
    show(_table(history, paper, seconds, out))


def _make_folder(out: Path) -> None:
    """Check before training that results can be saved."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / ".probe"
        _atomic.write(probe, b"", durable=False)
        probe.unlink()
    except OSError as error:
        raise FtnnError(
            f"cannot write to --out {out}: {error.strerror or error}; choose another folder"
        ) from error


def _table(
    history: History, paper: tuple[float | None, float | None] | None, seconds: float, out: Path | None
) -> Table:
    is_layerwise = any(epoch.stage == "lwt" for epoch in history.epochs)
    columns = ("layer-wise", "fine-tuned") if is_layerwise else ("",)
    table = Table("", *columns, box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    by_layer = [epoch for epoch in history.epochs if epoch.stage == "lwt"]
    stages = [by_layer, history.epochs] if is_layerwise else [history.epochs]
    if history.epochs and history.epochs[-1].train_accuracy is None:
        table.add_row("test loss", *(f"{epochs[-1].test_loss:.4g}" if epochs else "" for epochs in stages))
    else:
        accuracies = (history.lwt_accuracy, history.ft_accuracy) if is_layerwise else (history.accuracy,)
        table.add_row("test accuracy", *map(_percent, accuracies))
    if paper is not None:
        table.add_row("the paper's", *map(_percent, paper))
    table.add_row("seconds", *[""] * (len(columns) - 1), f"{seconds:.1f}")
    if out is not None:
        table.add_row("saved in", text(str(out)))
    if history.failed:
        table.add_row(text("failed", "bold yellow"), text(history.failed))
        table.add_row(text("try", "bold yellow"), text(history.advice or ""))
    return table


def _percent(value: float | None) -> str:
    return "×" if value is None else f"{value:.2f} %"
