"""`ftnn predict`."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ftnn.cli._app import Json, app
from ftnn.cli._model_files import csv_format, model_file
from ftnn.cli._screen import NO_R2, amount, r_squared, say, show_json
from ftnn.cli._table_options import Decimal, Separator
from ftnn.errors import ModelFileError

if TYPE_CHECKING:
    from torch import nn

    from ftnn.data import Preparation


@app.command()
def predict(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", help="The folder from `ftnn train --out`, or a model file, also from Python."
        ),
    ],
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help="A CSV or Parquet file, a folder of IDX files, or mnist for its test images."
        ),
    ],
    proba: Annotated[bool, typer.Option(help="Also print the probability of each class.")] = False,
    id: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Print this column before each prediction. Default: --id of training."
        ),
    ] = None,
    separator: Separator = None,
    decimal: Decimal = None,
    as_json: Json = False,
) -> None:
    """Predict with a trained model, one line per row of the data.

    Takes rows as they were in training: raw, in any order of columns, with or without the target. If the
    target is there, prints how good the predictions are, on standard error.
    Fails if the model's outputs are not finite for some rows.
    """
    import numpy as np
    import torch

    from ftnn.data._by_name import are_images, errors_of, model_data
    from ftnn.nn import load, notes_of
    from ftnn.training._diagnosis import cause_in
    from ftnn.training._outcome import classes_of, require_finite

    path = model_file(model)
    net, notes = load(path), notes_of(path)
    preparation = _preparation(net, notes, path, images=are_images(data))
    classes = preparation.classes
    how = csv_format(notes, separator, decimal)
    rows = model_data(data, preparation, getattr(net, "in_features", None), id=id, how=how)
    like = next(net.parameters())
    with torch.no_grad():
        x = torch.as_tensor(rows.x, dtype=like.dtype)
        outputs = require_finite(net(x), f"the model {path}", lambda: cause_in(net, x.numpy()))
    accuracy = rmse = r2 = probabilities = None
    predictions: list[Any]
    if classes is None:
        numbers = preparation.unscaled(outputs.numpy())
        predictions = (numbers[:, 0] if numbers.shape[1] == 1 else numbers).tolist()
        if rows.truth is not None and numbers.shape[1] == 1:
            rmse, r2 = errors_of(rows.with_truth(numbers)[:, 0], rows.truth)
    else:
        predictions = [classes[int(number)] for number in classes_of(outputs)]
        if rows.truth is not None:
            accuracy = 100 * float(np.mean(rows.with_truth(np.array(predictions)) == rows.truth))
        if proba:
            probabilities = torch.softmax(outputs.double(), 1).tolist()
    if as_json:
        document: dict[str, Any] = {"predictions": predictions, "classes": classes, "accuracy": accuracy}
        document |= {"rmse": rmse, "r2": r2}
        document |= {} if probabilities is None else {"probabilities": probabilities}
        show_json(document | ({} if rows.ids is None else {"ids": rows.ids}))
    else:
        for number, prediction in enumerate(predictions):
            cells = [] if rows.ids is None else [rows.ids[number]]
            cells += prediction if isinstance(prediction, list) else [prediction]
            cells += [] if probabilities is None else [f"{p:.6g}" for p in probabilities[number]]
            say(_line(cells))
    for note in rows.notes:
        say(note, to_stderr=True)
    if accuracy is not None:
        say(f"accuracy {accuracy:.2f} %", to_stderr=True)
    if rmse is not None:
        r2_text = f"; {NO_R2}" if r2 is None else f", R² {r_squared(r2)}"
        say(f"RMSE {amount(rmse)}{r2_text}", to_stderr=True)


def _preparation(net: nn.Module, notes: dict[str, Any], path: Path, *, images: bool) -> Preparation:
    """How the model takes its inputs. One without a description can only take images, as they are."""
    from ftnn.data import Preparation

    outputs = getattr(net, "out_features", None)
    if "preparation" not in notes and images and outputs is not None:
        return Preparation("classification", tuple(map(str, range(outputs))))
    preparation = Preparation.of(notes, path)
    if outputs is None:
        raise ModelFileError(f"{path} holds a {type(net).__name__}, not a Network")
    classes, targets = preparation.classes, preparation.targets
    if classes is not None and len(classes) != outputs:
        raise ModelFileError(f"{path} lists {len(classes)} classes, but its network has {outputs} outputs")
    if targets is not None and len(targets.mean) != outputs:
        raise ModelFileError(
            f"{path} scales {len(targets.mean)} targets, but its network has {outputs} outputs"
        )
    return preparation


def _line(cells: list[Any]) -> str:
    """A line of a CSV file; a single cell as it is."""
    if len(cells) == 1:
        return str(cells[0])
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(cells)
    return line.getvalue()
