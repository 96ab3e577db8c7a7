"""`ftnn train`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ftnn import _atomic
from ftnn.cli._app import Json, app
from ftnn.cli._function_options import Constant, Init, bounds_from, function_from
from ftnn.cli._model_files import CHECKPOINT, MODEL
from ftnn.cli._results import errors_on_test, result_table
from ftnn.cli._screen import say, show, show_json
from ftnn.cli._table_options import Decimal, Separator, character
from ftnn.errors import FtnnError, InterruptedByUserError
from ftnn.formula import catalogue
from ftnn.training._settings import DESCRIPTIONS, Settings

if TYPE_CHECKING:
    from ftnn.nn import Network


@app.command()
def train(
    function: Annotated[
        str | None,
        typer.Option(
            help="A catalogue name (see `ftnn functions`) or a formula, with ranges if wanted: "
            "FORMULA where q in [-3, 3]. Default: F07; for tables F16."
        ),
    ] = None,
    init: Init = None,
    constant: Constant = None,
    activation: Annotated[
        str | None,
        typer.Option(help="logistic, relu, tanh, or a formula in x. Default: logistic; for tables relu."),
    ] = None,
    layers: Annotated[int, typer.Option(help="Number of hidden layers.")] = 1,
    width: Annotated[
        int | None, typer.Option(help="Units in each hidden layer. Default: 128; for tables 200.")
    ] = None,
    gamma: Annotated[float | None, typer.Option(help=DESCRIPTIONS["gamma"])] = None,
    data: Annotated[
        str,
        typer.Option(
            metavar="mnist[:N]|DIR|FILE",
            help="MNIST or its first N training images, a folder of IDX files, or a CSV or Parquet file.",
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
            "otherwise classification; required if it has more than 20 different whole numbers."
        ),
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Leave out this column. Can be repeated.")
    ] = None,
    id: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Leave out this column, and show it next to predictions."),
    ] = None,
    categorical: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Use the values of this column as categories, although they are numbers. Can be repeated.",
        ),
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="A table to test on. Default: rows of --data that do not train."),
    ] = None,
    test_size: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE|N",
            help="The share or number of rows of a table to test on, chosen at random by --seed. "
            "Default: 0.2. Images have their own test images.",
        ),
    ] = None,
    separator: Separator = None,
    decimal: Decimal = None,
    samples: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Use only the first N training samples; the test samples stay the same."
        ),
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
            help="Epochs; with layerwise, per hidden layer; with lm and lbfgs, iterations. Default: 10, "
            "for tables at least 1,000 steps; layerwise and joint: 15; lm and lbfgs: 200."
        ),
    ] = None,
    fine_tuning_epochs: Annotated[
        int | None, typer.Option(help="Maximum epochs of fine-tuning, for layerwise. Default: 15.")
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(help=DESCRIPTIONS["batch_size"] + " Default: 32, for tables 16 to 64; else 16."),
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
    loss: Annotated[
        str | None,
        typer.Option(
            help="squared, absolute, huber, or a formula in an output y and its target t, for a regression. "
            "Default: squared; for classes softmax."
        ),
    ] = None,
    weight_decay: Annotated[
        float | None,
        typer.Option(help=DESCRIPTIONS["weight_decay"] + " Default: 0 or 0.1 by function; for tables 0.3."),
    ] = None,
    clip_norm: Annotated[
        float | None, typer.Option(help=DESCRIPTIONS["clip_norm"] + " Default: 1 for direct.")
    ] = None,
    normalise: Annotated[
        bool | None, typer.Option(help=DESCRIPTIONS["normalise"] + " Default: yes for direct.")
    ] = None,
    calibrate: Annotated[
        bool | None, typer.Option(help=DESCRIPTIONS["calibrate"] + " Default: yes for the others.")
    ] = None,
    starts: Annotated[int | None, typer.Option(help=DESCRIPTIONS["starts"] + " Default: 4.")] = None,
    bounds: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=LOW,HIGH",
            help="The bounds of a parameter, only for lm: q=0,1, or q=0, without an upper one. "
            "Can be repeated.",
        ),
    ] = None,
    engine: Annotated[
        str, typer.Option(help="compiled (CPU only), torch, or auto: compiled where possible.")
    ] = "auto",
    as_json: Json = False,
) -> None:
    """Train a network, on MNIST (included) or your own data.

    By default, all layers train at once, with AdamW; --gamma selects the paper's layer-wise method.

    Columns of a table are standardised, texts become categories, and missing values are filled in; all of it
    is saved with the model. A fifth of the rows is held out for testing: see --test-size and --test.
    """
    from ftnn.data._by_name import are_images, training_data
    from ftnn.data._paper import paper_accuracies
    from ftnn.data._training_table import TableOptions
    from ftnn.nn import Network, save
    from ftnn.training import digest, fit, initialise
    from ftnn.training._checks import check_sizes
    from ftnn.training._losses import loss_for, loss_formula

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
        "weight_decay": weight_decay,
        "clip_norm": clip_norm,
        "normalise": normalise,
        "calibrate": calibrate,
        "starts": starts,
        "bounds": bounds_from(bounds),
    }
    settings = Settings(**options)
    if fine_tuning_epochs is not None:
        options["epochs"] = (settings.epochs or (0, 0))[0], fine_tuning_epochs
    settings = Settings(**options)
    if loss is not None:
        loss_formula(loss)
    shape = _IMAGES if are_images(data) else _for_tables()
    function, activation = function or shape.function, activation or shape.activation
    connections = function_from(function, init, constant)
    width = shape.width if width is None else width
    check_sizes(layers, width)
    if out is not None:
        _make_folder(out)

    table = TableOptions(
        target=target,
        task=task,
        drop=tuple(drop or ()),
        id=id,
        categorical=tuple(categorical or ()),
        test=test,
        test_size=test_size,
        separator=character(separator),
        decimal=decimal,
    )
    prepared = training_data(data, table, seed, samples)
    for note in prepared.notes:
        say(note, to_stderr=True)
    preparation, classes = prepared.preparation, prepared.preparation.classes
    net = Network(
        prepared.x.shape[1],
        [width] * layers,
        1 if classes is None else len(classes),
        function=connections,
        activation=activation,
    )
    initialise(net, seed)
    if preparation.columns is not None and settings.solver == "direct":
        options = _settings_for_tables(options, len(prepared.x), net)
    with _resumable(out):
        history = fit(
            net,
            prepared.x,
            prepared.y,
            test=(prepared.test_x, prepared.test_y),
            loss=loss_for(loss, classes=classes is not None),
            engine=engine,  # pyright: ignore[reportArgumentType]  # checked there
            checkpoint=None if out is None else out / CHECKPOINT,
            progress=True,
            **options,
        )
    seconds = time.perf_counter() - start
    errors = None if classes is not None else errors_on_test(net, prepared)
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
        "rmse": None if errors is None else errors[0],
        "r2": None if errors is None else errors[1],
        "training_samples": len(prepared.x),
        "test_samples": len(prepared.test_x),
        "seconds": seconds,
        "failed": history.failed,
        "converged": history.converged,
        "notes": history.notes,
        "digest": digest(net),
    }
    if out is not None:
        notes = {"preparation": asdict(preparation), "result": result, "csv": asdict(table.format)}
        if history.covariance is not None:
            notes |= history.covariance.as_notes()
        save(net, out / MODEL, notes=notes)
        _atomic.write_or_explain(out / "history.json", history.to_json().encode(), FtnnError)
    if as_json:
        show_json(result)
        return
    same_settings = width == _IMAGES.width and settings == Settings(gamma=gamma, seed=seed)
    same_settings = same_settings and loss is None and connections == catalogue.get(function)
    matches_paper = data == "mnist" and samples in (None, 50_000) and same_settings
    paper = None
    if matches_paper and settings.gamma is not None:
        paper = paper_accuracies(function, activation, layers, settings.gamma)
    show(result_table(history, preparation.task, paper, errors, prepared.tested_on, seconds, out))


@contextlib.contextmanager
def _resumable(out: Path | None) -> Generator[None]:
    """Say after an interruption how to continue."""
    try:
        yield
    except KeyboardInterrupt:
        if out is None:
            raise
        raise InterruptedByUserError(
            f"interrupted; {out / CHECKPOINT} has the progress so far: repeat the command to continue"
        ) from None


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


@dataclass(frozen=True)
class _Shape:
    """A network's defaults."""

    function: str
    activation: str
    width: int


_IMAGES = _Shape("F07", "logistic", 128)


def _for_tables() -> _Shape:
    """The estimators' defaults."""
    from ftnn.estimators import Estimator

    defaults: Any = Estimator()
    return _Shape(defaults.function, defaults.activation, defaults.hidden_layer_sizes[0])


def _settings_for_tables(options: dict[str, Any], samples: int, net: Network) -> dict[str, Any]:
    """The settings of direct training, chosen for a number of samples as the estimators do."""
    from ftnn.estimators import Estimator
    from ftnn.estimators._parameters import settings_for

    parameters = Estimator().get_params(deep=False) | options
    return {**settings_for(parameters, samples, net), "seed": options["seed"]}
