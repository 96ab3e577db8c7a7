"""`ftnn predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ftnn.cli._app import Json, app
from ftnn.cli._screen import say, show_json
from ftnn.errors import ModelFileError


@app.command()
def predict(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="The folder from `ftnn train --out`, or its model file.")
    ],
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help="A CSV or Parquet file, a folder of IDX files, or mnist for its test images."
        ),
    ],
    proba: Annotated[bool, typer.Option(help="Also print the probability of each class.")] = False,
    as_json: Json = False,
) -> None:
    """Predict with a trained model, one line per row of the data.

    Fails if the model's outputs are not finite for some rows.
    """
    import numpy as np
    import torch

    from ftnn.data import Preparation
    from ftnn.data._by_name import model_inputs
    from ftnn.nn import Network, load, notes_of
    from ftnn.training._outcome import classes_of, require_finite

    path = model / "model.safetensors" if model.is_dir() else model
    net, preparation = load(path), Preparation.of(notes_of(path), path)
    if not isinstance(net, Network):
        raise ModelFileError(f"{path} holds a {type(net).__name__}, not a Network")
    classes = preparation.classes
    if classes is not None and len(classes) != net.out_features:
        raise ModelFileError(
            f"{path} lists {len(classes)} classes, but its network has {net.out_features} outputs"
        )
    x, labels, note = model_inputs(data, preparation, net.in_features, with_labels=True)
    with torch.no_grad():
        outputs = require_finite(net(torch.as_tensor(x, dtype=net.output.weight.dtype)), f"the model {path}")
    predictions: list[Any]
    accuracy = probabilities = None
    if classes is None:
        predictions = outputs[:, 0].tolist()
    else:
        predictions = [classes[int(number)] for number in classes_of(outputs)]
        if labels is not None:
            accuracy = 100 * float(np.mean(np.array(predictions) == labels))
        if proba:
            probabilities = torch.softmax(outputs.double(), 1).tolist()
    if as_json:
        document = {"predictions": predictions, "classes": classes, "accuracy": accuracy}
        show_json(document if probabilities is None else {**document, "probabilities": probabilities})
    else:
        for number, prediction in enumerate(predictions):
            row = "" if probabilities is None else "".join(f",{p:.6g}" for p in probabilities[number])
            say(f"{prediction}{row}")
    if note is not None:
        say(note, to_stderr=True)
    if accuracy is not None:
        say(f"accuracy {accuracy:.2f} %", to_stderr=True)
